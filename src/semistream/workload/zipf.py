"""Zipf-distributed ranks, sampled exactly and in constant time per rank.

Rank r of a domain of n has probability proportional to 1/r^s. Exponent 0 is uniform; around 1 it
approximates the 80/20 rule of sales. The method is rejection-inversion (Hörmann and Derflinger,
1996): invert the integral of a hat function, accept nearly always, no tables.
"""

import numpy as np
from numba import njit
from numpy.typing import NDArray

from semistream.errors import OptionError


def zipf_ranks(
    rng: np.random.Generator, count: int, domain: int, exponent: float
) -> NDArray[np.int64]:
    """Return `count` ranks in ``1 … domain``.

    >>> ranks = zipf_ranks(np.random.default_rng(1), 100_000, 1_000_000, 1.0)
    >>> bool(ranks.min() == 1), bool((ranks == 1).mean() > 0.05)
    (True, True)
    """
    if domain < 1 or exponent < 0:
        raise OptionError(
            f"a Zipf distribution needs a domain of at least 1 and an exponent of at least 0; "
            f"got {domain} and {exponent}"
        )
    if exponent == 0:
        return rng.integers(1, domain + 1, count)
    out = np.empty(count, np.int64)
    _sample(rng, domain, float(exponent), out)
    return out


def scatter(ranks: NDArray[np.int64], domain: int) -> NDArray[np.int64]:
    """Map ranks one-to-one onto ``0 … domain - 1``, so that popular keys do not lie together.

    >>> sorted(scatter(np.arange(1, 8), 7).tolist())
    [0, 1, 2, 3, 4, 5, 6]
    """
    step = int(domain * 0.6180339887) | 1
    while np.gcd(step, domain) != 1:
        step += 2
    return (ranks * step) % domain


@njit(cache=True)
def _integral(x, s):  # type: ignore[no-untyped-def]
    """Return the integral of the hat x^-s from 1 to x."""
    log_x = np.log(x)
    if s == 1.0:
        return log_x
    return np.expm1((1.0 - s) * log_x) / (1.0 - s)


@njit(cache=True)
def _inverse(y, s):  # type: ignore[no-untyped-def]
    if s == 1.0:
        return np.exp(y)
    return np.exp(np.log1p(max(y * (1.0 - s), -1.0)) / (1.0 - s))


@njit(cache=True)
def _sample(rng, domain, s, out):  # type: ignore[no-untyped-def]
    low = _integral(1.5, s) - 1.0
    high = _integral(domain + 0.5, s)
    # Within this distance of its rank, a point lies under the histogram for sure.
    surely = 2.0 - _inverse(_integral(2.5, s) - np.exp(-s * np.log(2.0)), s)
    for i in range(len(out)):
        while True:
            u = high + rng.random() * (low - high)
            x = _inverse(u, s)
            rank = min(max(int(x + 0.5), 1), domain)
            if rank - x <= surely or u >= _integral(rank + 0.5, s) - np.exp(-s * np.log(rank)):
                out[i] = rank
                break
