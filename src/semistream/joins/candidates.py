"""Which waiting tuples may match a row of R, where keys are not compared.

A condition is searched for a comparison between the two sides that bounds a value of the tuples by
values of R's rows::

    s.ts BETWEEN r.valid_from AND r.valid_to       r.valid_from ≤ s.ts ≤ r.valid_to
    s.amount >= r.least                            r.least ≤ s.amount
    s.x = r.y + 1                                  r.y + 1 ≤ s.x ≤ r.y + 1
    edit(s.name, r.name) >= 0.8                    0.8·length(r.name) ≤ length(s.name) ≤ …/0.8

The window is then kept in the order of that value, and the candidates of a row are a run of it,
found by two binary searches (`meshjoin.txt`, section 3.3). Without such a comparison all tuples are
candidates. Bounds are inclusive here and may be a little too wide: the condition decides.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from semistream.conditions import expressions
from semistream.conditions.condition import BoundCondition, Expression, Likeness
from semistream.conditions.expressions import Call, Column, Columns, Node
from semistream.conditions.similarity import extents

Values: TypeAlias = NDArray[np.float64] | NDArray[np.int64]
Evaluate: TypeAlias = Callable[[Columns], pa.Array]
_SLACK = 1e-9  # of lengths that are multiplied and divided
_MIRRORED = {"less": "greater", "less_equal": "greater_equal", "equal": "equal"}
_MIRRORED |= {after: before for before, after in _MIRRORED.items()}


@dataclass(frozen=True, slots=True)
class Bounds:
    """A value of tuples, and R's values between which it must lie; a bound may be missing."""

    value: Node | Likeness
    low: Node | None = None
    high: Node | None = None

    def of_tuples(self, columns: Columns) -> Values:
        """Return the value of each tuple; NaN, or the greatest of all, for null."""
        if isinstance(self.value, Likeness):
            return extents(columns["stream", self.value.ours.name], self.value.by)
        return _numbers(self.value.evaluate(columns))

    def of_rows(self, columns: Columns) -> tuple[Values | None, Values | None, NDArray[np.bool_]]:
        """Return the bounds of each row of R, and which rows have any candidates."""
        if isinstance(self.value, Likeness):
            sizes = extents(columns["relation", self.value.theirs.name], self.value.by)
            least = self.value.least
            return sizes * least - _SLACK, sizes / least + _SLACK, ~np.isnan(sizes)
        ends: list[Values | None] = []
        known: NDArray[np.bool_] | None = None
        for node in (self.low, self.high):
            if node is None:
                ends.append(None)
                continue
            values = node.evaluate(columns)
            valid = np.asarray(values.is_valid().to_numpy(zero_copy_only=False))
            known = valid if known is None else known & valid
            ends.append(_numbers(values))
        assert known is not None, "there is a bound"
        return ends[0], ends[1], known


def bounds_of(
    condition: BoundCondition, schemas: dict[expressions.Side, pa.Schema]
) -> Bounds | None:
    """Return the comparison that bounds the tuples best; None if there is none."""
    found: dict[Node, Bounds] = {}
    alike = [p for p in condition.predicates if isinstance(p, Likeness)]
    for predicate in condition.predicates:
        if isinstance(predicate, Expression):
            for part in expressions.conjuncts(predicate.node):
                _add(part, schemas, found)
    both = [b for b in found.values() if b.low is not None and b.high is not None]
    if both:
        return both[0]
    if alike:
        return Bounds(alike[0])
    return next(iter(found.values()), None)


def _add(part: Node, schemas: dict[expressions.Side, pa.Schema], found: dict[Node, Bounds]) -> None:
    """Add what a comparison says of a value of the stream."""
    if not isinstance(part, Call) or part.function not in _MIRRORED:
        return
    ours, theirs = part.arguments
    function = part.function
    if _sides(ours) == {"relation"} and _sides(theirs) == {"stream"}:
        ours, theirs, function = theirs, ours, _MIRRORED[function]
    if _sides(ours) != {"stream"} or _sides(theirs) != {"relation"}:
        return
    if not _are_comparable(*(expressions.type_of(node, schemas) for node in (ours, theirs))):
        return
    known = found.get(ours, Bounds(ours))
    low = theirs if function in ("greater", "greater_equal", "equal") else known.low
    high = theirs if function in ("less", "less_equal", "equal") else known.high
    found[ours] = Bounds(ours, low, high)


def _sides(node: Node) -> set[str]:
    return {n.side for n in expressions.walk(node) if isinstance(n, Column)}


def _are_comparable(one: pa.DataType, other: pa.DataType) -> bool:
    """Whether values of two types can be ordered as numbers: both are, or are times of one unit."""
    is_time = pa.types.is_timestamp(one) or pa.types.is_date(one)
    return (one == other and is_time) or (_is_number(one) and _is_number(other))


def _is_number(dtype: pa.DataType) -> bool:
    is_whole = pa.types.is_integer(dtype) and not pa.types.is_uint64(dtype)
    return bool(is_whole or pa.types.is_floating(dtype))


def _numbers(values: pa.Array | pa.Scalar) -> Values:
    if pa.types.is_floating(values.type):
        return np.asarray(values.cast(pa.float64()).to_numpy(zero_copy_only=False), np.float64)
    if pa.types.is_date32(values.type):
        values = values.cast(pa.int32())
    greatest = np.iinfo(np.int64).max
    whole = values.cast(pa.int64()).fill_null(greatest)
    return np.asarray(whole.to_numpy(zero_copy_only=False), np.int64)


@dataclass(frozen=True, slots=True)
class OrderedTuples:
    """Waiting tuples in the order of a value, or in any order if there is none."""

    bounds: Bounds | None
    slots: NDArray[Any]  # in this order
    values: Values | None  # in this order

    @classmethod
    def of(
        cls, bounds: Bounds | None, slots: NDArray[Any], columns: Columns
    ) -> tuple["OrderedTuples", NDArray[np.int64]]:
        """Return the tuples in order, and the order."""
        if bounds is None:
            return cls(None, slots, None), np.arange(len(slots))
        values = bounds.of_tuples(columns)
        order = np.argsort(values, kind="stable")
        return cls(bounds, slots[order], values[order]), order

    def runs(self, columns: Columns, count: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return for each of `count` rows of R the first and last (exclusive) candidate."""
        first, last = np.zeros(count, np.int64), np.full(count, len(self.slots), np.int64)
        if self.bounds is None:
            return first, last
        assert self.values is not None, "tuples are in the order of a value"
        low, high, known = self.bounds.of_rows(columns)
        if low is not None:
            first = np.searchsorted(self.values, low, "left")
        if high is not None:
            last = np.searchsorted(self.values, high, "right")
        last = np.where(known, np.maximum(first, last), first)
        return first, last


def pairs(
    first: NDArray[np.int64], last: NDArray[np.int64], most: int
) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64]]]:
    """Yield (row, candidate) pairs of runs of candidates, at most `most` at a time.

    >>> [(r.tolist(), c.tolist()) for r, c in pairs(np.array([0, 5]), np.array([2, 6]), 2)]
    [([0, 0], [0, 1]), ([1], [5])]
    """
    ends = np.cumsum(last - first)
    total = int(ends[-1]) if len(ends) else 0
    for start in range(0, total, most):
        which = np.arange(start, min(start + most, total))
        rows = np.searchsorted(ends, which, "right")
        yield rows.astype(np.int64), (last[rows] - (ends[rows] - which)).astype(np.int64)
