"""Arrow columns as flat NumPy arrays, and back.

The relation's pages and the join's window store rows as flat arrays, so that a hot loop can
gather any row without a call to Arrow. A column is held in one of three encodings, chosen by its
type alone:

========  =====================================  =================================
encoding  for                                    parts
========  =====================================  =================================
FIXED     numbers, dates, times, decimals, bool  values [, validity]
BYTES     strings and binaries                   lengths, data [, validity]
NESTED    lists, structs, maps, null             one Arrow IPC message
========  =====================================  =================================

Validity is one byte per row and is left out where no value is null. Dictionary-encoded and
view-typed columns are stored as the plain type they stand for.
"""

from collections.abc import Iterable, Sequence
from enum import Enum
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from semistream.arrowtypes import (
    bit_width,
    has_union,
    is_bytes,
    is_large,
    is_text,
    is_view,
    storage_array,
    storage_type,
    wrap_storage,
)
from semistream.errors import ColumnError
from semistream.units import format_bytes

Array: TypeAlias = NDArray[Any]
Validity: TypeAlias = NDArray[np.uint8]
Sizes: TypeAlias = NDArray[np.int64]

# Arrow's own pools keep tens of megabytes of freed memory; the system's pool returns it. So copies
# that a join makes are allocated there, as NumPy's arrays are.
POOL = pa.system_memory_pool()
# The most bytes that all values of a column with 32-bit offsets may have together.
MOST_DATA_BYTES = 2**31 - 1


class Encoding(Enum):
    """How a column's values lie in memory and on disk."""

    FIXED = "fixed"
    BYTES = "bytes"
    NESTED = "nested"


def take_rows(column: pa.Array, rows: Array) -> pa.Array:
    """Return a copy of some rows of a column."""
    return pc.take(column, pa.array(rows), memory_pool=POOL)


def concatenate(arrays: Sequence[pa.Array]) -> pa.Array:
    """Return a copy of arrays, one after the other."""
    return pa.concat_arrays([_compact(array) for array in arrays], memory_pool=POOL)


def _compact(array: pa.Array) -> pa.Array:
    """Return the array; a slice of unions without the values of the rows that are not in it."""
    return take_rows(array, np.arange(len(array))) if has_union(array.type) else array


def plain_type(dtype: pa.DataType) -> pa.DataType:
    """Return the type a column is stored as: dictionaries and views become what they stand for."""
    if pa.types.is_dictionary(dtype) or pa.types.is_run_end_encoded(dtype):
        return plain_type(dtype.value_type)
    if pa.types.is_string_view(dtype):
        return pa.string()
    if pa.types.is_binary_view(dtype):
        return pa.binary()
    if pa.types.is_struct(dtype):
        return pa.struct([field.with_type(plain_type(field.type)) for field in dtype.fields])
    if pa.types.is_map(dtype):
        key, item = plain_type(dtype.key_type), plain_type(dtype.item_type)
        if (key, item) == (dtype.key_type, dtype.item_type):
            return dtype
        return pa.map_(key, dtype.item_field.with_type(item), keys_sorted=dtype.keys_sorted)
    if pa.types.is_fixed_size_list(dtype):
        return pa.list_(dtype.value_field.with_type(plain_type(dtype.value_type)), dtype.list_size)
    if pa.types.is_list(dtype) or pa.types.is_list_view(dtype):
        return pa.list_(dtype.value_field.with_type(plain_type(dtype.value_type)))
    if pa.types.is_large_list(dtype) or pa.types.is_large_list_view(dtype):
        return pa.large_list(dtype.value_field.with_type(plain_type(dtype.value_type)))
    if pa.types.is_union(dtype):
        members = [dtype.field(i) for i in range(dtype.num_fields)]
        fields = [field.with_type(plain_type(field.type)) for field in members]
        return pa.union(fields, dtype.mode, dtype.type_codes)
    return dtype


def plain_schema(schema: pa.Schema) -> pa.Schema:
    """Return the schema with every field's type replaced by its `plain_type`."""
    return pa.schema([field.with_type(plain_type(field.type)) for field in schema])


