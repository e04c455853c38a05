"""Batches made plain piece by piece, so that no column grows past what an Arrow array can hold.

A view, a dictionary or a run stands for more bytes than it takes. Made plain as a whole, a batch of
them may be far larger than it was, and past 2 GiB Arrow wraps the offsets of some of them without
an error. So a batch is cut before its columns are made plain, by the bytes that they stand for.
"""

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from semistream.columns import Encoding, encoding_of, plain_batch, plain_type, width_bytes

PIECE_BYTES = 16 << 20  # of the columns that are made plain


def plain_batches(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Yield the batch's rows with every column in its `plain_type`; an empty batch as it is."""
    sizes = [value_bytes(c) for c in batch.columns if plain_type(c.type) != c.type]
    ends = np.cumsum(sum(sizes, np.zeros(batch.num_rows, np.int64)))
    if not batch.num_rows or ends[-1] <= PIECE_BYTES:
        yield plain_batch(batch)
        return
    first = 0
    while first < batch.num_rows:
        before = ends[first - 1] if first else 0
        last = max(first + 1, int(np.searchsorted(ends, before + PIECE_BYTES, side="right")))
        yield plain_batch(batch[first:last])
        first = last


def value_bytes(array: pa.Array) -> NDArray[np.int64]:
    """Return the bytes that each value stands for, without validity and offsets.

    >>> value_bytes(pa.array(["a", "bcd", "a"]).dictionary_encode()).tolist()
    [1, 3, 1]
    """
    if isinstance(array, pa.ExtensionArray):
        return value_bytes(array.storage)
    if isinstance(array, pa.DictionaryArray):
        sizes = np.append(value_bytes(array.dictionary), np.int64(0))  # the last is for nulls
        places: NDArray[np.int64] = array.indices.cast(pa.int64()).fill_null(-1).to_numpy()
        return sizes[places]
    if isinstance(array, pa.RunEndEncodedArray):
        run_rows = np.diff(array.run_ends.to_numpy(), prepend=0)
        rows = np.repeat(value_bytes(array.values), run_rows)
        return rows[array.offset : array.offset + len(array)]
    if pa.types.is_string_view(array.type) or pa.types.is_binary_view(array.type):
        return _view_bytes(array)
    if isinstance(array, pa.StructArray):
        none = np.zeros(len(array), np.int64)
        return sum((value_bytes(field) for field in array.flatten()), none)
    if pa.types.is_nested(array.type):
        return _list_bytes(array)
    if encoding_of(array.type) is Encoding.BYTES:
        return _lengths(array)
    is_fixed = encoding_of(array.type) is Encoding.FIXED
    return np.full(len(array), width_bytes(array.type) if is_fixed else 0, np.int64)


def _view_bytes(array: pa.Array) -> NDArray[np.int64]:
    """Return the lengths of views: a view is 16 bytes, the first four of them its length."""
    words = np.frombuffer(array.buffers()[1], np.int32).reshape(-1, 4)
    lengths = words[array.offset : array.offset + len(array), 0].astype(np.int64)
    return np.where(array.is_valid().to_numpy(zero_copy_only=False), lengths, 0)


def _lengths(array: pa.Array) -> NDArray[np.int64]:
    lengths: NDArray[np.int64] = pc.binary_length(array).fill_null(0).to_numpy(zero_copy_only=False)
    return lengths.astype(np.int64)


def _list_bytes(array: pa.Array) -> NDArray[np.int64]:
    """Return the bytes of lists and maps, as the sum of what is in them."""
    if isinstance(array, pa.MapArray):
        children = value_bytes(array.keys) + value_bytes(array.items)
        bounds = array.offsets.to_numpy()
    elif isinstance(array, pa.ListArray | pa.LargeListArray):
        children, bounds = value_bytes(array.values), array.offsets.to_numpy()
    elif pa.types.is_union(array.type):
        return np.full(len(array), array.nbytes // max(1, len(array)), np.int64)
    else:
        children = value_bytes(array.flatten())
        lengths = pc.list_value_length(array).fill_null(0).to_numpy(zero_copy_only=False)
        bounds = np.append(0, np.cumsum(lengths))
    ends = np.append(np.int64(0), np.cumsum(children))
    sizes: NDArray[np.int64] = np.diff(ends[bounds])
    return sizes
