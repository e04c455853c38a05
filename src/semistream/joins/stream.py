"""The stream as the operators read it: a few tuples at a time, each with its key code.

A `StreamBuffer` pulls a batch from the source only when it has none left, which is the
back-pressure. It sorts out at once the tuples that cannot match anything: those without a key, with
a key that no row of R can have, or with a code outside the relation's range or in an empty
partition. An empty batch from the source means "nothing for now": the operator goes on with what
it has.

Memory: the one batch that the source handed over, which is the source's.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from semistream.columns import Encoding, encoding_of, join_fixed, plain_batch, split_fixed
from semistream.errors import ColumnError, RoutingError
from semistream.joins.rows import Slots
from semistream.joins.spec import JoinSpec
from semistream.joins.stopwatch import Stopwatch
from semistream.keys import KeyCoder, count_null_keys


@dataclass(frozen=True, slots=True)
class Tuples:
    """Stream rows with their key codes."""

    batch: pa.RecordBatch
    codes: NDArray[np.int64]

    def __len__(self) -> int:
        """How many rows there are."""
        return len(self.codes)

    def split(self, count: int) -> tuple["Tuples", "Tuples"]:
        """Return the first `count` rows and the rest."""
        return (
            Tuples(self.batch[:count], self.codes[:count]),
            Tuples(self.batch[count:], self.codes[count:]),
        )

    def only(self, mask: NDArray[np.bool_]) -> "Tuples":
        """Return some of the tuples."""
        if mask.all():
            return self
        return Tuples(self.batch.filter(pa.array(mask)), self.codes[mask])


class Arrived:
    """Stream tuples that have not entered anything yet, as the emission of matches sees them."""

    def __init__(self, tuples: Tuples) -> None:
        """Begin with no match found."""
        self._batch = tuples.batch
        self._codes = tuples.codes
        self.matched = np.zeros(len(tuples), np.uint8)

    def gather(self, slots: Slots, columns: Sequence[int] | None = None) -> list[pa.Array]:
        """Return columns of these rows."""
        wanted = range(self._batch.num_columns) if columns is None else columns
        return [_take(self._batch.column(i), slots) for i in wanted]

    def codes_at(self, slots: Slots) -> NDArray[np.int64]:
        """Return the key codes of these rows."""
        return self._codes[slots]


def _take(column: pa.Array, rows: Slots) -> pa.Array:
    """Return some rows of a column; NumPy takes a third of Arrow's time for fixed widths."""
    if encoding_of(column.type) is not Encoding.FIXED:
        return column.take(pa.array(rows))
    values, validity = split_fixed(column)
    return join_fixed(column.type, values[rows], None if validity is None else validity[rows])


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
    ) -> None:
        """Begin with nothing read."""
        self._stopwatch = stopwatch
        self._source: Iterator[pa.RecordBatch] = iter(source)
        self._key = spec.stream_key_indexes
        self._coder = coder
        self._may_hold = may_hold
        self._routing = routing
        self._schema = spec.stream_schema
        self._keeps_hopeless = spec.keeps_misses
        self._arrived: Tuples | None = None
        self._waiting: Tuples | None = None
        self._hopeless: list[pa.RecordBatch] = []
        self.hopeless_rows = 0
        self.is_exhausted = False
        self.row_count = 0
        self.null_key_rows = 0

    def pull(self) -> bool:
        """Make sure that there are tuples, reading a batch if need be; False if none came."""
        if self._arrived is None and self._waiting is None and not self.is_exhausted:
            self._stopwatch.lap("loop")
            batch = next(self._source, None)
            self._stopwatch.lap("outside")
            if batch is None:
                self.is_exhausted = True
            elif batch.num_rows:
                self._accept(plain_batch(batch))
                self._stopwatch.lap("read")
        return self._arrived is not None or self._waiting is not None

    def peek(self) -> pa.RecordBatch | None:
        """Return rows that are there, waiting or only just arrived, without taking them."""
        tuples = self._waiting or self._arrived
        return None if tuples is None else tuples.batch

    @property
    def has_waiting(self) -> bool:
        """Whether there are tuples that may enter."""
        return self._waiting is not None

    @property
    def arrived_rows(self) -> int:
        """How many tuples have arrived that may not enter yet."""
        return 0 if self._arrived is None else len(self._arrived)

    def take_arrived(self, count: int | None = None) -> Tuples:
        """Take tuples that have arrived, all or at most so many, before they may enter."""
        assert self._arrived is not None
        taken, rest = self._arrived.split(len(self._arrived) if count is None else count)
        self._arrived = rest if len(rest) else None
        return taken

    def let_wait(self, tuples: Tuples) -> None:
        """Let tuples wait until they are taken; no others may wait already."""
        assert self._waiting is None
        self._waiting = tuples if len(tuples) else None

    def take(self, count: int) -> Tuples:
        """Take at most `count` of the waiting tuples."""
        assert self._waiting is not None
        taken, rest = self._waiting.split(count)
        self._waiting = rest if len(rest) else None
        return taken

    @property
    def kept_hopeless_rows(self) -> int:
        """How many rows that cannot match wait to be collected."""
        return sum(batch.num_rows for batch in self._hopeless)

    def take_hopeless(self) -> list[pa.RecordBatch]:
        """Take the rows that cannot match, found since the last call; none if nobody wants them."""
        hopeless, self._hopeless = self._hopeless, []
        return hopeless

    def _accept(self, batch: pa.RecordBatch) -> None:
        self._check_schema(batch.schema)
        key = [batch.column(i) for i in self._key]
        codes, has_key = self._coder.codes(key)
        if self._routing:
            self._routing.check(codes[has_key])
        self.row_count += batch.num_rows
        self.null_key_rows += count_null_keys(key)
        hopeful = has_key & self._may_hold(codes)
        tuples = Tuples(batch, codes)
        hopeless = len(hopeful) - int(np.count_nonzero(hopeful))
        self.hopeless_rows += hopeless
        if hopeless and self._keeps_hopeless:
            self._hopeless.append(tuples.only(~hopeful).batch)
        hopefuls = tuples.only(hopeful)
        self._arrived = hopefuls if len(hopefuls) else None

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
