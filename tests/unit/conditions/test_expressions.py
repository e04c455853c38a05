"""Predicates are read and evaluated as DuckDB reads and evaluates them."""

from decimal import Decimal
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest

from semistream.conditions.condition import Binder, between, similar, where
from semistream.errors import ColumnError, OptionError

N = 300


def tables(seed: int = 3) -> tuple[pa.Table, pa.Table]:
    """Return pairs: two tables of as many rows each, with a null in a fifth of all values."""
    rng = np.random.default_rng(seed)

    def column(values: Any, dtype: pa.DataType) -> pa.Array:
        return pa.array(values, dtype, mask=rng.random(N) < 0.2)

    def side(prefix: str) -> pa.Table:
        day = rng.integers(0, 40, N).astype("datetime64[D]")
        return pa.table(
            {
                f"{prefix}i": column(rng.integers(-5, 6, N), pa.int32()),
                f"{prefix}d": column(rng.integers(-5, 6, N) / 4, pa.float64()),
                f"{prefix}m": column(
                    [Decimal(int(x)) / 4 for x in rng.integers(-9, 9, N)], pa.decimal128(9, 2)
                ),
                f"{prefix}t": column(rng.choice(["", "a", "A", "ab", "b%", "ü"], N), pa.string()),
                f"{prefix}b": column(rng.random(N) < 0.5, pa.bool_()),
                f"{prefix}at": column(day.astype("datetime64[us]"), pa.timestamp("us")),
                f"{prefix}day": column(day, pa.date32()),
                "both": column(rng.integers(0, 3, N), pa.int64()),
            }
        )

    return side("s"), side("r")


def holds(condition: Any, stream: pa.Table, relation: pa.Table) -> list[bool]:
    bound = binder(stream, relation).bind(condition)
    assert bound is not None
    sides = {"stream": stream, "relation": relation}
    columns: Any = {
        (side, name): table[name].combine_chunks()
        for side, table in sides.items()
        for name in table.column_names
    }
    return list(bound.holds(columns, stream.num_rows))


def binder(stream: pa.Table, relation: pa.Table) -> Binder:
    def find(name: str, schema: pa.Schema, side: str) -> str:
        if name not in schema.names:
            raise ColumnError(f"{name} is not in the {side}")
        return name

    return Binder({"stream": stream.schema, "relation": relation.schema}, {}, find)


def by_duckdb(condition: str, stream: pa.Table, relation: pa.Table) -> list[bool]:
    numbered = [t.append_column("row", pa.array(range(N))) for t in (stream, relation)]
    with duckdb.connect() as db:
        db.register("s", numbered[0])
        db.register("r", numbered[1])
        query = (
            f"SELECT coalesce(({condition}), FALSE) FROM s JOIN r ON s.row = r.row ORDER BY s.row"
        )
        return [bool(row[0]) for row in db.sql(query).fetchall()]


PREDICATES = (
    "s.si >= r.ri",
    "si <> ri AND sd < rd",
    "NOT (si = ri OR sb) AND rb",
    "NOT si = ri OR rb",
    "si BETWEEN ri AND ri + 3",
    "si NOT BETWEEN -1 AND ri",
    "st IN ('a', 'ü', rt)",
    "st NOT IN ('a', 'b%')",
    "st LIKE 'a%' OR rt NOT LIKE '_'",
    "st IS NULL AND rt IS NOT NULL",
    "si + ri * 2 - 1 > -sd",
    "(si + ri) * 2 > 1",
    "ri <> 0 AND si / ri >= 0.5",
    "sm > rm + 1",
    "sm = ri",
    "abs(si) = abs(ri) OR length(st) > 1",
    "upper(st) = upper(rt) AND lower(trim(st)) <> ''",
    "coalesce(si, ri, 0) = 0",
    "floor(sd) <= ceil(rd) AND round(sd) = round(rd)",
    "sat >= r.rday AND sday < DATE '1970-01-20'",
    "sat - rat <= INTERVAL 2 DAY AND sat >= rat",
    "sat > TIMESTAMP '1970-01-15 12:00:00' OR sat = '1970-01-03'",
    "sday >= '1970-02-01'",
    "s.both = r.both AND sb = TRUE",
    "TRUE",
    "NULL",
    "1.5e1 > si AND .5 < 1.",
    '"si" = r."ri"',
)


@pytest.mark.parametrize("predicate", PREDICATES)
def test_as_duckdb(predicate: str) -> None:
    stream, relation = tables()
    expected = by_duckdb(predicate, stream, relation)
    assert holds(where(predicate), stream, relation) == expected
    assert predicate in ("TRUE", "NULL") or 0 < sum(expected) < N


