"""The stream as the operators read it: a few tuples at a time, each with its key code.

A `StreamBuffer` pulls a batch from the source only when it has none left, which is the
back-pressure. It sorts out at once the tuples that cannot match anything: those without a key, with
a key that no row of R can have, or with a code outside the relation's range or in an empty
partition. An empty batch from the source means "nothing for now": the operator goes on with what
it has.

Memory: the one batch that the source handed over is the source's, and is not copied. It is taken
apart into slices. Of each slice there are masks, and key codes, decoded columns and positions where
they are needed, within `limit_bytes`; rows are sorted out by their positions, and copied only when
they enter the window or leave. A row that is wider than that is a slice of its own.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from semistream.columns import (
    Encoding,
    encoding_of,
    join_bytes,
    join_fixed,
    locate_bytes,
    plain_batch,
    plain_schema,
    plain_type,
    split_fixed,
    take_rows,
    value_sizes,
    width_bytes,
)
from semistream.errors import ColumnError, RoutingError
from semistream.joins.row_kernels import gather_bytes
from semistream.joins.rows import Slots
from semistream.joins.stopwatch import Stopwatch
from semistream.keys import KeyCoder, count_null_keys
from semistream.spec import JoinSpec

# What is made of each row: masks; where rows are sorted out or keys are coded, positions and codes.
_MASK_BYTES = 4
_POSITION_BYTES = 16
_MOST_SLICE_ROWS = 65_536


def rows_within(columns: Sequence[pa.Array], row_bytes: int, limit_bytes: int) -> int:
    """Return how many of the first rows fit into `limit_bytes` in their plain types; at least one.

    `row_bytes` is the size of everything else that is made of a row.

    >>> rows_within([pa.array([1, 2, 3]), pa.array(["a", "bcd" * 10, "e"])], 16, 60)
    1
    """
    types = [plain_type(column.type) for column in columns]
    fixed = [t for t in types if encoding_of(t) is Encoding.FIXED]
    row_bytes += sum(map(width_bytes, fixed))
    count = min(len(columns[0]) if columns else limit_bytes, limit_bytes // row_bytes)
    varying = [
        value_sizes(column[:count])
        for column, dtype in zip(columns, types, strict=True)
        if encoding_of(dtype) is not Encoding.FIXED
    ]
    if varying and count > 1:
        ends = np.cumsum(sum(varying[1:], varying[0]) + row_bytes)
        count = int(np.searchsorted(ends, limit_bytes, "right"))
    return max(1, count)


@dataclass(frozen=True, slots=True)
class Tuples:
    """Stream rows with their key codes: all rows of a batch, or those at some positions of it."""

    batch: pa.RecordBatch
    codes: NDArray[np.int64]
    positions: NDArray[np.int64] | None = None  # ascending
    unmatchable: NDArray[np.bool_] | None = None  # which cannot match, where these are among them

    def __len__(self) -> int:
        """How many rows there are."""
        return len(self.codes)

    def split(self, count: int) -> tuple["Tuples", "Tuples"]:
        """Return the first `count` rows and the rest."""
        batch, codes, positions = self.batch, self.codes, self.positions
        if self.unmatchable is not None:
            return (
                Tuples(batch[:count], codes[:count], None, self.unmatchable[:count]),
                Tuples(batch[count:], codes[count:], None, self.unmatchable[count:]),
            )
        if positions is None:
            return Tuples(batch[:count], codes[:count]), Tuples(batch[count:], codes[count:])
        return (
            Tuples(batch, codes[:count], positions[:count]),
            Tuples(batch, codes[count:], positions[count:]),
        )

    def only(self, mask: NDArray[np.bool_]) -> "Tuples":
        """Return some of the tuples, without a copy of their rows."""
        if mask.all():
            return self
        positions = np.flatnonzero(mask) if self.positions is None else self.positions[mask]
        return Tuples(self.batch, self.codes[mask], positions)

    def rows(self, count: int, limit_bytes: int) -> pa.RecordBatch:
        """Return at most `count` of the first rows: a view, or a copy of at most `limit_bytes`."""
        if self.positions is None:
            return self.batch[:count]
        positions = self.positions[:count]
        row_bytes = sum(width_bytes(c.type) for c in self.batch.columns if _is_fixed(c))
        positions = positions[: max(1, limit_bytes // max(1, row_bytes))]
        sizes = Arrived(self).sizes(np.arange(len(positions)))
        if sizes is not None:
            fitting = int(np.searchsorted(np.cumsum(sizes + row_bytes), limit_bytes, "right"))
            positions = positions[: max(1, fitting)]
        columns = [_take(column, positions) for column in self.batch.columns]
        return pa.RecordBatch.from_arrays(columns, schema=self.batch.schema)


class Arrived:
    """Stream tuples that have not entered anything yet, as the emission of matches sees them."""

    def __init__(self, tuples: Tuples) -> None:
        """Begin with no match found."""
        self._batch = tuples.batch
        self._codes = tuples.codes
        self._positions = tuples.positions
        self.matched = np.zeros(len(tuples), np.uint8)

    def sizes(self, slots: Slots) -> NDArray[np.int64] | None:
        """Return the size in bytes of each row's variable-width values; None without any."""
        columns = [column for column in self._batch.columns if not _is_fixed(column)]
        if not columns:
            return None
        sizes = [value_sizes(column) for column in columns]
        return np.asarray(sum(sizes[1:], sizes[0])[self._at(slots)], np.int64)

    def gather(self, slots: Slots, columns: Sequence[int] | None = None) -> list[pa.Array]:
        """Return columns of these rows."""
        which = range(self._batch.num_columns) if columns is None else columns
        rows = self._at(slots)
        return [_take(self._batch.column(i), rows) for i in which]

    def codes_at(self, slots: Slots) -> NDArray[np.int64]:
        """Return the key codes of these rows."""
        return self._codes[slots]

    def _at(self, slots: Slots) -> Slots:
        return slots if self._positions is None else self._positions[slots]


