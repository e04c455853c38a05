"""The disk buffer: b pages of R in memory, keys first.

::

    load ──► codes of b pages ──► probed ──► rows that matched
                                                │ gather
    one column at a time, of the pages they lie on ──► arena ──► output

`load` reads only the key codes of the pages, 8 bytes a row. The columns that the join adds are
read when rows have matched, just for the pages on which they lie, one column at a time into one
arena that all columns share. So a scan of R costs the bytes of its keys plus the bytes of what
was hit, and the buffer holds the codes and the widest column of b pages, never whole rows.

Matched rows are fetched in two steps. `locate` reads only the lengths of texts (and lists, structs
and maps as they are), which tells how many bytes each row takes; `LocatedRows.gather` then fetches
the columns. In between the driver can cut the rows into pieces that fit the output buffer.

With `Reading.whole_pages` it does as the papers do: `load` reads every column of the pages, asked
for or not, and the buffer holds them all.

Memory: codes (8 bytes a row) + the arena (the widest column's parts over b pages). Rows that were
gathered are new arrays and belong to the output buffer.
"""

from collections.abc import Callable, Sequence
from typing import Protocol, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from semistream.budget.pagesizes import aligned_bytes, arena_bytes, slab_bytes
from semistream.budget.rowsizes import NESTED_COPIES
from semistream.columns import (
    Encoding,
    encoding_of,
    join_bytes,
    join_fixed,
    nested_from_message,
    numpy_dtype,
    value_sizes,
)
from semistream.cost.conditions import READ_THROUGH_PAGES
from semistream.joins.front_kernels import tally
from semistream.joins.kernels import gather_bytes, plan_reads, starts_of
from semistream.joins.rows import gather_from_chunks
from semistream.joins.stopwatch import Stopwatch
from semistream.relation.layout import part_names
from semistream.relation.pagetable import CODES
from semistream.relation.reader import PageReader

Runs: TypeAlias = list[tuple[int, int]]  # first and last (exclusive) pages


# If more of the pages than this were touched last time, their columns are worth announcing.
_MOST_TOUCHED = 0.5


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
        arena = np.empty(arena_bytes(reader, columns, pages), np.uint8)
        self._whole_pages = reader.reading.whole_pages
        stored = reader.manifest.schema.names if self._whole_pages else columns
        if self._whole_pages:
            ends = np.cumsum([slab_bytes(reader, column, pages) for column in stored])
            lent = np.split(arena, ends[:-1])
        else:
            lent = [arena] * len(columns)
        self._slabs = {c: Slab(reader, c, part) for c, part in zip(stored, lent, strict=True)}
        self._wanted = [self._slabs[column] for column in columns]
        # Nested columns are located last and gathered first: see `_LateRows`.
        self._order = sorted(
            range(len(columns)), key=lambda i: self._wanted[i].encoding is Encoding.NESTED
        )
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

    def locate(self, rows: NDArray[np.int64]) -> "LocatedRows":
        """Find out where the columns of some rows lie; rows count from the first row loaded."""
        if self._whole_pages:
            return SlabRows(self._wanted, rows, self.codes)
        runs, places = self._plan_reads(rows) if self._wanted else ([], rows)
        about = (self._wanted, self._order, rows, self.codes, places)
        return _LateRows(*about, lambda load: self._read(load, runs))

    def _plan_reads(self, rows: NDArray[np.int64]) -> tuple[Runs, NDArray[np.int64]]:
        """Return which runs of pages to read for some rows, and where in these each row is."""
        runs = np.empty((2, self._last - self._first), np.int64)
        places = np.empty(len(rows), np.int64)
        pages = (self._reader.row_bounds, self._first, self._last, READ_THROUGH_PAGES)
        count = plan_reads(rows, *pages, runs[0], runs[1], places)
        wanted = list(zip(*runs[:, :count].tolist(), strict=True))
        touched = sum(last - first for first, last in wanted)
        self._share_touched = touched / (self._last - self._first)
        return wanted, places

    def _read(self, load: Callable[[Runs], int], runs: Runs) -> None:
        self._stopwatch.lap("output")
        self.bytes_read += load(runs)
        self._stopwatch.lap("io")