def plain_batch(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return the batch with every column in its `plain_type`."""
    columns = [plain_array(column) for column in batch.columns]
    return pa.RecordBatch.from_arrays(columns, schema=plain_schema(batch.schema))


def plain_array(array: pa.Array) -> pa.Array:
    """Return the array in its `plain_type`; a no-op for most.

    Part by part: Arrow's own cast of nested columns does not know all types that are not plain, and
    makes invalid arrays of some list views.
    """
    dtype, plain = array.type, plain_type(array.type)
    if plain == dtype:
        return array
    if pa.types.is_dictionary(dtype):
        return pc.take(plain_array(array.dictionary), array.indices, memory_pool=POOL)
    if pa.types.is_run_end_encoded(dtype):
        return _plain_runs(array)
    if pa.types.is_struct(dtype):
        children = [plain_array(array.field(i)) for i in range(dtype.num_fields)]
        return pa.StructArray.from_arrays(children, fields=plain.fields, mask=array.is_null())
    if pa.types.is_fixed_size_list(dtype):
        rows = slice(array.offset * dtype.list_size, (array.offset + len(array)) * dtype.list_size)
        values = plain_array(array.values[rows])
        return pa.FixedSizeListArray.from_arrays(values, type=plain, mask=array.is_null())
    if pa.types.is_union(dtype):
        return _plain_union(array)
    return (
        _plain_list(array, plain)
        if pa.types.is_nested(dtype)
        else array.cast(plain, memory_pool=POOL)
    )


def _plain_union(array: pa.Array) -> pa.Array:
    """Return a union of plain types; pyarrow's own `type_codes` ignores where a slice begins."""
    dtype = array.type
    rows = slice(array.offset, array.offset + len(array))
    codes = pa.array(np.frombuffer(array.buffers()[1], np.int8)[rows])
    children = [plain_array(array.field(i)) for i in range(dtype.num_fields)]
    names = [dtype.field(i).name for i in range(dtype.num_fields)]
    about = children, names, dtype.type_codes
    if dtype.mode == "sparse":
        return pa.UnionArray.from_sparse(codes, *about)
    offsets = pa.array(np.frombuffer(array.buffers()[2], np.int32)[rows])
    return pa.UnionArray.from_dense(codes, offsets, *about)


def _plain_runs(array: pa.Array) -> pa.Array:
    """Return runs as one value per row."""
    rows = np.arange(array.offset, array.offset + len(array))
    runs = np.searchsorted(array.run_ends.to_numpy(), rows, side="right")
    return take_rows(plain_array(array.values), runs)


def _plain_list(array: pa.Array, plain: pa.DataType) -> pa.Array:
    """Return a map, a list or a list view as a map or a list."""
    nulls = array.is_null()
    if pa.types.is_list_view(array.type) or pa.types.is_large_list_view(array.type):
        values, bounds = _viewed_values(array)
        return _list_type(plain).from_arrays(bounds, values, type=plain, mask=nulls)
    bounds = array.offsets.to_numpy()
    used = slice(bounds[0], bounds[-1])
    offsets = pa.array(bounds - bounds[0])
    if pa.types.is_map(plain):
        keys, items = plain_array(array.keys[used]), plain_array(array.items[used])
        return pa.MapArray.from_arrays(offsets, keys, items, type=plain, mask=nulls)
    values = plain_array(array.values[used])
    return _list_type(plain).from_arrays(offsets, values, type=plain, mask=nulls)


def _viewed_values(array: pa.Array) -> tuple[pa.Array, pa.Array]:
    """Return the values of list views back to back, and the bounds of each row's."""
    sizes, starts = array.sizes.to_numpy(), array.offsets.to_numpy()
    lengths = np.where(array.is_valid().to_numpy(zero_copy_only=False), sizes, 0)
    bounds = np.concatenate([[0], np.cumsum(lengths)]).astype(sizes.dtype)
    places = np.arange(bounds[-1]) + np.repeat(starts - bounds[:-1], lengths)
    return take_rows(plain_array(array.values), places), pa.array(bounds)


def _list_type(dtype: pa.DataType) -> Any:
    return pa.LargeListArray if pa.types.is_large_list(dtype) else pa.ListArray


def encoding_of(dtype: pa.DataType) -> Encoding:
    """Return the encoding of a plain type."""
    return _facts(dtype)[0]


def width_bytes(dtype: pa.DataType) -> int:
    """Return the size in bytes of one value of a FIXED column; 1 for a bool."""
    return _facts(dtype)[1]


def numpy_dtype(dtype: pa.DataType) -> np.dtype[Any]:
    """Return the dtype that carries a FIXED column's bits, whatever they mean."""
    return _facts(dtype)[2]


_Facts: TypeAlias = tuple[Encoding, int, np.dtype[Any]]
_facts_by_id: dict[int, _Facts] = {}  # of types that are told by their id alone


def _facts(dtype: pa.DataType) -> _Facts:
    """Return encoding, width and NumPy type; each batch and column needs them."""
    known = _facts_by_id.get(dtype.id)
    if known is not None:
        return known
    storage = storage_type(dtype)
    bits = bit_width(storage)
    encoding = Encoding.BYTES if is_bytes(storage) else Encoding.FIXED
    if not bits and encoding is Encoding.FIXED:
        encoding = Encoding.NESTED
    width = max(1, bits // 8)
    facts = encoding, width, np.dtype(f"u{width}" if width in (1, 2, 4, 8) else f"V{width}")
    if pa.types.is_primitive(dtype) or is_bytes(dtype):
        _facts_by_id[dtype.id] = facts
    return facts


def split_validity(array: pa.Array) -> Validity | None:
    """Return one byte per row, 1 where valid, or None where nothing is null."""
    if not array.null_count:
        return None
    bitmap = array.buffers()[0]
    if bitmap is None:  # the null type has no bitmap: all is null
        return np.zeros(len(array), np.uint8)
    return _unpack_bits(bitmap, array.offset, len(array))


def split_fixed(array: pa.Array) -> tuple[Array, Validity | None]:
    """Return the values and the validity of a FIXED column; values are views where possible."""
    validity = split_validity(array)
    storage = storage_array(array)
    buffer = storage.buffers()[1]
    if buffer is None:
        return np.zeros(len(array), numpy_dtype(array.type)), validity
    if pa.types.is_boolean(storage.type):
        return _unpack_bits(buffer, storage.offset, len(array)), validity
    dtype = numpy_dtype(array.type)
    start = storage.offset * dtype.itemsize
    return np.frombuffer(buffer, dtype, len(array), start), validity


def join_fixed(dtype: pa.DataType, values: Array, validity: Validity | None) -> pa.Array:
    """Return an Arrow array over the given values, the inverse of `split_fixed`."""
    storage = storage_type(dtype)
    count = len(values)
    if pa.types.is_boolean(storage):
        values = np.packbits(values, bitorder="little")
    data = pa.py_buffer(np.ascontiguousarray(values))
    array = pa.Array.from_buffers(storage, count, [_pack_validity(validity), data])
    return wrap_storage(dtype, array)


def join_buffer(
    dtype: pa.DataType, count: int, values: pa.Buffer, validity: Validity | None
) -> pa.Array:
    """Return an Arrow array over the bytes of values, one byte of each if they are bools."""
    if pa.types.is_primitive(dtype) and not pa.types.is_boolean(dtype):
        return pa.Array.from_buffers(dtype, count, [_pack_validity(validity), values])
    return join_fixed(dtype, np.frombuffer(values, numpy_dtype(dtype), count), validity)


def split_bytes(array: pa.Array) -> tuple[NDArray[np.int32], NDArray[np.uint8], Validity | None]:
    """Return lengths, data and validity of a BYTES column; data holds the rows back to back.

    A single value is at most 2 GiB, also in a column with 64-bit offsets.
    """
    validity = split_validity(array)
    storage = storage_array(array)
    if validity is not None:
        empty = pa.scalar("" if is_text(storage.type) else b"", storage.type)
        storage = pc.coalesce(storage, empty, memory_pool=POOL)
    if len(storage) == 0:
        return np.zeros(0, np.int32), np.zeros(0, np.uint8), validity
    offsets = _offsets(storage)
    data_buffer = storage.buffers()[2]
    if data_buffer is None:
        data = np.zeros(0, np.uint8)
    else:
        data = np.frombuffer(data_buffer, np.uint8)[offsets[0] : offsets[-1]]
    lengths = np.diff(offsets)
    if lengths.dtype != np.int32 and lengths.max() > MOST_DATA_BYTES:
        raise ColumnError(
            f"a value of type {storage.type} has {format_bytes(lengths.max())}, but a value can "
            "have 2 GiB at most; leave the column out, or split it"
        )
    return lengths.astype(np.int32, copy=False), data, validity


def locate_bytes(
    array: pa.Array, rows: Array
) -> tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.uint8], Validity | None]:
    """Return where some rows of a BYTES column start, their lengths, all data, and validity."""
    storage = storage_array(array)
    offsets, buffer = _offsets(storage), storage.buffers()[2]
    starts, lengths = offsets[rows].astype(np.int64), offsets[rows + 1] - offsets[rows]
    validity = split_validity(array)
    if validity is not None:
        validity = validity[rows]
        lengths = lengths * validity  # bytes stored under a null are not copied
    data = np.zeros(0, np.uint8) if buffer is None else np.frombuffer(buffer, np.uint8)
    return starts, lengths.astype(np.int32, copy=False), data, validity


