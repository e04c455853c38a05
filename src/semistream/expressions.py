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

A predicate is parsed into a tree of small nodes, which Arrow's kernels evaluate, a piece of output
at a time. The tree is plain data: it can be pickled, and nothing of it is compiled.
"""

import datetime
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from semistream.columns import POOL
from semistream.errors import OptionError, did_you_mean

Side: TypeAlias = Literal["stream", "relation"]
Columns: TypeAlias = Mapping[tuple[Side, str], pa.Array]
# Finds a column by its side, if one is written, and its name; raises if there is none.
Find: TypeAlias = Callable[[Side | None, str], "Column"]

PREFIXES: dict[str, Side] = {
    "s": "stream",
    "stream": "stream",
    "r": "relation",
    "relation": "relation",
}
_COMPARISONS = {
    "=": "equal",
    "==": "equal",
    "<>": "not_equal",
    "!=": "not_equal",
    "<": "less",
    "<=": "less_equal",
    ">": "greater",
    ">=": "greater_equal",
}
_ARITHMETIC = {"+": "add_checked", "-": "subtract_checked", "*": "multiply_checked", "/": "divide"}
_FUNCTIONS = {
    "abs": "abs_checked",
    "ceil": "ceil",
    "coalesce": "coalesce",
    "floor": "floor",
    "length": "utf8_length",
    "lower": "utf8_lower",
    "round": "round",
    "trim": "utf8_trim_whitespace",
    "upper": "utf8_upper",
}
_UNITS_S = {"second": 1, "minute": 60, "hour": 3600, "day": 86_400, "week": 604_800}
_WORDS = {"and", "or", "not", "between", "in", "like", "is", "null", "true", "false"}
_TOKEN = re.compile(
    r"""\s*(?:
        (?P<number>\d+\.\d*(?:[eE][+-]?\d+)?|\.\d+(?:[eE][+-]?\d+)?|\d+(?:[eE][+-]?\d+)?)
      | (?P<text>'(?:[^']|'')*')
      | (?P<quoted>"(?:[^"]|"")+"|`(?:[^`]|``)+`)
      | (?P<name>[^\W\d]\w*)
      | (?P<sign><=|>=|<>|!=|==|[-+*/=<>(),.])
    )""",
    re.VERBOSE,
)


# ── the tree ────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class Column:
    """A column of the stream or of R."""

    side: Side
    name: str

    def evaluate(self, columns: Columns) -> Any:
        """Return the column's values."""
        return columns[self.side, self.name]


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
        return pc.call_function(self.function, values, memory_pool=POOL)


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
    return Call(_COMPARISONS[sign], (left, right))


def walk(node: Node) -> Iterator[Node]:
    """Yield a node and all nodes below it."""
    yield node
    if isinstance(node, Call):
        for argument in node.arguments:
            yield from walk(argument)
    elif isinstance(node, Matches):
        yield from walk(node.argument)


def conjuncts(node: Node) -> Iterator[Node]:
    """Yield the predicates that must all be true for this one to be."""
    if isinstance(node, Call) and node.function == "and_kleene":
        for argument in node.arguments:
            yield from conjuncts(argument)
    else:
        yield node


# ── the parser ──────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class _Token:
    kind: str
    text: str
    at: int


def parse(text: str, find: Find) -> Node:
    """Return the tree of a predicate; `find` looks up its columns.

    >>> parse("s.a >= 2", lambda side, name: Column(side or "stream", name)).function
    'greater_equal'
    """
    parser = _Parser(text, find)
    node = parser.disjunction()
    parser.expect_end()
    return node