class LocatedRows(Protocol):
    """Rows of R that are known to be somewhere, and can be fetched."""

    @property
    def sizes(self) -> NDArray[np.int64] | None:
        """What the variable-width values of each row take; None if there are none."""
        ...

    def gather(self) -> list[pa.Array]:
        """Return the columns of the rows, as new arrays."""
        ...


class _LateRows:
    """Rows of the pages in the disk buffer whose columns are not read yet.

    All columns share one arena. Nested ones are located last and gathered first, so that the last
    of them is read only once.
    """

    def __init__(
        self,
        slabs: Sequence["Slab"],
        order: Sequence[int],
        rows: NDArray[np.int64],
        codes: NDArray[np.int64],
        places: NDArray[np.int64],
        read: Callable[[Callable[[Runs], int]], None],
    ) -> None:
        self._slabs = slabs
        self._rows = rows  # on the pages in the disk buffer
        self._codes = codes  # of all rows on these pages
        self._places = places  # of the rows among what `read` brings in
        self._read = read
        self._texts: dict[int, tuple[NDArray[np.int64], NDArray[np.int32]]] = {}
        self._loaded: int | None = None  # the nested column that is in the arena
        self.sizes: NDArray[np.int64] | None = None
        self._order = order
        for i in self._order:
            if slabs[i].is_variable:
                self._locate(i, slabs[i])

    def gather(self) -> list[pa.Array]:
        """Read the columns one by one, and copy the rows out of each."""
        gathered = {i: self._gather(i, self._slabs[i]) for i in reversed(self._order)}
        return [gathered[i] for i in range(len(self._slabs))]

    def _locate(self, i: int, slab: "Slab") -> None:
        if self.sizes is None:
            self.sizes = np.zeros(len(self._places), np.int64)
        if slab.encoding is Encoding.BYTES:
            self._read(slab.load_lengths)
            self._texts[i] = slab.extents(self._places)
            self.sizes += self._texts[i][1]
        else:
            self._read(slab.load)
            self._loaded = i
            self.sizes += slab.sizes(self._places)

    def _gather(self, i: int, slab: "Slab") -> pa.Array:
        if slab.is_implied:
            return slab.from_codes(self._codes[self._rows])
        if i in self._texts:
            self._read(slab.load_data)
            return slab.gather_texts(*self._texts.pop(i), self._places)
        if i != self._loaded:
            self._read(slab.load)
        self._loaded = None
        return slab.gather(self._places)


class SlabRows:
    """Rows whose columns are all in memory."""

    def __init__(
        self, slabs: Sequence["Slab"], rows: NDArray[np.int64], codes: NDArray[np.int64]
    ) -> None:
        """Note which rows are meant; `codes` are those of all rows."""
        self._slabs = slabs
        self._rows = rows
        self._codes = codes

    @property
    def sizes(self) -> NDArray[np.int64] | None:
        """What the variable-width values of each row take; None if there are none."""
        found = [slab.sizes(self._rows) for slab in self._slabs if slab.is_variable]
        return sum(found[1:], found[0]) if found else None

    def gather(self) -> list[pa.Array]:
        """Copy the rows out of each column."""
        return [self._gather(slab) for slab in self._slabs]

    def _gather(self, slab: "Slab") -> pa.Array:
        return (
            slab.from_codes(self._codes[self._rows]) if slab.is_implied else slab.gather(self._rows)
        )


