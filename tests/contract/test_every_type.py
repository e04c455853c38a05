"""Columns of every Arrow type, in every encoding, as payload and as keys of a join.

A join gives what a nested loop over Python values gives, or an error of ours; it never ends with an
error of Arrow, NumPy or Numba.
"""

import tempfile
from collections import Counter
from contextlib import suppress
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import semistream as ss
from semistream.errors import KeyTypeError
from tests.arrays import arrays

ROWS = 7
few = settings(max_examples=100)
every_algorithm = pytest.mark.parametrize("algorithm", ["meshjoin", "chybridjoin"])


def run(
    algorithm: str, how: str, relation_rows: dict[str, Any], stream_rows: dict[str, Any]
) -> Counter[str]:
    """Join on the column `id` and return the rows, each as text."""
    with tempfile.TemporaryDirectory() as folder:
        relation = ss.build_relation(
            pa.record_batch(relation_rows), folder, key="id", partitions=2, page_size=200
        )
        stream = pa.record_batch(stream_rows)
        pieces = [stream[:2], stream[2:2], stream[2:]]
        joined = list(ss.join(pieces, relation, how=how, algorithm=algorithm, memory="8MB"))
    for batch in joined:
        batch.validate(full=True)
    return Counter(
        repr(row) for b in joined for row in zip(*(c.to_pylist() for c in b.columns), strict=True)
    )


def nested_loop(
    how: str,
    relation: list[tuple[Any, Any]],
    stream: list[tuple[Any, Any, Any]],
) -> Counter[str]:
    """Join (key, payload) with (key, id as it is shown, payload), all of them Python values."""
    rows: list[tuple[Any, ...]] = []
    for key, shown, payload in stream:
        found = [p for other, p in relation if None not in (key, other) and key == other]
        if how in ("semi", "anti"):
            rows += [(shown, payload)] * (bool(found) == (how == "semi"))
        else:
            rows += [(shown, payload, p) for p in found]
            rows += [(shown, payload, None)] * (how == "left" and not found)
    return Counter(map(repr, rows))


hows = st.sampled_from(["inner", "left", "semi", "anti"])
integer_keys = st.lists(st.none() | st.integers(0, 5), min_size=ROWS, max_size=ROWS)


@every_algorithm
@few
@given(
    how=hows,
    keys=st.tuples(integer_keys, integer_keys),
    sold=arrays(ROWS),
    stored=arrays(ROWS),
)
def test_payloads_of_every_type(
    algorithm: str,
    how: str,
    keys: tuple[list[Any], list[Any]],
    sold: pa.Array,
    stored: pa.Array,
) -> None:
    ours, theirs = keys
    expected = nested_loop(
        how,
        list(zip(ours, stored.to_pylist(), strict=True)),
        list(zip(theirs, theirs, sold.to_pylist(), strict=True)),
    )
    actual = run(
        algorithm,
        how,
        {"id": pa.array(ours, pa.int64()), "stored": stored},
        {"id": pa.array(theirs, pa.int64()), "sold": sold},
    )
    assert actual == expected


@every_algorithm
@few
@given(ours=arrays(ROWS), theirs=arrays(ROWS), is_same=st.booleans(), how=hows)
def test_keys_of_every_type_are_joined_or_refused(
    algorithm: str, ours: pa.Array, theirs: pa.Array, is_same: bool, how: str
) -> None:
    with suppress(KeyTypeError):
        run(algorithm, how, {"id": ours, "x": [1] * ROWS}, {"id": ours if is_same else theirs})


