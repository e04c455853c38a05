"""Shedding: which stream rows are joined where more arrive than the join can serve.

A row is kept with a probability p, and then has the weight 1/p. The expected weight of each row is
1, so that weighted sums and counts over the joined rows are unbiased.

=============  =====================================================================================
``uniform``    every row has the same p, the share of the rows that can be served
``keep-rare``  rows of rare keys have p = 1, those of a frequent key T/f, where f is the key's share
               of the stream. T is such that the same share of all rows is kept. No p is less than
               an eighth of that share, or few rows would have very large weights
=============  =====================================================================================

A row is kept if a number in 0 … 1 is below its p. The number is a hash of the seed and the row's
number in the stream, so that a run can be repeated. It does not depend on what was kept before, nor
does a row's p depend on its own number: that is why the weights are right.

How often a key occurs is estimated by a count-min sketch with conservative update: four rows of
counters, of which the least is the estimate. It never underestimates. All counts are halved now and
then, so that old rows count less.

Memory: the sketch, at most a 32nd of the budget; and a slice of the stream, whose kept rows are
copied.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from semistream.errors import OptionError, did_you_mean
from semistream.jit import njit

UNIFORM, KEEP_RARE = POLICIES = ("uniform", "keep-rare")
# Takes rows that were shed.
Aside: TypeAlias = Callable[[pa.RecordBatch], Any]
_DEPTH = 4  # rows of counters in the sketch
_LEAST_WIDTH, _MOST_WIDTH = 256, 1 << 16  # counters in one
_RECENT = 1_024  # rows whose frequencies the threshold is found by; it is found as often
_FIRST = 256  # rows, that are kept as by `uniform`; then the threshold is first known
_HALVED_EVERY = 1 << 18  # rows
_SKETCH_PART = 32  # of the budget
_LEAST_PART = 1 / 8  # of the share that is kept of all rows, is kept of every key
_EVEN = np.uint64(0x9E3779B97F4A7C15)


@dataclass(frozen=True, slots=True)
class Shedding:
    """What a user allows; see `shedding`."""

    policy: str
    capacity: float | None = None  # rows per second that can be served
    seed: int = 0
    weight: str = "weight"  # name of the column
    aside: Aside | bool = False  # what happens to rows that are shed


def shedding(
    policy: str,
    *,
    capacity: float | None = None,
    seed: int = 0,
    weight: str = "weight",
    aside: Aside | bool = False,
) -> Shedding:
    """Allow a join to shed rows, and say how: ``uniform`` or ``keep-rare``.

    `capacity` is the number of rows per second that can be served. Unless it is given, `join`
    measures it while it runs, and `enrich` takes what the cost model predicts. `weight` names the
    column of weights, `seed` decides which rows are kept. `aside` keeps the rows that are shed: in
    `join`, a function that is called with batches of them; in `enrich`, ``True``: they are part of
    the output, with the weight 0 and nulls in the relation's columns.
    """
    if policy not in POLICIES:
        raise OptionError(
            f"shed must be one of {', '.join(POLICIES)}, or what semistream.shedding returns; got "
            f"{policy!r}.{did_you_mean(str(policy), POLICIES)}"
        )
    if capacity is not None and capacity <= 0:
        raise OptionError(f"capacity must be positive: rows per second; got {capacity}")
    return Shedding(policy, capacity, seed, weight, aside)


def shedding_of(given: Shedding | str | None) -> Shedding | None:
    """Return the option as such; a text is the policy."""
    return given if given is None or isinstance(given, Shedding) else shedding(given)


class Numbers:
    """The number in 0 … 1 that decides on each row of a stream, by its place in it."""

    def __init__(self, seed: int) -> None:
        """Begin with the first row."""
        self._seed = np.uint64(seed & 0xFFFF_FFFF_FFFF_FFFF)
        self._issued = 0

    def next(self, count: int) -> NDArray[np.float64]:
        """Return the numbers of the next rows."""
        numbers: NDArray[np.float64] = _numbers(self._seed, self._issued, count)
        self._issued += count
        return numbers


class Uniform:
    """Every row has the same probability."""

    size_bytes = 0
    needs_codes = False

    def weights(
        self, numbers: NDArray[np.float64], codes: NDArray[np.int64] | None, share: float
    ) -> NDArray[np.float64]:
        """Return the weight of each row; 0 if it is shed."""
        return np.where(numbers < share, 1 / share, 0.0)


class KeepRare:
    """Rows of rare keys are kept, those of frequent keys thinned."""

    needs_codes = True

    def __init__(self, budget_bytes: int) -> None:
        """Begin with no key seen."""
        self._counts = np.zeros((_DEPTH, _width(budget_bytes)), np.uint32)
        self._recent = np.ones(_RECENT)  # the shares of the keys of the last rows
        # Rows seen; what the counts add up to; the threshold T, negative as long as it is unknown.
        self._state = np.array([0.0, 0.0, -1.0])

    @property
    def size_bytes(self) -> int:
        """What it takes."""
        return int(self._counts.nbytes + self._recent.nbytes)

    @staticmethod
    def bytes_within(budget_bytes: int) -> int:
        """Return what one takes in a budget, without making it."""
        return 4 * _DEPTH * _width(budget_bytes) + 8 * _RECENT

    def weights(
        self, numbers: NDArray[np.float64], codes: NDArray[np.int64] | None, share: float
    ) -> NDArray[np.float64]:
        """Return the weight of each row; 0 if it is shed."""
        assert codes is not None
        weights = np.empty(len(codes))
        _keep_rare(codes, numbers, share, self._counts, self._recent, self._state, weights)
        return weights


def _width(budget_bytes: int) -> int:
    """Return how many counters each row of a sketch has."""
    width = _LEAST_WIDTH
    while width < _MOST_WIDTH and 2 * width * 4 * _DEPTH <= budget_bytes // _SKETCH_PART:
        width *= 2
    return width


def thinning(shed: Shedding, budget_bytes: int) -> Uniform | KeepRare:
    """Return what decides on the rows of one stream."""
    return Uniform() if shed.policy == UNIFORM else KeepRare(budget_bytes)


@njit(cache=True)
def _mixed(value):  # type: ignore[no-untyped-def]
    """Return a hash of an unsigned integer (the finalizer of splitmix64)."""
    value = (value ^ (value >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    value = (value ^ (value >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return value ^ (value >> np.uint64(31))


@njit(cache=True)
def _numbers(seed, first, count):  # type: ignore[no-untyped-def]
    start = _mixed(seed + _EVEN)
    numbers = np.empty(count)
    for i in range(count):
        mixed = _mixed(start + np.uint64(first + i) * _EVEN)
        numbers[i] = (mixed >> np.uint64(11)) * 2.0**-53
    return numbers


@njit(cache=True)
def _chance(frequency, threshold, share):  # type: ignore[no-untyped-def]
    """Return the probability of a row: T/f, at most 1, and at least a part of the share."""
    return min(1.0, max(threshold / frequency, share * _LEAST_PART))


@njit(cache=True)
def _threshold(recent, share):  # type: ignore[no-untyped-def]
    """Return T for which these rows have the share to keep as their mean probability."""
    low, high = 0.0, 1.0
    for _ in range(40):
        middle = (low + high) / 2
        total = 0.0
        for frequency in recent:
            total += _chance(frequency, middle, share)
        if total > share * len(recent):
            high = middle
        else:
            low = middle
    return high


@njit(cache=True)
def _keep_rare(codes, numbers, share, counts, recent, state, weights):  # type: ignore[no-untyped-def]
    depth, width = counts.shape
    mask = np.uint64(width - 1)
    at = np.empty(depth, np.int64)
    seen, total, threshold = state
    for i in range(len(codes)):
        # 1. How often the key has been seen, this time included.
        mixed = _mixed(np.uint64(codes[i]) + _EVEN)
        least = np.uint32(0xFFFFFFFF)
        for j in range(depth):
            at[j] = np.int64((mixed >> np.uint64(16 * j)) & mask)
            least = min(least, counts[j, at[j]])
        least += np.uint32(1)
        total += 1
        for j in range(depth):
            counts[j, at[j]] = max(counts[j, at[j]], least)
        # 2. Its probability, by a threshold that earlier rows have set.
        frequency = least / total
        kept = share if threshold < 0 else _chance(frequency, threshold, share)
        weights[i] = 1 / kept if numbers[i] < kept else 0.0
        # 3. A new threshold now and then; older rows count less.
        recent[np.int64(seen) % _RECENT] = frequency
        seen += 1
        if seen % _RECENT == 0 or seen == _FIRST:
            threshold = _threshold(recent[: min(np.int64(seen), _RECENT)], share)
        if seen % _HALVED_EVERY == 0:
            counts >>= np.uint32(1)
            total /= 2
    state[0], state[1], state[2] = seen, total, threshold
