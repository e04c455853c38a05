"""Batches made plain piece by piece, so that no column grows past what an Arrow array can hold.

A view, a dictionary or a run stands for more bytes than it is stored in. Made plain as a whole, a
batch of them may be far larger than before, and past 2 GiB Arrow wraps the offsets of some of them
without an error. So a batch is cut before its columns are made plain, by their plain sizes.
"""

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from semistream.columns import plain_batch, plain_type, value_sizes

PIECE_BYTES = 16 << 20  # of the columns that are made plain


def plain_batches(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Yield the rows with every column in its `plain_type`; of an empty batch, an empty one."""
    sizes = [value_sizes(c) for c in batch.columns if plain_type(c.type) != c.type]
    if not sizes:  # all columns are plain
        yield batch
        return
    ends = np.cumsum(sum(sizes))
    last = 0
    while last == 0 or last < batch.num_rows:
        first, before = last, ends[last - 1] if last else 0
        last = max(first + 1, int(np.searchsorted(ends, before + PIECE_BYTES, side="right")))
        yield plain_batch(batch[first:last])
