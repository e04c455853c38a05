"""The cost of reading: requests of several sizes, timed anywhere in R."""

from collections.abc import Sequence
from time import perf_counter

import numpy as np
from numpy.typing import NDArray

from semistream.cost.factors import IoCurve
from semistream.joins.opened import Opened
from semistream.relation.layout import part_names
from semistream.relation.pagetable import CODES
from semistream.relation.reader import PageReader

_READ_PAGES = (1, 4, 16, 64, 256, 1024)  # pages of a request
_READS = 9  # of each size
_SEED = 7


def io_curve(opened: Opened, columns: Sequence[str]) -> tuple[IoCurve, float]:
    """Time requests of several sizes, anywhere in R, that fit the memory."""
    rng = np.random.default_rng(_SEED)
    reader = opened.reader
    schema = reader.manifest.schema
    indexes = [schema.get_field_index(name) for name in columns]
    stored = [i for i in indexes if i in reader.manifest.stored_fields]
    parts = [n for i in stored for n in part_names(i, schema.field(i).type).values()]
    parts = [name for name in [CODES, *parts] if reader.part_bytes(name, 0, reader.page_count)]
    sizes: list[float] = []
    seconds: list[float] = []
    spreads: list[float] = []
    counts = sorted({min(pages, reader.page_count) for pages in _READ_PAGES})
    for pages in counts:
        size = max(reader.most_part_bytes(name, pages) for name in parts)
        if sizes and size > opened.ledger.available_bytes:
            break
        buffer = np.empty(size, np.uint8)
        took, read = _timed_reads(reader, parts, pages, buffer, rng)
        sizes.append(float(np.mean(read)))
        seconds.append(float(np.median(took)))
        spreads.append(float(np.subtract(*np.percentile(took, [75, 25])) / np.median(took) / 2))
    reader.close()
    if len(sizes) == 1:
        sizes, seconds = [0.0, *sizes], [seconds[0] * 0.9, *seconds]
    rising = np.maximum.accumulate(seconds)
    return IoCurve(tuple(sizes), tuple(rising.tolist())), float(np.median(spreads))


def _timed_reads(
    reader: PageReader,
    parts: list[str],
    pages: int,
    buffer: NDArray[np.uint8],
    rng: np.random.Generator,
) -> tuple[list[float], list[int]]:
    took, read = [], []
    for i in range(_READS):
        name = parts[i % len(parts)]
        first = int(rng.integers(0, reader.page_count - pages + 1))
        for _ in range(2):  # the first time, checksums are compared as well: once per process
            started = perf_counter()
            size = reader.read_part(name, first, first + pages, buffer)
            seconds = perf_counter() - started
        took.append(seconds)
        read.append(size)
    return took, read
