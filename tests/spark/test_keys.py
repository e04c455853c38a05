"""The JVM and Python must agree on every key's code, or rows go to the wrong partition."""

import datetime
import decimal
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from semistream.keys import KeyCoder
from semistream.spark.keys import (
    code_expression,
    column,
    has_key_expression,
    partition_expression,
)

ROWS = 300
PARTITIONS = 7
EPOCH = datetime.datetime(1970, 1, 1)
UTC_EPOCH = EPOCH.replace(tzinfo=datetime.UTC)


def integers(bits: int) -> Callable[[random.Random], list[Any]]:
    least, greatest = -(2 ** (bits - 1)), 2 ** (bits - 1) - 1
    edges = [least, least + 1, -1, 0, 1, greatest - 1, greatest]
    return lambda rng: edges + [rng.randint(least, greatest) for _ in range(ROWS)]


def texts(rng: random.Random) -> list[Any]:
    # Around 32 bytes the hash changes its ways; NUL, two-, three- and four-byte characters.
    edges = ["", "a", "\0", "\0\0", " ", "ü", "日本語", "😀", "e\u0301", "\uffff", "y" * 5000]
    edges += ["x" * n for n in range(70)]
    alphabet = "abcXYZ019 -_üß日😀"
    return edges + ["".join(rng.choices(alphabet, k=rng.randint(0, 90))) for _ in range(ROWS)]


def blobs(rng: random.Random) -> list[Any]:
    edges = [b"", b"\0", b"\xff", b"\x80" * 8, b"\xff" * 33, b"\0" * 64]
    return edges + [rng.randbytes(rng.randint(0, 90)) for _ in range(ROWS)]


def dates(rng: random.Random) -> list[Any]:
    edges = [(1, 1, 1), (1582, 10, 4), (1582, 10, 15), (1969, 12, 31), (1970, 1, 1), (9999, 12, 31)]
    spans = [rng.choice((10, 20_000, 600_000)) for _ in range(ROWS)]
    days = [datetime.date(1970, 1, 1) + datetime.timedelta(rng.randint(-s, s)) for s in spans]
    return [datetime.date(*day) for day in edges] + days


def instants(epoch: datetime.datetime) -> Callable[[random.Random], list[Any]]:
    edges = [0, 1, -1, 10**6, -(10**6), -(10**15), 10**15, -(5 * 10**16), 2 * 10**17]

    def generate(rng: random.Random) -> list[Any]:
        micros = edges + [rng.randint(-(10**16), 10**16) for _ in range(ROWS)]
        return [epoch + datetime.timedelta(microseconds=m) for m in micros]

    return generate


def decimals(precision: int, scale: int) -> Callable[[random.Random], list[Any]]:
    most = 10**precision - 1
    # Where the two's complement of the unscaled value grows by a byte.
    steps = [s * (2**bits + d) for bits in range(7, 127, 8) for s in (1, -1) for d in (-1, 0, 1)]
    edges = [0, 1, -1, most, -most, *(s for s in steps if abs(s) <= most)]
    context = decimal.Context(prec=40)

    def generate(rng: random.Random) -> list[Any]:
        unscaled = edges + [
            rng.randint(-(10 ** rng.randint(1, precision)) + 1, 10 ** rng.randint(1, precision) - 1)
            for _ in range(ROWS)
        ]
        return [context.scaleb(decimal.Decimal(u), -scale) for u in unscaled]

    return generate


KINDS: dict[str, tuple[pa.DataType, Callable[[random.Random], list[Any]]]] = {
    "byte": (pa.int8(), integers(8)),
    "short": (pa.int16(), integers(16)),
    "int": (pa.int32(), integers(32)),
    "long": (pa.int64(), integers(64)),
    "string": (pa.string(), texts),
    "binary": (pa.binary(), blobs),
    "date": (pa.date32(), dates),
    "timestamp": (pa.timestamp("us", "UTC"), instants(UTC_EPOCH)),
    "timestamp_ntz": (pa.timestamp("us"), instants(EPOCH)),
    "decimal_9_2": (pa.decimal128(9, 2), decimals(9, 2)),
    "decimal_18_0": (pa.decimal128(18, 0), decimals(18, 0)),
    "decimal_18_18": (pa.decimal128(18, 18), decimals(18, 18)),
    "decimal_19_0": (pa.decimal128(19, 0), decimals(19, 0)),
    "decimal_30_3": (pa.decimal128(30, 3), decimals(30, 3)),
    "decimal_38_0": (pa.decimal128(38, 0), decimals(38, 0)),
    "decimal_38_38": (pa.decimal128(38, 38), decimals(38, 38)),
    "bool": (pa.bool_(), lambda rng: [True, False]),
}
DDL = {
    "date": "date",
    "timestamp": "timestamp",
    "timestamp_ntz": "timestamp_ntz",
    "bool": "boolean",
    **{k: f"decimal({p},{s})" for k in KINDS if k[:3] == "dec" for _, p, s in [k.split("_")]},
}
COMPOSITES = (
    ("string", "int"),
    ("int", "string"),
    ("long", "long"),
    ("date", "decimal_30_3", "long"),
    ("bool", "binary", "timestamp_ntz"),
    ("short", "decimal_9_2", "timestamp", "string"),
)
KEYS = tuple((kind,) for kind in KINDS) + COMPOSITES


