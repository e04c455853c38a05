"""The window: stream tuples that wait for their match. Hash table H and arrival queue Q.

::

    Q   ┌──────┬──────┬──────┬─ … ─┬──────┐   how many tuples arrived together, oldest first
        │  w   │  w   │  w   │     │  w   │
        └──────┴──────┴──────┴─ … ─┴──────┘
    slots  a ring in arrival order: code, next older in chain, row
    H   bucket → newest slot → … → oldest slot of its chain

Slots are handed out round the ring, so arrival order is slot order: Q needs no pointers, only the
size of each batch, and a tuple has left as soon as it is no longer among the `live` newest. That
makes expiry free: a probe that comes to a slot that is not live has reached the chain's end.

Memory per tuple (`bytes_per_tuple`): code 8, next 4, head of a bucket 4, a flag that says whether
it has found a match 1, and the row itself; besides, a little that does not depend on their number
(`window_base_bytes`). All of it is allocated at the start.
"""

from collections import deque
from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from semistream.budget.rowsizes import Widths, record_dtype
from semistream.budget.tuplesizes import TABLE_FIELDS
from semistream.joins import kernels
from semistream.joins.buckets import Buckets
from semistream.joins.rows import RowStore, Slots


class HashTable:
    """Chains of codes by bucket, over a ring of slots. The window's H, and `resident`'s table."""

    def __init__(
        self,
        buckets: Buckets,
        slot_codes: NDArray[np.int64],
        following: NDArray[np.int32],
        most_pairs: int,
    ) -> None:
        """Make an empty table whose slots keep codes and chains in the given arrays."""
        self._buckets = buckets
        self._heads = np.full(buckets.count, kernels.NO_SLOT, np.int32)
        self._following = following
        self._following[:] = kernels.NO_SLOT
        self._slot_codes = slot_codes
        self._candidates = kernels.make_candidates()
        self._out_probes = np.empty(most_pairs, np.int64)
        self._out_slots = np.empty(most_pairs, np.int64)
        self.newest = -1
        self.live = 0

    def insert(self, codes: NDArray[np.int64]) -> None:
        """Add codes at the slots after the newest."""
        first = (self.newest + 1) % len(self._slot_codes)
        chains = (self._slot_codes, self._heads, self._following)
        kernels.insert(codes, first, *chains, *self._buckets.function)
        self.newest = (self.newest + len(codes)) % len(self._slot_codes)
        self.live += len(codes)

    def expire(self, count: int) -> None:
        """Take out the oldest codes: chains end before them from now on."""
        self.live -= count

    def matches(
        self, codes: NDArray[np.int64], is_sorted: bool = False
    ) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64]]]:
        """Yield (index into `codes`, slot) of equal codes, at most `most_pairs` at a time.

        `is_sorted` says that the codes ascend, as those of consecutive pages do. The arrays are
        overwritten by the next step.
        """
        kernel = kernels.probe_sorted if is_sorted and self._buckets.is_ordered else kernels.probe
        position = kernels.start_of_probe()
        while not kernels.is_complete(position, len(codes)):
            found = kernel(
                codes,
                position,
                self._candidates,
                self._slot_codes,
                self._heads,
                self._following,
                self.newest,
                self.live,
                *self._buckets.function,
                self._out_probes,
                self._out_slots,
            )
            if found:
                yield self._out_probes[:found], self._out_slots[:found]


class Window:
    """At most `capacity` waiting stream tuples, with their rows."""

    def __init__(
        self,
        schema: pa.Schema,
        capacity: int,
        widths: Widths,
        implied: int | None,
        buckets: Buckets,
        most_pairs: int,
    ) -> None:
        """Allocate everything. A probe yields at most `most_pairs` matches at a time."""
        self.capacity = capacity
        self.queue: deque[int] = deque()
        self.matched = np.zeros(capacity, np.uint8)
        records = np.zeros(capacity, record_dtype(schema, implied, TABLE_FIELDS))
        self._codes = records["code"]
        self.table = HashTable(buckets, self._codes, records["next"], most_pairs)
        self._rows = RowStore(schema, records, widths, implied, self._codes)

    @property
    def count(self) -> int:
        """How many tuples wait."""
        return self.table.live

    def room(self, batch: pa.RecordBatch) -> int:
        """Return how many of the batch's first rows can enter now."""
        free = self.capacity - self.count
        return min(free, self._rows.room(batch[:free].columns)) if free else 0

    def insert(self, batch: pa.RecordBatch, codes: NDArray[np.int64]) -> None:
        """Let tuples in; there must be room."""
        slots = self._ring(self.table.newest + 1, batch.num_rows)
        self._rows.put(slots, batch.columns)
        self.table.insert(codes)
        self.matched[slots] = 0

    def oldest(self, count: int) -> Slots:
        """Return the slots of the oldest tuples, in arrival order."""
        return self._ring(self.table.newest + 1 - self.count, count)

    def expire(self, oldest: Slots) -> None:
        """Let the oldest tuples go, given their slots."""
        self._rows.drop(oldest)
        self.table.expire(len(oldest))

    def sizes(self, slots: Slots) -> NDArray[np.int64] | None:
        """Return what the variable-width values of each row take; None without any."""
        return self._rows.sizes(slots)

    def gather(self, slots: Slots, columns: Sequence[int] | None = None) -> list[pa.Array]:
        """Return columns of the rows at these slots."""
        return self._rows.gather(slots, columns)

    def codes_at(self, slots: Slots) -> NDArray[np.int64]:
        """Return the key codes at these slots."""
        return self._codes[slots]

    def _ring(self, first: int, count: int) -> Slots:
        first %= self.capacity
        slots = np.arange(first, first + count, dtype=np.int64)
        return slots if first + count <= self.capacity else slots % self.capacity
