"""Predicates over a stream row and a row of R, written as in the WHERE clause of a query.

::

    s.amount >= r.limit AND (r.region IS NULL OR s.region = r.region)

Columns of the stream are written ``s.name`` (or ``stream.name``), columns of the relation
``r.name`` (or ``relation.name``); a name that only one side has needs no prefix. Names with spaces
stand in double quotes or backticks.

| | |
| --- | --- |
| comparisons | ``= <> != < <= > >=``, ``BETWEEN a AND b``, ``IN (…)``, ``LIKE '…'``, ``IS NULL`` |
| logic | ``AND``, ``OR``, ``NOT``, parentheses |
| arithmetic | ``+ - * /``; ``/`` divides as floating-point numbers, and by zero it is null |
| functions | ``abs ceil coalesce floor length lower round trim upper`` |
| literals | numbers, ``'text'``, ``TRUE``, ``FALSE``, ``NULL``, ``DATE '2024-02-29'``,
  ``TIMESTAMP '2024-02-29 12:00:00'``, ``INTERVAL 2 HOUR`` (second, minute, hour, day, week) |

Nulls are SQL's: a comparison with null is unknown, and a pair matches only if the predicate is
true. A text that is compared with a column of another type is read as a value of that type, a time
without a zone in UTC. NaN
equals nothing, and is neither less nor greater than a number.

A predicate is parsed (`parser.py`) into a tree of small nodes, which Arrow's kernels evaluate, a
piece of output at a time. The tree is plain data: it can be pickled, and nothing is compiled.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from semistream.columns import POOL
from semistream.errors import OptionError

Side: TypeAlias = Literal["stream", "relation"]
Columns: TypeAlias = Mapping[tuple[Side, str], pa.Array]

COMPARISONS = {
    "=": "equal",
    "==": "equal",
    "<>": "not_equal",
    "!=": "not_equal",
    "<": "less",
    "<=": "less_equal",
    ">": "greater",
    ">=": "greater_equal",
}
ARITHMETIC = {"+": "add_checked", "-": "subtract_checked", "*": "multiply_checked", "/": "divide"}
_ROUNDING = pc.RoundOptions(0, "half_towards_infinity")  # as in SQL


# ── the tree ────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class Column:
    """A column of the stream or of R."""

    side: Side
    name: str

    def evaluate(self, columns: Columns) -> Any:
        """Return the column's values; times with a zone in UTC, so that all can be compared."""
        values = columns[self.side, self.name]
        if pa.types.is_timestamp(values.type) and values.type.tz not in (None, "UTC"):
            return values.cast(pa.timestamp(values.type.unit, "UTC"))
        return values


@dataclass(frozen=True, slots=True)
class Constant:
    """A literal."""

    value: Any
    dtype: pa.DataType | None = None  # that it is read as; by itself, unless given

    def evaluate(self, columns: Columns) -> Any:
        """Return the value."""
        scalar = pa.scalar(self.value)
        return scalar if self.dtype is None else _read_text(scalar, self.dtype)


@dataclass(frozen=True, slots=True)
class Call:
    """A function of Arrow, and its arguments."""

    function: str
    arguments: tuple["Node", ...]

    def evaluate(self, columns: Columns) -> Any:
        """Return the function's values."""
        values = [argument.evaluate(columns) for argument in self.arguments]
        if self.function == "divide":
            values = [_as_double(value) for value in values]
            zero = pc.equal(values[1], 0.0)
            values[1] = pc.if_else(zero, pa.scalar(None, pa.float64()), values[1])
        options = _ROUNDING if self.function == "round" else None
        return pc.call_function(self.function, values, options, POOL)


@dataclass(frozen=True, slots=True)
class Matches:
    """LIKE: ``%`` stands for any text, ``_`` for any character."""

    argument: "Node"
    pattern: str

    def evaluate(self, columns: Columns) -> Any:
        """Return whether each text is like the pattern."""
        return pc.match_like(self.argument.evaluate(columns), self.pattern, memory_pool=POOL)


Node: TypeAlias = Column | Constant | Call | Matches


def _read_text(text: pa.Scalar, dtype: pa.DataType) -> pa.Scalar:
    """Return a text as a value of a type; a time without a zone is in UTC."""
    if not pa.types.is_timestamp(dtype) or dtype.tz is None:
        return text.cast(dtype)
    try:
        return text.cast(dtype)
    except pa.ArrowInvalid:
        return text.cast(pa.timestamp(dtype.unit)).cast(pa.timestamp(dtype.unit, "UTC"))


def _as_double(value: Any) -> Any:
    return value if pa.types.is_floating(value.type) else value.cast(pa.float64())


