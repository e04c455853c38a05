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
_VIEW_BYTES = 16


def plain_batches(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Yield the rows with every column in its `plain_type`; of an empty batch, an empty one."""
    sizes = [value_bytes(c) for c in batch.columns if plain_type(c.type) != c.type]
    if not sizes:  # all columns are plain
        yield batch
        return
    ends = np.cumsum(sum(sizes))
    last = 0
    while last == 0 or last < batch.num_rows:
        first, before = last, ends[last - 1] if last else 0
        last = max(first + 1, int(np.searchsorted(ends, before + PIECE_BYTES, side="right")))
        yield plain_batch(batch[first:last])


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
        children = [value_bytes(array.field(i)) for i in range(array.type.num_fields)]
        return sum(children, np.zeros(len(array), np.int64))
    if pa.types.is_nested(array.type):
        return _list_bytes(array)
    if encoding_of(array.type) is Encoding.BYTES:
        return _lengths(array)
    is_fixed = encoding_of(array.type) is Encoding.FIXED
    return np.full(len(array), width_bytes(array.type) if is_fixed else 0, np.int64)


def _view_bytes(array: pa.Array) -> NDArray[np.int64]:
    """Return the lengths of views: the first four bytes of each."""
    if not len(array):
        return np.zeros(0, np.int64)
    first = _VIEW_BYTES * array.offset
    words = np.frombuffer(array.buffers()[1], np.int32, 4 * len(array), first).reshape(-1, 4)
    lengths = words[:, 0].astype(np.int64)
    return np.where(array.is_valid().to_numpy(zero_copy_only=False), lengths, 0)


def _lengths(array: pa.Array) -> NDArray[np.int64]:
    lengths: NDArray[np.int64] = pc.binary_length(array).fill_null(0).to_numpy(zero_copy_only=False)
    return lengths.astype(np.int64)


def _list_bytes(array: pa.Array) -> NDArray[np.int64]:
    """Return the bytes of lists and maps, as the sum of what is in them."""
    if pa.types.is_union(array.type):
        return np.full(len(array), array.nbytes // max(1, len(array)), np.int64)
    if isinstance(array, pa.MapArray):
        children = value_bytes(array.keys) + value_bytes(array.items)
    else:
        children = value_bytes(array.values)
    if isinstance(array, pa.FixedSizeListArray):
        starts = np.arange(array.offset, array.offset + len(array)) * array.type.list_size
        ends = starts + array.type.list_size
    elif isinstance(array, pa.ListViewArray | pa.LargeListViewArray):
        starts = array.offsets.to_numpy()
        ends = starts + array.sizes.to_numpy()
    else:
        starts, ends = array.offsets.to_numpy()[:-1], array.offsets.to_numpy()[1:]
    running = np.append(np.int64(0), np.cumsum(children))
    sizes: NDArray[np.int64] = running[ends] - running[starts]
    return sizes
