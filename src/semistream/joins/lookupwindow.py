"""The window of look-ups: stream tuples that arrived, and the pages on which they may match.

Slots are filled in the order of arrival and are all given back at once, so there is no hash table
and no queue.

Memory per tuple: code 8 and a copy of it, match flag 1, page 8, the row; and its request, 72 bytes
(`semistream.budget.tuplesizes`).
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from semistream.budget.rowsizes import Widths
from semistream.joins import lookup_kernels as kernels
from semistream.joins.kernels import UNMATCHABLE
from semistream.joins.window import Window
from semistream.relation.pageindex import PageIndex

BLOCK = 8_192  # requests that rows are guessed for at a time


@dataclass(frozen=True, slots=True)
class Requests:
    """Tuples to be looked up, in the order of R's pages."""

    slots: NDArray[np.int32]
    codes: NDArray[np.int64]  # of each
    indexes: NDArray[np.int32]  # of each: which of `pages` it may match on
    pages: NDArray[np.int64]  # ascending, each once

    def blocks(self) -> Iterator["Requests"]:
        """Yield the requests in blocks, each with its own pages."""
        for first in range(0, len(self.codes), BLOCK):
            some = slice(first, first + BLOCK)
            indexes = self.indexes[some]
            pages = self.pages[indexes[0] : indexes[-1] + 1]
            yield Requests(self.slots[some], self.codes[some], indexes - indexes[0], pages)

    def at(self, places: NDArray[np.int32]) -> "Requests":
        """Return some of the requests; their slots are the places among all of them."""
        used, indexes = np.unique(self.indexes[places], return_inverse=True)
        return Requests(places, self.codes[places], indexes.astype(np.int32), self.pages[used])


class LookUpWindow(Window):
    """At most `capacity` stream tuples, with their rows, in the order of arrival."""

    def __init__(
        self, schema: pa.Schema, capacity: int, widths: Widths, implied: int | None
    ) -> None:
        """Allocate everything."""
        super().__init__(schema, capacity, widths, implied)
        self._count = 0
        # Of requests: slot, page, order, and scratch space to sort in.
        self._scratch = np.empty((4, capacity), np.int32)

    @property
    def count(self) -> int:
        """How many tuples wait."""
        return self._count

    def insert(
        self,
        batch: pa.RecordBatch,
        codes: NDArray[np.int64],
        unmatchable: NDArray[np.bool_] | None = None,
    ) -> None:
        """Let tuples in; there must be room. Some may be `unmatchable`."""
        end = self._count + len(codes)
        self._rows.put(np.arange(self._count, end), batch.columns)
        self._codes[self._count : end] = codes
        flags = 0 if unmatchable is None else UNMATCHABLE * unmatchable
        self.matched[self._count : end] = flags
        self._count = end

    def clear(self) -> None:
        """Let all tuples go."""
        self._rows.drop(np.arange(self._count))
        self._count = 0

    def begin(self, first: int, last: int) -> None:
        """Forget which of the tuples at slots ``first … last - 1`` have matched."""
        self.matched[first:last] &= UNMATCHABLE

    def matchable(self, first: int, last: int) -> NDArray[np.int32]:
        """Return the slots among ``first … last - 1`` whose tuples can match."""
        can = self.matched[first:last] & UNMATCHABLE == 0
        return first + np.flatnonzero(can).astype(np.int32)

    def requests(
        self, index: PageIndex, slots: NDArray[np.int32] | None = None
    ) -> Iterator[Requests]:
        """Yield tuples as requests, sorted by page: all, or those at some slots, which ascend.

        Some at a time, if they are too many.
        """
        which = slice(self._count) if slots is None else slots
        codes = np.ascontiguousarray(self._codes[which])
        pages = index.pages(codes)
        position = np.array([0, -1])
        while position[0] < len(codes):
            about = (codes, pages, index.first_codes, index.ends, position)
            count = kernels.expand_requests(*about, *self._scratch[:2])
            found = self._sorted(codes, index.page_count, int(count))
            yield found if slots is None else replace(found, slots=slots[found.slots])

    def _sorted(self, codes: NDArray[np.int64], page_count: int, count: int) -> Requests:
        slots, pages, order, other = self._scratch[:, :count]
        order = kernels.sort_by_page(pages, page_count, order, other)
        requested, indexes = np.empty(count, np.int64), np.empty(count, np.int32)
        distinct = kernels.pages_of_requests(pages, order, requested, indexes)
        slots = slots[order]
        return Requests(slots, codes[slots], indexes, requested[:distinct])
