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

Memory: the rows that wait, in records that are allocated once (`rows.FixedStore`), and one byte for
each number between the first that is not resolved and the last that is. Columns of variable width
are kept as they came, and copied when they are put in order, so they count twice. When the rows
are too many, the join is told that nothing arrives for now (an empty batch), until the oldest
tuples are resolved.

Degenerate cases: a tuple with more matches than fit is a `BudgetError`.
"""

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from semistream.budget.rowsizes import record_dtype, variable_columns
from semistream.columns import Encoding, concatenate, encoding_of, take_rows, total_bytes
from semistream.errors import BudgetError
from semistream.jit import njit
from semistream.joins.rows import FixedStore
from semistream.memory import return_freed_pages
from semistream.units import format_bytes

ORDER_COLUMN = "__semistream_order"
_MOST_ROWS = 16_384  # of a batch that leaves
_LEAST_ROWS = 4_096  # that leave together while more is to come
# Of a row: its number, and while rows are put in order its place, that of its number, and its turn.
_INDEX_BYTES = 8 + 3 * 4
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


def waiting_row_bytes(schema: pa.Schema) -> int:
    """Return the size of a row that waits, without values of variable width."""
    fixed = [f for f in schema if encoding_of(f.type) is Encoding.FIXED]
    nullable = [field for field in fixed if field.nullable]
    return record_dtype(schema).itemsize + len(nullable) + _INDEX_BYTES


class WaitingRows:
    """Joined rows that wait for their turn, at most `limit_bytes` of them."""

    def __init__(self, limit_bytes: int, schema: pa.Schema, index: int) -> None:
        """Begin with none; `schema` is that of the rows that leave.

        Rows come with one column more, at `index`: their numbers.
        """
        self.limit_bytes = limit_bytes
        self.resolved = Resolved()
        self.peak_bytes = 0
        self._schema = schema
        self._index = index
        self._row_bytes = waiting_row_bytes(schema)
        self._most_rows = max(1, limit_bytes // self._row_bytes)
        self._numbers = np.empty(self._most_rows, np.int64)  # of the rows, as they came
        # Columns of variable width: arrays as they came, by the index of the column.
        self._chunks: dict[int, list[pa.Array]] = {i: [] for i in variable_columns(schema)}
        self._chunk_bytes = 0  # of all these arrays
        self._row_count = 0  # rows that wait
        self._left = 0  # all rows of numbers below have left
        self._last = -1  # the greatest number of a row that waits or has waited
        self._allocate()

    def _allocate(self) -> None:
        """Make room for all columns of fixed width; it takes memory as it is used."""
        records = np.empty(self._most_rows, record_dtype(self._schema))
        self._fixed = {
            i: FixedStore(field, records[str(i)])
            for i, field in enumerate(self._schema)
            if i not in self._chunks
        }

    @property
    def size_bytes(self) -> int:
        """Size of the rows that wait."""
        copies = 2 * self._chunk_bytes
        return self._row_count * self._row_bytes + copies + self.resolved.size_bytes

    @property
    def is_short_of_room(self) -> bool:
        """Whether no more tuples should enter the join: half of the room is for those in it.

        Rows whose turn it is do not count: they leave with the next ones.
        """
        return self._last >= self.resolved.upto and self._is_filled

    @property
    def _is_filled(self) -> bool:
        """Whether half of the room is taken."""
        return self.size_bytes > self.limit_bytes // 2

    def add(self, batch: pa.RecordBatch) -> None:
        """Let joined rows wait."""
        numbers = batch.column(self._index).to_numpy(zero_copy_only=False)
        self._last = max(self._last, int(numbers.max(initial=-1)))
        columns = [column for i, column in enumerate(batch.columns) if i != self._index]
        rows = slice(self._row_count, self._row_count + batch.num_rows)
        self._row_count += batch.num_rows
        self._chunk_bytes += total_bytes(columns[i] for i in self._chunks)
        self.peak_bytes = max(self.peak_bytes, self.size_bytes)
        self._check_room()
        self._numbers[rows] = numbers
        for i, store in self._fixed.items():
            store.put(rows, columns[i])
        for i, chunks in self._chunks.items():
            chunks.append(columns[i])

    def _check_room(self) -> None:
        if self.peak_bytes > self.limit_bytes or self._row_count > self._most_rows:
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
        if not self._row_count or (ready < enough and not is_end and not self._is_filled):
            self._left = upto if not self._row_count else self._left
            return
        if ready == 0:
            return
        order, staying = _in_turn(self._numbers[: self._row_count], self._left, upto)
        self._left = upto
        for chunks in self._chunks.values():  # one by one, so that few are there twice
            chunks[:] = [concatenate(chunks)]
        for first in range(0, len(order), _MOST_ROWS):
            yield self._rows(order[first : first + _MOST_ROWS])
        if len(order):
            self._keep(staying)

    def _rows(self, rows: NDArray[np.int32]) -> pa.RecordBatch:
        """Return some of the rows, in this order."""
        columns = [
            self._fixed[i].gather(rows) if i in self._fixed else take_rows(self._chunks[i][0], rows)
            for i in range(len(self._schema))
        ]
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)

    def _keep(self, staying: NDArray[np.int32]) -> None:
        """Drop the rows that have left: the others move to the front, in their order."""
        self._row_count = len(staying)
        for first in range(0, len(staying), _MOST_ROWS):
            rows = staying[first : first + _MOST_ROWS]
            to = slice(first, first + len(rows))
            self._numbers[to] = self._numbers[rows]
            for store in self._fixed.values():
                store.put(to, store.gather(rows))
        self._chunk_bytes = 0
        for chunks in self._chunks.values():
            chunks[:] = [take_rows(chunks[0], staying)] if len(staying) else []
            self._chunk_bytes += total_bytes(chunks)
        if self._chunks:
            # Values of variable width may need the memory next time that records had this time.
            if not self._row_count:
                self._allocate()
            return_freed_pages()


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
    starts = np.zeros(upto - first + 1, np.int32)
    behind = 0
    for number in numbers:
        if number >= upto:
            behind += 1
        else:
            starts[number - first + 1] += 1
    for i in range(len(starts) - 1):
        starts[i + 1] += starts[i]
    order = np.empty(len(numbers) - behind, np.int32)
    staying = np.empty(behind, np.int32)
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
