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
from semistream.joins import lookup_kernels as kernels
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
        slots, results = kernels.in_turn(self._slots[: self._count], first, last, nulls)
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
