from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from semistream.errors import KeyTypeError
from semistream.keys import SPARK_SEED, KeyCoder, canonical_type, check_same_type

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


@pytest.mark.parametrize("dtype", [pa.null(), pa.duration("us"), pa.decimal256(50, 2)], ids=str)
def test_other_types_are_refused(dtype: pa.DataType) -> None:
    with pytest.raises(KeyTypeError, match="cannot be joined on"):
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


def test_values_that_do_not_fit_are_refused() -> None:
    coder = KeyCoder.for_columns([pa.int64()], ["k"])
    with pytest.raises(KeyTypeError, match="does not fit int64"):
        coder.codes([pa.array([2**64 - 1], pa.uint64())])
    coder = KeyCoder.for_columns([pa.timestamp("us")], ["k"])
    with pytest.raises(KeyTypeError, match="does not fit timestamp"):
        coder.codes([pa.array([1], pa.timestamp("ns"))])