def test_generated_as_duckdb() -> None:
    """Trees of comparisons, logic and arithmetic, in all orders of precedence."""
    rng = np.random.default_rng(8)

    def number(depth: int) -> str:
        if depth == 0 or rng.random() < 0.3:
            return str(rng.choice(["si", "ri", "sd", "rd", "2", "0.25"]))
        return f"{number(depth - 1)} {rng.choice(['+', '-', '*'])} {number(depth - 1)}"

    def logic(depth: int) -> str:
        kind = rng.integers(0, 6) if depth else 5
        if kind < 3:
            return f"{logic(depth - 1)} {['AND', 'OR', 'AND NOT'][kind]} {logic(depth - 1)}"
        if kind < 5:
            return f"{['(', 'NOT ('][kind - 3]}{logic(depth - 1)})"
        return f"{number(2)} {rng.choice(['=', '<', '<=', '>', '>=', '!='])} {number(2)}"

    stream, relation = tables(4)
    for _ in range(60):
        predicate = logic(3)
        assert holds(predicate, stream, relation) == by_duckdb(predicate, stream, relation)


def test_between_is_inclusive() -> None:
    stream, relation = pa.table({"a": [1, 2, 3, 4, None]}), pa.table({"l": [2] * 5, "h": [3] * 5})
    assert holds(between("a", "l", "h"), stream, relation) == [False, True, True, False, False]


def test_times_with_a_zone() -> None:
    stream = pa.table({"at": pa.array([0, 86_400_000_000], pa.timestamp("us", "Asia/Tokyo"))})
    relation = pa.table({"of": pa.array([1, 1], pa.timestamp("ms", "UTC"))})
    assert holds("at > of", stream, relation) == [False, True]
    assert holds("at >= '1970-01-02'", stream, relation) == [False, True]
    assert holds("at > TIMESTAMP '1970-01-01 00:00:00'", stream, relation) == [False, True]


@pytest.mark.parametrize(
    ("predicate", "problem"),
    [
        ("si >=", "at character 6 it needs a column"),
        ("si >= 1 2", "has '2'"),
        ("(si = 1", r"needs '\)', but has its end"),
        ("si", "must be true or false, but s.si is int32"),
        ("si = st", "cannot be"),
        ("si = 'x'", "'x' in the condition is no int32"),
        ("both = 1", "write s.both or r.both"),
        ("boht = 1", "neither in the stream nor in the relation. Did you mean 'both'"),
        ("lenght(st) = 1", "Did you mean 'length'"),
        ("si = 1; DROP", "cannot be read at '; DROP'"),
        ("abs(si, 1) = 1", "takes one argument; got 2"),
        ("sat > INTERVAL 1 MOON", "one of second"),
        ("", "has its end"),
    ],
)
def test_what_is_wrong_is_said(predicate: str, problem: str) -> None:
    with pytest.raises((OptionError, ColumnError), match=problem):
        holds(predicate, *tables())


def test_overflow_is_an_error() -> None:
    stream, relation = pa.table({"a": [2**62, 1]}), pa.table({"b": [4, 1]})
    with pytest.raises(OptionError, match=r"s.a \* r.b .* for a row.*overflow"):
        holds("a * b > 0", stream, relation)


def test_pieces_in_common() -> None:
    """Jaccard's index of the sets of three characters, by its definition."""
    texts = ["", "a", "ab", "abc", "abcd", "abcabc", "bcde", "müsli", "muesli", "müslix", None]
    pairs = [(a, b) for a in texts for b in texts]
    stream = pa.table({"a": pa.array([a for a, _ in pairs], pa.string())})
    relation = pa.table({"b": pa.array([b for _, b in pairs], pa.string())})

    def pieces(text: str) -> set[str]:
        return {text[i : i + 3] for i in range(max(1, len(text) - 2))}

    def expected(a: str | None, b: str | None, least: float) -> bool:
        if a is None or b is None:
            return False
        x, y = pieces(a), pieces(b)
        return len(x & y) / len(x | y) >= least

    for least in (0.01, 0.5, 0.6, 1.0):
        actual = holds(similar("a", "b", least=least), stream, relation)
        assert actual == [expected(a, b, least) for a, b in pairs]


def test_similar_options() -> None:
    with pytest.raises(OptionError, match="Did you mean 'jaccard'"):
        similar("a", by="jacard")  # type: ignore[arg-type]
    with pytest.raises(OptionError, match="above 0"):
        similar("a", least=0)
    with pytest.raises(OptionError, match="cast it to string"):
        holds(similar("si", "rt"), *tables())
