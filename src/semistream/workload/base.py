"""A workload: a relation and the stream that refers to it, both reproducible by row number.

A stream is addressed by row numbers. Rows 5 to 9 are the same rows in every request and however the
stream is cut into batches, so that a source can be restarted, an experiment repeated, and an answer
checked. A generated stream achieves this by chunks: chunk c has its own random numbers, seeded with
(seed, c), and any range is a slice of the chunks that it touches.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from functools import lru_cache
from typing import Protocol

import numpy as np
import pyarrow as pa

from semistream.errors import OptionError

CHUNK_ROWS = 65_536


class Workload(Protocol):
    """A relation and the stream that refers to it, reproducible by row number."""

    @property
    def key(self) -> str:
        """The relation's key column."""

    @property
    def stream_key(self) -> str:
        """The stream's column that refers to it; usually of the same name."""

    @property
    def relation_rows(self) -> int:
        """The number of rows of the relation."""

    @property
    def relation_schema(self) -> pa.Schema:
        """The relation's columns."""

    @property
    def stream_schema(self) -> pa.Schema:
        """The stream's columns."""

    def relation_batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the relation, the same rows each time."""

    def stream_rows(self, first: int, count: int) -> pa.RecordBatch:
        """Return rows `first` to `first + count` of the stream, fewer only where it ends."""


class ChunkedStream(ABC):
    """A stream without end, made in chunks of `CHUNK_ROWS`.

    A subclass is a frozen dataclass: the process keeps its last four chunks, by the workload's
    settings, so that reading in order makes no chunk twice.
    """

    @property
    @abstractmethod
    def stream_schema(self) -> pa.Schema:
        """The stream's columns."""

    @abstractmethod
    def stream_chunk(self, number: int) -> pa.RecordBatch:
        """Make chunk `number`: rows ``number * CHUNK_ROWS`` and on, `CHUNK_ROWS` of them."""

    def stream_rows(self, first: int, count: int) -> pa.RecordBatch:
        """Return rows `first` to `first + count` of the stream."""
        check_range(first, count)
        end = first + count
        slices = []
        for number in range(first // CHUNK_ROWS, -(-end // CHUNK_ROWS)):
            begin = number * CHUNK_ROWS
            cut_from, cut_to = max(first - begin, 0), min(end - begin, CHUNK_ROWS)
            slices.append(_chunk(self, number).slice(cut_from, cut_to - cut_from))
        return one_batch(slices, self.stream_schema)


@lru_cache(maxsize=4)
def _chunk(stream: ChunkedStream, number: int) -> pa.RecordBatch:
    return stream.stream_chunk(number)


def chunk_rng(seed: int, number: int, purpose: int = 0) -> np.random.Generator:
    """Return the random numbers of one chunk; each purpose has its own."""
    return np.random.default_rng([seed, number, purpose] if purpose else [seed, number])


def chunk_ranges(rows: int) -> Iterator[tuple[int, int]]:
    """Yield each chunk's number and size, for a table of `rows` rows.

    >>> list(chunk_ranges(70_000))
    [(0, 65536), (1, 4464)]
    """
    for number in range(-(-rows // CHUNK_ROWS)):
        yield number, min(CHUNK_ROWS, rows - number * CHUNK_ROWS)


def random_bytes(rng: np.random.Generator, rows: int, width: int) -> pa.FixedSizeBinaryArray:
    """Return a column of `rows` values of `width` random bytes each."""
    data = pa.py_buffer(rng.bytes(rows * width))
    return pa.FixedSizeBinaryArray.from_buffers(pa.binary(width), rows, [None, data])


def one_batch(batches: list[pa.RecordBatch], schema: pa.Schema) -> pa.RecordBatch:
    """Return batches as one; a single batch is not copied."""
    if len(batches) == 1:
        return batches[0]
    table = pa.Table.from_batches(batches, schema).combine_chunks()
    columns = [c.chunk(0) if c.num_chunks else pa.array([], c.type) for c in table.columns]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def check_range(first: int, count: int) -> None:
    """Refuse a negative first row or count."""
    if first < 0 or count < 0:
        raise OptionError(
            f"stream_rows() needs a first row and a count of at least 0; got {first} and {count}"
        )


def stream_batches(
    workload: Workload, rows: int | None, batch_rows: int = CHUNK_ROWS
) -> Iterator[pa.RecordBatch]:
    """Yield the first `rows` rows of the stream in batches; None means without end.

    A stream that ends earlier ends the batches too.
    """
    if batch_rows < 1:
        raise OptionError(f"batch_rows must be at least 1; got {batch_rows}")
    first = 0
    while rows is None or first < rows:
        count = batch_rows if rows is None else min(batch_rows, rows - first)
        batch = workload.stream_rows(first, count)
        if batch.num_rows:
            yield batch
        if batch.num_rows < count:
            return
        first += count
