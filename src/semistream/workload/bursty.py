"""Arrivals that come in bursts on every time scale, after figure 7 of `hybridjoin.txt`.

Virtual streams, the i-th with bandwidth 2^i, switch on and off. How long one stays as it is is
random in proportion to its bandwidth, so the fast ones switch seldom and the slow ones often, and
their sum fluctuates over hours as it does over seconds.
"""

import heapq
from collections.abc import Iterator
from itertools import islice

import numpy as np


def bandwidths(rng: np.random.Generator, streams: int = 10) -> Iterator[int]:
    """Yield the total bandwidth of the streams that are on, step by step, without end."""
    switch_at = [(0.0, 2 ** (i + 1)) for i in range(streams)]
    heapq.heapify(switch_at)
    is_on = dict.fromkeys((b for _, b in switch_at), False)
    step = 0
    while True:
        while switch_at[0][0] <= step:
            when, bandwidth = heapq.heappop(switch_at)
            is_on[bandwidth] = rng.random() < 0.5 if when == 0 else not is_on[bandwidth]
            heapq.heappush(switch_at, (when + rng.random() * bandwidth, bandwidth))
        yield sum(b for b, on in is_on.items() if on)
        step += 1


def bursts(rng: np.random.Generator, batches: int, rows: int) -> list[int]:
    """Share out `rows` over `batches` arrivals in bursts; none is empty if there are enough rows.

    >>> sizes = bursts(np.random.default_rng(1), 20, 1_000_000)
    >>> sum(sizes), max(sizes) > 2 * min(sizes)
    (1000000, True)
    """
    steps = 128
    shares = np.array(list(islice(bandwidths(rng), steps * batches)), np.float64)
    shares = shares.reshape(batches, steps).sum(axis=1)
    shares += 0.05 * shares.mean() + 1.0
    ends = np.round(np.cumsum(shares) / shares.sum() * rows).astype(int)
    return [int(n) for n in np.diff(ends, prepend=0)]
