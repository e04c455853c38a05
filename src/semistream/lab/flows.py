"""When the tuples of a stream arrive: evenly, in bursts, or with pauses.

A `Flow` is the number of tuples that have arrived by each time, a line through points. The bursts
are those of HYBRIDJOIN's generator (`workload/bursty.py`), on which its paper ran all experiments.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from semistream.workload.bursty import VirtualStreams, mean_bandwidth

Floats = NDArray[np.float64]
STEP_S = 0.02  # of the generator: its fastest stream switches after 20 s at the latest


@dataclass(frozen=True)
class Flow:
    """Arrivals over time; both columns begin with 0 and never fall."""

    times_s: Floats
    tuples: Floats

    @classmethod
    def steady(cls, rate: float, seconds: float) -> "Flow":
        """Return `rate` tuples a second, evenly.

        >>> Flow.steady(100, 10).arrived_by(2.5)
        250
        """
        return cls(np.array([0.0, seconds]), np.array([0.0, rate * seconds]))

    @classmethod
    def bursty(cls, rate: float, seconds: float, seed: int, step_s: float = STEP_S) -> "Flow":
        """Return `rate` tuples a second on average over this run, in bursts on many time scales."""
        steps = int(np.ceil(seconds / step_s))
        flow = VirtualStreams(np.random.default_rng(seed)).advance(steps).astype(np.float64)
        total = np.concatenate([[0.0], np.cumsum(flow)])
        # The mean of a run this short differs from the long one by chance, and by the seed alone.
        total *= rate * seconds / max(total[-1], mean_bandwidth())
        return cls(np.linspace(0.0, steps * step_s, steps + 1), total)

    @classmethod
    def intermittent(cls, rate: float, on_s: float, off_s: float, seconds: float) -> "Flow":
        """Return `rate` tuples a second for `on_s` seconds, then none for `off_s`, and so on.

        >>> [Flow.intermittent(100, 2, 3, 20).arrived_by(t) for t in (1, 2, 4, 6)]
        [100, 200, 200, 300]
        """
        cycles = int(np.ceil(seconds / (on_s + off_s)))
        times = np.cumsum(np.tile([on_s, off_s], cycles))
        tuples = np.cumsum(np.tile([rate * on_s, 0.0], cycles))
        return cls(np.concatenate([[0.0], times]), np.concatenate([[0.0], tuples]))

    @property
    def total(self) -> int:
        """The number of tuples in all."""
        return int(self.tuples[-1] + 1e-6)

    def arrived_by(self, time_s: float) -> int:
        """Return how many tuples have arrived."""
        return int(np.interp(time_s, self.times_s, self.tuples) + 1e-6)

    def times_of(self, first: int, count: int) -> Floats:
        """Return when these tuples arrive; the first one is 0."""
        return np.interp(np.arange(first + 1, first + count + 1), self._rising, self.times_s)

    @cached_property
    def _rising(self) -> Floats:
        """Arrivals that rise at every point: the end of a burst comes before its pause."""
        return self.tuples + 1e-9 * np.arange(len(self.tuples))
