import re
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from semistream.errors import KeyTypeError
from semistream.keys import (
    SPARK_SEED,
    KeyCoder,
    canonical_type,
    check_same_type,
    count_null_keys,
)

MASK = 2**64 - 1
P1, P2, P3 = 0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9
P4, P5 = 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5


def rotate(x: int, by: int) -> int:
    return ((x << by) | (x >> (64 - by))) & MASK


def stir(lane: int, word: int) -> int:
    return rotate((lane + word * P2) & MASK, 31) * P1 & MASK


def xxh64(data: bytes, seed: int) -> int:
    """Hash as the specification of XXH64 says, the slow way."""
    at = 0
    if len(data) >= 32:
        lanes = [(seed + P1 + P2) & MASK, (seed + P2) & MASK, seed, (seed - P1) & MASK]
        for at in range(0, len(data) - 31, 32):
            words = [int.from_bytes(data[at + i : at + i + 8], "little") for i in (0, 8, 16, 24)]
            lanes = [stir(lane, word) for lane, word in zip(lanes, words, strict=True)]
        at += 32
        h = sum(rotate(lane, by) for lane, by in zip(lanes, (1, 7, 12, 18), strict=True)) & MASK
        for lane in lanes:
            h = ((h ^ stir(0, lane)) * P1 + P4) & MASK
    else:
        h = (seed + P5) & MASK
    h = (h + len(data)) & MASK
    while at + 8 <= len(data):
        h = (rotate(h ^ stir(0, int.from_bytes(data[at : at + 8], "little")), 27) * P1 + P4) & MASK
        at += 8
    if at + 4 <= len(data):
        word = int.from_bytes(data[at : at + 4], "little")
        h = (rotate(h ^ (word * P1 & MASK), 23) * P2 + P3) & MASK
        at += 4
    for byte in data[at:]:
        h = rotate(h ^ (byte * P5 & MASK), 11) * P1 & MASK
    h = (h ^ (h >> 33)) * P2 & MASK
    h = (h ^ (h >> 29)) * P3 & MASK
    return h ^ (h >> 32)


def signed(h: int) -> int:
    return h - 2**64 if h >= 2**63 else h


def codes(*columns: pa.Array, types: list[pa.DataType] | None = None) -> list[int]:
    names = [f"k{i}" for i in range(len(columns))]
    coder = KeyCoder.for_columns(types or [c.type for c in columns], names)
    return [int(c) for c in coder.codes(columns)[0]]


def key(value: Any, dtype: pa.DataType) -> pa.Array:
    return pa.array([value], dtype)


@pytest.mark.parametrize(
    ("columns", "spark"),
    [
        ([key("abc", pa.string())], 1423657621850124518),
        ([key("a", pa.string()), key(5, pa.int64())], -4521660676022616110),
        ([key("x" * 50, pa.string())], -6117246048227440395),
        ([key(Decimal("123.45"), pa.decimal128(10, 2))], 8791244235932249694),
        (
            [key(Decimal("-123456789012345678901.45"), pa.decimal128(30, 2))],
            -2912530879612571225,
        ),
        ([key(date(2020, 1, 1), pa.date32())], 2299834470729022467),
        ([key(True, pa.bool_())], -6698625589789238999),
        ([key(datetime(2020, 1, 1, tzinfo=UTC), pa.timestamp("us", "UTC"))], 7881863312764026046),
        ([key(datetime(2020, 1, 1), pa.timestamp("us"))], 7881863312764026046),
    ],
    ids=lambda p: str(p[0].type) if isinstance(p, list) else "",
)
def test_codes_are_those_of_spark(columns: list[pa.Array], spark: int) -> None:
    assert codes(*columns) == [spark]


@given(st.lists(st.binary(max_size=120), max_size=20))
@example([b"x" * n for n in range(100)])
def test_hashes_of_bytes(values: list[bytes]) -> None:
    assert codes(pa.array(values, pa.binary())) == [signed(xxh64(v, SPARK_SEED)) for v in values]


@given(st.lists(st.integers(-(2**63), 2**63 - 1), max_size=20))
def test_hashes_of_longs(values: list[int]) -> None:
    """In a composite key, where they are hashed. An integer alone is its own code."""
    column = pa.array(values, pa.int64())
    first = [xxh64(v.to_bytes(8, "little", signed=True), SPARK_SEED) for v in values]
    both = [
        xxh64(v.to_bytes(8, "little", signed=True), h) for v, h in zip(values, first, strict=True)
    ]
    assert codes(column, column) == [signed(h) for h in both]
    assert codes(column) == values