def join_bytes(
    dtype: pa.DataType,
    lengths: NDArray[np.int32],
    data: NDArray[np.uint8],
    validity: Validity | None,
) -> pa.Array:
    """Return an Arrow array over rows that lie back to back, the inverse of `split_bytes`."""
    storage = storage_type(dtype)
    has_long_offsets = is_large(storage)
    if len(data) > MOST_DATA_BYTES and not has_long_offsets:
        raise OverflowError(f"{len(data)} bytes do not fit the 32-bit offsets of {storage}")
    offsets = np.zeros(len(lengths) + 1, np.int64 if has_long_offsets else np.int32)
    np.cumsum(lengths, out=offsets[1:])
    buffers = [_pack_validity(validity), pa.py_buffer(offsets), pa.py_buffer(data)]
    return wrap_storage(dtype, pa.Array.from_buffers(storage, len(lengths), buffers))


def value_sizes(array: pa.Array) -> Sizes:
    """Return the size in bytes of each value in its plain type, with its offset and validity.

    Nothing is decoded or copied, so sizes are known before rows are. A null has the size of the
    bytes that are stored in its place.

    >>> value_sizes(pa.array(["", "abc", None])).tolist()
    [5, 8, 5]
    """
    array = storage_array(array)
    dtype, count = array.type, len(array)
    if pa.types.is_dictionary(dtype):
        return _sizes_at(array.dictionary, array.indices.fill_null(0).to_numpy())
    if pa.types.is_run_end_encoded(dtype):
        rows = np.arange(array.offset, array.offset + count)
        return _sizes_at(array.values, np.searchsorted(array.run_ends.to_numpy(), rows, "right"))
    if is_bytes(dtype) or is_view(dtype):
        return _sizes_at(array, np.arange(count))
    if pa.types.is_struct(dtype):
        fields = [value_sizes(array.field(i)) for i in range(dtype.num_fields)]
        return np.asarray(1 + sum(fields, np.zeros(count, np.int64)), np.int64)
    if pa.types.is_union(dtype):
        return _union_sizes(array)
    if pa.types.is_nested(dtype):
        return _list_sizes(array)
    return np.full(count, 1 + width_bytes(dtype) if bit_width(dtype) else 1, np.int64)


