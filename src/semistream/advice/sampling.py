"""The sampled source: a stream, with a sample of its latest keys."""

from collections import deque
from collections.abc import Callable, Iterator

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from semistream.keys import KeyCoder
from semistream.spec import JoinSpec

SAMPLE_ROWS = 16_384
_ROWS_PER_BATCH = 2_048  # that are sampled
_SLICE_ROWS = 1_024  # of a batch, whose keys are sampled together


class SampledSource:
    """The stream, with a sample of the keys that came last, by their codes."""

    def __init__(
        self,
        batches: Iterator[pa.RecordBatch],
        spec: JoinSpec,
        coder: KeyCoder,
        now_s: Callable[[], float],
        total_rows: int | None = None,
    ) -> None:
        """Read nothing yet; `now_s` is the clock that arrivals are timed by."""
        self.total_rows = total_rows  # of the stream, if known
        self._batches = batches
        self._key = spec.stream_key_indexes
        self._coder = coder
        self.now_s = now_s
        self._pending: pa.RecordBatch | None = None  # read, but not handed on yet
        self._recent: deque[NDArray[np.int64]] = deque()  # sampled codes, one array per batch
        self._recent_rows = 0  # codes in all of these
        self.row_count = 0  # handed on so far
        self.waited_s = 0.0  # for the stream, in all
        self.empty_batches = 0  # "no rows for now": all that have arrived are handed on

    @property
    def rows_per_sample(self) -> int:
        """The number of codes that a full sample has."""
        return SAMPLE_ROWS

    def has_rows(self) -> bool:
        """Return whether there are more rows, waiting for them if need be."""
        while self._pending is None or not self._pending.num_rows:
            self._pending = self._next()
            if self._pending is None:
                return False
        return True

    def peek(self) -> pa.RecordBatch:
        """Return the batch that comes next, after `has_rows`."""
        assert self._pending is not None
        return self._pending

    def take(self) -> pa.RecordBatch | None:
        """Return the next batch; None at the end of the stream."""
        batch, self._pending = self._pending, None
        return self._next() if batch is None else batch

    def put_back(self, batch: pa.RecordBatch) -> None:
        """Return a batch that was taken, but not handed on: it comes next again."""
        self._pending = batch

    def note(self, batch: pa.RecordBatch) -> None:
        """Count a batch that is handed on, and sample its keys; the oldest ones are dropped."""
        self.row_count += batch.num_rows
        codes = self._codes(batch, _ROWS_PER_BATCH)
        if len(codes):
            self._recent.append(codes)
            self._recent_rows += len(codes)
        while self._recent and self._recent_rows - len(self._recent[0]) >= SAMPLE_ROWS:
            self._recent_rows -= len(self._recent.popleft())

    def sample(self) -> NDArray[np.int64]:
        """Return the codes of keys that came last, and of those that come next, if known."""
        coming = [] if self._pending is None else [self._codes(self._pending, SAMPLE_ROWS)]
        return np.concatenate([*self._recent, *coming, np.zeros(0, np.int64)])

    def forget_sample(self) -> None:
        """Begin a new sample."""
        self._recent.clear()
        self._recent_rows = 0

    def _next(self) -> pa.RecordBatch | None:
        requested_s = self.now_s()
        batch = next(self._batches, None)
        self.waited_s += self.now_s() - requested_s
        self.empty_batches += batch is not None and not batch.num_rows
        return batch

    def _codes(self, batch: pa.RecordBatch, most: int) -> NDArray[np.int64]:
        """Return the codes of about `most` keys, in slices from all over a batch.

        Slices and not single rows, because they need no copy of the keys, however wide these are.
        """
        slices = -(-min(most, batch.num_rows) // _SLICE_ROWS)
        found = [np.zeros(0, np.int64)]
        for first in np.linspace(0, batch.num_rows, slices, endpoint=False).astype(int).tolist():
            columns = [batch.column(i)[first : first + _SLICE_ROWS] for i in self._key]
            codes, has_key = self._coder.codes(columns)
            found.append(codes[has_key])
        return np.concatenate(found)
