"""The driver: one loop for every join that keeps stream tuples in a window.

::

    stream ──► WINDOW (H, Q) ──► probed by DISK BUFFER ──► OUTPUT
       hopeless rows ──────────────────────────────────────►

Each algorithm is a *tactic* that answers three questions in every iteration: how many of the
oldest tuples leave, how many new ones may enter, which pages are read next. The driver does the
rest: it admits, loads, probes, verifies hashed keys, emits matches, and emits the misses when
their tuples leave. It pulls from the source only when it has room and drains at the end, so when
it returns, every row it was given has been joined.

Memory: page table, disk buffer, window and output buffer are reserved in the ledger before they
are allocated. Not counted, because not the operator's: the source's current batch, and output
batches once they are handed on.

Degenerate cases: no stream rows, no output; no rows in R, every stream row is a miss; a stream
row wider than its share of the window, a `BudgetError` that names the row.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from typing import Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from semistream.columns import Encoding, encoding_of, width_bytes
from semistream.cost.sizes import Sizes
from semistream.errors import BudgetError
from semistream.joins import kernels
from semistream.joins.buckets import Buckets
from semistream.joins.diskbuffer import DiskBuffer, disk_buffer_bytes
from semistream.joins.rows import Slots, average_value_bytes
from semistream.joins.spec import JoinSpec
from semistream.joins.stream import Routing, StreamBuffer
from semistream.joins.telemetry import Telemetry
from semistream.joins.window import Window, bytes_per_tuple, window_base_bytes
from semistream.memory import MemoryLedger
from semistream.relation.relation import Relation
from semistream.units import format_bytes

SAMPLE_ROWS = 4096
# Pairs (probe, slot), places in the slab, and a validity byte or two on the way to Arrow.
_PAIR_BYTES = 8 + 8 + 8 + 2


class Operator(Protocol):
    """A join, ready to run once."""

    ledger: MemoryLedger
    telemetry: Telemetry

    def join(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Join a stream with the relation; every input row is dealt with when this ends."""
        ...


class Waiting(Protocol):
    """Stream tuples that wait, with their rows; a window or a waiting room."""

    capacity: int
    matched: NDArray[np.uint8]

    @property
    def count(self) -> int:
        """How many tuples wait."""
        ...

    def room(self, batch: pa.RecordBatch) -> int:
        """Return how many of the batch's first rows can enter now."""
        ...

    def insert(self, batch: pa.RecordBatch, codes: NDArray[np.int64]) -> None:
        """Let tuples in; there must be room."""
        ...

    def gather(self, slots: Slots, columns: Sequence[int] | None = None) -> list[pa.Array]:
        """Return columns of the rows at these slots."""
        ...


class Tactic(Protocol):
    """What one algorithm decides. Settings are fixed when it is made; its state is its own."""

    @property
    def pages_per_read(self) -> int:
        """How many pages the disk buffer holds."""
        ...

    @property
    def window_tuples(self) -> int:
        """How many tuples the window holds."""
        ...

    @property
    def output_rows(self) -> int:
        """How many rows an output batch holds at most."""
        ...

    def leaving(self, window: Window) -> int:
        """Return how many of the oldest tuples have met all of R and leave."""
        ...

    def entering(self, window: Window) -> int:
        """Return how many new tuples may enter."""
        ...

    def next_pages(self, window: Window) -> tuple[int, int]:
        """Return the first and last (exclusive) page to read."""
        ...


class MakeTactic(Protocol):
    """Chooses an algorithm's settings for a budget, once the sizes are known."""

    def __call__(self, sizes: Sizes, budget_bytes: int) -> Tactic:
        """Return the tactic, or raise `BudgetError` with the least budget that would do."""
        ...