@given(st.lists(st.integers(-(10**37), 10**37) | st.integers(-70_000, 70_000), max_size=20))
@example([0, -1, 127, 128, -128, -129, 255, 256, 2**63 - 1, 2**63, -(2**63), -(2**63) - 1])
def test_hashes_of_big_decimals(unscaled: list[int]) -> None:
    """As the shortest big-endian two's complement, which is what Java's BigInteger gives."""
    images = [v.to_bytes(17, "big", signed=True) for v in unscaled]
    for i, v in enumerate(unscaled):
        for width in range(16, 0, -1):
            if -(1 << (8 * width - 1)) <= v < 1 << (8 * width - 1):
                images[i] = v.to_bytes(width, "big", signed=True)
    column = pa.array([Decimal(v) for v in unscaled], pa.decimal128(38, 0))
    assert codes(column) == [signed(xxh64(image, SPARK_SEED)) for image in images]


@pytest.mark.parametrize(
    "dtype",
    [pa.int8(), pa.int16(), pa.int32(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()],
    ids=str,
)
def test_integer_widths_agree(dtype: pa.DataType) -> None:
    values = [0, 1, 100, 127]
    assert codes(pa.array(values, dtype)) == values
    text = pa.array(["a", "b", "c", "d"])
    assert codes(text, pa.array(values, dtype)) == codes(text, pa.array(values, pa.int64()))


TEXTS = ["", "a", "pêche", "x" * 50]
INSTANTS = [datetime(2020, 1, 1), datetime(1969, 12, 31, 23, 59, 59)]
AMOUNTS = [Decimal("1.5"), Decimal("-2.0")]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (pa.array(TEXTS), pa.array(TEXTS, pa.large_string())),
        (pa.array(TEXTS), pa.array(TEXTS, pa.string_view())),
        (pa.array(TEXTS), pa.array(TEXTS).dictionary_encode()),
        (pa.array([b"abc"], pa.binary()), pa.array([b"abc"], pa.binary(3))),
        (pa.array([b"abc"], pa.binary()), pa.array([b"abc"], pa.large_binary())),
        (pa.array([date(1999, 9, 9)], pa.date32()), pa.array([date(1999, 9, 9)], pa.date64())),
        (pa.array(INSTANTS, pa.timestamp("us")), pa.array(INSTANTS, pa.timestamp("s"))),
        (pa.array(INSTANTS, pa.timestamp("us")), pa.array(INSTANTS, pa.timestamp("ns"))),
        (
            pa.array(INSTANTS, pa.timestamp("us", "UTC")),
            pa.array(INSTANTS, pa.timestamp("us", "Asia/Tokyo")),
        ),
        (
            pa.array(INSTANTS, pa.timestamp("us", "UTC")),
            pa.array(INSTANTS, pa.timestamp("ms", "Asia/Tokyo")),
        ),
        (pa.array(AMOUNTS, pa.decimal128(20, 3)), pa.array(AMOUNTS, pa.decimal128(5, 1))),
        (pa.array(AMOUNTS, pa.decimal128(12, 2)), pa.array(AMOUNTS, pa.decimal256(12, 2))),
    ],
    ids=lambda p: str(p.type),
)
def test_both_sides_get_the_same_codes(one: pa.Array, other: pa.Array) -> None:
    check_same_type(one.type, other.type, "r", "s")
    coder = KeyCoder.for_columns([one.type], ["r"])
    assert coder.codes([one])[0].tolist() == coder.codes([other])[0].tolist()
    assert coder.same_keys(coder.canonical([one]), coder.canonical([other])).all()


def test_a_null_in_any_column_is_no_key() -> None:
    a = pa.array([1, None, 3, None])
    b = pa.array(["x", "y", None, None])
    coder = KeyCoder.for_columns([a.type, b.type], ["a", "b"])
    _, has_key = coder.codes([a, b])
    assert has_key.tolist() == [True, False, False, False]
    _, has_key = coder.codes([a[1:], b[1:]])
    assert has_key.tolist() == [False, False, False]


def test_nulls_do_not_disturb_the_codes_of_others() -> None:
    with_nulls, without = pa.array(["a", None, "b", None]), pa.array(["a", "b"])
    assert [codes(with_nulls)[i] for i in (0, 2)] == codes(without)
    assert codes(pa.array([7, None, 9]))[::2] == [7, 9]


def test_slices_have_the_codes_of_their_rows() -> None:
    for column in (pa.array([1, None, 3, 4]), pa.array(["a", None, "c", "d"])):
        assert codes(column[2:]) == codes(column)[2:]


def test_no_rows_no_codes() -> None:
    assert codes(pa.array([], pa.int64())) == []
    assert codes(pa.array([], pa.string()), pa.array([], pa.bool_())) == []


