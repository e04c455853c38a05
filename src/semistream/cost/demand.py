"""Which keys a stream requests, and how often: the skew that every prediction depends on.

A `Demand` lists keys from the most requested to the least: the first ones one by one, the long tail
in classes of about equal ones. It comes from a Zipf exponent, which is all that the
papers consider, or from a sample of the stream: then its head is what was counted, and only the
tail, where a sample sees most keys once or never, is extrapolated.

The joins that read pages by index depend on the pages of the keys. A sample knows the pages of its
keys; without one, popular keys are assumed to be anywhere.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from semistream.errors import OptionError

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

# Of keys one by one. With 65,536 hit ratios differ by at most 0.0001, and predicting takes longer.
MOST_HEAD_KEYS = 4_096
_FIT_HEAD_KEYS = 256
_TAIL_HEAD_KEYS = 1_024  # of the tail behind a sample's head; the others are in classes
_CLASSES_PER_OCTAVE = 8
# A key counted less often than this in a sample belongs to the tail: its count is mostly chance.
LEAST_HEAD_COUNT = 8
# Sampled tuples of the tail that share a stretch of pages, evenly.
_DRAWS_PER_STRETCH = 256
_MOST_EXPONENT = 3.0
_STEPS_OF_ARRIVALS = 48
PROBED_SHARES = (1e-4, 1e-3, 1e-2, 1e-1)  # of the keys, that a cache would hold
_MOVED = 0.1  # of the hit ratio of one of these caches: then the demand has changed
_SEED = 20_07


@dataclass(frozen=True, slots=True)
class Skew:
    """How skewed a demand is, in a few numbers: enough to see whether it has changed."""

    exponent: float  # the Zipf exponent that describes it best
    hit_ratios: tuple[float, ...]  # of caches that hold `PROBED_SHARES` of the keys

    def has_moved(self, now: "Skew") -> bool:
        """Return whether caches of some size would hit clearly more, or less, than before."""
        pairs = zip(self.hit_ratios, now.hit_ratios, strict=True)
        return max(abs(before - after) for before, after in pairs) > _MOVED


@dataclass(frozen=True)
class Demand:
    """Shares of the stream by key, most requested first; all of them add up to one."""

    key_count: int
    head: Floats  # one share for each of the first keys
    tail: Floats  # share of each key of a class
    tail_counts: Floats  # keys of the class
    exponent: float  # the Zipf exponent that describes it best
    head_pages: Ints | None = None  # the page of each of the first keys, if known
    tail_density: Floats | None = field(default=None, repr=False)  # of the tail, by page; sums to 1

    @classmethod
    def zipf(cls, exponent: float, key_count: int) -> "Demand":
        """Return the demand of a Zipf distribution; exponent 0 is uniform.

        >>> round(Demand.zipf(1.0, 3_500_000).hit_ratio(35_000), 2)
        0.71
        """
        if exponent < 0 or key_count < 1:
            raise OptionError(
                f"a skew is a Zipf exponent of at least 0; got {exponent} for {key_count} keys"
            )
        weights, tail, counts = _Ranks.after(0, key_count, MOST_HEAD_KEYS).weights(exponent)
        total = weights.sum() + (tail * counts).sum()
        return cls(key_count, weights / total, tail / total, counts, exponent)

    @classmethod
    def from_counts(
        cls,
        counts: Ints,
        key_count: int,
        pages: Ints | None = None,
        page_count: int = 0,
    ) -> "Demand":
        """Return the demand behind a sample with these counts of its different keys.

        With the page of each of these keys the demand also knows the shares of the pages.
        """
        order = np.argsort(-counts, kind="stable")
        counts = counts[order]
        total = int(counts.sum())
        if not total:
            return cls.zipf(0.0, key_count)
        key_count = max(key_count, len(counts))
        is_head = int(np.count_nonzero(counts >= LEAST_HEAD_COUNT))
        is_head = min(is_head, MOST_HEAD_KEYS, key_count)
        head = counts[:is_head] / total
        rest = counts[is_head:]
        tail_share = rest.sum() / total
        exponent = fit_exponent(len(counts), total, key_count)
        tail_exponent = fit_exponent(len(rest), int(rest.sum()), key_count, behind=is_head)
        ranks = _Ranks.after(is_head, key_count, _TAIL_HEAD_KEYS)
        more, tail, tail_counts = ranks.weights(tail_exponent)
        weight = more.sum() + (tail * tail_counts).sum()
        scale = tail_share / weight if weight else 0.0
        density = None
        if pages is not None and len(rest):
            density = _density(np.repeat(pages[order][is_head:], rest), page_count)
        # The first keys of the tail count as tail, too: their pages are not known.
        return cls(
            key_count,
            head,
            np.concatenate([more, tail]) * scale,
            np.concatenate([np.ones(len(more)), tail_counts]),
            exponent,
            None if pages is None else pages[order][:is_head],
            density,
        )

    @property
    def skew(self) -> Skew:
        """The demand in a few numbers."""
        probed = (max(1.0, share * self.key_count) for share in PROBED_SHARES)
        return Skew(self.exponent, tuple(float(self.hit_ratio(keys)) for keys in probed))

    def hit_ratio(self, keys: float) -> float:
        """Return p_N: the share of the stream that requests the first `keys` keys.

        Equation 1 of `cmeshjoin-front-stage.txt`, for any demand.
        """
        return float(min(1.0, np.interp(keys, *self._cumulative)))

    def hit_ratios(self, keys: Floats) -> Floats:
        """Return `hit_ratio` for each of these numbers of keys."""
        return np.minimum(1.0, np.interp(keys, *self._cumulative))

    def cached_share(self, sets: int, ways: int) -> tuple[float, "Demand"]:
        """Return the hit ratio of a set-associative cache that keeps the first, and what is left.

        A key has a place if fewer than `ways` more requested keys share its set; their number is
        Poisson-distributed.
        """
        return self._without(self._kept(sets, ways))

    def _kept(self, sets: int, ways: int) -> Floats:
        """Return the probability that a set-associative cache keeps a key, for each class."""
        _, counts = self._classes
        middle = np.cumsum(counts) - counts / 2
        return poisson_below(ways, np.maximum(0.0, middle - 0.5) / max(1, sets))

    def first_come_share(self, rows: int) -> tuple[float, "Demand"]:
        """Return the same for a cache that keeps the keys that came first, until it was full."""
        shares, counts = self._classes

        def free(log_arrivals: float) -> float:
            return float(rows + (counts * np.expm1(-shares * np.exp(log_arrivals))).sum())

        arrivals = np.exp(falling_root(free, 0.0, 60.0))
        return self._without(-np.expm1(-shares * arrivals))

    def learned_share(
        self, tuples: int, window: int, sets: int, ways: int, learns_after: float = 1.0
    ) -> float:
        """Return the hits of the same cache if it was empty at first, as a share of some tuples.

        Tuples pass it in N windows, one after the other, W of them until it is full. While it is
        not, a row enters when a tuple in the window requests it, later when two do. With x
        requests in a window on average, p = 1 − e^−x and p' = 1 − e^−x·(1 + x), that takes on
        average, and at most N::

            (1 − (1 − p)^W) / p  +  (1 − p)^W · (1 − (1 − p')^(N − W)) / p'    windows

        Instead of the last of these, `learns_after` windows pass until the row has entered.
        """
        shares, counts = self._classes
        per_window, windows = window * shares, tuples / window
        filling = min(windows, self._arrivals_of(sets * ways) / window)
        once = np.maximum(1e-12, -np.expm1(-per_window))
        twice = np.maximum(1e-12, once - np.exp(-per_window) * per_window)
        left_then = np.exp(-per_window * filling)
        left_after = np.exp(np.log1p(-np.minimum(twice, 1 - 1e-12)) * (windows - filling))
        passed = (1 - left_then) / once + left_then * (1 - left_after) / twice
        passed += (learns_after - 1) * (1 - left_then * left_after)
        hits = counts * per_window * np.maximum(0.0, windows - passed) * self._kept(sets, ways)
        return float(hits.sum() / max(1, tuples))

    def repeated_share(self, tuples: float) -> float:
        """Return how many of some tuples have the key of another one, as a share: 1 − keys/tuples.

        >>> round(Demand.zipf(0.0, 1000).repeated_share(1000), 2)  # 1/e
        0.37
        """
        shares, counts = self._classes
        return float(1 + (counts * np.expm1(-shares * tuples)).sum() / max(1.0, tuples))

    def _arrivals_of(self, keys: float) -> float:
        """Return in how many tuples this number of different keys is expected."""
        return float(np.interp(keys, *self._different))

    @cached_property
    def _different(self) -> tuple[Floats, Floats]:
        """Different keys of some tuples, and the numbers of these tuples."""
        shares, counts = self._classes
        most = max(2.0, 64.0 * self.key_count)
        arrivals = np.concatenate([[0.0], np.geomspace(1.0, most, _STEPS_OF_ARRIVALS)])
        different = [float(-(counts * np.expm1(-shares * tuples)).sum()) for tuples in arrivals]
        return np.array(different), arrivals

    def _without(self, kept: Floats) -> tuple[float, "Demand"]:
        """Return the share of the keys that are kept with these probabilities, and the others."""
        shares, counts = self._classes
        hits = float((shares * counts * kept).sum())
        if hits >= 1.0 - 1e-9:
            return 1.0, self
        left = shares * (1.0 - kept) / (1.0 - hits)
        split = len(self.head)
        return hits, replace(self, head=left[:split], tail=left[split:])

    def by_page(self, page_count: int) -> Floats:
        """Return the share of the stream that belongs to each page."""
        tail_share = float((self.tail * self.tail_counts).sum())
        density = self.tail_density
        pages: Floats = (
            np.full(page_count, tail_share / page_count)
            if density is None or len(density) != page_count
            else density * tail_share
        )
        places = self.head_pages
        if places is None:
            places = np.random.default_rng(_SEED).integers(0, page_count, len(self.head))
        np.add.at(pages, places, self.head)
        return pages

    @cached_property
    def _cumulative(self) -> tuple[Floats, Floats]:
        shares, counts = self._classes
        below = np.concatenate([[0.0], np.cumsum(counts)])
        return below, np.concatenate([[0.0], np.cumsum(shares * counts)])

    @property
    def _classes(self) -> tuple[Floats, Floats]:
        shares = np.concatenate([self.head, self.tail])
        return shares, np.concatenate([np.ones(len(self.head)), self.tail_counts])


def fit_exponent(distinct: int, draws: int, key_count: int, behind: int = 0) -> float:
    """Return the Zipf exponent at which `draws` draws are expected to have `distinct` keys.

    The keys are those of ranks ``behind + 1 … key_count``. The number of different keys of a sample
    is known exactly; the rank of a key is not.
    """
    if draws < 2 or distinct < 1 or key_count - behind < 2:
        return 0.0

    ranks = _Ranks.after(behind, key_count, _FIT_HEAD_KEYS)

    def surplus(exponent: float) -> float:
        head, tail, counts = ranks.weights(exponent)
        total = head.sum() + (tail * counts).sum()
        seen = -np.expm1(-draws * head / total).sum()
        seen += (-np.expm1(-draws * tail / total) * counts).sum()
        return float(seen - distinct)

    # A difference this small may be chance: it cannot be told from no skew at all.
    if surplus(0.0) <= 2 * (draws - distinct) ** 0.5:
        return 0.0
    return falling_root(surplus, 0.0, _MOST_EXPONENT)


def falling_root(function: Callable[[float], float], low: float, high: float) -> float:
    """Return where a falling function crosses zero, or the end of the interval that is nearest."""
    while high - low > 1e-3 * max(1.0, low):
        middle = (low + high) / 2
        if function(middle) > 0.0:
            low = middle
        else:
            high = middle
    return (low + high) / 2 if low > 0.0 else low


def poisson_below(count: int, mean: Floats) -> Floats:
    """Return the probability of fewer than `count` events if `mean` are expected.

    >>> poisson_below(1, np.array([0.0, 1.0])).round(3).tolist()
    [1.0, 0.368]
    """
    term = np.exp(-mean)
    total = term.copy()
    for i in range(1, count):
        term = term * mean / i
        total += term
    return total


@dataclass(frozen=True, slots=True)
class _Ranks:
    """Ranks of keys: some of them one by one, and those behind them in classes."""

    single: Floats
    bounds: Floats  # of the classes: the rank before the first one, and the last of each

    @classmethod
    def after(cls, behind: int, key_count: int, head_keys: int) -> "_Ranks":
        """Return the ranks ``behind + 1 … key_count``, the first `head_keys` of them one by one."""
        first = min(behind + head_keys, key_count)
        single = np.arange(behind + 1, first + 1, dtype=np.float64)
        if first == key_count:
            return cls(single, np.zeros(0))
        classes = int(np.log2(key_count / first) * _CLASSES_PER_OCTAVE)
        return cls(single, np.unique(np.round(np.geomspace(first, key_count, 2 + classes))))

    def weights(self, exponent: float) -> tuple[Floats, Floats, Floats]:
        """Return rank^-exponent of the single ranks, of the classes on average, and their sizes."""
        head: Floats = self.single**-exponent
        counts = np.diff(self.bounds)
        return head, _power_sums(exponent, self.bounds) / counts, counts


def _power_sums(exponent: float, bounds: Floats) -> Floats:
    """Return the sum of rank^-exponent over the ranks after each bound up to the next."""
    edges = bounds + 0.5
    integral = np.log(edges) if exponent == 1.0 else edges ** (1 - exponent) / (1 - exponent)
    return np.diff(integral)


def _density(pages: Ints, page_count: int) -> Floats:
    """Return how draws spread over pages, evenly within stretches of as many draws each."""
    pages = np.sort(pages)
    edges = pages[_DRAWS_PER_STRETCH::_DRAWS_PER_STRETCH]
    bounds = np.unique(np.concatenate([[0], edges, [page_count]]))
    draws = np.diff(np.searchsorted(pages, bounds))
    widths = np.diff(bounds)
    return np.repeat(draws / widths / len(pages), widths)
