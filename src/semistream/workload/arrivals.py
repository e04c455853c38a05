"""How many rows of a stream have arrived by a time, counted from its start.

The same settings always give the same arrivals, so a restarted source knows which rows have
arrived, and a row's waiting time follows from its number alone.
"""

import math
import threading
from bisect import bisect_right
from dataclasses import dataclass
from functools import lru_cache
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from semistream.errors import OptionError
from semistream.workload.base import chunk_rng
from semistream.workload.bursty import VirtualStreams, mean_bandwidth

_CHUNK_STEPS = 65_536


class Arrivals(Protocol):
    """When the rows of a stream arrive."""

    def arrived_by(self, seconds: float) -> int:
        """Return how many rows have arrived; never less at a later time."""

    def time_of(self, row: int) -> float:
        """Return when a row arrives: from then on `arrived_by` counts it. The first row is 0."""


@dataclass(frozen=True, slots=True)
class Steady:
    """`rate` rows a second, evenly.

    >>> Steady(1000).arrived_by(2.5), Steady(1000).time_of(999)
    (2500, 1.0)
    """

    rate: float

    def __post_init__(self) -> None:
        """Refuse a stream without rows."""
        _need_positive(rate=self.rate)

    def arrived_by(self, seconds: float) -> int:
        """Return how many rows have arrived."""
        return int(self.rate * max(seconds, 0.0))

    def time_of(self, row: int) -> float:
        """Return when a row arrives."""
        return _first_time(self, row, (row + 1) / self.rate)


@dataclass(frozen=True, slots=True)
class Intermittent:
    """`rate` rows a second for `on_s` seconds, then none for `off_s` seconds, and so on.

    >>> [Intermittent(100, on_s=2, off_s=3).arrived_by(t) for t in (1, 2, 4, 6)]
    [100, 200, 200, 300]
    """

    rate: float
    on_s: float
    off_s: float

    def __post_init__(self) -> None:
        """Refuse a stream without rows."""
        _need_positive(rate=self.rate, on_s=self.on_s)
        if not 0 <= self.off_s < math.inf:
            raise OptionError(f"off_s must be at least 0; got {self.off_s}")

    def arrived_by(self, seconds: float) -> int:
        """Return how many rows have arrived."""
        cycles, rest = divmod(max(seconds, 0.0), self.on_s + self.off_s)
        return int(self.rate * (cycles * self.on_s + min(rest, self.on_s)))

    def time_of(self, row: int) -> float:
        """Return when a row arrives."""
        on_time = (row + 1) / self.rate
        cycles = max(math.ceil(on_time / self.on_s) - 1, 0)
        return _first_time(self, row, on_time + cycles * self.off_s)


@dataclass(frozen=True, slots=True)
class Bursty:
    """`rate` rows a second in the long run, in bursts on many time scales.

    One step of the virtual streams of `bursty` lasts `step_s`; they switch after 1 to 1024 steps.
    Over a minute of the default steps, rates between a half and one and a half times the mean are
    common. Bandwidths are generated up to the requested step, about ten million steps per second,
    and kept as a few hundred bytes per 65,536 steps.
    """

    rate: float
    seed: int = 7
    step_s: float = 0.1

    def __post_init__(self) -> None:
        """Refuse a stream without rows."""
        _need_positive(rate=self.rate, step_s=self.step_s)

    def arrived_by(self, seconds: float) -> int:
        """Return how many rows have arrived."""
        delivered = _course(self.seed).delivered_by(max(seconds, 0.0) / self.step_s)
        return int(self._rows_per_unit * delivered)

    def time_of(self, row: int) -> float:
        """Return when a row arrives."""
        steps = _course(self.seed).step_of((row + 1) / self._rows_per_unit)
        return _first_time(self, row, steps * self.step_s)

    @property
    def _rows_per_unit(self) -> float:
        return self.rate * self.step_s / mean_bandwidth()


class _Course:
    """The rows that the virtual streams have delivered by a step, in chunks made on request."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._streams = VirtualStreams(np.random.default_rng(seed))
        self._starts = [self._streams.state()]  # at the beginning of each chunk
        self._totals = [0]  # delivered before each chunk
        # The number of the chunk that was used last, and its running sums.
        self._last: tuple[int, NDArray[np.int64]] = (-1, np.zeros(1, np.int64))
        self._lock = threading.Lock()

    def delivered_by(self, step: float) -> float:
        """Return the sum of the bandwidths of the first steps, part of a step in proportion."""
        number = int(step // _CHUNK_STEPS)
        with self._lock:
            while len(self._totals) <= number:
                self._extend()
            within = step - number * _CHUNK_STEPS
            return self._totals[number] + _at(self._sums(number), within)

    def step_of(self, delivered: float) -> float:
        """Return the first step by which `delivered` was reached."""
        with self._lock:
            while self._totals[-1] < delivered:
                self._extend()
            number = max(bisect_right(self._totals, math.nextafter(delivered, 0)) - 1, 0)
            sums = self._sums(number)
            within_chunk = delivered - self._totals[number]
            within = int(np.searchsorted(sums, within_chunk, side="left"))
            if within == 0:
                return float(number * _CHUNK_STEPS)
            below, above = int(sums[within - 1]), int(sums[within])
            part = (within_chunk - below) / (above - below)
            return number * _CHUNK_STEPS + within - 1 + part

    def _extend(self) -> None:
        number = len(self._totals) - 1
        self._totals.append(self._totals[-1] + int(self._sums(number)[-1]))

    def _sums(self, number: int) -> NDArray[np.int64]:
        """Return the running sums within a chunk, from 0."""
        if self._last[0] != number:
            self._streams.restore(chunk_rng(self._seed, number), self._starts[number])
            sums = np.zeros(_CHUNK_STEPS + 1, np.int64)
            np.cumsum(self._streams.advance(_CHUNK_STEPS), out=sums[1:])
            self._last = number, sums
            if len(self._starts) == number + 1:
                self._starts.append(self._streams.state())
        return self._last[1]


def _at(sums: NDArray[np.int64], step: float) -> float:
    whole = int(step)
    if whole >= _CHUNK_STEPS:
        return float(sums[-1])
    return float(sums[whole] + (sums[whole + 1] - sums[whole]) * (step - whole))


@lru_cache(maxsize=8)
def _course(seed: int) -> _Course:
    return _Course(seed)


def _first_time(arrivals: Arrivals, row: int, near: float) -> float:
    """Return `near`, or the least later time at which rounding no longer excludes the row."""
    if row < 0:
        raise OptionError(f"rows are counted from 0; got row {row}")
    step = math.ulp(near)
    while arrivals.arrived_by(near) <= row:
        near += step
        step *= 2
    return near


def _need_positive(**values: float) -> None:
    for name, value in values.items():
        if not 0 < value < math.inf:
            raise OptionError(f"{name} must be greater than 0; got {value}")
