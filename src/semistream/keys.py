"""Key codes: every join key, of any type, as one 64-bit integer.

A single integer key is its own code. Anything else (strings, dates, timestamps, decimals,
composites) is coded as Spark's ``xxhash64`` of its columns, bit for bit, so that the JVM and
this module route a row to the same partition: partition = code mod P. Equal keys have equal
codes; where the code is a hash (`KeyCoder.is_exact` is false) equal codes are only candidates
and the join compares the real columns.

A row with a null in any key column has no key: it matches nothing. Neither does a stream row with
a value that a relation's key cannot have: an unsigned integer of 2^63 or more, a timestamp finer
than a microsecond, a `date64` in the middle of a day. In R such a value is an error.

The hash is XXH64 with Spark's seed 42, each column seeded by the hash of the one before it.
Types are first brought to a canonical form, so an ``int32`` key on one side matches an ``int64``
on the other.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numba import uint64
from numpy.typing import NDArray

from semistream.columns import (
    POOL,
    Encoding,
    encoding_of,
    plain_array,
    plain_type,
    split_bytes,
    split_fixed,
    split_validity,
)
from semistream.errors import KeyTypeError
from semistream.jit import njit

SPARK_SEED = 42


def canonical_type(dtype: pa.DataType, column: str) -> pa.DataType:
    """Return the type a key column is compared in, or raise `KeyTypeError`."""
    dtype = plain_type(dtype)
    if _is_uuid(dtype):
        return pa.binary()
    if pa.types.is_integer(dtype):
        return pa.int64()
    if pa.types.is_string(dtype) or pa.types.is_large_string(dtype):
        return pa.string()
    if (
        pa.types.is_binary(dtype)
        or pa.types.is_large_binary(dtype)
        or pa.types.is_fixed_size_binary(dtype)
    ):
        return pa.binary()
    if pa.types.is_date(dtype):
        return pa.date32()
    if pa.types.is_timestamp(dtype):
        return pa.timestamp("us", tz="UTC" if dtype.tz else None)
    if pa.types.is_decimal(dtype) and dtype.precision <= 38:
        return pa.decimal128(dtype.precision, dtype.scale)
    if pa.types.is_boolean(dtype):
        return dtype
    raise KeyTypeError(
        f"key column {column!r} has type {dtype}, which cannot be joined on; a key is made of "
        "integers, strings, binaries, dates, timestamps, decimals, booleans or UUIDs. "
        f"{_cast_hint(dtype)}"
    )


def _cast_hint(dtype: pa.DataType) -> str:
    """Return why a type is no key, and which type to cast to on both sides of the join."""
    types = pa.types
    if types.is_floating(dtype):
        return "Floating-point numbers compare unreliably: cast to decimal or to string."
    if types.is_time(dtype) or types.is_duration(dtype):
        what = "A time of day" if types.is_time(dtype) else "A duration"
        return f"{what} is a number of units: cast to int64, on both sides in the same unit."
    if types.is_interval(dtype):
        return "An interval of months, days and nanoseconds has no order: cast to string."
    if types.is_decimal(dtype):
        return f"Decimals have at most 38 digits: cast to decimal128(38, {dtype.scale}) or string."
    if types.is_null(dtype):
        return "A column of type null has no values: cast to the type of the other side's key."
    if isinstance(dtype, pa.BaseExtensionType):
        return (
            f"It is an extension type: cast to the type that it is stored as, {dtype.storage_type}."
        )
    if types.is_nested(dtype):
        return "It is nested: join on its leaf fields, or on a string made of it."
    return "Cast it to one of these."


def _is_uuid(dtype: pa.DataType) -> bool:
    return getattr(dtype, "extension_name", None) == "arrow.uuid"


def check_same_type(
    relation_type: pa.DataType, stream_type: pa.DataType, relation_column: str, stream_column: str
) -> None:
    """Raise `KeyTypeError` unless a stream key of this type can be compared with the relation's."""
    ours = canonical_type(relation_type, relation_column)
    theirs = canonical_type(stream_type, stream_column)
    if ours == theirs or (pa.types.is_decimal(ours) and _widens(theirs, ours)):
        return
    raise KeyTypeError(
        f"key column {stream_column!r} of the stream has type {stream_type}, but "
        f"{relation_column!r} of the relation has type {relation_type}; "
        f"cast one of them so that both are {relation_type}"
    )


def _widens(narrow: pa.DataType, wide: pa.DataType) -> bool:
    return bool(
        pa.types.is_decimal(narrow)
        and narrow.scale <= wide.scale
        and narrow.precision - narrow.scale <= wide.precision - wide.scale
    )


