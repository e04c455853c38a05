"""The scan window: stream tuples that wait for their match. Hash table H and arrival queue Q.

::

    Q   ┌──────┬──────┬──────┬─ … ─┬──────┐   how many tuples arrived together, oldest first
        │  w   │  w   │  w   │     │  w   │
        └──────┴──────┴──────┴─ … ─┴──────┘
    slots  a ring in arrival order: code, next older in chain, row
    H   bucket → newest slot → … → oldest slot of its chain

Slots are handed out round the ring, so arrival order is slot order: Q needs no pointers, only the
size of each batch, and a tuple has left as soon as it is no longer among the `live` newest. That
makes expiry free: a probe that comes to a slot that is not live has reached the chain's end.

Memory per tuple (`scan_tuple_bytes`): code 8, next 4, head of a bucket 4, a flag that says whether
it has found a match 1, and the row itself; besides, a little that does not depend on their number
(`window_base_bytes`). All of it is allocated at the start.
"""

from collections import deque
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from semistream.budget.rowsizes import Widths, record_dtype
from semistream.budget.tuplesizes import TABLE_FIELDS
from semistream.joins.buckets import Buckets
from semistream.joins.hashtable import HashTable
from semistream.joins.rows import RowStore, Slots


class ScanWindow:
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
        self.capacity = capacity  # tuples that can wait
        self.queue: deque[int] = deque()  # Q: tuples that arrived together, by batch, oldest first
        self.matched = np.zeros(capacity, np.uint8)  # by slot: what is known of its matches
        records = np.zeros(capacity, record_dtype(schema, implied, TABLE_FIELDS))
        self._codes = records["code"]  # by slot
        self.table = HashTable(buckets, self._codes, records["next"], most_pairs)  # H
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
        """Return the size in bytes of each row's variable-width values; None without any."""
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
