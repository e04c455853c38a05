"""The disk buffer: b pages of R in memory, keys first.

::

    load ──► codes of b pages ──► probed ──► rows that matched
                                                │ gather
    one column at a time, of the pages they lie on ──► arena ──► output

`load` reads only the key codes of the pages, 8 bytes a row. The columns that the join adds are
read when rows have matched, just for the pages on which they lie, one column at a time into one
arena that all columns share. So a scan of R costs the bytes of its keys plus the bytes of what
was hit, and the buffer holds the codes and the widest column of b pages, never whole rows.

With `Reading.whole_pages` it does as the papers do: `load` reads every column of the pages, asked
for or not, and the buffer holds them all.

Memory: codes (8 bytes a row) + the arena (the widest column's parts over b pages). Rows that were
gathered are new arrays and belong to the output buffer.
"""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from semistream.columns import (
    Encoding,
    encoding_of,
    join_bytes,
    join_fixed,
    nested_from_message,
    numpy_dtype,
    width_bytes,
)
from semistream.cost.conditions import READ_THROUGH_PAGES
from semistream.joins.front_kernels import tally
from semistream.joins.kernels import gather_bytes, plan_reads, starts_of
from semistream.joins.rows import gather_from_chunks
from semistream.joins.stopwatch import Stopwatch
from semistream.relation.layout import part_names
from semistream.relation.reader import CODES, PageReader
from semistream.relation.writer import CODE_BYTES

_ALIGN = 64


# If more of the pages than this were touched last time, their columns are worth announcing.
_MOST_TOUCHED = 0.5


