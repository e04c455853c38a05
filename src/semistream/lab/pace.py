"""How fast this machine's memory is at the moment.

On shared machines the rate of a join can change by half from one minute to the next, because its
neighbours use the memory too. A fixed piece of work, timed before and after each run, tells how
much of a difference is the machine's; runs are compared as if it had had its best pace throughout.
"""

from time import perf_counter

import numpy as np

_ROWS = 4_000_000
_PICKS = 400_000
_TIMES = 3


class Pacer:
    """Times random reads from 32 MB of memory."""

    def __init__(self) -> None:
        """Prepare what is read."""
        self._rows = np.arange(_ROWS)
        self._picks = np.random.default_rng(0).integers(0, _ROWS, _PICKS)
        self._out = np.empty(_PICKS, np.int64)

    def seconds(self) -> float:
        """Return what the work takes now, a few hundredths of a second."""
        times = []
        for _ in range(_TIMES):
            started = perf_counter()
            np.take(self._rows, self._picks, out=self._out)
            times.append(perf_counter() - started)
        return float(np.median(times))
