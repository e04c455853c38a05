"""Zipf-distributed ranks, sampled exactly and in constant time per rank.

Rank r of a domain of n has probability proportional to 1/r^s. Exponent 0 is uniform; around 1 it
approximates the 80/20 rule of sales; above 1 a few ranks get nearly everything.

The method is rejection under stairs. The domain is cut into cells of 2^j ranks, 64 cells or more
to an octave, single ranks at the head:

```
 weight │▇
  1/r^s │▇▄
        │▇▇▃▂▂                     a cell's stair is as high as its first rank's weight, so it
        │▇▇▇▇▇▇▂▂▂▁▁▁▁▁▁▁▁         exceeds the weight of its last by s/64 at most (s small)
        └┴┴┴┴──┴──┴────┴────► r
```

Draw a cell in proportion to its stair from an alias table, a rank in it evenly, and accept it with
the ratio of its weight to the stair. A ratio has to be computed only if the draw is above the
cell's least ratio; a rejected rank is drawn again. Cells, ranks and the alias are picked with bits,
not with rounded products, so the only error is that of the weights in floating point, about 1e-16
of each.

A table has 40 bytes per cell and 64 cells per octave: 40 KB for a million ranks, 160 KB for 10^12.
Sixteen tables are kept.
"""

from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from semistream.errors import OptionError
from semistream.jit import njit

_OCTAVE_BITS = 6
_LARGEST_DOMAIN = 2**53


def zipf_ranks(
    rng: np.random.Generator, count: int, domain: int, exponent: float
) -> NDArray[np.int64]:
    """Return `count` ranks in ``1 … domain``.

    >>> ranks = zipf_ranks(np.random.default_rng(1), 100_000, 1_000_000, 1.0)
    >>> bool(ranks.min() == 1), bool((ranks == 1).mean() > 0.05)
    (True, True)
    """
    if not 1 <= domain <= _LARGEST_DOMAIN or not 0 <= exponent < np.inf:
        raise OptionError(
            f"a Zipf distribution needs a domain of 1 to 2^53 and an exponent of at least 0; "
            f"got {domain} and {exponent}"
        )
    if exponent == 0:
        return rng.integers(1, domain + 1, count)
    out = np.empty(count, np.int64)
    _sample(rng, *_stairs(int(domain), float(exponent)), float(exponent), out)
    return out


def scatter(ranks: NDArray[np.int64], domain: int) -> NDArray[np.int64]:
    """Map ranks one-to-one onto ``0 … domain - 1``, with popular keys spread over all of it.

    >>> sorted(scatter(np.arange(1, 8), 7).tolist())
    [0, 1, 2, 3, 4, 5, 6]
    """
    step = int(domain * 0.6180339887) | 1
    while np.gcd(step, domain) != 1:
        step += 2
    return (ranks * step) % domain


class _Stairs(NamedTuple):
    """The cells as an alias table; padded to a power of two with cells that are never drawn."""

    keep: NDArray[np.float64]
    alias: NDArray[np.int64]
    first: NDArray[np.int64]
    bits: NDArray[np.int64]
    least_ratio: NDArray[np.float64]


@lru_cache(maxsize=16)
def _stairs(domain: int, exponent: float) -> _Stairs:
    first, bits = _cells(domain)
    size = 1 << bits
    stairs = size * np.exp(-exponent * np.log(first))
    least_ratio = np.exp(-exponent * np.log((first + size - 1) / first))
    padding = (0, (1 << (len(first) - 1).bit_length()) - len(first))
    keep, alias = _alias_table(np.pad(stairs, padding))
    padded = (np.pad(c, padding) for c in (first, bits, least_ratio))
    return _Stairs(keep, alias, *padded)


def _cells(domain: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the first rank of each cell and the bits of its size."""
    first, bits, rank = [], [], 1
    while rank <= domain:
        largest = (domain - rank + 1).bit_length() - 1
        first.append(rank)
        bits.append(min(max(rank.bit_length() - 1 - _OCTAVE_BITS, 0), largest))
        rank += 1 << bits[-1]
    return np.array(first, np.int64), np.array(bits, np.int64)


@njit(cache=True)
def _alias_table(weights):  # type: ignore[no-untyped-def]
    """Return for each cell the share it keeps, and the cell that has the rest (Vose, 1991)."""
    count = len(weights)
    left = weights * (count / weights.sum())
    keep, alias = np.ones(count), np.arange(count)
    pending = np.empty(count, np.int64)
    low, high = 0, count
    for place in range(count):
        if left[place] < 1.0:
            pending[low] = place
            low += 1
        else:
            high -= 1
            pending[high] = place
    while low > 0 and high < count:
        low -= 1
        poor, rich = pending[low], pending[high]
        keep[poor], alias[poor] = left[poor], rich
        left[rich] -= 1.0 - left[poor]
        if left[rich] < 1.0:
            high += 1
            pending[low] = rich
            low += 1
    return keep, alias


@njit(cache=True)
def _sample(rng, keep, alias, first, bits, least_ratio, s, out):  # type: ignore[no-untyped-def]
    cells = len(keep)
    for i in range(len(out)):
        while True:
            place = rng.random() * cells
            cell = int(place)
            if place - cell >= keep[cell]:
                cell = alias[cell]
            if bits[cell] == 0:
                out[i] = first[cell]
                break
            within = rng.random() * (1 << bits[cell])
            offset = int(within)
            # The bits that did not pick the offset; few are left of them in a very large cell.
            height = within - offset if bits[cell] <= 20 else rng.random()
            if height < least_ratio[cell] or height < np.exp(-s * np.log1p(offset / first[cell])):
                out[i] = first[cell] + offset
                break