def _list_sizes(array: pa.Array) -> Sizes:
    """Return the sizes of lists of any kind and of maps."""
    dtype, count = array.type, len(array)
    if pa.types.is_fixed_size_list(dtype):
        width = dtype.list_size
        values = value_sizes(array.values[array.offset * width :][: count * width])
        return np.asarray(1 + values.reshape(count, width).sum(axis=1), np.int64)
    if pa.types.is_list_view(dtype) or pa.types.is_large_list_view(dtype):
        starts = array.offsets.to_numpy()
        ends = starts + array.sizes.to_numpy()
    else:
        offsets = array.offsets.to_numpy()
        starts, ends = offsets[:-1], offsets[1:]
    if not count:
        return np.zeros(0, np.int64)
    first, last = int(starts.min()), int(ends.max())
    if pa.types.is_map(dtype):
        values = value_sizes(array.keys[first:last]) + value_sizes(array.items[first:last])
    else:
        values = value_sizes(array.values[first:last])
    total = np.concatenate([[0], np.cumsum(values)])
    return np.asarray(9 + total[ends - first] - total[starts - first], np.int64)


def _union_sizes(array: pa.Array) -> Sizes:
    """Return the sizes of unions: a sparse one has a value of each child in every row."""
    if not len(array):
        return np.zeros(0, np.int64)
    dtype, here = array.type, slice(array.offset, array.offset + len(array))
    buffers = array.buffers()  # the properties of a slice are those of the whole array
    codes = np.frombuffer(buffers[1], np.int8)[here]
    sizes = np.ones(len(array), np.int64)
    for i, code in enumerate(dtype.type_codes):
        if dtype.mode == "sparse":
            sizes += value_sizes(array.field(i))
        else:
            rows = np.flatnonzero(codes == code)
            at = np.frombuffer(buffers[2], np.int32)[here][rows]
            sizes[rows] += 4 + _sizes_at(array.field(i), at)
    return sizes