@dataclass(frozen=True, slots=True)
class KeyCoder:
    """Turns key columns into codes. Made from the relation's key types, used on both sides."""

    types: tuple[pa.DataType, ...]

    @classmethod
    def for_columns(cls, types: Sequence[pa.DataType], names: Sequence[str]) -> "KeyCoder":
        """Return the coder for a relation's key columns."""
        return cls(tuple(canonical_type(t, n) for t, n in zip(types, names, strict=True)))

    @property
    def is_exact(self) -> bool:
        """Whether equal codes mean equal keys (a single integer), not only equal hashes."""
        return len(self.types) == 1 and bool(pa.types.is_integer(self.types[0]))

    def takes_as_is(self, types: Sequence[pa.DataType]) -> bool:
        """Whether the codes of columns of these types are the columns' own memory, not a copy."""
        return self.is_exact and list(types) == [pa.int64()]

    def canonical(self, columns: Sequence[pa.Array]) -> list[pa.Array]:
        """Return the key columns in the types they are compared in.

        A value that no row of R can have is null.
        """
        return [_cast(plain_array(c), t) for c, t in zip(columns, self.types, strict=True)]

    def codes(self, columns: Sequence[pa.Array]) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """Return a code for each row, and whether the row has a key that R can have."""
        canonical = [_hashable(c, t) for c, t in zip(columns, self.types, strict=True)]
        has_key = np.ones(len(canonical[0]), np.bool_)
        for column in canonical:
            validity = split_validity(column)
            if validity is not None:
                has_key &= validity.view(np.bool_)
        if self.is_exact:
            return split_fixed(canonical[0])[0].view(np.int64), has_key
        hashes = np.full(len(has_key), SPARK_SEED, np.uint64)
        for column in canonical:
            _hash_column(column, hashes)
        return hashes.view(np.int64), has_key

    def relation_codes(
        self, columns: Sequence[pa.Array], names: Sequence[str]
    ) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """Return codes of rows of R and whether each has a key, or raise if a value has no code."""
        codes, has_key = self.codes(columns)
        if len(has_key) - np.count_nonzero(has_key) > count_null_keys(columns):
            for column, target, name in zip(columns, self.types, names, strict=True):
                _check_all_fit(plain_array(column), target, name)
        return codes, has_key

    def same_keys(self, left: Sequence[pa.Array], right: Sequence[pa.Array]) -> NDArray[np.bool_]:
        """Return, row by row, whether the real (canonical) key columns are equal."""
        same = np.ones(len(left[0]), np.bool_)
        for a, b in zip(left, right, strict=True):
            same &= pc.equal(a, b).to_numpy(zero_copy_only=False).astype(np.bool_)
        return same


def count_null_keys(columns: Sequence[pa.Array]) -> int:
    """Return the number of rows with a null in any of the key columns."""
    nulls = [1 - v for v in map(split_validity, map(plain_array, columns)) if v is not None]
    return int(np.count_nonzero(np.bitwise_or.reduce(nulls))) if nulls else 0


def _hashable(column: pa.Array, target: pa.DataType) -> pa.Array:
    """Return a column in a form that has its canonical hash, which large strings have already."""
    if column.type == target:
        return column
    column = plain_array(column)
    if pa.types.is_large_string(column.type) or pa.types.is_large_binary(column.type):
        return column
    return _cast(column, target)


def _cast(column: pa.Array, target: pa.DataType) -> pa.Array:
    """Return a plain column in its canonical type; values that it cannot express are null."""
    if column.type == target:
        return column
    if isinstance(column, pa.ExtensionArray):
        column = column.storage
    if pa.types.is_timestamp(target) and column.type.unit == target.unit:
        return column.view(target)  # another time zone's label on the same instants
    try:
        return column.cast(target, memory_pool=POOL)
    except pa.ArrowInvalid:
        return _cast_values_that_fit(column, target)


def _cast_values_that_fit(column: pa.Array, target: pa.DataType) -> pa.Array:
    cast = column.cast(target, safe=False, memory_pool=POOL)
    if pa.types.is_integer(target):
        fits = pc.greater_equal(cast, 0)  # of all integers only the largest uint64 do not fit
    else:
        fits = pc.equal(cast.cast(column.type, safe=False), column)
    return pc.if_else(fits, cast, pa.scalar(None, target), memory_pool=POOL)


def _check_all_fit(column: pa.Array, target: pa.DataType, name: str) -> None:
    lost = pc.and_(column.is_valid(), _cast(column, target).is_null())
    if not pc.any(lost).as_py():
        return
    values = column.filter(lost)
    raise KeyTypeError(
        f"key column {name!r} has a value that does not fit {target}, the type in which keys of "
        f"type {column.type} are compared: {_shown(values[:1])} ({len(values):,} such rows in "
        "one batch). Leave these rows out, or cast the column to string"
    )


def _shown(value: pa.Array) -> str:
    """Return a value to the last digit, which a Python object of the type may not have."""
    if pa.types.is_date64(value.type):
        value = value.cast(pa.timestamp("ms"))
    return str(value.cast(pa.string())[0])


