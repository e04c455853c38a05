"""Columns of fixed width of requested pages: read and gathered in one native call.

::

    rows ──► their pages ──► one column after the other ──► arena ──► one block ──► Arrow arrays

With many columns a load would otherwise take longer for the calls of each column than for its
bytes. It is for local files alone, if all requested pages lie in one of them and were compared with
their checksums before. Otherwise, and for texts and nested values, a `Slab` reads the column.

Memory: the arena that the disk buffer lends; 24 bytes for each column; while a column is read, 32
bytes for each requested page. The rows that were gathered are one new block, which belongs to the
output buffer and which all their arrays share.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from semistream.budget.pagesizes import aligned_bytes
from semistream.joins.column_kernels import read_and_gather
from semistream.joins.pagereads import RequestedPages
from semistream.joins.slab import Slab
from semistream.relation.reader import PageReader


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
    """The columns of fixed width among some columns, to be read together."""

    def __init__(self, reader: PageReader, slabs: Sequence[Slab], arena: NDArray[np.uint8]) -> None:
        """Note where the page table has the columns' pages; the arena must hold any one of them."""
        self._reader = reader
        self._arena = arena
        # By column, where its values are in the files.
        self._parts = {i: slab.values_part for i, slab in enumerate(slabs) if slab.is_fixed}
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
        sizes = [aligned_bytes(len(places) * part.unit_bytes) for part in self._parts.values()]
        ends = np.cumsum(sizes)
        starts, out = ends - sizes, np.empty(int(ends[-1]), np.uint8)
        table = (self._offsets_at, self._checked_at, self._widths, reader.most_gap_bytes)
        about = (pages, reader.row_bounds, places, *table, self._arena, starts, out)
        bytes_read = int(read_and_gather(descriptor, *about))
        if bytes_read < 0:
            return None
        by_column = dict(zip(self._parts, starts.tolist(), strict=True))
        return Block(len(places), pa.py_buffer(out), by_column, bytes_read)
