"""The disk buffer: b pages of R in memory, keys first.

::

    load ──► codes of requested pages ──► probed ──► rows that matched
                                                        │ gather
    one column at a time, of the pages they lie on ──► arena ──► output

`load` reads only the key codes of the pages, 8 bytes a row: of all b pages in a scan, of those on
which tuples wait where the join knows them. The columns that the join adds are read when rows have
matched, just for the pages on which they lie, one column at a time into one arena that all columns
share. Pages between are read as well where another request would cost more (`pagereads.py`). So a
scan of R costs the bytes of its keys plus the bytes of what was hit, and the buffer holds the codes
and the widest column of b pages, never whole rows.

Matched rows are fetched in two steps. `locate` reads only the lengths of texts (and lists, structs
and maps as they are), which tells the size of each row in bytes; `LocatedRows.gather` then fetches
the columns. In between the driver can cut the rows into pieces that fit the output buffer.

With `Reading.whole_pages` it does as the papers do: `load` reads every column of the pages,
requested or not, and the buffer holds them all.

Memory: codes (8 bytes a row) + the arena (the widest column's parts over b pages). Rows that were
gathered are new arrays and belong to the output buffer.
"""

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from semistream.budget.pagesizes import arena_bytes, slab_bytes
from semistream.columns import Encoding
from semistream.joins.fixedcolumns import Block, FixedColumns
from semistream.joins.front_kernels import tally
from semistream.joins.pagereads import RequestedPages, read_in_place
from semistream.joins.protocols import LocatedRows
from semistream.joins.row_kernels import end_runs, pages_of_rows
from semistream.joins.slab import Slab, SlabRows
from semistream.joins.stopwatch import Stopwatch
from semistream.relation.pagetable import CODES
from semistream.relation.reader import PageReader

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
        # Of all rows on the loaded pages; undefined on pages that were not read.
        self.codes: NDArray[np.int64] = np.empty(0, np.int64)
        # By page: the row at which the codes that were read with it end; 0 if it was not read.
        self.run_ends: NDArray[np.int64] = np.empty(0, np.int64)
        self.bytes_read = 0  # from disk, codes and columns
        self._stopwatch = stopwatch
        self._reader = reader
        # The memory of `codes`, and a byte a row to count its matches in.
        self._codes = np.empty(reader.most_part_bytes(CODES, pages) // 8, np.int64)
        self._tallies = np.zeros(len(self._codes) if tallies else 0, np.uint8)
        arena = np.empty(arena_bytes(reader, columns, pages), np.uint8)
        self._whole_pages = reader.reading.whole_pages  # read all columns at once
        stored = reader.manifest.schema.names if self._whole_pages else columns
        if self._whole_pages:
            ends = np.cumsum([slab_bytes(reader, column, pages) for column in stored])
            lent = np.split(arena, ends[:-1])
        else:
            lent = [arena] * len(columns)
        # All columns that are held, and those of them that the join reads.
        self._slabs = {c: Slab(reader, c, part) for c, part in zip(stored, lent, strict=True)}
        self._requested = [self._slabs[column] for column in columns]
        fixed = {i: slab.values_part for i, slab in enumerate(self._requested) if slab.is_fixed}
        self._fixed = FixedColumns(reader, fixed, arena)
        # Nested columns are located last and gathered first: see `_LateRows`.
        self._order = sorted(
            range(len(columns)), key=lambda i: self._requested[i].encoding is Encoding.NESTED
        )
        self._first = 0  # the loaded pages
        self._last = 0  # exclusive
        self._share_touched = 0.0  # of the loaded pages, how many had matches last time

    def load(self, first: int, last: int, requested: NDArray[np.int64] | None = None) -> int:
        """Bring in the key codes of pages ``first … last - 1``; return how many pages were read.

        If it is known which of them are requested, only these are read, and the gaps between
        them that cost less than another request.
        """
        bounds = self._reader.row_bounds
        self._first, self._last = first, last
        self.codes = self._codes[: int(bounds[last] - bounds[first])]
        if requested is None or self._whole_pages or len(requested) == last - first:
            self._load_all()
            return last - first
        some = RequestedPages.of(self._reader, first, last, requested)
        requests = read_in_place(self._reader, CODES, some, self.codes.view(np.uint8))
        self.bytes_read += int(requests[0].sum())
        self.run_ends = np.empty(last - first, np.int64)
        return int(end_runs(requests, bounds, first, last, self.codes, self.run_ends))

    def _load_all(self) -> None:
        first, last = self._first, self._last
        self._reader.read_codes(first, last, self.codes)
        self.bytes_read += self.codes.nbytes
        self.run_ends = np.full(last - first, len(self.codes))
        if self._whole_pages:
            whole = RequestedPages.all_of(self._reader, first, last)
            for slab in self._slabs.values():
                if not slab.is_implied:
                    self.bytes_read += slab.load(whole)

    @property
    def is_read(self) -> NDArray[np.bool_]:
        """By page: whether its key codes are here."""
        return self.run_ends > 0

    def announce(self, first: int, last: int) -> None:
        """Say that pages ``first … last - 1`` will be loaded next.

        Their columns are announced as well if all pages are read whole, or if the rows that
        matched last lay on most of the pages, so that these will be requested too.
        """
        self._reader.announce(CODES, first, last)
        if self._whole_pages or self._share_touched > _MOST_TOUCHED:
            for slab in self._slabs.values():
                slab.announce(first, last)

    def tally(self, rows: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.uint8]]:
        """Return one index for each different row among these, and how often it occurs."""
        indexes = np.empty(len(rows), np.int64)
        counts = np.empty(len(rows), np.uint8)
        found = tally(rows, self._tallies, indexes, counts)
        return indexes[:found], counts[:found]

    def locate(self, rows: NDArray[np.int64]) -> LocatedRows:
        """Find out where the columns of some rows lie; rows count from the first row loaded."""
        if self._whole_pages:
            return SlabRows(self._requested, rows, self.codes)
        requested = self._pages_of(rows if self._requested else rows[:0])
        bounds = self._reader.row_bounds
        places = rows - (bounds[requested.first] - bounds[self._first])
        about = (self._requested, self._order, rows, self.codes, places)
        read_fixed = partial(self._read_fixed, requested, places)
        return _LateRows(*about, partial(self._read, requested), read_fixed)

    def _pages_of(self, rows: NDArray[np.int64]) -> RequestedPages:
        """Return the pages on which some rows lie."""
        first, last = self._first, self._last
        pages = np.empty(last - first, np.int64)
        count = pages_of_rows(rows, self._reader.row_bounds, first, last, pages)
        self._share_touched = count / (last - first)
        if count:
            first, last = int(pages[0]), int(pages[count - 1]) + 1
        return RequestedPages.of(self._reader, first, last, pages[:count])

    def _read(self, requested: RequestedPages, load: Callable[[RequestedPages], int]) -> None:
        with self._stopwatch.phase("io"):
            self.bytes_read += load(requested)

    def _read_fixed(self, requested: RequestedPages, places: NDArray[np.int64]) -> Block | None:
        with self._stopwatch.phase("io"):
            block = self._fixed.gather(requested, places)
        if block is not None:
            self.bytes_read += block.bytes_read
        return block


