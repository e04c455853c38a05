"""The window: stream tuples that wait for their match. Hash table H and arrival queue Q.

::

    Q   ┌──────┬──────┬──────┬─ … ─┬──────┐   how many tuples arrived together, oldest first
        │  w   │  w   │  w   │     │  w   │
        └──────┴──────┴──────┴─ … ─┴──────┘
    slots  a ring in arrival order: code, next in chain, row
    H   bucket → first slot … last slot of its chain, in arrival order

Slots are handed out round the ring, so arrival order is slot order and Q needs no pointers, only
the size of each batch. Chains grow at the tail: the oldest tuple of all is always the head of its
chain, and expiry never searches.

Memory per tuple (`bytes_per_tuple`): code 8, next 4, head and tail of a bucket 8, a flag for
joins that must know who found no match, and the row itself. All of it is allocated at the start.
"""

from collections import deque
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from semistream.join import kernels
from semistream.join.buckets import Buckets
from semistream.join.rows import RowStore, Slots, bytes_per_slot

_TABLE_BYTES_PER_TUPLE = 8 + 4 + 4 + 4 + 1


def bytes_per_tuple(schema: pa.Schema, value_bytes: Sequence[float]) -> float:
    """Return what a waiting tuple takes, its share of the hash table included."""
    columns = zip(schema, value_bytes, strict=True)
    return _TABLE_BYTES_PER_TUPLE + sum(bytes_per_slot(f.type, size) for f, size in columns)


class HashTable:
    """Chains of codes by bucket, over a ring of slots. The window's H, and `resident`'s table."""

    def __init__(self, buckets: Buckets, slot_codes: NDArray[np.int64]) -> None:
        """Make an empty table whose slots keep their codes in the given array."""
        self._function = buckets.function
        self._heads = np.full(buckets.count, kernels.NO_SLOT, np.int32)
        self._tails = np.full(buckets.count, kernels.NO_SLOT, np.int32)
        self._following = np.full(len(slot_codes), kernels.NO_SLOT, np.int32)
        self._slot_codes = slot_codes

    def insert(self, codes: NDArray[np.int64], first_slot: int) -> None:
        """Add codes at consecutive slots."""
        kernels.insert(
            codes,
            first_slot,
            self._slot_codes,
            self._heads,
            self._tails,
            self._following,
            *self._function,
        )

    def expire(self, first_slot: int, count: int) -> None:
        """Take out the oldest codes."""
        kernels.expire(
            first_slot, count, self._slot_codes, self._heads, self._following, *self._function
        )

    def probe(
        self,
        codes: NDArray[np.int64],
        position: NDArray[np.int64],
        out_probes: NDArray[np.int64],
        out_slots: NDArray[np.int64],
    ) -> int:
        """Find equal codes; see `kernels.probe`."""
        return int(
            kernels.probe(
                codes,
                position,
                self._slot_codes,
                self._heads,
                self._following,
                *self._function,
                out_probes,
                out_slots,
            )
        )


class Window:
    """At most `capacity` waiting stream tuples, with their rows."""

    def __init__(
        self, schema: pa.Schema, capacity: int, value_bytes: Sequence[float], buckets: Buckets
    ) -> None:
        """Allocate everything."""
        self.capacity = capacity
        self.count = 0
        self.queue: deque[int] = deque()
        self.matched = np.zeros(capacity, np.uint8)
        self.table = HashTable(buckets, np.zeros(capacity, np.int64))
        self._rows = RowStore(schema, capacity, value_bytes)
        self._oldest = 0

    def room(self, batch: pa.RecordBatch) -> int:
        """Return how many of the batch's first rows can enter now."""
        free = self.capacity - self.count
        return min(free, self._rows.room(batch[:free])) if free else 0

    def insert(self, batch: pa.RecordBatch, codes: NDArray[np.int64]) -> None:
        """Let tuples in; there must be room."""
        first = (self._oldest + self.count) % self.capacity
        slots = self._ring(first, batch.num_rows)
        self._rows.put(slots, batch, live=lambda: self.oldest(self.count))
        self.table.insert(codes, first)
        self.matched[slots] = 0
        self.count += batch.num_rows

    def oldest(self, count: int) -> Slots:
        """Return the slots of the oldest tuples, in arrival order."""
        return self._ring(self._oldest, count)

    def expire(self, count: int) -> None:
        """Let the oldest tuples go."""
        self.table.expire(self._oldest, count)
        self._rows.drop(self.oldest(count))
        self._oldest = (self._oldest + count) % self.capacity
        self.count -= count

    def gather(self, slots: Slots, columns: Sequence[int] | None = None) -> list[pa.Array]:
        """Return columns of the rows at these slots."""
        return self._rows.gather(slots, columns)

    def _ring(self, first: int, count: int) -> Slots:
        return np.arange(first, first + count, dtype=np.int64) % self.capacity
