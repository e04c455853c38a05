"""The waiting room: stream tuples that wait for their page. Hash table by page, queue by arrival.

::

    Q   ┌───┬───┬─ ─┬───┬─ … ─┐   slots in arrival order; tuples leave from anywhere
        │ 7 │ 2 │   │ 5 │     │
        └───┴───┴─ ─┴───┴─ … ─┘
    H   home page → a few buckets, by place within the page → chains of slots

What the index joins need and the window of a cyclic scan does not: a tuple leaves as soon as its
page has been read, whenever that is, and its slot is used again at once. All tuples at home on a
page leave together, match or no match, so whole chains are taken out and nothing is searched for.

Q is a ring of slots, twice as long as there are slots. A tuple that leaves is not deleted from it:
its entry no longer agrees with the slot's `place` and is passed over. When the ring has gone round,
the valid entries are moved together.

Memory per tuple: code 8, next in chain 4, place in Q 8, two entries of Q 8, a copy of one while an
arena is squeezed 4, free list 4, match flag 1, and the row; 4 bytes for each bucket, at least one
bucket a page.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import ceil

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from semistream.joins import kernels
from semistream.joins.pageindex import PageIndex
from semistream.joins.rows import RowStore, Slots, bytes_per_slot

_BYTES_PER_TUPLE = 8 + 4 + 8 + 8 + 4 + 4 + 1 + 4


def room_bytes_per_tuple(schema: pa.Schema, value_bytes: Sequence[float]) -> int:
    """Return what a waiting tuple takes, a bucket included."""
    columns = zip(schema, value_bytes, strict=True)
    return ceil(_BYTES_PER_TUPLE + sum(bytes_per_slot(f.type, size) for f, size in columns))


@dataclass(frozen=True, slots=True)
class Taken:
    """Tuples that were taken out of the table because their pages are here."""

    slots: Slots
    codes: NDArray[np.int64]
    homes: NDArray[np.int64]


class WaitingRoom:
    """At most `capacity` stream tuples, with their rows, by page and by arrival."""

    def __init__(
        self,
        schema: pa.Schema,
        capacity: int,
        value_bytes: Sequence[float],
        index: PageIndex,
        most_taken: int,
    ) -> None:
        """Allocate everything; at most `most_taken` tuples are taken out at a time."""
        self.capacity = capacity
        self.count = 0
        self.matched = np.zeros(capacity, np.uint8)
        self._index = index
        self._per_page = max(1, capacity // len(index.first_codes))
        self._heads = np.full(len(index.first_codes) * self._per_page, kernels.NO_SLOT, np.int32)
        self._following = np.full(capacity, kernels.NO_SLOT, np.int32)
        self._slot_codes = np.zeros(capacity, np.int64)
        self._free = np.arange(capacity - 1, -1, -1, dtype=np.int32)
        self._place = np.full(capacity, -1, np.int64)
        self._queue = np.zeros(2 * capacity, np.int32)
        self._front = self._back = 0
        self._rows = RowStore(schema, capacity, value_bytes)
        self._out_slots = np.empty(most_taken, np.int64)
        self._out_buckets = np.empty(most_taken, np.int64)

    def room(self, batch: pa.RecordBatch) -> int:
        """Return how many of the batch's first rows can enter now."""
        free = self.capacity - self.count
        return min(free, self._rows.room(batch[:free])) if free else 0

    def insert(self, batch: pa.RecordBatch, codes: NDArray[np.int64]) -> None:
        """Let tuples in; there must be room."""
        count = len(codes)
        if self._back + count - self._front > len(self._queue):
            self._close_ranks()
        left = self.capacity - self.count - count
        slots = self._free[left : left + count][::-1].astype(np.int64)
        self._rows.put(slots, batch, live=self._waiting)
        places = np.arange(self._back, self._back + count)
        self._place[slots] = places
        self._queue[places % len(self._queue)] = slots
        self._back += count
        kernels.enter_room(
            codes,
            slots,
            self._slot_codes,
            self._heads,
            self._following,
            self._per_page,
            *self._index.arrays,
        )
        self.matched[slots] = 0
        self.count += count

    def oldest_home(self) -> int:
        """Return the home page of the tuple that has waited longest."""
        assert self.count
        while True:
            slot = self._queue[self._front % len(self._queue)]
            if self._place[slot] == self._front:
                return int(self._index.homes(self._slot_codes[slot : slot + 1])[0])
            self._front += 1

    def first_home(self) -> int:
        """Return the first page, in the order of R, that any tuple is at home on."""
        assert self.count
        return int(kernels.first_occupied(self._heads)) // self._per_page

    def take(self, first_page: int, last_page: int) -> Iterator[Taken]:
        """Take the tuples at home on some pages out of the table; they keep rows and slots."""
        buckets = first_page * self._per_page, last_page * self._per_page
        chains = (self._heads, self._following, self._out_slots, self._out_buckets)
        while count := int(kernels.take_chains(*buckets, *chains)):
            slots = self._out_slots[:count].copy()
            homes = self._out_buckets[:count] // self._per_page
            yield Taken(slots, self._slot_codes[slots], homes)

    def release(self, slots: Slots) -> None:
        """Let tuples go that were taken out."""
        self._rows.drop(slots)
        self._place[slots] = -1
        first = self.capacity - self.count
        self._free[first : first + len(slots)] = slots
        self.count -= len(slots)

    def gather(self, slots: Slots, columns: Sequence[int] | None = None) -> list[pa.Array]:
        """Return columns of the rows at these slots."""
        return self._rows.gather(slots, columns)

    def _waiting(self) -> NDArray[np.int32]:
        """Return the slots in use, oldest first."""
        self._close_ranks()
        first = self._front % len(self._queue)
        wrapped = max(0, first + self.count - len(self._queue))
        return np.concatenate([self._queue[first : first + self.count], self._queue[:wrapped]])

    def _close_ranks(self) -> None:
        """Move the valid entries of Q together."""
        ends = (self._front, self._back)
        self._back = int(kernels.close_ranks(self._queue, self._place, *ends))