@dataclass(frozen=True)
class Coded:
    """What both sides say about the same rows."""

    codes: np.ndarray[Any, np.dtype[np.int64]]
    has_key: np.ndarray[Any, np.dtype[np.bool_]]
    jvm: dict[str, list[Any]]


def table_of_keys() -> pa.Table:
    rng = random.Random(20)
    values = {name: generate(rng) for name, (_, generate) in KINDS.items()}
    count = max(len(v) for v in values.values())
    columns = {}
    for name, (dtype, _) in KINDS.items():
        filled = values[name] + rng.choices(values[name], k=count - len(values[name]))
        # Nulls come after the edges, not instead of them.
        filled += [None, *(None if rng.random() < 0.3 else v for v in rng.choices(filled, k=60))]
        columns[name] = pa.array(filled, dtype)
    length = min(len(c) for c in columns.values())
    return pa.table({name: c[:length] for name, c in columns.items()})


@pytest.fixture(scope="module")
def coded(spark: SparkSession) -> dict[tuple[str, ...], Coded]:
    """All keys coded by both sides, in one query."""
    table = table_of_keys()
    schema = ", ".join(f"{name} {DDL.get(name, name)}" for name in KINDS)
    frame = spark.createDataFrame(table, schema)
    coders = {key: KeyCoder.for_columns([KINDS[k][0] for k in key], key) for key in KEYS}
    wanted = [column(name) for name in KINDS]
    for i, (key, coder) in enumerate(coders.items()):
        wanted.append(code_expression(coder, key).alias(f"code{i}"))
        wanted.append(has_key_expression(key).alias(f"has_key{i}"))
        wanted.append(partition_expression(coder, key, PARTITIONS).alias(f"partition{i}"))
    answer = frame.select(*wanted).toArrow().combine_chunks()
    assert answer.select(list(KINDS)).to_pylist() == table.to_pylist(), "Spark changed the values"
    results = {}
    for i, (key, coder) in enumerate(coders.items()):
        codes, has_key = coder.codes([answer[k].combine_chunks() for k in key])
        jvm = {n: answer[f"{n}{i}"].to_pylist() for n in ("code", "has_key", "partition")}
        results[key] = Coded(codes, has_key, jvm)
    return results


@pytest.mark.parametrize("key", KEYS, ids="+".join)
def test_the_jvm_codes_keys_as_python_does(
    coded: dict[tuple[str, ...], Coded], key: tuple[str, ...]
) -> None:
    result = coded[key]
    assert result.has_key.any()
    ours = [int(c) for c, has in zip(result.codes, result.has_key, strict=True) if has]
    theirs = [c for c, has in zip(result.jvm["code"], result.has_key, strict=True) if has]
    assert ours == theirs


@pytest.mark.parametrize("key", KEYS, ids="+".join)
def test_both_sides_agree_on_which_rows_have_a_key(
    coded: dict[tuple[str, ...], Coded], key: tuple[str, ...]
) -> None:
    result = coded[key]
    assert result.jvm["has_key"] == result.has_key.tolist()
    assert not result.has_key.all()


@pytest.mark.parametrize("key", KEYS, ids="+".join)
def test_every_row_has_a_partition_and_the_right_one_if_it_has_a_key(
    coded: dict[tuple[str, ...], Coded], key: tuple[str, ...]
) -> None:
    result = coded[key]
    assert all(p in range(PARTITIONS) for p in result.jvm["partition"])
    expected = (result.codes % PARTITIONS).tolist()
    for ours, theirs, has in zip(expected, result.jvm["partition"], result.has_key, strict=True):
        assert not has or ours == theirs


def test_a_lone_integer_is_its_own_code_and_null_has_none(
    coded: dict[tuple[str, ...], Coded],
) -> None:
    result = coded[("int",)]
    assert [c is None for c in result.jvm["code"]] == [not has for has in result.has_key]
    keyless = [p for p, has in zip(result.jvm["partition"], result.has_key, strict=True) if not has]
    assert set(keyless) == {0}


def test_a_narrower_stream_key_is_coded_as_the_relation_codes_it(spark: SparkSession) -> None:
    numbers = [decimal.Decimal(n) / 4 for n in (-9999, -1, 0, 1, 5, 12345)]
    table = pa.table(
        {
            "d": pa.array([*numbers, None], pa.decimal128(9, 2)),
            "i": pa.array([-(2**15), -1, 0, 1, 5, 2**15 - 1, 7], pa.int16()),
        }
    )
    coder = KeyCoder.for_columns([pa.decimal128(30, 5), pa.int64()], ["d", "i"])
    frame = spark.createDataFrame(table, "d decimal(9,2), i short")
    theirs = frame.select(code_expression(coder, ["d", "i"]).alias("code")).toArrow()
    codes, has_key = coder.codes([table["d"].combine_chunks(), table["i"].combine_chunks()])
    assert has_key.tolist() == [True] * 6 + [False]
    assert theirs["code"].to_pylist()[:6] == codes.tolist()[:6]
