"""The index window: stream tuples that wait for their page. Hash table H by page, queue Q of pages.

::

    Q   page 7 ── page 2 ── page 5 ── …     requested pages, longest wait first
    H   page → a few buckets → chains of slots

What the index joins need and the window of a cyclic scan does not: a tuple leaves as soon as its
page has been read, whenever that is, and its slot is used again at once. All tuples that belong to
a page leave together, match or no match, so whole chains are taken out and nothing is searched for.

For the same reason Q needs no entry for each tuple, as in `hybridjoin.txt` section 4.1, but one
for each page: a page queues up when its first tuple comes and leaves the queue, from wherever it
stands, when it is read. Its place is that of its oldest tuple, so the page at the front is the
page of the oldest tuple of all.

Memory per tuple: code 8, next in chain 4, free list 4, match flag 1, a bucket 4, and the row. Per
page: two links of Q and how many tuples wait 12, and at least one bucket 4. Per load, where the
most urgent one is read next: since when its tuples wait 4.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from semistream.budget.rowsizes import Widths
from semistream.joins import indexwindow_kernels as kernels
from semistream.joins.kernels import NO_SLOT
from semistream.joins.rows import Slots
from semistream.joins.window import Window
from semistream.relation.pageindex import PageIndex

_32_BITS = 0xFFFF_FFFF


@dataclass(frozen=True, slots=True)
class Ages:
    """For how long tuples have waited, by load."""

    since: NDArray[np.uint32]  # by load: when it was first seen with waiting tuples; 0 if never
    pages_per_read: int  # of a load
    loads: int  # that were made so far


@dataclass(frozen=True, slots=True)
class Taken:
    """Tuples that were taken out of the table because their pages are here."""

    slots: Slots
    codes: NDArray[np.int64]
    pages: NDArray[np.int64]  # the page of each tuple


class IndexWindow(Window):
    """At most `capacity` stream tuples, with their rows, by page and by arrival."""

    def __init__(
        self,
        schema: pa.Schema,
        capacity: int,
        widths: Widths,
        implied: int | None,
        index: PageIndex,
        most_taken: int,
        pages_per_read: int | None = None,
    ) -> None:
        """Allocate everything; at most `most_taken` tuples are taken out at a time.

        With `pages_per_read`, the most urgent load of these pages can be found.
        """
        super().__init__(schema, capacity, widths, implied)
        pages = index.page_count
        self._count = 0  # tuples that wait, or are taken out and not released yet
        self.waiting = np.zeros(pages, np.int32)  # by page: how many tuples wait for it
        self._index = index  # from a code to its page
        self._per_page = max(1, capacity // pages)  # buckets of a page
        self._heads = np.full(pages * self._per_page, NO_SLOT, np.int32)  # H: newest of a chain
        # Slots that are free, as a stack: its first `capacity - count` entries.
        self._free = np.arange(capacity - 1, -1, -1, dtype=np.int32)
        # Q: links between pages; the last entry is the anchor, and at first all point to it.
        self._newer = np.full(pages + 1, pages, np.int32)
        self._older = np.full(pages + 1, pages, np.int32)
        # By load: when it was first seen with waiting tuples, counted in loads; 0 if none wait.
        self._since = np.zeros(
            0 if pages_per_read is None else -(-pages // pages_per_read), np.uint32
        )
        self._pages_per_read = pages_per_read or 1  # of a load
        self._loads = 0  # that were picked by `urgent_page`
        self._most_taken = most_taken  # tuples that are taken out at a time
        self._taken = np.empty((3, most_taken), np.int64)  # their slots, codes and pages

    @property
    def count(self) -> int:
        """How many tuples wait, or are taken out and not released yet."""
        return self._count

    def insert(self, batch: pa.RecordBatch, codes: NDArray[np.int64]) -> None:
        """Let tuples in; there must be room."""
        left = self.capacity - self.count - len(codes)
        slots = self._free[left : left + len(codes)][::-1].astype(np.int64)
        self._rows.put(slots, batch.columns)
        kernels.enter(
            codes,
            slots,
            self._codes,
            self._heads,
            self._following,
            self._per_page,
            self.waiting,
            self._newer,
            self._older,
            self._index.arrays,
        )
        self.matched[slots] = 0
        self._count += len(codes)

    def in_order(self) -> Slots:
        """Return the slots of all tuples, page after page in the order of Q.

        If tuples enter another window in this order, its pages queue up as they do here.
        """
        slots = np.empty(self.count, np.int32)
        chains = (self._heads, self._per_page, self._following)
        kernels.slots_in_order(self._newer, *chains, slots)
        return slots

    @property
    def ages(self) -> Ages:
        """For how long tuples have waited."""
        return Ages(self._since, self._pages_per_read, self._loads)

    def set_ages(self, ages: Ages) -> None:
        """Let tuples have waited for as long as in the window that they come from.

        A load that has waited for a part of a cycle of R has waited for that part in loads of
        another size, too. A new load is as old as the oldest one that it has pages of.
        """
        self._loads = ages.loads * ages.pages_per_read // self._pages_per_read
        if len(self._since) and len(ages.since):
            before = (ages.since, ages.pages_per_read, ages.loads & _32_BITS)
            now = (self._since, self._pages_per_read, self._loads & _32_BITS)
            kernels.keep_ages(self.waiting, *before, *now)

    def oldest_page(self) -> int:
        """Return the page of the tuple that has waited longest: the front of Q."""
        assert self.count
        return int(self._newer[-1])

    def urgent_page(self, most_loads: int) -> int:
        """Return a page of the most urgent load, and count it as read.

        If tuples of the load of the oldest have waited for `most_loads` loads, it is the page of
        the oldest tuple.
        """
        self._loads += 1
        now, oldest = max(1, self._loads & _32_BITS), self.oldest_page()
        since = int(self._since[oldest // self._pages_per_read])
        if since and (now - since) & _32_BITS > most_loads:
            return oldest
        return int(kernels.most_urgent(self.waiting, self._since, self._pages_per_read, now, 0, 0))

    def urgent_page_outside(self, first_page: int, last_page: int) -> int | None:
        """Return a page of the most urgent load but for these pages, if any."""
        now = max(1, (self._loads + 1) & _32_BITS)
        about = (self.waiting, self._since, self._pages_per_read, now)
        page = int(kernels.most_urgent(*about, first_page, last_page))
        return None if page < 0 else page

    def oldest_page_outside(self, first_page: int, last_page: int) -> int | None:
        """Return the page of the oldest tuple that does not belong to these pages, if any."""
        page = int(kernels.first_outside(first_page, last_page, self._newer))
        return None if page == len(self.waiting) else page

    def requested_page_from(self, page: int) -> int:
        """Return the first requested page from this one on, round the end."""
        assert self.count
        return int(kernels.next_requested(self.waiting, page % len(self.waiting)))

    def take(self, first_page: int, last_page: int) -> Iterator[Taken]:
        """Take the tuples that belong to some pages out of the table; they keep rows and slots.

        They come page after page, as many pages at a time as `most_taken` tuples wait for, so that
        columns are read once for them. The arrays are overwritten by the next step.
        """
        if len(self._since):
            about = (self.waiting, self._since, self._pages_per_read)
            kernels.forget_loads(first_page, last_page, *about)
        while first_page < last_page:
            pages = (first_page, last_page, self.waiting)
            end = int(kernels.end_of_group(*pages, self._most_taken))
            yield from self._take_group(first_page, end)
            first_page = end

    def _take_group(self, first_page: int, last_page: int) -> Iterator[Taken]:
        kernels.leave(first_page, last_page, self.waiting, self._newer, self._older)
        chains = (self._heads, self._per_page, self._codes, self._following)
        while True:
            pages = (first_page, last_page)
            count = int(kernels.take_chains(*pages, *chains, *self._taken))
            if count == 0:
                return
            yield Taken(*(column[:count] for column in self._taken))

    def release(self, slots: Slots) -> None:
        """Let tuples go that were taken out."""
        self._rows.drop(slots)
        first = self.capacity - self.count
        self._free[first : first + len(slots)] = slots
        self._count -= len(slots)