def test_only_a_lone_integer_is_exact() -> None:
    assert KeyCoder.for_columns([pa.int16()], ["a"]).is_exact
    assert not KeyCoder.for_columns([pa.int64(), pa.int64()], ["a", "b"]).is_exact
    assert not KeyCoder.for_columns([pa.string()], ["a"]).is_exact
    assert not KeyCoder.for_columns([pa.date32()], ["a"]).is_exact


def test_same_keys_looks_at_every_column() -> None:
    coder = KeyCoder.for_columns([pa.int64(), pa.string()], ["a", "b"])
    left = [pa.array([1, 1, 2]), pa.array(["x", "y", "x"])]
    right = [pa.array([1, 1, 1]), pa.array(["x", "x", "x"])]
    assert coder.same_keys(left, right).tolist() == [True, False, False]


@pytest.mark.parametrize("dtype", [pa.float16(), pa.float32(), pa.float64()], ids=str)
def test_floats_are_refused(dtype: pa.DataType) -> None:
    with pytest.raises(KeyTypeError, match=r"'price' has type .* cast to decimal or to string"):
        canonical_type(dtype, "price")


@pytest.mark.parametrize(
    "dtype",
    [pa.list_(pa.int64()), pa.struct([("a", pa.int64())]), pa.map_(pa.string(), pa.int64())],
    ids=str,
)
def test_nested_keys_are_refused(dtype: pa.DataType) -> None:
    with pytest.raises(KeyTypeError, match=r"'tags' has type .* leaf fields"):
        canonical_type(dtype, "tags")


@pytest.mark.parametrize(
    ("dtype", "hint"),
    [
        (pa.null(), "type null has no values: cast to the type of the other"),
        (pa.time32("s"), "A time of day .* cast to int64"),
        (pa.time64("ns"), "A time of day .* cast to int64"),
        (pa.duration("us"), "A duration .* cast to int64"),
        (pa.month_day_nano_interval(), "An interval .* cast to string"),
        (pa.decimal256(50, 2), r"at most 38 digits: cast to decimal128\(38, 2\)"),
        (pa.json_(), "an extension type: cast to .* string"),
        (pa.bool8(), "an extension type: cast to .* int8"),
        (pa.dictionary(pa.int8(), pa.time32("s")), "A time of day"),
        (pa.dense_union([pa.field("a", pa.int64())]), "leaf fields"),
    ],
    ids=str,
)
def test_other_types_are_refused_with_a_word_about_themselves(
    dtype: pa.DataType, hint: str
) -> None:
    with pytest.raises(KeyTypeError, match=f"'k' has type .* cannot be joined on.* {hint}"):
        canonical_type(dtype, "k")


@pytest.mark.parametrize(
    ("relation", "stream"),
    [
        (pa.int64(), pa.string()),
        (pa.string(), pa.int64()),
        (pa.string(), pa.binary()),
        (pa.date32(), pa.timestamp("us")),
        (pa.timestamp("us"), pa.timestamp("us", "UTC")),
        (pa.bool_(), pa.int8()),
        (pa.int64(), pa.decimal128(10, 0)),
        (pa.decimal128(10, 0), pa.int64()),
        (pa.decimal128(10, 2), pa.decimal128(12, 2)),
        (pa.decimal128(10, 2), pa.decimal128(10, 3)),
        (pa.decimal128(10, 2), pa.decimal128(10, 1)),
    ],
    ids=str,
)
def test_types_that_do_not_meet(relation: pa.DataType, stream: pa.DataType) -> None:
    with pytest.raises(KeyTypeError) as error:
        check_same_type(relation, stream, "product_id", "id")
    for part in (str(relation), str(stream), "'product_id'", "'id'", "cast one of them"):
        assert part in str(error.value)


DAY_MS = 86_400_000
# Stream values beside one that fits: (the relation's type, the stream's, fits, what does not).
UNFIT = {
    "uint64": (pa.int64(), pa.uint64(), 2**63 - 1, [2**63, 2**64 - 1]),
    "ns": (pa.timestamp("us"), pa.timestamp("ns"), 5_000, [5_001, -1]),
    "ns with a zone": (pa.timestamp("us", "UTC"), pa.timestamp("ns", "Asia/Tokyo"), 5_000, [5_999]),
    "s out of range": (pa.timestamp("us"), pa.timestamp("s"), 5, [2**60, -(2**60)]),
    "date64": (pa.date32(), pa.date64(), DAY_MS, [DAY_MS + 1, -1, DAY_MS * 2**33]),
}


def column_of(dtype: pa.DataType, values: list[int | None]) -> pa.Array:
    """Return a column of raw 64-bit values, some of which the type's builder would refuse."""
    signed_type = pa.uint64() if dtype == pa.uint64() else pa.int64()
    return pa.array(values, signed_type).view(dtype)


