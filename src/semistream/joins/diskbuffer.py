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
and maps as they are), which tells the size of each row in bytes; `LocatedRows.gather` then fetches
the columns. In between the driver can cut the rows into pieces that fit the output buffer.

With `Reading.whole_pages` it does as the papers do: `load` reads every column of the pages,
requested or not, and the buffer holds them all.

Memory: codes (8 bytes a row) + the arena (the widest column's parts over b pages). Rows that were
gathered are new arrays and belong to the output buffer.
"""

from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from semistream.budget.pagesizes import READ_THROUGH_PAGES, arena_bytes, slab_bytes
from semistream.columns import Encoding
from semistream.joins.front_kernels import tally
from semistream.joins.protocols import LocatedRows
from semistream.joins.row_kernels import plan_reads
from semistream.joins.slab import Runs, Slab, SlabRows
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
        self.codes: NDArray[np.int64] = np.empty(0, np.int64)  # of all rows on the loaded pages
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
        # Nested columns are located last and gathered first: see `_LateRows`.
        self._order = sorted(
            range(len(columns)), key=lambda i: self._requested[i].encoding is Encoding.NESTED
        )
        self._first = 0  # the loaded pages
        self._last = 0  # exclusive
        self._share_touched = 0.0  # of the loaded pages, how many had matches last time

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
        runs, places = self._plan_reads(rows) if self._requested else ([], rows)
        about = (self._requested, self._order, rows, self.codes, places)
        return _LateRows(*about, lambda load: self._read(load, runs))

    def _plan_reads(self, rows: NDArray[np.int64]) -> tuple[Runs, NDArray[np.int64]]:
        """Return which runs of pages to read for some rows, and where in these each row is."""
        runs = np.empty((2, self._last - self._first), np.int64)
        places = np.empty(len(rows), np.int64)
        pages = (self._reader.row_bounds, self._first, self._last, READ_THROUGH_PAGES)
        count = plan_reads(rows, *pages, runs[0], runs[1], places)
        planned = list(zip(*runs[:, :count].tolist(), strict=True))
        touched = sum(last - first for first, last in planned)
        self._share_touched = touched / (self._last - self._first)
        return planned, places

    def _read(self, load: Callable[[Runs], int], runs: Runs) -> None:
        with self._stopwatch.phase("io"):
            self.bytes_read += load(runs)


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
        read: Callable[[Callable[[Runs], int]], None],
    ) -> None:
        self._slabs = slabs  # of the columns that the join reads
        self._rows = rows  # on the pages in the disk buffer
        self._codes = codes  # of all rows on these pages
        self._places = places  # of the rows among what `read` brings in
        self._read = read  # brings parts of a column into the arena
        # Where the texts of a column start, and their lengths.
        self._texts: dict[int, tuple[NDArray[np.int64], NDArray[np.int32]]] = {}
        self._loaded: int | None = None  # the nested column that is in the arena
        self.sizes: NDArray[np.int64] | None = None  # bytes of each row's variable-width values
        self._order = order  # in which columns are located
        for i in self._order:
            if slabs[i].is_variable:
                self._locate(i, slabs[i])

    def gather(self) -> list[pa.Array]:
        """Read the columns one by one, and copy the rows out of each."""
        gathered = {i: self._gather(i, self._slabs[i]) for i in reversed(self._order)}
        return [gathered[i] for i in range(len(self._slabs))]

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