def total_bytes(columns: Iterable[pa.Array]) -> int:
    """Return the size in bytes of all values of some columns: `nbytes` where that is safe.

    Arrow's own count reads out of bounds in some unions (seen in PyArrow 26 with an empty child).
    """
    return sum(int(value_sizes(c).sum()) if has_union(c.type) else int(c.nbytes) for c in columns)


def _sizes_at(values: pa.Array, rows: Array) -> Sizes:
    """Return the sizes of some values; the others are not read."""
    if not len(rows):
        return np.zeros(0, np.int64)
    if not len(values):  # then all rows are null
        return value_sizes(pa.nulls(len(rows), plain_type(values.type)))
    if is_view(values.type):
        # The first four bytes of a view are its length; those of a null mean nothing.
        views = np.frombuffer(values.buffers()[1], np.int32).reshape(-1, 4)
        lengths = views[values.offset : values.offset + len(values), 0][rows].astype(np.int64)
        validity = split_validity(values)
        return 5 + (lengths if validity is None else lengths * validity[rows])
    if not is_bytes(values.type):
        return value_sizes(values)[rows]
    offsets = _offsets(values)
    lengths = offsets[rows + 1] - offsets[rows]
    return np.asarray(1 + offsets.itemsize + lengths, np.int64)


def _offsets(array: pa.Array) -> Array:
    """Return the offsets of a BYTES column, one more than it has rows."""
    buffer = array.buffers()[1]
    dtype = np.int64 if is_large(array.type) else np.int32
    if buffer is None or not buffer.size:
        return np.zeros(len(array) + 1, dtype)
    return np.frombuffer(buffer, dtype)[array.offset : array.offset + len(array) + 1]


def nested_to_message(array: pa.Array) -> pa.Buffer:
    """Return a NESTED column as one Arrow IPC message."""
    return pa.record_batch([_compact(array)], names=["c"]).serialize()


def nested_from_message(dtype: pa.DataType, message: Any) -> pa.Array:
    """Return the column that `nested_to_message` wrote, without copying it."""
    schema = pa.schema([pa.field("c", dtype)])
    return pa.ipc.read_record_batch(pa.py_buffer(message), schema).column(0)


def _unpack_bits(bitmap: pa.Buffer, offset: int, count: int) -> NDArray[np.uint8]:
    first = offset // 8
    raw = np.frombuffer(bitmap, np.uint8)[first : (offset + count + 7) // 8]
    return np.unpackbits(raw, bitorder="little")[offset - 8 * first :][:count]


def _pack_validity(validity: Validity | None) -> pa.Buffer | None:
    if validity is None:
        return None
    return pa.py_buffer(np.packbits(validity, bitorder="little"))
