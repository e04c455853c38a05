"""Merging: small pieces of a join's output become batches of the usual size of Spark's own.

A join emits a piece when it has one: for a page of R, or for a slice of the stream. For each batch
Spark has fixed costs, in Python and in the JVM, which exceed those of some hundred rows. So small
pieces are collected and copied into one batch. A piece that is large enough is passed on as it is,
before those that wait: the rows of a join are in no particular order.

Memory: half of `size_bytes` for the pieces that wait, half for the copy of them.
"""

from collections.abc import Iterable, Iterator

import pyarrow as pa

_USUAL_ROWS = 10_000  # spark.sql.execution.arrow.maxRecordsPerBatch, unless set
# A piece with this part of a batch is large enough: merging it would save half of a batch's costs.
_LARGE = 1 / 2


class Merging:
    """Merges the pieces of one task within some memory."""

    def __init__(self, size_bytes: int, most_rows: int = _USUAL_ROWS) -> None:
        """Begin with nothing that waits. Without memory, all pieces are passed on."""
        self._most_bytes = size_bytes // 2  # of the pieces that wait
        self._most_rows = most_rows  # of a batch
        self._waiting: list[pa.RecordBatch] = []  # small pieces
        self._rows = 0  # of these
        self._bytes = 0  # of these
        self.peak_bytes = 0  # the most memory that was used

    def merge(self, pieces: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the rows of the pieces in batches of about the usual size."""
        for piece in pieces:
            size_bytes = piece.get_total_buffer_size()
            if self._is_large(piece.num_rows, size_bytes):
                yield piece
                continue
            if not self._has_room(piece.num_rows, size_bytes):
                yield self._take()
            self._waiting.append(piece)
            self._rows += piece.num_rows
            self._bytes += size_bytes
            self.peak_bytes = max(self.peak_bytes, 2 * self._bytes)
        if self._waiting:
            yield self._take()

    def _is_large(self, rows: int, size_bytes: int) -> bool:
        return rows >= self._most_rows * _LARGE or size_bytes >= self._most_bytes * _LARGE

    def _has_room(self, rows: int, size_bytes: int) -> bool:
        is_short = self._rows + rows <= self._most_rows
        return is_short and self._bytes + size_bytes <= self._most_bytes

    def _take(self) -> pa.RecordBatch:
        """Return all that waits as one batch."""
        pieces, self._waiting, self._rows, self._bytes = self._waiting, [], 0, 0
        if len(pieces) == 1:
            return pieces[0]
        columns = [
            pa.concat_arrays([piece.column(i) for piece in pieces])
            for i in range(pieces[0].num_columns)
        ]
        return pa.RecordBatch.from_arrays(columns, schema=pieces[0].schema)