class StreamJoin(ABC):
    """What all joins with waiting tuples share: sizing, admission, emission, the books.

    A subclass says in `_run` how tuples and pages meet. It keeps its waiting tuples in `_window`
    and reads pages through `_disk`.
    """

    _window: "Waiting"
    _disk: DiskBuffer

    def __init__(
        self, relation: Relation, spec: JoinSpec, budget_bytes: int, partition: int | None = None
    ) -> None:
        """Open the relation's page table; nothing else is allocated before rows arrive."""
        self.ledger = MemoryLedger(budget_bytes)
        self.telemetry = Telemetry()
        self._relation = relation
        self._spec = spec
        self._routing = None if partition is None else Routing(partition, relation.partition_count)
        self._checked_key = () if relation.coder.is_exact else relation.key
        self._read_columns = tuple(dict.fromkeys([*self._checked_key, *spec.columns]))
        self._reader = relation.reader(list(self._read_columns), partition)
        self._output_rows = 0

    def join(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Join the stream; see `Operator.join`."""
        stream = StreamBuffer(
            batches, self._spec, self._relation.coder, self._reader.may_hold, self._routing
        )
        try:
            for batch in self._run(stream):
                self.telemetry.output_rows += batch.num_rows
                yield batch
        finally:
            self._reader.close()
            self.telemetry.stream_rows = stream.row_count
            self.telemetry.null_key_rows = stream.null_key_rows
            self.telemetry.missed_rows += stream.hopeless_rows
            self.telemetry.memory_bytes_peak = self.ledger.peak_bytes

    @abstractmethod
    def _run(self, stream: StreamBuffer) -> Iterator[pa.RecordBatch]:
        """Join everything; the window must be empty at the end."""

    def _start(self, stream: StreamBuffer) -> Iterator[pa.RecordBatch]:
        """Read on until there is a tuple to size everything by, or the stream has ended."""
        while stream.peek() is None and not stream.is_exhausted:
            stream.pull()
            yield from self._hopeless(stream)

    def _output_row_bytes(self, value_bytes: Sequence[float]) -> int:
        added = sum(self._column_bytes(column) for column in self._read_columns)
        return int(_PAIR_BYTES + sum(value_bytes) + added)

    def _column_bytes(self, column: str) -> float:
        """Return what a value of a relation's column takes, on average over its pages."""
        dtype = self._relation.schema.field(column).type
        if encoding_of(dtype) is Encoding.FIXED:
            return width_bytes(dtype)
        return self._reader.average_value_bytes(column)

    def _hopeless(self, stream: StreamBuffer) -> Iterator[pa.RecordBatch]:
        """Emit the rows that cannot match, if the join keeps misses."""
        for batch in stream.take_hopeless():
            yield self._spec.assemble(batch.columns, None, batch.num_rows)

    def _admit(self, stream: StreamBuffer, wanted: int) -> int:
        """Let up to `wanted` tuples into the window; return how many entered."""
        admitted = 0
        while admitted < wanted and stream.pull():
            waiting = stream.peek()
            assert waiting is not None
            room = self._window.room(waiting[: wanted - admitted])
            if room == 0:
                if self._window.count == 0:
                    self._report_wide_row(waiting)
                break
            entering = stream.take(room)
            self._window.insert(entering.batch, entering.codes)
            admitted += room
            if stream.kept_hopeless_rows >= self._output_rows:
                break  # or they would pile up
        peak = max(self.telemetry.window_rows_peak, self._window.count)
        self.telemetry.window_rows_peak = peak
        return admitted

    def _emit_misses(self, slots: Slots) -> Iterator[pa.RecordBatch]:
        """Emit those of the tuples that found no match, if the join keeps them."""
        missed = slots[self._window.matched[slots] == 0]
        self.telemetry.missed_rows += len(missed)
        if self._spec.keeps_misses:
            for at in range(0, len(missed), self._output_rows):
                some = missed[at : at + self._output_rows]
                yield self._spec.assemble(self._window.gather(some), None, len(some))

    def _emit(self, rows: NDArray[np.int64], slots: Slots) -> Iterator[pa.RecordBatch]:
        """Turn (row of R, slot) pairs into output, after checking keys that are hashes."""
        if self._checked_key:
            same = self._same_keys(rows, slots)
            rows, slots = rows[same], slots[same]
        self.telemetry.matched_pairs += len(rows)
        if self._spec.how == "semi":
            slots = slots[kernels.first_matches(self._window.matched, slots)]
            rows = rows[:0]
        else:
            kernels.mark_matched(self._window.matched, slots)
        if len(slots) and self._spec.how != "anti":
            added = self._disk.gather(self._spec.columns, rows)
            yield self._spec.assemble(self._window.gather(slots), added, len(slots))

    def _same_keys(self, rows: NDArray[np.int64], slots: Slots) -> NDArray[np.bool_]:
        coder = self._relation.coder
        ours = coder.canonical(self._disk.gather(self._checked_key, rows))
        theirs = coder.canonical(self._window.gather(slots, self._spec.stream_key_indexes))
        return coder.same_keys(ours, theirs)

    def _report_wide_row(self, waiting: pa.RecordBatch) -> None:
        size = waiting[:1].nbytes
        raise BudgetError(
            f"a stream row of {format_bytes(size)} does not fit into the window, which has "
            f"{self._window.capacity} slots sized for the rows seen first. Raise memory, or leave "
            "the wide column out of the stream and join it back later"
        )


class WindowJoin(StreamJoin):
    """Runs a tactic: a scan of R meets a window of tuples that leave in the order they came."""

    _window: Window

    def __init__(
        self,
        relation: Relation,
        spec: JoinSpec,
        budget_bytes: int,
        make_tactic: MakeTactic,
        partition: int | None = None,
    ) -> None:
        """Open the relation's page table; nothing else is allocated before rows arrive."""
        super().__init__(relation, spec, budget_bytes, partition)
        self._make_tactic = make_tactic

    def _run(self, stream: StreamBuffer) -> Iterator[pa.RecordBatch]:
        yield from self._start(stream)
        sample = stream.peek()
        if sample is None:
            return
        self._allocate(sample[:SAMPLE_ROWS])
        while not (stream.is_exhausted and self._window.count == 0):
            yield from self._expire(self._tactic.leaving(self._window))
            entered = self._admit(stream, self._tactic.entering(self._window))
            self._window.queue.append(entered)
            yield from self._hopeless(stream)
            if self._window.count:
                yield from self._probe(*self._tactic.next_pages(self._window))
                self.telemetry.iterations += 1

    def _allocate(self, sample: pa.RecordBatch) -> None:
        """Size everything by a sample of the stream, reserve it, then make it."""
        value_bytes = [average_value_bytes(column) for column in sample.columns]
        sizes = self._sizes(value_bytes)
        tactic = self._make_tactic(sizes, self.ledger.budget_bytes)
        self.ledger.reserve("page table", sizes.table_bytes)
        self.ledger.reserve("disk buffer", sizes.disk_bytes(tactic.pages_per_read))
        self.ledger.reserve("window", sizes.window_bytes(tactic.window_tuples))
        self.ledger.reserve("output buffer", tactic.output_rows * sizes.output_row_bytes)
        self._tactic = tactic
        self._output_rows = tactic.output_rows
        self._disk = DiskBuffer(self._reader, self._read_columns, tactic.pages_per_read)
        buckets = Buckets.choose(self._reader, tactic.window_tuples)
        schema = self._spec.stream_schema
        self._window = Window(
            schema, tactic.window_tuples, value_bytes, buckets, tactic.output_rows
        )

    def _sizes(self, value_bytes: Sequence[float]) -> Sizes:
        schema = self._spec.stream_schema
        return Sizes(
            page_count=self._reader.page_count,
            disk_bytes=lambda pages: disk_buffer_bytes(self._reader, self._read_columns, pages),
            tuple_bytes=bytes_per_tuple(schema, value_bytes),
            window_base_bytes=window_base_bytes(schema),
            output_row_bytes=self._output_row_bytes(value_bytes),
            table_bytes=self._reader.table_bytes,
        )

    def _expire(self, count: int) -> Iterator[pa.RecordBatch]:
        """Let the oldest tuples go, emitting those that found no match if the join keeps them."""
        if count:
            yield from self._emit_misses(self._window.oldest(count))
            self._window.expire(count)

    def _probe(self, first: int, last: int) -> Iterator[pa.RecordBatch]:
        """Read pages and join them with everything in the window."""
        self._disk.load(first, last)
        self.telemetry.pages_scanned += last - first
        for rows, slots in self._window.table.matches(self._disk.codes, is_sorted=True):
            yield from self._emit(rows, slots)
        self.telemetry.bytes_read = self._disk.bytes_read
