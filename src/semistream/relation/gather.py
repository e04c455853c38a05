"""Rows in several batches, taken in any order.

Arrow takes from a chunked column by first making one array of all its chunks. With a string column
of more than 2 GiB that array cannot exist, and with any column the copy is made again for each
take. Here rows are taken from each batch by itself. Batches are first merged up to `MERGED_BYTES`,
so that there are few of them, however small the given ones are.

The rows taken are a batch of their own, whose columns also have Arrow's limit of 2 GiB. `pieces`
cuts rows by their sizes, and again where sizes were only estimated and Arrow reports an overflow.
"""

from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from semistream.columns import total_bytes

MERGED_BYTES = 256 << 20


class Gatherer:
    """Takes rows from a list of batches, by their position in all of them."""

    def __init__(self, batches: Sequence[pa.RecordBatch]) -> None:
        """Merge the batches; there must be at least one."""
        self._batches = list(_merged(batches))
        self._starts = np.cumsum([0, *(batch.num_rows for batch in self._batches)])

    def take(self, rows: NDArray[np.int64]) -> pa.RecordBatch:
        """Return some rows as one batch, in the given order."""
        if len(self._batches) == 1:
            return self._batches[0].take(pa.array(rows))
        sources = np.searchsorted(self._starts, rows, side="right") - 1
        by_source = np.argsort(sources, kind="stable")
        bounds = np.searchsorted(sources[by_source], np.arange(len(self._batches) + 1))
        parts = [
            batch.take(pa.array(rows[by_source[bounds[i] : bounds[i + 1]]] - self._starts[i]))
            for i, batch in enumerate(self._batches)
        ]
        places = np.empty(len(rows), np.int64)
        places[by_source] = np.arange(len(rows))
        return pa.concat_batches(parts).take(pa.array(places))

    def pieces(
        self, rows: NDArray[np.int64], bounds: Sequence[int]
    ) -> Iterator[tuple[int, int, pa.RecordBatch]]:
        """Yield first, last and the rows between, for each pair of bounds or a part of one."""
        for first, last in pairwise(bounds):
            yield from self._piece(rows, first, last)

    def _piece(
        self, rows: NDArray[np.int64], first: int, last: int
    ) -> Iterator[tuple[int, int, pa.RecordBatch]]:
        try:
            batch = self.take(rows[first:last])
        except pa.ArrowInvalid:  # more than an array can hold
            if last - first < 2:
                raise
            middle = (first + last) // 2
            yield from self._piece(rows, first, middle)
            yield from self._piece(rows, middle, last)
        else:
            yield first, last, batch


def _merged(batches: Sequence[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the same rows in batches of at most `MERGED_BYTES`, unless one alone is larger."""
    waiting: list[pa.RecordBatch] = []
    waiting_bytes = 0
    for batch in batches:
        batch_bytes = total_bytes(batch.columns)
        if waiting and waiting_bytes + batch_bytes > MERGED_BYTES:
            yield pa.concat_batches(waiting)
            waiting, waiting_bytes = [], 0
        waiting.append(batch)
        waiting_bytes += batch_bytes
    yield pa.concat_batches(waiting)
