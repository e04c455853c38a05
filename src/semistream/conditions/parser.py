"""The parser of predicates: a text becomes a tree, by recursive descent.

`semistream.conditions.expressions` says what can be written.
"""

import datetime
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeAlias

import pyarrow as pa

from semistream.conditions.expressions import (
    ARITHMETIC,
    COMPARISONS,
    Call,
    Column,
    Constant,
    Matches,
    Node,
    Side,
    both,
    compared,
    either,
)
from semistream.errors import OptionError, did_you_mean

# Finds a column by its side, if one is written, and its name; raises if there is none.
Find: TypeAlias = Callable[[Side | None, str], "Column"]

PREFIXES: dict[str, Side] = {
    "s": "stream",
    "stream": "stream",
    "r": "relation",
    "relation": "relation",
}
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
        if self._peek().kind == "sign" and sign in COMPARISONS:
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
            node = Call(ARITHMETIC[sign], (node, self._product()))
        return node

    def _product(self) -> Node:
        node = self._value()
        while (sign := self._accept_sign("*", "/")) is not None:
            node = Call(ARITHMETIC[sign], (node, self._value()))
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
            raise OptionError(f"a condition has no function {token.text!r}; it has {known}.{near}")
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
