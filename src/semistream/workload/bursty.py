"""Arrivals in bursts on many time scales: the generator of figure 7 of `hybridjoin.txt`.

Ten virtual streams, the i-th with bandwidth 2^i, switch on and off. The time between two switches
is random, up to as many steps as the bandwidth: slow streams switch often, fast ones seldom. In
every step the streams that are on deliver their bandwidths, so the sum fluctuates over a thousand
steps as it does over ten. Beyond the fastest stream's 2^10 steps every stream has switched and the
rate evens out; `selfsimilar` measures both.

```
 priority queue of switches            on     bandwidth in this step
 ┌ step 17.2  2^1  ┐ due: switch,      2^1 ─┐
 │ step 17.9  2^3  │ queue again at    2^4 ─┼──► Σ  = 2^1 + 2^4 + 2^10
 │ step 31.0  2^4  │ + random · 2^i    2^10 ┘
 └ …               ┘
```

The figure leaves three things open. Here each stream has its own on/off state; every switch is done
in the step in which it is due; and no stream is lost when the first is taken from the queue. The
figure starts with every stream off and due at once, so all begin together with the largest possible
burst. `stationary` streams start in the state of a later time: each on or off at random.
"""

import numpy as np
from numpy.typing import NDArray

from semistream.jit import njit

STREAMS = 10

StreamsState = tuple[int, NDArray[np.float64], NDArray[np.bool_]]


class VirtualStreams:
    """The virtual streams with their states; `advance` moves them on.

    >>> steps = VirtualStreams(np.random.default_rng(1), stationary=False).advance(3)
    >>> int(steps[0])  # all ten are on: 2 + 4 + … + 1024
    2046
    """

    def __init__(
        self, rng: np.random.Generator, streams: int = STREAMS, stationary: bool = True
    ) -> None:
        """Start with every stream due."""
        self._rng = rng
        self._step = 0
        self._switch_at = np.zeros(streams)
        self._is_on = np.zeros(streams, np.bool_)
        self._stationary = stationary

    def state(self) -> StreamsState:
        """Return the state of the streams, for `restore`."""
        return self._step, self._switch_at.copy(), self._is_on.copy()

    def restore(self, rng: np.random.Generator, state: StreamsState) -> None:
        """Continue from a state, with these random numbers."""
        self._rng = rng
        self._step = state[0]
        self._switch_at, self._is_on = state[1].copy(), state[2].copy()

    def advance(self, steps: int) -> NDArray[np.int64]:
        """Return the bandwidth of all streams that are on, in each of the next steps."""
        out = np.empty(steps, np.int64)
        _advance(self._rng, self._switch_at, self._is_on, self._stationary, self._step, out)
        self._step += steps
        return out


def mean_bandwidth(streams: int = STREAMS) -> float:
    """Return the mean bandwidth per step in the long run: each stream is on half of the time."""
    return float(2**streams - 1)


def bursts(rng: np.random.Generator, batches: int, rows: int) -> list[int]:
    """Divide `rows` into `batches` arrivals in bursts; none is empty if there are enough rows.

    >>> sizes = bursts(np.random.default_rng(1), 20, 1_000_000)
    >>> sum(sizes), max(sizes) > 2 * min(sizes)
    (1000000, True)
    """
    steps = 128
    shares = VirtualStreams(rng).advance(steps * batches).astype(np.float64)
    shares = shares.reshape(batches, steps).sum(axis=1)
    shares += 0.05 * shares.mean() + 1.0
    ends = np.round(np.cumsum(shares) / shares.sum() * rows).astype(int)
    return [int(n) for n in np.diff(ends, prepend=0)]


@njit(cache=True)
def _advance(rng, switch_at, is_on, stationary, first_step, out):  # type: ignore[no-untyped-def]
    """Fill `out` with bandwidths; the queue of ten is an array whose least element is next."""
    total = 0
    for i in range(len(is_on)):
        if is_on[i]:
            total += 2 << i
    for step in range(len(out)):
        stream = int(np.argmin(switch_at))
        while switch_at[stream] <= first_step + step:
            was_on = is_on[stream]
            is_on[stream] = not was_on
            if stationary and switch_at[stream] == 0.0:
                is_on[stream] = rng.random() < 0.5
            total += (2 << stream) * (int(is_on[stream]) - int(was_on))
            switch_at[stream] += rng.random() * (2 << stream)
            stream = int(np.argmin(switch_at))
        out[step] = total