# Types that meet: type → how it is made from a value that both sides can compare.
DAY_MS = 86_400_000
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
INTEGERS = [pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint32(), pa.uint64()]
FAMILIES: dict[str, tuple[list[pa.DataType], list[Any]]] = {
    "integers": (INTEGERS, [0, 1, 127, 128, 255, -1, 2**31, 2**63 - 1, 2**63, 2**64 - 1]),
    "text": ([pa.string(), pa.large_string(), pa.string_view()], ["", "a", "é", "x" * 40]),
    "bytes": (
        [pa.binary(), pa.large_binary(), pa.binary_view(), pa.binary(2)],
        [b"", b"ab", b"\x00\xff", b"x" * 40],
    ),
    "days": ([pa.date32(), pa.date64()], [date(1, 1, 1), date(1969, 12, 31), date(2020, 2, 29)]),
    "instants": (
        [pa.timestamp(unit) for unit in ("s", "ms", "us", "ns")],  # values in nanoseconds
        [0, 1, -1, 999, 1_000, 1_000_000, 10**9, -(10**9), 1_500_000_000],
    ),
    "zoned instants": (
        [pa.timestamp("us", "UTC"), pa.timestamp("ms", "Asia/Tokyo"), pa.timestamp("ns", "+02:00")],
        [0, 1_000, 1_000_000, -1_000_000, 3],
    ),
    "decimals": (
        [pa.decimal128(20, 3), pa.decimal32(5, 1), pa.decimal64(9, 2), pa.decimal256(20, 3)],
        [Decimal("1.5"), Decimal("-2.25"), Decimal("0.001"), Decimal(10**15), Decimal(0)],
    ),
    "booleans": ([pa.bool_()], [True, False]),
    "uuids": ([pa.uuid()], [b"a" * 16, b"b" * 16]),
}
NANOS = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}


def raw(dtype: pa.DataType, value: Any) -> Any:
    """Return the value as the type's builder takes it."""
    return value if not pa.types.is_timestamp(dtype) else value // NANOS[dtype.unit]


def can_have(dtype: pa.DataType, value: Any) -> bool:
    if pa.types.is_timestamp(dtype):
        return bool(value % NANOS[dtype.unit] == 0)
    try:
        pa.array([value], getattr(dtype, "storage_type", dtype))
    except (pa.ArrowInvalid, OverflowError):
        return False
    return True


def column(dtype: pa.DataType, values: list[Any], encoding: str) -> pa.Array:
    """Return a key column in some encoding, as a slice of a longer one."""
    padded = [values[0], *values, values[-1]]
    made = [None if v is None else raw(dtype, v) for v in padded]
    if dtype == pa.uuid():
        array = pa.ExtensionArray.from_storage(dtype, pa.array(made, dtype.storage_type))
    else:
        array = pa.array(made, dtype)
    if encoding == "dictionary":
        places = pa.array([None if v is None else i for i, v in enumerate(made)], pa.int16())
        array = pa.DictionaryArray.from_arrays(places, array)
    if encoding == "runs":
        array = pa.RunEndEncodedArray.from_arrays(pa.array(np.arange(1, len(array) + 1)), array)
    return array[1:-1]


@st.composite
def key_columns(draw: st.DrawFn, family: str) -> tuple[list[Any], pa.Array]:
    """Draw values as nanoseconds, numbers, text… and a column of them."""
    types, values = FAMILIES[family]
    dtype = draw(st.sampled_from(types))
    possible = st.sampled_from([v for v in values if can_have(dtype, v)])
    drawn = draw(st.lists(st.none() | possible, min_size=ROWS, max_size=ROWS))
    encoding = draw(st.sampled_from(["plain", "dictionary", "runs"]))
    return drawn, column(dtype, drawn, encoding)


@every_algorithm
@few
@given(data=st.data(), family=st.sampled_from(sorted(FAMILIES)), how=hows)
def test_keys_of_types_that_meet(
    algorithm: str, data: st.DataObject, family: str, how: str
) -> None:
    """Also where R cannot have what the stream requests."""
    our_values, ours = data.draw(key_columns(family))
    their_values, theirs = data.draw(key_columns(family))
    numbers = list(range(ROWS))
    expected = nested_loop(
        how,
        list(zip(our_values, numbers, strict=True)),
        list(zip(their_values, theirs.to_pylist(), numbers, strict=True)),
    )
    with suppress(KeyTypeError):
        actual = run(algorithm, how, {"id": ours, "x": numbers}, {"id": theirs, "n": numbers})
        assert actual == expected


@pytest.mark.parametrize("family", FAMILIES)
def test_no_family_is_always_refused(family: str) -> None:
    """The tests above let errors pass; here is one pair of each family for which there is none."""
    types, values = FAMILIES[family]
    shared = [v for v in values if can_have(types[0], v) and can_have(types[-1], v)][:2]
    ours, theirs = column(types[0], shared, "plain"), column(types[-1], shared, "runs")
    found = run("meshjoin", "inner", {"id": ours, "x": [7] * 2}, {"id": theirs})
    assert sum(found.values()) == len(shared) == 2