def both(first: Node, *others: Node) -> Node:
    """Return a predicate that is true if all of these are."""
    for other in others:
        first = Call("and_kleene", (first, other))
    return first


def either(one: Node, other: Node) -> Node:
    """Return a predicate that is true if one of the two is."""
    return Call("or_kleene", (one, other))


def is_null(node: Node) -> Node:
    """Return a predicate that is true for nulls."""
    return Call("is_null", (node,))


def compared(sign: str, left: Node, right: Node) -> Node:
    """Return a comparison by its sign."""
    return Call(COMPARISONS[sign], (left, right))


def walk(node: Node) -> Iterator[Node]:
    """Yield a node and all nodes below it."""
    yield node
    if isinstance(node, Call):
        for argument in node.arguments:
            yield from walk(argument)
    elif isinstance(node, Matches):
        yield from walk(node.argument)


def computed_values(node: Node) -> int:
    """Return how many values, other than true and false, are computed of each pair."""
    is_logic = (*COMPARISONS.values(), "and_kleene", "or_kleene", "invert", "is_null", "is_valid")
    calls = [n.function for n in walk(node) if isinstance(n, Call)]
    return sum(function not in is_logic for function in calls)


def conjuncts(node: Node) -> Iterator[Node]:
    """Yield the predicates that must all be true for this one to be."""
    if isinstance(node, Call) and node.function == "and_kleene":
        for argument in node.arguments:
            yield from conjuncts(argument)
    else:
        yield node


# ── types ───────────────────────────────────────────────────────────────────────────────────────


def typed(node: Node, schemas: Mapping[Side, pa.Schema]) -> Node:
    """Return the tree with its texts read as values of the types that they are compared with."""
    if isinstance(node, Matches):
        return Matches(typed(node.argument, schemas), node.pattern)
    if not isinstance(node, Call):
        return node
    arguments = [typed(argument, schemas) for argument in node.arguments]
    if node.function in (*COMPARISONS.values(), "coalesce"):
        types = [type_of(argument, schemas) for argument in arguments]
        others = [t for t in types if not pa.types.is_string(t) and not pa.types.is_null(t)]
        if others:
            arguments = [_read_as(argument, others[0]) for argument in arguments]
    return Call(node.function, tuple(arguments))


def type_of(node: Node, schemas: Mapping[Side, pa.Schema]) -> pa.DataType:
    """Return the type of a node's values; raise what is wrong if it has none."""
    empty = {
        (c.side, c.name): pa.array([], schemas[c.side].field(c.name).type)
        for c in walk(node)
        if isinstance(c, Column)
    }
    try:
        return node.evaluate(empty).type
    except pa.ArrowNotImplementedError as error:
        raise OptionError(f"{described(node)} cannot be computed: {error}") from None
    except pa.ArrowException as error:
        raise OptionError(f"{described(node)} cannot be compared or computed: {error}") from None


def _read_as(node: Node, dtype: pa.DataType) -> Node:
    if not isinstance(node, Constant) or not isinstance(node.value, str):
        return node
    try:
        _read_text(pa.scalar(node.value), dtype)
    except pa.ArrowException:
        raise OptionError(f"{node.value!r} in the condition is no {dtype}") from None
    return Constant(node.value, dtype)


def described(node: Node) -> str:
    """Return a node as text, for messages.

    >>> described(compared(">=", Column("stream", "a"), Constant(2)))
    's.a >= 2'
    """
    if isinstance(node, Column):
        return f"{node.side[0]}.{node.name}"
    if isinstance(node, Constant):
        return repr(node.value)
    if isinstance(node, Matches):
        return f"{described(node.argument)} LIKE {node.pattern!r}"
    texts = [described(argument) for argument in node.arguments]
    signs = {function: sign for sign, function in (COMPARISONS | ARITHMETIC).items()}
    signs |= {"equal": "=", "not_equal": "<>", "and_kleene": "AND", "or_kleene": "OR"}
    if node.function in signs:
        return f" {signs[node.function]} ".join(texts)
    return f"{node.function}({', '.join(texts)})"


def evaluated(node: Node, columns: Columns, count: int) -> Sequence[bool]:
    """Return for each of `count` pairs whether the predicate is true, as a NumPy array."""
    try:
        values = node.evaluate(columns)
    except pa.ArrowInvalid as error:
        raise OptionError(
            f"{described(node)} cannot be computed for a row: {error}. Cast its columns to "
            "floating-point numbers or to wider integers"
        ) from None
    if isinstance(values, pa.Scalar):
        values = pa.array([values.as_py()] * count, pa.bool_())
    values = values.fill_null(False) if values.null_count else values
    known: Sequence[bool] = values.to_numpy(zero_copy_only=False)
    return known
