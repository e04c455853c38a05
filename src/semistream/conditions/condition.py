"""Conditions: what else must hold, beside equal keys, for a stream row and a row of R to match.

::

    ss.where("s.amount >= r.limit")                    any predicate (`conditions.expressions`)
    ss.between("ts", "valid_from", "valid_to")         a stream column within two columns of R
    ss.similar("name", by="jaccard", least=0.8)        texts that are alike

They are plain data, and refer to columns by name. `bind` checks them against both schemas when a
join is planned, and returns a `BoundCondition`, which the joins evaluate for candidate pairs.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, TypeAlias, get_args

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from semistream.conditions import expressions
from semistream.conditions.expressions import Call, Column, Columns, Node, Side, compared
from semistream.conditions.parser import parse
from semistream.conditions.similarity import similarities
from semistream.errors import ColumnError, OptionError, did_you_mean

By: TypeAlias = Literal["jaccard", "edit"]
_MASK_BYTES = 2  # whether each pair passes, before and after null is false
_VALUE_BYTES = 8  # of a value that is computed, or cast to be compared
_LIKENESS_VALUES = 4  # where the two texts are, and how alike they are


@dataclass(frozen=True, slots=True)
class Where:
    """A predicate over columns of both sides; see `semistream.conditions.expressions`."""

    predicate: str


@dataclass(frozen=True, slots=True)
class Between:
    """A column of the stream lies between two columns of R, both ends included."""

    column: str
    low: str
    high: str


@dataclass(frozen=True, slots=True)
class Similar:
    """A text of the stream is like a text of R."""

    column: str
    relation_column: str
    by: By
    least: float


Condition: TypeAlias = Where | Between | Similar
# What users may pass: a condition, a predicate, or several, all of which must hold.
Conditions: TypeAlias = Condition | str | Sequence[Condition | str]


def where(predicate: str) -> Where:
    """Return a condition that is a predicate, as in the WHERE clause of a query.

    Columns of the stream are written ``s.name``, those of the relation ``r.name``.

    >>> where("s.amount >= r.least_amount AND r.discount IS NOT NULL").predicate
    's.amount >= r.least_amount AND r.discount IS NOT NULL'
    """
    return Where(predicate)


def between(column: str, low: str, high: str) -> Between:
    """Return the condition that a column of the stream lies between two columns of the relation.

    Both ends are included, and with a null anywhere it does not hold, as in SQL. For versions of a
    row whose end is open use ``valid_at`` instead.
    """
    return Between(column, low, high)


def similar(
    column: str, relation_column: str | None = None, *, by: By = "jaccard", least: float = 0.8
) -> Similar:
    """Return the condition that a text of the stream is like a text of the relation.

    `relation_column` has the same name, unless given. With ``by="jaccard"`` the likeness of two
    texts is the share that their sets of three consecutive characters have in common; with
    ``by="edit"`` it is 1 minus the edit distance, relative to the longer text. It must be at
    `least` so much, between 0 and 1. A null is like nothing.
    """
    if by not in get_args(By):
        raise OptionError(
            f"similar compares by one of {', '.join(get_args(By))}; got {by!r}."
            f"{did_you_mean(by, get_args(By))}"
        )
    if not 0 < least <= 1:
        raise OptionError(f"similar needs a least likeness above 0 and up to 1; got {least}")
    return Similar(column, relation_column or column, by, least)


# ── conditions of one join ──────────────────────────────────────────────────────────────────────


class Predicate(Protocol):
    """A part of a condition, bound to the columns of a join."""

    @property
    def columns(self) -> tuple[Column, ...]:
        """The columns that it looks at."""
        ...

    def holds(self, columns: Columns, count: int) -> NDArray[np.bool_]:
        """Return for each of `count` pairs whether it is true."""
        ...


@dataclass(frozen=True, slots=True)
class Expression:
    """A predicate that Arrow evaluates."""

    node: Node

    @property
    def columns(self) -> tuple[Column, ...]:
        """The columns that it looks at."""
        found = [n for n in expressions.walk(self.node) if isinstance(n, Column)]
        return tuple(dict.fromkeys(found))

    def holds(self, columns: Columns, count: int) -> NDArray[np.bool_]:
        """Return for each pair whether the predicate is true."""
        return np.asarray(expressions.evaluated(self.node, columns, count), np.bool_)


@dataclass(frozen=True, slots=True)
class Likeness:
    """Texts that are alike."""

    ours: Column
    theirs: Column
    by: By
    least: float

    @property
    def columns(self) -> tuple[Column, ...]:
        """The columns that it looks at."""
        return self.ours, self.theirs

    def holds(self, columns: Columns, count: int) -> NDArray[np.bool_]:
        """Return for each pair whether its texts are alike."""
        ours, theirs = (columns[c.side, c.name] for c in self.columns)
        return similarities(ours, theirs, self.by, self.least) >= self.least


@dataclass(frozen=True, slots=True)
class BoundCondition:
    """All that must hold for a pair beside equal keys, with names resolved."""

    predicates: tuple[Expression | Likeness, ...]
    text: str  # for people

    def columns_of(self, side: Side) -> tuple[str, ...]:
        """Return the columns of one side that are looked at, each once."""
        every = [c for predicate in self.predicates for c in predicate.columns]
        return tuple(dict.fromkeys(c.name for c in every if c.side == side))

    def holds(self, columns: Columns, count: int) -> NDArray[np.bool_]:
        """Return for each of `count` pairs whether the condition is true."""
        held = self.predicates[0].holds(columns, count)
        for predicate in self.predicates[1:]:
            held = held & predicate.holds(columns, count)
        return held

    def beside(self, other: "BoundCondition") -> "BoundCondition":
        """Return the condition that both hold."""
        return BoundCondition(self.predicates + other.predicates, f"{self.text} AND {other.text}")

    @property
    def pair_bytes(self) -> int:
        """What is made of each pair besides its columns: masks, casts, and what is computed."""
        computed = sum(
            expressions.computed_values(p.node) if isinstance(p, Expression) else _LIKENESS_VALUES
            for p in self.predicates
        )
        return _MASK_BYTES + _VALUE_BYTES * (1 + computed)


@dataclass(frozen=True, slots=True)
class Binder:
    """Resolves the names of conditions against the two sides of a join."""

    schemas: dict[Side, pa.Schema]
    equal: dict[str, str]  # stream column → relation column, of the key: equal in every pair
    spelling: Callable[[str, pa.Schema, str], str]  # finds a name in a schema, or raises

    def bind(self, conditions: Conditions | None) -> BoundCondition | None:
        """Return conditions with all names resolved, or raise what is wrong; None for none."""
        if conditions is None:
            return None
        if isinstance(conditions, str | Where | Between | Similar):
            conditions = [conditions]
        if not isinstance(conditions, Sequence) or not conditions:
            raise _not_a_condition(conditions)
        bound = [self._bind(one) for one in conditions]
        return BoundCondition(tuple(p for p, _ in bound), " AND ".join(text for _, text in bound))

    def bind_version(self, at: str, valid_from: str, valid_to: str) -> BoundCondition:
        """Return the condition that a row of R was valid at a time; its open ends are null."""
        time = self.column("stream", at)
        begin, end = self.column("relation", valid_from), self.column("relation", valid_to)
        node = expressions.both(
            expressions.either(expressions.is_null(begin), compared(">=", time, begin)),
            expressions.either(expressions.is_null(end), compared("<", time, end)),
            Call("is_valid", (time,)),
        )
        return BoundCondition((self.predicate(node),), f"valid at s.{time.name}")

    def predicate(self, node: Node) -> Expression:
        """Return a predicate, checked: it must be true or false."""
        node = expressions.typed(node, self.schemas)
        dtype = expressions.type_of(node, self.schemas)
        if not pa.types.is_boolean(dtype) and not pa.types.is_null(dtype):
            raise OptionError(
                f"a condition must be true or false, but {expressions.described(node)} is {dtype}"
            )
        return Expression(node)

    def column(self, side: Side, name: str) -> Column:
        """Return a column of a side by its name, in the schema's own spelling."""
        return Column(side, self.spelling(name, self.schemas[side], side))

    def _bind(self, one: Condition | str) -> tuple[Expression | Likeness, str]:
        if isinstance(one, str):
            one = Where(one)
        if isinstance(one, Where):
            return self.predicate(parse(one.predicate, self._find)), one.predicate
        if isinstance(one, Between):
            value = self.column("stream", one.column)
            low, high = self.column("relation", one.low), self.column("relation", one.high)
            node = expressions.both(compared(">=", value, low), compared("<=", value, high))
            return self.predicate(node), expressions.described(node)
        if isinstance(one, Similar):
            ours = self.column("stream", one.column)
            theirs = self.column("relation", one.relation_column)
            for column in (ours, theirs):
                self._check_text(column)
            likeness = f"{one.by}(s.{ours.name}, r.{theirs.name}) >= {one.least:g}"
            return Likeness(ours, theirs, one.by, one.least), likeness
        raise _not_a_condition(one)

    def _check_text(self, column: Column) -> None:
        dtype = self.schemas[column.side].field(column.name).type
        if not pa.types.is_string(dtype):
            raise OptionError(
                f"similar compares texts, but column {column.name!r} of the {column.side} has "
                f"type {dtype}; cast it to string"
            )

    def _find(self, side: Side | None, name: str) -> Column:
        """Find a column; without a prefix it must be on one side only, or a column of the key."""
        if side is not None:
            return self.column(side, name)
        found: list[Column] = []
        errors: list[ColumnError] = []
        sides: tuple[Side, Side] = ("stream", "relation")
        for one in sides:
            try:
                found.append(self.column(one, name))
            except ColumnError as error:
                errors.append(error)
        if len(found) == 2 and self.equal.get(found[0].name) != found[1].name:
            raise ColumnError(
                f"both the stream and the relation have a column {name!r}; write s.{name} or "
                f"r.{name} in the condition"
            )
        if not found:
            known = [n for schema in self.schemas.values() for n in schema.names]
            raise ColumnError(
                f"column {name!r} of the condition is neither in the stream nor in the relation."
                f"{did_you_mean(name, known)}"
            ) from errors[0]
        return found[0]


def _not_a_condition(given: object) -> OptionError:
    return OptionError(
        "condition must be semistream.where(…), between(…) or similar(…), a predicate such as "
        f"'s.amount >= r.least_amount', or a list of these; got {given!r}"
    )