def _is_fixed(column: pa.Array) -> bool:
    return encoding_of(column.type) is Encoding.FIXED


def _take(column: pa.Array, rows: Slots) -> pa.Array:
    """Return some rows of a column.

    NumPy needs a third of Arrow's time for fixed widths. For texts Arrow would grow its buffers
    until they fit, where their lengths say at once how large these must be.
    """
    encoding = encoding_of(column.type)
    if encoding is Encoding.NESTED:
        return take_rows(column, rows)
    if encoding is Encoding.FIXED:
        values, validity = split_fixed(column)
        return join_fixed(column.type, values[rows], None if validity is None else validity[rows])
    starts, lengths, data, validity = locate_bytes(column, rows)
    return join_bytes(column.type, lengths, gather_bytes(data, starts, lengths), validity)


@dataclass(frozen=True, slots=True)
class Routing:
    """Which partition's tuples a task may see."""

    partition: int
    partition_count: int

    def check(self, codes: NDArray[np.int64]) -> None:
        """Raise `RoutingError` if any code belongs to another partition."""
        strays = int(np.count_nonzero(codes % self.partition_count != self.partition))
        if strays:
            raise RoutingError(
                f"the task of partition {self.partition} received {strays} rows of other "
                "partitions. Do not repartition between enrich's steps; if the stream's keys were "
                "hashed elsewhere, use semistream.enrich on the plain key columns"
            )


