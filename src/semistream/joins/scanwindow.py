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

Memory per tuple (`scan_tuple_bytes`): code 8, next 4, head of a bucket 4, or 5 where listed codes
are kept apart, a flag that says whether it has found a match 1, and the row itself; besides, a
little that does not depend on their number (`window_base_bytes`). All of it is allocated at the
start.
"""

from collections import deque

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from semistream.budget.rowsizes import Widths
from semistream.joins.buckets import Buckets
from semistream.joins.hashtable import HashTable
from semistream.joins.rows import Slots
from semistream.joins.window import Window
from semistream.relation.codepages import CodeBits


class ScanWindow(Window):
    """At most `capacity` waiting stream tuples, with their rows."""

    def __init__(
        self,
        schema: pa.Schema,
        capacity: int,
        widths: Widths,
        implied: int | None,
        buckets: Buckets,
        most_pairs: int,
        listed: CodeBits | None = None,
    ) -> None:
        """Allocate everything. A probe yields at most `most_pairs` matches at a time.

        Tuples with `listed` codes are kept apart (`hashtable.py`).
        """
        super().__init__(schema, capacity, widths, implied)
        self.queue: deque[int] = deque()  # Q: tuples that arrived together, by batch, oldest first
        self.table = HashTable(buckets, self._codes, self._following, most_pairs, listed)  # H

    @property
    def count(self) -> int:
        """How many tuples wait."""
        return self.table.live

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

    def _ring(self, first: int, count: int) -> Slots:
        first %= self.capacity
        slots = np.arange(first, first + count, dtype=np.int64)
        return slots if first + count <= self.capacity else slots % self.capacity