def _hash_column(column: pa.Array, hashes: NDArray[np.uint64]) -> None:
    """Fold one canonical column into the running hashes, in place, as Spark's xxhash64 does."""
    dtype = column.type
    if encoding_of(dtype) is Encoding.BYTES:
        lengths, data, _ = split_bytes(column)
        _hash_bytes(lengths, data, hashes)
    elif pa.types.is_decimal128(dtype):
        values = split_fixed(column)[0]
        words = np.frombuffer(np.ascontiguousarray(values).tobytes(), np.uint64).reshape(-1, 2)
        if dtype.precision <= 18:
            _hash_longs(np.ascontiguousarray(words[:, 0]), hashes)
        else:
            _hash_big_integers(words, hashes)
    elif pa.types.is_timestamp(dtype) or pa.types.is_int64(dtype):
        _hash_longs(split_fixed(column)[0].view(np.uint64), hashes)
    elif pa.types.is_date32(dtype) or pa.types.is_boolean(dtype):
        _hash_ints(split_fixed(column)[0].astype(np.uint32), hashes)
    else:
        raise AssertionError(f"{dtype} is not the canonical type of any key")


_P1 = np.uint64(0x9E3779B185EBCA87)
_P2 = np.uint64(0xC2B2AE3D27D4EB4F)
_P3 = np.uint64(0x165667B19E3779F9)
_P4 = np.uint64(0x85EBCA77C2B2AE63)
_P5 = np.uint64(0x27D4EB2F165667C5)


@njit(inline="always")
def _rotl(x, r):  # type: ignore[no-untyped-def]
    return (x << uint64(r)) | (x >> uint64(64 - r))


@njit(inline="always")
def _round(acc, word):  # type: ignore[no-untyped-def]
    return _rotl(acc + word * _P2, 31) * _P1


@njit(inline="always")
def _merge(acc, lane):  # type: ignore[no-untyped-def]
    return (acc ^ _round(uint64(0), lane)) * _P1 + _P4


@njit(inline="always")
def _finish(h):  # type: ignore[no-untyped-def]
    h = (h ^ (h >> uint64(33))) * _P2
    h = (h ^ (h >> uint64(29))) * _P3
    return h ^ (h >> uint64(32))


@njit(inline="always")
def _word(data, at, width):  # type: ignore[no-untyped-def]
    word = uint64(0)
    for i in range(width):
        word |= uint64(data[at + i]) << uint64(8 * i)
    return word


@njit(inline="always")
def _tail_long(h, word):  # type: ignore[no-untyped-def]
    return _rotl(h ^ _round(uint64(0), word), 27) * _P1 + _P4


@njit(inline="always")
def _tail_int(h, word):  # type: ignore[no-untyped-def]
    return _rotl(h ^ (word * _P1), 23) * _P2 + _P3


@njit(inline="always")
def _xxh64(data, start, length, seed):  # type: ignore[no-untyped-def]
    at = start
    end = start + length
    if length >= 32:
        v1 = seed + _P1 + _P2
        v2 = seed + _P2
        v3 = seed
        v4 = seed - _P1
        while at + 32 <= end:
            v1 = _round(v1, _word(data, at, 8))
            v2 = _round(v2, _word(data, at + 8, 8))
            v3 = _round(v3, _word(data, at + 16, 8))
            v4 = _round(v4, _word(data, at + 24, 8))
            at += 32
        h = _rotl(v1, 1) + _rotl(v2, 7) + _rotl(v3, 12) + _rotl(v4, 18)
        h = _merge(_merge(_merge(_merge(h, v1), v2), v3), v4)
    else:
        h = seed + _P5
    h = h + uint64(length)
    while at + 8 <= end:
        h = _tail_long(h, _word(data, at, 8))
        at += 8
    if at + 4 <= end:
        h = _tail_int(h, _word(data, at, 4))
        at += 4
    while at < end:
        h = _rotl(h ^ (uint64(data[at]) * _P5), 11) * _P1
        at += 1
    return _finish(h)


@njit(cache=True)
def _hash_bytes(lengths, data, hashes):  # type: ignore[no-untyped-def]
    start = 0
    for i in range(len(lengths)):
        hashes[i] = _xxh64(data, start, lengths[i], hashes[i])
        start += lengths[i]


@njit(cache=True)
def _hash_longs(values, hashes):  # type: ignore[no-untyped-def]
    for i in range(len(values)):
        hashes[i] = _finish(_tail_long(hashes[i] + _P5 + uint64(8), values[i]))


@njit(cache=True)
def _hash_ints(values, hashes):  # type: ignore[no-untyped-def]
    for i in range(len(values)):
        hashes[i] = _finish(_tail_int(hashes[i] + _P5 + uint64(4), uint64(values[i])))


@njit(cache=True)
def _hash_big_integers(words, hashes):  # type: ignore[no-untyped-def]
    """Hash 128-bit integers as the shortest big-endian two's complement that holds them."""
    image = np.empty(16, np.uint8)
    for i in range(len(words)):
        for byte in range(8):
            image[15 - byte] = (words[i, 0] >> uint64(8 * byte)) & uint64(255)
            image[7 - byte] = (words[i, 1] >> uint64(8 * byte)) & uint64(255)
        first = 0
        fill = 255 if image[0] >= 128 else 0
        while first < 15 and image[first] == fill and (image[first + 1] >= 128) == (fill == 255):
            first += 1
        hashes[i] = _xxh64(image, first, 16 - first, hashes[i])
