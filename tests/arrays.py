"""Hypothesis strategies for Arrow arrays of any type and encoding, whole or sliced."""

from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import strategies as st

moments = st.datetimes(datetime(1700, 1, 1), datetime(2200, 1, 1))
seconds = moments.map(lambda t: t.replace(microsecond=0))
millis = moments.map(lambda t: t.replace(microsecond=t.microsecond // 1000 * 1000))
days = st.dates(date(1, 1, 1), date(9999, 12, 31))
texts = st.text(st.characters(codec="utf-8"), max_size=8) | st.just("x" * 40)
blobs = st.binary(max_size=8) | st.just(b"x" * 40)


def integers(bits: int, *, signed: bool) -> st.SearchStrategy[int]:
    low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)
    return st.integers(0, 5) | st.integers(low, high) | st.sampled_from([low, high])


def decimals(digits: int, scale: int) -> st.SearchStrategy[Decimal]:
    most = 10**digits - 1
    return st.integers(-most, most).map(lambda i: Decimal(i).scaleb(-scale))


def zoned(times: st.SearchStrategy[datetime]) -> st.SearchStrategy[datetime]:
    return times.map(lambda t: t.replace(tzinfo=UTC))


# Type → values that are not null.
LEAVES: dict[pa.DataType, st.SearchStrategy[Any]] = {
    pa.int8(): integers(8, signed=True),
    pa.int16(): integers(16, signed=True),
    pa.int32(): integers(32, signed=True),
    pa.int64(): integers(64, signed=True),
    pa.uint8(): integers(8, signed=False),
    pa.uint16(): integers(16, signed=False),
    pa.uint32(): integers(32, signed=False),
    pa.uint64(): integers(64, signed=False),
    pa.float16(): st.floats(width=16).map(np.float16),
    pa.float32(): st.floats(width=32),
    pa.float64(): st.floats(),
    pa.bool_(): st.booleans(),
    pa.decimal32(7, 2): decimals(7, 2),
    pa.decimal64(15, 3): decimals(15, 3),
    pa.decimal128(38, 10): decimals(28, 10),
    pa.decimal256(60, 5): decimals(28, 5),
    pa.date32(): days,
    pa.date64(): days,
    pa.time32("s"): st.times().map(lambda t: t.replace(microsecond=0)),
    pa.time32("ms"): st.just(time(1, 2, 3, 4000)),
    pa.time64("us"): st.times(),
    pa.time64("ns"): st.times(),
    pa.timestamp("s"): seconds,
    pa.timestamp("ms", "Asia/Tokyo"): zoned(millis),
    pa.timestamp("us"): moments,
    pa.timestamp("ns", "UTC"): zoned(moments),
    pa.duration("s"): st.integers(-(10**9), 10**9).map(lambda s: timedelta(seconds=s)),
    pa.duration("us"): st.timedeltas(timedelta(-(10**5)), timedelta(10**5)),
    pa.month_day_nano_interval(): st.tuples(*[st.integers(-9, 9)] * 3).map(pa.MonthDayNano),
    pa.string(): texts,
    pa.large_string(): texts,
    pa.string_view(): texts,
    pa.binary(): blobs,
    pa.large_binary(): blobs,
    pa.binary_view(): blobs,
    pa.binary(3): st.binary(min_size=3, max_size=3),
    pa.null(): st.none(),
}
EXTENSIONS: dict[pa.DataType, st.SearchStrategy[Any]] = {
    pa.uuid(): st.binary(min_size=16, max_size=16),
    pa.bool8(): integers(8, signed=True),
    pa.json_(): st.sampled_from(["{}", "[1]"]),
    pa.opaque(pa.binary(), "point", "a vendor"): blobs,
}


def _mask(nulls: list[bool]) -> pa.Array:
    return pa.array(nulls, pa.bool_())


def _values(values: st.SearchStrategy[Any], count: int) -> st.SearchStrategy[list[Any]]:
    return st.just([None] * count) | st.lists(st.none() | values, min_size=count, max_size=count)


@st.composite
def leaf_arrays(draw: st.DrawFn, count: int) -> pa.Array:
    dtype = draw(st.sampled_from(list(LEAVES)))
    return pa.array(draw(_values(LEAVES[dtype], count)), dtype)


@st.composite
def extension_arrays(draw: st.DrawFn, count: int) -> pa.Array:
    dtype = draw(st.sampled_from(list(EXTENSIONS)))
    values = draw(_values(EXTENSIONS[dtype], count))
    return pa.ExtensionArray.from_storage(dtype, pa.array(values, dtype.storage_type))


@st.composite
def dictionaries(draw: st.DrawFn, count: int, depth: int) -> pa.Array:
    size = draw(st.integers(0, 4))
    index = st.integers(0, size - 1) if size else st.none()
    kind = draw(st.sampled_from([pa.int8(), pa.uint8(), pa.int32(), pa.uint32(), pa.int64()]))
    indices = pa.array(draw(_values(index, count)), kind)
    return pa.DictionaryArray.from_arrays(indices, draw(arrays(size, depth - 1)))


@st.composite
def runs(draw: st.DrawFn, count: int, depth: int) -> pa.Array:
    ends = sorted(draw(st.sets(st.integers(1, count), max_size=count)) | {count}) if count else []
    kind = draw(st.sampled_from([pa.int16(), pa.int32(), pa.int64()]))
    values = draw(arrays(len(ends), depth - 1))
    return pa.RunEndEncodedArray.from_arrays(pa.array(ends, kind), values)


@st.composite
def lists(draw: st.DrawFn, count: int, depth: int) -> pa.Array:
    lengths = draw(st.lists(st.integers(0, 3), min_size=count, max_size=count))
    offsets = np.cumsum([0, *lengths])
    child = draw(arrays(int(offsets[-1]), depth - 1))
    nulls = _mask(draw(st.lists(st.booleans(), min_size=count, max_size=count)))
    kind = draw(st.sampled_from([pa.ListArray, pa.LargeListArray, "view", "large view", "map"]))
    if kind == "map":
        keys = pa.array([f"k{i}" for i in range(len(child))], pa.string())
        return pa.MapArray.from_arrays(pa.array(offsets, pa.int32()), keys, child)
    if kind == "view":
        starts, sizes = pa.array(offsets[:-1], pa.int32()), pa.array(lengths, pa.int32())
        return pa.ListViewArray.from_arrays(starts, sizes, child, mask=nulls)
    if kind == "large view":
        starts, sizes = pa.array(offsets[:-1], pa.int64()), pa.array(lengths, pa.int64())
        return pa.LargeListViewArray.from_arrays(starts, sizes, child, mask=nulls)
    offset_type = pa.int32() if kind is pa.ListArray else pa.int64()
    return kind.from_arrays(pa.array(offsets, offset_type), child, mask=nulls)


@st.composite
def fixed_lists(draw: st.DrawFn, count: int, depth: int) -> pa.Array:
    size = draw(st.integers(1, 2))
    nulls = _mask(draw(st.lists(st.booleans(), min_size=count, max_size=count)))
    child = draw(arrays(count * size, depth - 1))
    return pa.FixedSizeListArray.from_arrays(child, type=pa.list_(child.type, size), mask=nulls)


@st.composite
def structs(draw: st.DrawFn, count: int, depth: int) -> pa.Array:
    children = [draw(arrays(count, depth - 1)) for _ in range(draw(st.integers(1, 2)))]
    nulls = _mask(draw(st.lists(st.booleans(), min_size=count, max_size=count)))
    return pa.StructArray.from_arrays(children, ["x", "y"][: len(children)], mask=nulls)


@st.composite
def unions(draw: st.DrawFn, count: int, depth: int) -> pa.Array:
    children = [draw(arrays(count, depth - 1)) for _ in range(2)]
    picked = draw(st.lists(st.integers(0, 1), min_size=count, max_size=count))
    types = pa.array(picked, pa.int8())
    if draw(st.booleans()):
        return pa.UnionArray.from_sparse(types, children)
    return pa.UnionArray.from_dense(types, pa.array(range(count), pa.int32()), children)


@st.composite
def arrays(draw: st.DrawFn, count: int, depth: int = 2) -> pa.Array:
    """An array of some type, perhaps a slice of a longer one."""
    before, after = draw(st.sampled_from([(0, 0), (1, 0), (9, 2)]))
    total = before + count + after
    kinds = [leaf_arrays(total), extension_arrays(total)]
    if depth:
        nested = (dictionaries, runs, lists, fixed_lists, structs, unions)
        kinds += [kind(total, depth) for kind in nested]
    array: pa.Array = draw(st.one_of(kinds))
    return array[before : before + count]