class StreamBuffer:
    """Hands out tuples that may match, and keeps those that cannot for the caller to collect."""

    def __init__(
        self,
        source: Iterable[pa.RecordBatch],
        spec: JoinSpec,
        coder: KeyCoder,
        may_hold: Callable[[NDArray[np.int64]], NDArray[np.bool_]],
        routing: Routing | None,
        stopwatch: Stopwatch,
        limit_bytes: int,
    ) -> None:
        """Begin with nothing read."""
        self.limit_bytes = limit_bytes  # for what is made of a slice
        self.is_exhausted = False  # whether the source has ended
        self.lets_all_in = False  # whether rows that cannot match are handed out with the others
        self.row_count = 0  # rows read
        self.null_key_rows = 0  # of these, rows without a key
        self.unmatchable_rows = 0  # of these, rows that cannot match
        self._source: Iterator[pa.RecordBatch] = iter(source)
        self._rest: pa.RecordBatch | None = None  # of the source's batch: not sliced off yet
        self._is_plain = True  # whether that needs no decoding
        self._arrived: Tuples | None = None  # may match; have not passed the front stage
        self._waiting: Tuples | None = None  # may match; have passed it, and may enter
        self._unmatchable: list[Tuples] = []  # cannot match; to be collected, if misses are kept
        self._unmatchable_count = 0  # rows in these
        self._keeps_unmatchable = spec.keeps_misses or spec.resolved is not None
        self._schema = spec.stream_schema  # of every batch
        self._key = spec.stream_key_indexes  # key columns
        self._coder = coder  # from keys to codes
        self._may_hold = may_hold  # which codes R may have
        self._routing = routing  # which codes may arrive here
        self._stopwatch = stopwatch

    def pull(self) -> bool:
        """Make sure that there are tuples, reading a batch if need be; False if none came.

        Rows that cannot match are to be collected before more is read: then there may be none.
        """
        if self._arrived is None and self._waiting is None and not self.is_exhausted:
            if self._rest is None:
                self._read_batch()
            while self._rest is not None and self._arrived is None and not self.must_collect:
                with self._stopwatch.phase("read"):
                    self._accept_slice(self._rest)
        return self._arrived is not None or self._waiting is not None

    def sample(self, count: int) -> pa.RecordBatch | None:
        """Return some rows that are there, waiting or only just arrived, without taking them."""
        tuples = self._waiting or self._arrived
        return None if tuples is None else tuples.rows(count, self.limit_bytes)

    def waiting_rows(self, count: int) -> pa.RecordBatch:
        """Return at most `count` of the rows that may enter, without taking them."""
        assert self._waiting is not None
        return self._waiting.rows(count, self.limit_bytes)

    @property
    def has_waiting(self) -> bool:
        """Whether there are tuples that may enter."""
        return self._waiting is not None

    @property
    def arrived_rows(self) -> int:
        """How many tuples have arrived that may not enter yet."""
        return 0 if self._arrived is None else len(self._arrived)

    def take_arrived(self, count: int | None = None) -> Tuples:
        """Take tuples that have arrived, all or at most `count`, before they may enter."""
        assert self._arrived is not None
        taken, rest = self._arrived.split(len(self._arrived) if count is None else count)
        self._arrived = rest if len(rest) else None
        return taken

    def let_wait(self, tuples: Tuples) -> None:
        """Let tuples wait until they are taken; no others may wait already."""
        assert self._waiting is None
        self._waiting = tuples if len(tuples) else None

    def take_waiting(self, count: int) -> Tuples:
        """Take the first `count` waiting tuples, whose rows have been looked at."""
        assert self._waiting is not None
        taken, rest = self._waiting.split(count)
        self._waiting = rest if len(rest) else None
        return taken

    @property
    def must_collect(self) -> bool:
        """Whether the rows that cannot match must be collected before more is read."""
        return self._unmatchable_count * _POSITION_BYTES > self.limit_bytes // 4

    def take_unmatchable(self) -> list[Tuples]:
        """Take the rows that cannot match, found since the last call, if the join keeps misses."""
        unmatchable, self._unmatchable, self._unmatchable_count = self._unmatchable, [], 0
        return unmatchable

    def _read_batch(self) -> None:
        with self._stopwatch.phase("outside"):
            batch = next(self._source, None)
        if batch is None:
            self.is_exhausted = True
        elif batch.num_rows:
            schema = plain_schema(batch.schema)
            self._check_schema(schema)
            self._is_plain = schema.types == batch.schema.types
            self._rest = batch

    def _accept_slice(self, rest: pa.RecordBatch) -> None:
        """Take the next slice of the batch, and sort out the rows that cannot match."""
        count = self._slice_rows(rest)
        some = rest[:count] if self._is_plain else plain_batch(rest[:count])
        if self._key:
            codes, can_match = self._coder.codes([some.column(i) for i in self._key])
        else:  # keys are not compared
            codes, can_match = np.zeros(count, np.int64), np.ones(count, np.bool_)
        matchable = can_match & self._may_hold(codes)
        if not matchable.all():
            count = min(count, max(1, self.limit_bytes // _POSITION_BYTES))
        self._rest = rest[count:] if count < rest.num_rows else None
        self._keep(Tuples(some[:count], codes[:count]), can_match[:count], matchable[:count])

    def _slice_rows(self, rest: pa.RecordBatch) -> int:
        """Return how many rows to take, by what is decoded, cast or hashed of each."""
        key = [rest.column(i) for i in self._key]
        if self._is_plain and self._coder.takes_as_is([column.type for column in key]):
            most = max(1, self.limit_bytes // _MASK_BYTES)
        else:
            copied = key if self._is_plain else rest.columns
            most = rows_within(copied, _MASK_BYTES + _POSITION_BYTES, self.limit_bytes)
        return min(int(rest.num_rows), most, _MOST_SLICE_ROWS)

    def _keep(
        self, tuples: Tuples, can_match: NDArray[np.bool_], matchable: NDArray[np.bool_]
    ) -> None:
        if self._routing:
            self._routing.check(tuples.codes[can_match])
        self.row_count += len(tuples)
        if self._key:
            self.null_key_rows += count_null_keys([tuples.batch.column(i) for i in self._key])
        unmatchable = len(matchable) - int(np.count_nonzero(matchable))
        self.unmatchable_rows += unmatchable
        if unmatchable and self.lets_all_in:
            self._arrived = replace(tuples, unmatchable=~matchable)
            return
        if unmatchable and self._keeps_unmatchable:
            self._unmatchable.append(tuples.only(~matchable))
            self._unmatchable_count += unmatchable
        rest = tuples.only(matchable)
        self._arrived = rest if len(rest) else None

    def _check_schema(self, schema: pa.Schema) -> None:
        if schema.names == self._schema.names and schema.types == self._schema.types:
            return
        raise ColumnError(
            "all batches of a stream must have the same columns; it began with "
            f"({_described(self._schema)}), then came ({_described(schema)}). Select and cast the "
            "columns before the join"
        )


def _described(schema: pa.Schema) -> str:
    return ", ".join(f"{field.name} {field.type}" for field in schema)