class _LateRows:
    """Rows of the pages in the disk buffer whose columns are not read yet.

    All columns share one arena. Nested ones are located last and gathered first, so that the last
    of them is read only once.
    """

    def __init__(
        self,
        slabs: Sequence[Slab],
        order: Sequence[int],
        rows: NDArray[np.int64],
        codes: NDArray[np.int64],
        places: NDArray[np.int64],
        read: Callable[[Callable[[RequestedPages], int]], None],
        read_fixed: Callable[[], Block | None],
    ) -> None:
        self._slabs = slabs  # of the columns that the join reads
        self._rows = rows  # on the pages in the disk buffer
        self._codes = codes  # of all rows on these pages
        self._places = places  # of the rows in what `read` brings in
        self._read = read  # brings parts of a column into the arena
        self._read_fixed = read_fixed  # returns the rows' values of all columns of fixed width
        # Where the texts of a column start, and their lengths.
        self._texts: dict[int, tuple[NDArray[np.int64], NDArray[np.int32]]] = {}
        self._loaded: int | None = None  # the nested column that is in the arena
        self.sizes: NDArray[np.int64] | None = None  # bytes of each row's variable-width values
        self._order = order  # in which columns are located
        for i in self._order:
            if slabs[i].is_variable:
                self._locate(i, slabs[i])

    def gather(self) -> list[pa.Array]:
        """Read the columns, and copy the rows out of each.

        Those of fixed width are read last, all at once if that is possible; else one by one.
        """
        slabs, order = self._slabs, self._order[::-1]
        gathered = {i: self._gather(i, slabs[i]) for i in order if not slabs[i].is_fixed}
        if len(gathered) < len(slabs):
            block = self._read_fixed()
            for i in (i for i in order if slabs[i].is_fixed):
                gathered[i] = self._gather(i, slabs[i]) if block is None else self._join(i, block)
        return [gathered[i] for i in range(len(slabs))]

    def _join(self, i: int, block: Block) -> pa.Array:
        slab = self._slabs[i]
        if slab.has_nulls:
            self._read(slab.load_validity)
        return slab.gather_block(block.values_of(i), self._places)

    def _locate(self, i: int, slab: Slab) -> None:
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

    def _gather(self, i: int, slab: Slab) -> pa.Array:
        if slab.is_implied:
            return slab.from_codes(self._codes[self._rows])
        if i in self._texts:
            self._read(slab.load_data)
            return slab.gather_texts(*self._texts.pop(i), self._places)
        if i != self._loaded:
            self._read(slab.load)
        self._loaded = None
        return slab.gather(self._places)
