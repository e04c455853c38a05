"""Ordered output: joined rows wait until all rows of earlier stream tuples have left.

From section 3.3 of `meshjoin.txt`, "Ordered join output", for any join.

::

    stream ─► numbered ─► any join ─► rows, in any order ─► WAITING ROWS ─► rows in stream order
                             └ which numbers are resolved ──────┘

Each stream row has a number, in a column of its own that the join carries along. The join reports
the numbers that are resolved: all their rows have been emitted, or they have none. Rows up to the
first number that is not resolved leave, sorted by number; the others wait here.

The paper attaches results to the waiting tuple's entry in H. Here they wait apart from it, because
hits of a front stage, misses and rows of index joins have no entry any more when they are emitted.

Memory: the rows that wait, and one byte for each number between the first that is not resolved and
the last that is. Rows are copied when they are put in order, so they may take half of what is
reserved. When they are too many, the join is told that nothing arrives for now
(an empty batch), until the oldest tuples are resolved.

Degenerate cases: a tuple with more matches than fit is a `BudgetError`.
"""

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from semistream.columns import POOL, total_bytes
from semistream.errors import BudgetError
from semistream.jit import njit
from semistream.memory import return_freed_pages
from semistream.units import format_bytes

ORDER_COLUMN = "__semistream_order"
_MOST_ROWS = 16_384  # of a batch that leaves
_LEAST_ROWS = 4_096  # that leave together while more is to come
Numbers = NDArray[np.int64]


class Resolved:
    """Which numbers are resolved."""

    def __init__(self) -> None:
        """Begin with none."""
        self.upto = 0  # all numbers below are resolved
        self._beyond = np.zeros(1 << 16, np.bool_)  # by number, from `upto` on

    @property
    def size_bytes(self) -> int:
        """What it takes."""
        return self._beyond.nbytes

    def add(self, numbers: Numbers) -> None:
        """Note that these are resolved."""
        if not len(numbers):
            return
        last = int(numbers.max()) - self.upto
        while last >= len(self._beyond):
            self._beyond = np.append(self._beyond, np.zeros(len(self._beyond), np.bool_))
        moved = _mark(numbers, self.upto, self._beyond)
        self.upto += int(moved)


class WaitingRows:
    """Joined rows that wait for their turn, at most `limit_bytes` of them."""

    def __init__(self, limit_bytes: int, index: int) -> None:
        """Begin with none; the column at `index` has the numbers, and does not leave."""
        self.limit_bytes = limit_bytes
        self.resolved = Resolved()
        self.size_bytes = 0  # of the rows that wait, those among them that have left included
        self.peak_bytes = 0
        self._index = index
        self._batches: list[pa.RecordBatch] = []
        self._numbers: list[Numbers] = []  # of the rows of each
        self._row_count = 0  # rows in all batches
        self._left = 0  # all rows of numbers below have left
        self._last = -1  # the greatest number of a row that waits or has waited

    @property
    def is_short_of_room(self) -> bool:
        """Whether no more tuples should enter the join: half of the room is for those in it.

        Rows whose turn it is do not count: they leave with the next ones.
        """
        return self._last >= self.resolved.upto and self._is_filled

    @property
    def _is_filled(self) -> bool:
        """Whether a quarter of the room is taken."""
        return self.size_bytes + self.resolved.size_bytes > self.limit_bytes // 4

    def add(self, batch: pa.RecordBatch) -> None:
        """Let joined rows wait."""
        numbers = batch.column(self._index).to_numpy(zero_copy_only=False)
        self._last = max(self._last, int(numbers.max(initial=-1)))
        self._numbers.append(numbers)
        self._batches.append(batch.remove_column(self._index))
        self._row_count += batch.num_rows
        self.size_bytes += total_bytes(batch.columns)
        self.peak_bytes = max(self.peak_bytes, self.size_bytes + self.resolved.size_bytes)
        if self.peak_bytes > self.limit_bytes // 2:
            raise BudgetError(
                f"{format_bytes(self.peak_bytes)} of joined rows wait for rows of earlier stream "
                f"rows, but ordered output has {format_bytes(self.limit_bytes)} of this budget. "
                "Raise memory, add fewer columns, or leave ordered out: single stream rows have "
                "very many matches"
            )

    def release(self, *, is_end: bool) -> Iterator[pa.RecordBatch]:
        """Yield the rows whose turn it is, in order, if they are enough to be worth it."""
        upto = self.resolved.upto
        ready = upto - self._left
        enough = max(_LEAST_ROWS, self._row_count // 4)
        if not self._batches or (ready < enough and not is_end and not self._is_filled):
            self._left = upto if not self._batches else self._left
            return
        if ready == 0:
            return
        numbers = np.concatenate(self._numbers)
        order, staying = _in_turn(numbers, self._left, upto)
        merged = pa.concat_batches(self._batches, memory_pool=POOL)
        self._batches, self._numbers = [merged], [numbers]
        self._left = upto
        for first in range(0, len(order), _MOST_ROWS):
            yield merged.take(pa.array(order[first : first + _MOST_ROWS]))
        if len(staying) < len(numbers):
            self._keep(merged, numbers, staying)

    def _keep(self, merged: pa.RecordBatch, numbers: Numbers, staying: Numbers) -> None:
        """Drop the rows that have left."""
        self._batches, self._numbers = [], []
        if len(staying):
            self._batches = [merged.take(pa.array(staying))]
            self._numbers = [numbers[staying]]
        del merged
        return_freed_pages()
        self._row_count = len(staying)
        self.size_bytes = 8 * len(staying) + sum(total_bytes(b.columns) for b in self._batches)


@njit(cache=True)
def _mark(numbers, upto, beyond):  # type: ignore[no-untyped-def]
    """Mark numbers, and move the marks so that they begin with the first unmarked number.

    Return by how many they moved. Marks move only by a lot, or all: else each call would move all.
    """
    for number in numbers:
        if number >= upto:
            beyond[number - upto] = True
    moved = 0
    while moved < len(beyond) and beyond[moved]:
        moved += 1
    if moved:
        beyond[: len(beyond) - moved] = beyond[moved:].copy()
        beyond[len(beyond) - moved :] = False
    return moved


@njit(cache=True)
def _in_turn(numbers, first, upto):  # type: ignore[no-untyped-def]
    """Return the rows of numbers ``first … upto - 1``, by number, and all rows behind them.

    Rows of one number stay in the order in which they are.
    """
    starts = np.zeros(upto - first + 1, np.int64)
    behind = 0
    for number in numbers:
        if number >= upto:
            behind += 1
        else:
            starts[number - first + 1] += 1
    for i in range(len(starts) - 1):
        starts[i + 1] += starts[i]
    order = np.empty(len(numbers) - behind, np.int64)
    staying = np.empty(behind, np.int64)
    kept = 0
    for i in range(len(numbers)):
        number = numbers[i]
        if number >= upto:
            staying[kept] = i
            kept += 1
        else:
            order[starts[number - first]] = i
            starts[number - first] += 1
    return order, staying
