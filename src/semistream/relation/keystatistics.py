"""Statistics of a partition's key codes, counted while it is written.

The manifest stores them. Joins use them to choose how to hash (`PageReader.crowding`), and to know
whether keys are unique.
"""

import numpy as np
from numpy.typing import NDArray

from semistream.jit import njit


class KeyStatistics:
    """Counts over sorted codes: rows, distinct codes, the longest run of one, and crowding."""

    def __init__(self) -> None:
        """Start before the first row."""
        self.row_count = 0
        self.distinct = 0  # distinct codes
        self.most_duplicates = 0  # rows of the code that has most
        self.first = 0  # the least code; 0 without rows
        self.last = 0  # the greatest code so far
        # For each shift 0 … 63: the row at which code >> shift last changed,
        self._run_starts = np.zeros(64, np.int64)
        # and the sum of the squared lengths of the runs that ended before that row.
        self._squares = np.zeros(64, np.float64)

    def add(self, codes: NDArray[np.int64]) -> None:
        """Count the next sorted codes."""
        if self.row_count == 0:
            self.first = int(codes[0])
            self.last = self.first
            self.distinct = 1
        distinct, longest = _count_runs(
            codes, self.last, self.row_count, self._run_starts, self._squares
        )
        assert distinct >= 0, "codes must come sorted"
        self.distinct += distinct
        self.last = int(codes[-1])
        self.row_count += len(codes)
        open_run = self.row_count - int(self._run_starts[0])
        self.most_duplicates = max(self.most_duplicates, longest, open_run)

    def squared_loads(self) -> tuple[int, ...]:
        """Return, per shift, the sum of squared rows per ``code >> shift``."""
        open_runs = self.row_count - self._run_starts
        return tuple(int(x) for x in self._squares + open_runs.astype(np.float64) ** 2)


@njit(cache=True)
def _count_runs(codes, previous, row, run_starts, squares):  # type: ignore[no-untyped-def]
    """Return the number of codes that differ from the one before, and the longest run that ended.

    A code that differs from its predecessor in bit h ends the runs of all shifts up to h. Returns
    -1 if the codes are not sorted.
    """
    distinct = 0
    longest = 0
    for code in codes:
        if code != previous:
            if code < previous:
                return -1, 0
            distinct += 1
            longest = max(longest, row - run_starts[0])
            differing = np.uint64(code ^ previous)
            shift = 0
            while shift < 64 and (differing >> np.uint64(shift)) != 0:
                run = np.float64(row - run_starts[shift])
                squares[shift] += run * run
                run_starts[shift] = row
                shift += 1
        previous = code
        row += 1
    return distinct, longest
