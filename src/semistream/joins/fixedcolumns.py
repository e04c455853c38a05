"""Columns of fixed width of requested pages: gathered together in few native calls.

::

    rows ──► their pages ──► one column after the other ──► arena ──► one block ──► Arrow arrays
                        └──► a mapped file, where they lie ────────────────┘

With many columns a load would otherwise take longer for the calls of each column than for its
bytes. It is for local files alone. They are read into an arena if all requested pages lie in one
file and were compared with their checksums before; otherwise, and for texts and nested values, a
`Slab` reads the column. Or they are looked at in place where the read plan maps files
(`relation/readplan.py`).

Memory: the arena that the disk buffer lends, or what is mapped; 24 bytes for each column; while a
column is read, 32 bytes for each requested page. The rows that were gathered are one new block,
which belongs to the output buffer and which all their arrays share.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from semistream.budget.pagesizes import aligned_bytes
from semistream.joins.column_kernels import look_and_gather, read_and_gather
from semistream.joins.pagereads import RequestedPages
from semistream.relation.parts import Part
from semistream.relation.reader import PageReader
from semistream.relation.readplan import PlannedReads, RowsByPage

_NO_ARENA = np.empty(0, np.uint8)


@dataclass(frozen=True, slots=True)
class Block:
    """The values of some rows: those of one column after those of another."""

    count: int  # rows
    data: pa.Buffer
    starts: dict[int, int]  # by column: where its values begin
    bytes_read: int  # from disk

    def values_of(self, column: int) -> pa.Buffer:
        """Return the values of a column, and perhaps a few bytes that follow."""
        return self.data.slice(self.starts[column])


class FixedColumns:
    """Some columns of fixed width, to be read together."""

    def __init__(
        self,
        reader: PageReader,
        parts: Mapping[int, Part],
        arena: NDArray[np.uint8] = _NO_ARENA,
    ) -> None:
        """Note where the page table has the columns' pages; the arena must hold any one of them.

        `parts` says by column where its values are in the files.
        """
        self._reader = reader
        self._arena = arena
        self._parts = dict(parts)
        found = self._parts.values()
        # The addresses of arrays of the page table, by column.
        self._offsets_at = np.array([part.offsets.ctypes.data for part in found], np.int64)
        self._checked_at = np.array([part.checked.ctypes.data for part in found], np.int64)
        self._widths = np.array([part.unit_bytes for part in found], np.int64)

    def gather(self, requested: RequestedPages, places: NDArray[np.int64]) -> Block | None:
        """Return the values of some rows, or None if they must be read column by column.

        `places` count from the first row of the first requested page.
        """
        reader, pages = self._reader, requested.pages
        descriptor = reader.descriptor_of(pages) if len(pages) else None
        if descriptor is None:
            return None
        starts, out = self._room(len(places))
        table = (self._offsets_at, self._checked_at, self._widths, reader.most_gap_bytes)
        about = (pages, reader.row_bounds, places, *table, self._arena, starts, out)
        bytes_read = int(read_and_gather(descriptor, *about))
        if bytes_read < 0:
            return None
        return self._block(len(places), starts, out, bytes_read)

    def look(self, reads: PlannedReads, rows: RowsByPage) -> Block | None:
        """Return the values of some rows where they lie in mapped files.

        None if they must be read.
        """
        if not self._parts or not len(rows.rows):
            return None
        starts, out = self._room(len(rows.rows))
        before, parts = reads.bytes_read, list(self._parts.values())
        table = (self._offsets_at, self._reader.page_count, self._widths)
        for first, last in reads.runs(rows.pages):
            which, indexes, in_page = rows.within(first, last)
            pages = rows.pages[first:last]
            view = reads.look_at_parts(parts, pages, which.stop - which.start)
            if view is None:
                return None
            begins = starts + which.start * self._widths
            about = (*view, pages, first, indexes, in_page, *table, begins, out)
            look_and_gather(*about)
            reads.release()
        return self._block(len(rows.rows), starts, out, reads.bytes_read - before)

    def _room(self, rows: int) -> tuple[NDArray[np.int64], NDArray[np.uint8]]:
        """Return room for the values of all columns, and where those of each begin."""
        sizes = np.array([aligned_bytes(rows * width) for width in self._widths.tolist()])
        ends = np.cumsum(sizes)
        return ends - sizes, np.empty(int(ends[-1]), np.uint8)

    def _block(
        self, rows: int, starts: NDArray[np.int64], out: NDArray[np.uint8], bytes_read: int
    ) -> Block:
        by_column = dict(zip(self._parts, starts.tolist(), strict=True))
        return Block(rows, pa.py_buffer(out), by_column, bytes_read)