def disk_buffer_bytes(
    reader: PageReader, columns: Sequence[str], pages: int, tallies: bool = False
) -> int:
    """Return what a disk buffer of this many pages takes."""
    arena = _arena_bytes(reader, columns, pages)
    codes = reader.most_part_bytes(CODES, pages)
    return codes + arena + (codes // CODE_BYTES if tallies else 0)


def _arena_bytes(reader: PageReader, columns: Sequence[str], pages: int) -> int:
    if reader.reading.whole_pages:
        return sum(slab_bytes(reader, c, pages) for c in reader.manifest.schema.names)
    return max((slab_bytes(reader, c, pages) for c in columns), default=0)


def slab_bytes(reader: PageReader, column: str, pages: int) -> int:
    """Return what one column takes in memory over any run of this many pages."""
    schema = reader.manifest.schema
    index = schema.get_field_index(column)
    if index not in reader.manifest.stored_fields:
        return 0
    names = part_names(index, schema.field(index).type)
    size = sum(_aligned(reader.most_part_bytes(name, pages)) for name in names.values())
    row_bytes = reader.most_part_bytes(CODES, pages)  # 8 bytes a row: the room for row starts
    if "lengths" in names:
        size += _aligned(row_bytes)
    if "validity" in names and reader.most_part_bytes(names["validity"], reader.page_count):
        size += _aligned(row_bytes // 8)
    return size


def value_bytes(reader: PageReader, column: str) -> float:
    """Return what a value of a relation's column takes in memory, on average over its pages."""
    dtype = reader.manifest.schema.field(column).type
    if encoding_of(dtype) is Encoding.FIXED:
        return width_bytes(dtype)
    return reader.average_value_bytes(column)


class DiskBuffer:
    """Some consecutive pages of R: their codes at once, their columns on demand."""

    def __init__(
        self,
        reader: PageReader,
        columns: Sequence[str],
        pages: int,
        tallies: bool,
        stopwatch: Stopwatch,
    ) -> None:
        """Allocate room for `pages` pages, and for a tally of each row's matches if asked to."""
        self._stopwatch = stopwatch
        self._reader = reader
        self._codes = np.empty(reader.most_part_bytes(CODES, pages) // 8, np.int64)
        self._tallies = np.zeros(len(self._codes) if tallies else 0, np.uint8)
        arena = np.empty(_arena_bytes(reader, columns, pages), np.uint8)
        self._whole_pages = reader.reading.whole_pages
        if self._whole_pages:
            columns = reader.manifest.schema.names
            ends = np.cumsum([slab_bytes(reader, column, pages) for column in columns])
            lent = np.split(arena, ends[:-1])
        else:
            lent = [arena] * len(columns)
        self._slabs = {c: Slab(reader, c, part) for c, part in zip(columns, lent, strict=True)}
        self._first = 0
        self._last = 0
        self._share_touched = 0.0
        self.codes: NDArray[np.int64] = self._codes[:0]
        self.bytes_read = 0

    def load(self, first: int, last: int) -> None:
        """Bring in the key codes of pages ``first … last - 1``."""
        count = self._reader.read_codes(first, last, self._codes)
        self._first, self._last = first, last
        self.codes = self._codes[:count]
        self.bytes_read += self.codes.nbytes
        if self._whole_pages:
            for slab in self._slabs.values():
                if not slab.is_implied:
                    self.bytes_read += slab.load([(first, last)])

    def announce(self, first: int, last: int) -> None:
        """Say that pages ``first … last - 1`` will be loaded next.

        Their columns are announced as well if all pages are read whole, or if the rows that
        matched last lay on so many pages that these will be asked for too.
        """
        self._reader.announce(CODES, first, last)
        if self._whole_pages or self._share_touched > _MOST_TOUCHED:
            for slab in self._slabs.values():
                slab.announce(first, last)

    def tally(self, rows: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.uint8]]:
        """Return one index for each different row among these, and how often it is there."""
        indexes = np.empty(len(rows), np.int64)
        counts = np.empty(len(rows), np.uint8)
        found = tally(rows, self._tallies, indexes, counts)
        return indexes[:found], counts[:found]

    def gather(self, columns: Sequence[str], rows: NDArray[np.int64]) -> list[pa.Array]:
        """Return columns of some rows, which count from the first row loaded."""
        if not columns:
            return []
        if self._whole_pages:
            return [self._gather_loaded(column, rows, rows) for column in columns]
        runs = np.empty((2, self._last - self._first), np.int64)
        places = np.empty(len(rows), np.int64)
        pages = (self._reader.row_bounds, self._first, self._last, READ_THROUGH_PAGES)
        count = plan_reads(rows, *pages, runs[0], runs[1], places)
        wanted = list(zip(*runs[:, :count].tolist(), strict=True))
        touched = sum(last - first for first, last in wanted)
        self._share_touched = touched / (self._last - self._first)
        return [self._gather_late(column, rows, places, wanted) for column in columns]

    def _gather_late(
        self,
        column: str,
        rows: NDArray[np.int64],
        places: NDArray[np.int64],
        runs: list[tuple[int, int]],
    ) -> pa.Array:
        if not self._slabs[column].is_implied:
            self._stopwatch.lap("output")
            self.bytes_read += self._slabs[column].load(runs)
            self._stopwatch.lap("io")
        return self._gather_loaded(column, rows, places)

    def _gather_loaded(
        self, column: str, rows: NDArray[np.int64], places: NDArray[np.int64]
    ) -> pa.Array:
        slab = self._slabs[column]
        return slab.from_codes(self.codes[rows]) if slab.is_implied else slab.gather(places)


class Slab:
    """One column of some runs of pages, read into memory that the caller lends."""

    def __init__(self, reader: PageReader, column: str, arena: NDArray[np.uint8]) -> None:
        """Prepare to read a column into `arena`."""
        index = reader.manifest.schema.get_field_index(column)
        self._reader = reader
        self._dtype = reader.manifest.schema.field(index).type
        self._encoding = encoding_of(self._dtype)
        self._names = part_names(index, self._dtype)
        self._arena = arena
        self._used = self._bytes_read = 0
        self._validity: NDArray[np.uint8] | None = None
        self._values: NDArray[np.uint8] = arena[:0]
        self._lengths: NDArray[np.int32] = np.zeros(0, np.int32)
        self._starts: NDArray[np.int64] = np.zeros(0, np.int64)
        self._messages: dict[int, pa.Array] = {}
        self._page_starts: NDArray[np.int64] = np.zeros(0, np.int64)
        self.is_implied = index not in reader.manifest.stored_fields

    def from_codes(self, codes: NDArray[np.int64]) -> pa.Array:
        """Return a lone integer key, which is stored only as its code."""
        return join_fixed(pa.int64(), codes, None).cast(self._dtype)

    def load(self, runs: list[tuple[int, int]]) -> int:
        """Read the column of these runs of pages back to back; return the bytes read."""
        self._used = self._bytes_read = 0
        if self._encoding is Encoding.NESTED:
            self._load_messages(runs)
        elif self._encoding is Encoding.FIXED:
            self._values = self._read("values", runs).view(numpy_dtype(self._dtype))
            self._validity = self._read_validity(runs)
        else:
            self._lengths = self._read("lengths", runs).view(np.int32)
            self._values = self._read("data", runs)
            self._starts = self._lend(8 * len(self._lengths)).view(np.int64)
            starts_of(self._lengths, self._starts)
            self._validity = self._read_validity(runs)
        return self._bytes_read

    def announce(self, first: int, last: int) -> None:
        """Say that the column of these pages will be loaded next."""
        for name in self._names.values():
            self._reader.announce(name, first, last)

    def gather(self, places: NDArray[np.int64]) -> pa.Array:
        """Return rows of what was loaded, as a new array."""
        if self._encoding is Encoding.NESTED:
            page = np.searchsorted(self._page_starts, places, "right").astype(np.int32) - 1
            row = (places - self._page_starts[page]).astype(np.int32)
            return gather_from_chunks(self._dtype, self._messages, page, row)
        validity = None if self._validity is None else self._validity[places]
        if self._encoding is Encoding.FIXED:
            return join_fixed(self._dtype, self._values[places], validity)
        lengths, data = gather_bytes(self._values, self._starts, self._lengths, places)
        return join_bytes(self._dtype, lengths, data, validity)

    def _lend(self, size: int) -> NDArray[np.uint8]:
        """Return the next free bytes of the arena."""
        start = self._used
        self._used += _aligned(size)
        assert start + size <= len(self._arena), "the disk buffer's arena was sized too small"
        return self._arena[start : start + size]

    def _read(self, part: str, runs: list[tuple[int, int]]) -> NDArray[np.uint8]:
        name = self._names[part]
        sizes = [self._reader.part_bytes(name, a, b) for a, b in runs]
        out = self._lend(sum(sizes))
        at = 0
        for (a, b), size in zip(runs, sizes, strict=True):
            if size:
                self._bytes_read += self._reader.read_part(name, a, b, out[at : at + size])
            at += size
        return out

    def _read_validity(self, runs: list[tuple[int, int]]) -> NDArray[np.uint8] | None:
        name = self._names["validity"]
        if not any(self._reader.part_bytes(name, a, b) for a, b in runs):
            return None
        bounds = self._reader.row_bounds
        out = self._lend(int(sum(bounds[b] - bounds[a] for a, b in runs)))
        out[:] = 1  # extents without nulls store no validity
        at = 0
        for page in (page for a, b in runs for page in range(a, b)):
            size = self._reader.part_bytes(name, page, page + 1)
            if size:
                part = out[at : at + size]
                self._bytes_read += self._reader.read_part(name, page, page + 1, part)
            at += int(bounds[page + 1] - bounds[page])
        return out

    def _load_messages(self, runs: list[tuple[int, int]]) -> None:
        pages = [page for a, b in runs for page in range(a, b)]
        image = self._read("message", runs)
        bounds = self._reader.row_bounds
        self._messages = {}
        starts = []
        at = row = 0
        for i, page in enumerate(pages):
            size = self._reader.part_bytes(self._names["message"], page, page + 1)
            self._messages[i] = nested_from_message(self._dtype, image[at : at + size])
            starts.append(row)
            at += size
            row += int(bounds[page + 1] - bounds[page])
        self._page_starts = np.array(starts, np.int64)


def _aligned(size: int) -> int:
    return -(-size // _ALIGN) * _ALIGN
