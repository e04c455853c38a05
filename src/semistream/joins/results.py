"""Results that wait with the tuples of a window: the rows of R that these have matched.

Rows of R are found in the order of its pages, so they are kept as they come, each with the slot of
its tuple. When all tuples of a stretch of the window are resolved, `in_turn` says which result of
which slot comes next.

Memory: `semistream.budget.resultsizes`, allocated once.
"""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from semistream.budget.resultsizes import ResultColumns
from semistream.budget.rowsizes import record_dtype
from semistream.jit import njit
from semistream.joins.rows import RowStore, Slots

Places = NDArray[np.int32]


class ResultsFullError(Exception):
    """There is no room for results; never seen by users."""


class Results:
    """At most as many rows of R as `columns` have room for beside `tuples` tuples."""

    def __init__(self, columns: ResultColumns, tuples: int) -> None:
        """Allocate everything."""
        self._capacity = columns.capacity(tuples)
        size = self._capacity + columns.adds_nulls
        records = np.empty(size, record_dtype(columns.schema))
        self._rows = RowStore(columns.schema, records, columns.widths)
        self._slots = np.empty(self._capacity, np.int32)  # of the tuples that they belong to
        self._count = 0
        self._schema = columns.schema
        self._has_nulls = False  # whether the last place has its row of nulls

    def clear(self) -> None:
        """Let all results go."""
        self._rows.drop(np.arange(self._count))
        self._count = 0

    def add(self, slots: Slots, columns: Sequence[pa.Array]) -> None:
        """Let rows of R wait with the tuples at these slots; `ResultsFullError` without room."""
        end = self._count + len(slots)
        if end > self._capacity or self._rows.room(columns) < len(slots):
            raise ResultsFullError
        self._rows.put(np.arange(self._count, end), columns)
        self._slots[self._count : end] = slots
        self._count = end

    def in_turn(self, first: int, last: int, *, with_misses: bool) -> tuple[Places, Places]:
        """Return slots ``first … last - 1``, one for each result of each, and these results.

        Slots without any are left out, or have the row of nulls as their result.
        """
        nulls = self._capacity if with_misses else -1
        slots, results = _in_turn(self._slots[: self._count], first, last, nulls)
        if with_misses and not self._has_nulls and (results == nulls).any():
            self._rows.put(np.array([nulls]), [pa.nulls(1, field.type) for field in self._schema])
            self._has_nulls = True
        return slots, results

    def sizes(self, results: Places) -> NDArray[np.int64] | None:
        """Return the size in bytes of each row's variable-width values; None without any."""
        return self._rows.sizes(results)

    def gather(self, results: Places) -> list[pa.Array]:
        """Return the columns of these rows."""
        return self._rows.gather(results)


@njit(cache=True)
def _in_turn(slots, first, last, nulls):  # type: ignore[no-untyped-def]
    """Return slots and places of results, by slot; `nulls`, unless negative, where there is none.

    Results of one slot stay in the order in which they are.
    """
    ends = np.zeros(last - first + 1, np.int32)
    for slot in slots:
        ends[slot - first + 1] += 1
    missed = 0
    if nulls >= 0:
        for i in range(1, len(ends)):
            missed += ends[i] == 0
    of_slots = np.empty(len(slots) + missed, np.int32)
    results = np.empty(len(slots) + missed, np.int32)
    # 1. Each slot's places, and where they begin; a miss has one.
    begin = 0
    for i in range(1, len(ends)):
        count = ends[i]
        ends[i - 1] = begin
        if count == 0 and nulls >= 0:
            of_slots[begin] = first + i - 1
            results[begin] = nulls
            begin += 1
        for _ in range(count):
            of_slots[begin] = first + i - 1
            begin += 1
    # 2. The results, each at the next place of its slot.
    for i in range(len(slots)):
        place = ends[slots[i] - first]
        results[place] = i
        ends[slots[i] - first] = place + 1
    return of_slots, results