class Slab:
    """One column of some runs of pages, read into memory that the caller lends."""

    def __init__(self, reader: PageReader, column: str, arena: NDArray[np.uint8]) -> None:
        """Prepare to read a column into `arena`."""
        index = reader.manifest.schema.get_field_index(column)
        self._reader = reader
        self._dtype = reader.manifest.schema.field(index).type
        self.encoding = encoding_of(self._dtype)
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
        self.is_variable = self.encoding is not Encoding.FIXED and not self.is_implied

    def from_codes(self, codes: NDArray[np.int64]) -> pa.Array:
        """Return a lone integer key, which is stored only as its code."""
        return join_fixed(pa.int64(), codes, None).cast(self._dtype)

    def load(self, runs: Runs) -> int:
        """Read the column of these runs of pages back to back; return the bytes read."""
        self._used = self._bytes_read = 0
        if self.encoding is Encoding.NESTED:
            self._load_messages(runs)
        elif self.encoding is Encoding.FIXED:
            self._values = self._read("values", runs).view(numpy_dtype(self._dtype))
            self._validity = self._read_validity(runs)
        else:
            self._read_lengths(runs)
            self._read_data(runs)
        return self._bytes_read

    def load_lengths(self, runs: Runs) -> int:
        """Read only the lengths of a column of texts; return the bytes read."""
        self._used = self._bytes_read = 0
        self._read_lengths(runs)
        return self._bytes_read

    def load_data(self, runs: Runs) -> int:
        """Read a column of texts without their lengths, over these; return the bytes read."""
        self._used = self._bytes_read = 0
        self._read_data(runs)
        return self._bytes_read

    def _read_lengths(self, runs: Runs) -> None:
        self._lengths = self._read("lengths", runs).view(np.int32)
        self._starts = self._lend(8 * len(self._lengths)).view(np.int64)
        starts_of(self._lengths, self._starts)

    def _read_data(self, runs: Runs) -> None:
        self._values = self._read("data", runs)
        self._validity = self._read_validity(runs)

    def announce(self, first: int, last: int) -> None:
        """Say that the column of these pages will be loaded next."""
        for name in self._names.values():
            self._reader.announce(name, first, last)

    def extents(self, places: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
        """Return where the texts of some rows start, and how long they are."""
        return self._starts[places], self._lengths[places]

    def sizes(self, places: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return what the values of some rows take as a copy."""
        if self.encoding is Encoding.BYTES:
            return self._lengths[places].astype(np.int64)
        pages = [value_sizes(message) for message in self._messages.values()]
        sizes: NDArray[np.int64] = NESTED_COPIES * np.concatenate(pages)[places]
        return sizes

    def gather(self, places: NDArray[np.int64]) -> pa.Array:
        """Return rows of what was loaded, as a new array."""
        if self.encoding is Encoding.BYTES:
            return self.gather_texts(*self.extents(places), places)
        if self.encoding is Encoding.NESTED:
            page = np.searchsorted(self._page_starts, places, "right").astype(np.int32) - 1
            row = (places - self._page_starts[page]).astype(np.int32)
            return gather_from_chunks(self._dtype, self._messages, page, row)
        return join_fixed(self._dtype, self._values[places], self._validity_at(places))

    def gather_texts(
        self,
        starts: NDArray[np.int64],
        lengths: NDArray[np.int32],
        places: NDArray[np.int64],
    ) -> pa.Array:
        """Return texts that are known to lie there, as a new array."""
        data = gather_bytes(self._values, starts, lengths)
        return join_bytes(self._dtype, lengths, data, self._validity_at(places))

    def _validity_at(self, places: NDArray[np.int64]) -> NDArray[np.uint8] | None:
        return None if self._validity is None else self._validity[places]

    def _lend(self, size: int) -> NDArray[np.uint8]:
        """Return the next free bytes of the arena."""
        start = self._used
        self._used += aligned_bytes(size)
        assert start + size <= len(self._arena), "the disk buffer's arena was sized too small"
        return self._arena[start : start + size]

    def _read(self, part: str, runs: Runs) -> NDArray[np.uint8]:
        name = self._names[part]
        sizes = [self._reader.part_bytes(name, a, b) for a, b in runs]
        out = self._lend(sum(sizes))
        at = 0
        for (a, b), size in zip(runs, sizes, strict=True):
            if size:
                self._bytes_read += self._reader.read_part(name, a, b, out[at : at + size])
            at += size
        return out

    def _read_validity(self, runs: Runs) -> NDArray[np.uint8] | None:
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

    def _load_messages(self, runs: Runs) -> None:
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