@pytest.mark.parametrize("name", UNFIT)
def test_a_value_that_r_cannot_have_is_no_key(name: str) -> None:
    relation, stream, fits, unfit = UNFIT[name]
    check_same_type(relation, stream, "r", "s")
    coder = KeyCoder.for_columns([relation], ["r"])
    column = column_of(stream, [fits, *unfit, None, fits])
    found, has_key = coder.codes([column])
    assert has_key.tolist() == [True, *(False for _ in unfit), False, True]
    alone, _ = coder.codes([column_of(stream, [fits])])
    assert found[[0, -1]].tolist() == alone.tolist() * 2
    assert coder.codes([column[1:]])[1].tolist() == has_key[1:].tolist()
    assert coder.canonical([column])[0].is_valid().to_pylist() == has_key.tolist()
    assert count_null_keys([column]) == 1


@pytest.mark.parametrize("name", UNFIT)
def test_in_r_such_a_value_is_an_error(name: str) -> None:
    relation, stream, fits, unfit = UNFIT[name]
    coder = KeyCoder.for_columns([relation], ["r"])
    _, has_key = coder.relation_codes([column_of(stream, [fits, None])], ["r"])
    assert has_key.tolist() == [True, False]
    columns = [column_of(stream, [fits, None, *unfit])]
    with pytest.raises(
        KeyTypeError, match=r"key column 'r' has a value that does not fit"
    ) as error:
        coder.relation_codes(columns, ["r"])
    assert str(stream) in str(error.value)
    assert f"{len(unfit)} such rows" in str(error.value)


@pytest.mark.parametrize(
    ("dtype", "value", "shown"),
    [
        (pa.uint64(), 2**64 - 1, "18446744073709551615"),
        (pa.timestamp("ns"), 1, "1970-01-01 00:00:00.000000001"),
        (pa.date64(), DAY_MS + 1, "1970-01-02 00:00:00.001"),
    ],
    ids=str,
)
def test_the_error_shows_the_value_to_the_last_digit(
    dtype: pa.DataType, value: int, shown: str
) -> None:
    coder = KeyCoder.for_columns([dtype], ["r"])
    with pytest.raises(KeyTypeError, match=f": {re.escape(shown)} "):
        coder.relation_codes([column_of(dtype, [value])], ["r"])


def test_a_composite_key_with_a_part_that_does_not_fit() -> None:
    coder = KeyCoder.for_columns([pa.int64(), pa.string()], ["a", "b"])
    columns = [pa.array([2**63, 1, None, 1], pa.uint64()), pa.array(["x", "y", "z", None])]
    assert coder.codes(columns)[1].tolist() == [False, True, False, False]
    assert count_null_keys(columns) == 2
    with pytest.raises(KeyTypeError, match=r"key column 'a'.* 9223372036854775808 "):
        coder.relation_codes(columns, ["a", "b"])


def test_a_decimal_with_more_digits_than_its_type_says() -> None:
    """Arrow does not check digits; such a value can be in a stream, and matches nothing."""
    raw = pa.py_buffer(np.array([15, 0, 10**17, 0], np.int64))
    column = pa.Array.from_buffers(pa.decimal128(5, 1), 2, [None, raw])
    coder = KeyCoder.for_columns([pa.decimal128(10, 2)], ["r"])
    codes, has_key = coder.codes([column])
    expected, _ = coder.codes([pa.array([Decimal("1.5")], pa.decimal128(10, 2))])
    assert has_key[0]
    assert codes[0] == expected[0]


def test_uuids_are_their_sixteen_bytes() -> None:
    values = [b"0123456789abcdef", None, b"\xff" * 16]
    uuids = pa.ExtensionArray.from_storage(pa.uuid(), pa.array(values, pa.binary(16)))
    coder = KeyCoder.for_columns([pa.uuid()], ["id"])
    expected = KeyCoder.for_columns([pa.binary()], ["id"]).codes([pa.array(values)])
    for column, at in ((uuids, 0), (uuids[1:], 1)):
        found = coder.codes([column])
        assert found[0][found[1]].tolist() == expected[0][at:][expected[1][at:]].tolist()
    check_same_type(pa.uuid(), pa.uuid(), "r", "s")
    check_same_type(pa.uuid(), pa.binary(16), "r", "s")
    with pytest.raises(KeyTypeError, match="cast one of them"):
        check_same_type(pa.uuid(), pa.string(), "r", "s")


def test_a_type_that_is_not_canonical_is_our_mistake() -> None:
    """Whatever a new canonical type will be, it must not be hashed as something else."""
    with pytest.raises(AssertionError, match="time32"):
        KeyCoder((pa.time32("s"),)).codes([pa.array([1], pa.time32("s"))])