class _Parser:
    """Recursive descent over the tokens of one predicate."""

    def __init__(self, text: str, find: Find) -> None:
        self._text = text
        self._find = find
        self._tokens = list(_tokens(text))
        self._next = 0

    def disjunction(self) -> Node:
        node = self._conjunction()
        while self._accept_word("or"):
            node = either(node, self._conjunction())
        return node

    def _conjunction(self) -> Node:
        node = self._negation()
        while self._accept_word("and"):
            node = both(node, self._negation())
        return node

    def _negation(self) -> Node:
        if self._accept_word("not"):
            return Call("invert", (self._negation(),))
        return self._predicate()

    def _predicate(self) -> Node:
        left = self._sum()
        if self._accept_word("is"):
            function = "is_valid" if self._accept_word("not") else "is_null"
            self._expect_word("null")
            return Call(function, (left,))
        if self._accept_word("not"):
            return Call("invert", (self._range(left),))
        if self._peek().text.lower() in ("between", "in", "like") and self._peek().kind == "name":
            return self._range(left)
        sign = self._peek().text
        if self._peek().kind == "sign" and sign in _COMPARISONS:
            self._take()
            return compared(sign, left, self._sum())
        return left

    def _range(self, left: Node) -> Node:
        """Parse what stands behind BETWEEN, IN or LIKE."""
        if self._accept_word("between"):
            low = self._sum()
            self._expect_word("and")
            return both(compared(">=", left, low), compared("<=", left, self._sum()))
        if self._accept_word("like"):
            token = self._take()
            if token.kind != "text":
                raise self._error(token, "a pattern in quotes")
            return Matches(left, _unquoted(token.text))
        self._expect_word("in")
        self._expect_sign("(")
        node = compared("=", left, self._sum())
        while self._accept_sign(","):
            node = either(node, compared("=", left, self._sum()))
        self._expect_sign(")")
        return node

    def _sum(self) -> Node:
        node = self._product()
        while (sign := self._accept_sign("+", "-")) is not None:
            node = Call(_ARITHMETIC[sign], (node, self._product()))
        return node

    def _product(self) -> Node:
        node = self._value()
        while (sign := self._accept_sign("*", "/")) is not None:
            node = Call(_ARITHMETIC[sign], (node, self._value()))
        return node

    def _value(self) -> Node:
        if self._accept_sign("-"):
            return Call("negate_checked", (self._value(),))
        if self._accept_sign("("):
            node = self.disjunction()
            self._expect_sign(")")
            return node
        token = self._take()
        if token.kind == "number":
            is_whole = token.text.isdigit()
            return Constant(int(token.text) if is_whole else float(token.text))
        if token.kind == "text":
            return Constant(_unquoted(token.text))
        if token.kind == "name":
            return self._named(token)
        if token.kind == "quoted":
            return self._find(None, _unquoted(token.text))
        raise self._error(token, "a column, a value or '('")

    def _named(self, token: _Token) -> Node:
        """Parse what begins with a word: a literal, a function or a column."""
        word = token.text.lower()
        if word in ("true", "false", "null"):
            return Constant({"true": True, "false": False, "null": None}[word])
        if word in ("date", "timestamp") and self._peek().kind == "text":
            dtype = pa.date32() if word == "date" else pa.timestamp("us")
            return Constant(_unquoted(self._take().text), dtype)
        if word == "interval" and self._peek().kind in ("number", "text"):
            return self._interval()
        if self._accept_sign("("):
            return self._function(token)
        if word in PREFIXES and self._accept_sign("."):
            column = self._take()
            if column.kind == "quoted":
                return self._find(PREFIXES[word], _unquoted(column.text))
            if column.kind == "name":
                return self._find(PREFIXES[word], column.text)
            raise self._error(column, "a column's name")
        if word in _WORDS:
            raise self._error(token, "a column, a value or '('")
        return self._find(None, token.text)

    def _interval(self) -> Node:
        token, unit = self._take(), self._take()
        size_s = _UNITS_S.get(unit.text.lower().removesuffix("s"))
        if size_s is None:
            raise self._error(unit, f"one of {', '.join(_UNITS_S)}")
        try:
            count = float(token.text.strip("'"))
        except ValueError:
            raise self._error(token, "a number") from None
        return Constant(datetime.timedelta(seconds=count * size_s))

    def _function(self, token: _Token) -> Node:
        name = token.text.lower()
        if name not in _FUNCTIONS:
            known = ", ".join(_FUNCTIONS)
            near = did_you_mean(name, list(_FUNCTIONS))
            raise OptionError(f"a condition has no function {token.text!r}, but {known}.{near}")
        arguments = [self.disjunction()]
        while self._accept_sign(","):
            arguments.append(self.disjunction())
        self._expect_sign(")")
        if len(arguments) > 1 and name != "coalesce":
            raise OptionError(f"{name} takes one argument; got {len(arguments)}")
        return Call(_FUNCTIONS[name], tuple(arguments))

    # ── tokens ──────────────────────────────────────────────────────────────────────────────────

    def _peek(self) -> _Token:
        return self._tokens[self._next]

    def _take(self) -> _Token:
        token = self._tokens[self._next]
        self._next = min(self._next + 1, len(self._tokens) - 1)
        return token

    def _accept_word(self, word: str) -> bool:
        token = self._peek()
        if token.kind != "name" or token.text.lower() != word:
            return False
        self._take()
        return True

    def _accept_sign(self, *signs: str) -> str | None:
        token = self._peek()
        return self._take().text if token.kind == "sign" and token.text in signs else None

    def _expect_word(self, word: str) -> None:
        if not self._accept_word(word):
            raise self._error(self._peek(), word.upper())

    def _expect_sign(self, sign: str) -> None:
        if self._accept_sign(sign) is None:
            raise self._error(self._peek(), repr(sign))

    def expect_end(self) -> None:
        if self._peek().kind != "end":
            raise self._error(self._peek(), "AND, OR, a comparison or the end")

    def _error(self, token: _Token, expected: str) -> OptionError:
        found = repr(token.text) if token.kind != "end" else "its end"
        return OptionError(
            f"the condition {self._text!r} cannot be read: at character {token.at + 1} it needs "
            f"{expected}, but has {found}"
        )


def _tokens(text: str) -> Iterator[_Token]:
    at = 0
    while text[at:].strip():
        found = _TOKEN.match(text, at)
        if found is None:
            raise OptionError(f"the condition {text!r} cannot be read at {text[at:].strip()!r}")
        assert found.lastgroup is not None, "one of the groups has matched"
        yield _Token(found.lastgroup, found[found.lastgroup], found.start(found.lastgroup))
        at = found.end()
    yield _Token("end", "", len(text))


def _unquoted(text: str) -> str:
    quote = text[0]
    return text[1:-1].replace(quote * 2, quote)


# ── types ───────────────────────────────────────────────────────────────────────────────────────


def typed(node: Node, schemas: Mapping[Side, pa.Schema]) -> Node:
    """Return the tree with its texts read as values of the types that they are compared with."""
    if isinstance(node, Matches):
        return Matches(typed(node.argument, schemas), node.pattern)
    if not isinstance(node, Call):
        return node
    arguments = [typed(argument, schemas) for argument in node.arguments]
    if node.function in (*_COMPARISONS.values(), "coalesce"):
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
    signs = {function: sign for sign, function in (_COMPARISONS | _ARITHMETIC).items()}
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
    known: Sequence[bool] = values.fill_null(False).to_numpy(zero_copy_only=False)
    return known
