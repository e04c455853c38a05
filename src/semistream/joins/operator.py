"""The driver: one loop for every join that keeps stream tuples in a window.

::

    stream ──► FRONT STAGE ──► WINDOW (H, Q) ──► probed by DISK BUFFER ──► OUTPUT
       │           └ what it settles ─────────────────────────────────────►
       └ hopeless rows ───────────────────────────────────────────────────►

Each algorithm is a *tactic* that answers three questions in every iteration: how many of the
oldest tuples leave, how many new ones may enter, which pages are read next. The driver does the
rest: it admits, loads, probes, verifies hashed keys, emits matches, and emits the misses when
their tuples leave. It pulls from the source only when it has room and drains at the end, so when
it returns, every row it was given has been joined.

Memory: page table, front stage, disk buffer, window and output buffer are reserved in the ledger
before they are allocated. Not counted, because not the operator's: the source's current batch, and
output batches once they are handed on.

Degenerate cases: no stream rows, no output; no rows in R, every stream row is a miss; a stream
row wider than its share of the window, a `BudgetError` that names the row.
"""

from abc import ABC, abstractmethod
from collections.abc import Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from semistream.cost.frontstage import PATIENCE, WAYS
from semistream.cost.hybridjoin import IndexJoinSettings
from semistream.cost.meshjoin import MeshJoinSettings
from semistream.cost.sizes import Sizes
from semistream.cost.split import FRONT_SHARE, USUAL, Split
from semistream.errors import BudgetError
from semistream.joins import kernels
from semistream.joins.buckets import Buckets
from semistream.joins.diskbuffer import DiskBuffer, disk_buffer_bytes
from semistream.joins.diskbuffer import value_bytes as column_bytes
from semistream.joins.frontstage import (
    CachedColumns,
    FrontStage,
    MakeFront,
    Matched,
    TupleCache,
    set_count,
)
from semistream.joins.pinned import pinned_part_bytes
from semistream.joins.rows import Slots, average_value_bytes
from semistream.joins.spec import JoinSpec, read_columns
from semistream.joins.stopwatch import Stopwatch
from semistream.joins.stream import Arrived, Routing, StreamBuffer
from semistream.joins.telemetry import Telemetry
from semistream.joins.window import Window, bytes_per_tuple, window_base_bytes
from semistream.memory import MemoryLedger
from semistream.relation.relation import Relation
from semistream.units import format_bytes

SAMPLE_ROWS = 4096
# Pairs (probe, slot), places in the slab, what a front stage learns from, and a validity byte or
# two on the way to Arrow.
_PAIR_BYTES = 8 + 8 + 8 + 8 + 2


class Operator(Protocol):
    """A join, ready to run once."""

    @property
    def ledger(self) -> MemoryLedger:
        """What it has reserved of its budget."""
        ...

    @property
    def telemetry(self) -> Telemetry:
        """What it has counted."""
        ...

    @property
    def stopwatch(self) -> Stopwatch:
        """Where its time went."""
        ...

    def join(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Join a stream with the relation; every input row is dealt with when this ends."""
        ...


class StreamSide(Protocol):
    """Stream tuples by slot, and what is known of their matches."""

    matched: NDArray[np.uint8]

    def gather(self, slots: Slots, columns: Sequence[int] | None = None) -> list[pa.Array]:
        """Return columns of the rows at these slots."""
        ...

    def codes_at(self, slots: Slots) -> NDArray[np.int64]:
        """Return the key codes at these slots."""
        ...


class Waiting(StreamSide, Protocol):
    """Stream tuples that wait, with their rows; a window or a waiting room."""

    capacity: int

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


class RelationSide(Protocol):
    """Rows of R in memory: the disk buffer, or a front stage."""

    def gather(self, columns: Sequence[str], rows: NDArray[np.int64]) -> list[pa.Array]:
        """Return columns of these rows."""
        ...


class Tactic(Protocol):
    """What one algorithm decides. Settings are fixed when it is made; its state is its own."""

    @property
    def settings(self) -> MeshJoinSettings:
        """Its operating parameters."""
        ...

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


class TacticMaker(Protocol):
    """Chooses an algorithm's settings for a budget, once the sizes are known."""

    def least_bytes(self, sizes: Sizes) -> int:
        """Return the least budget in which the algorithm can run."""
        ...

    def for_budget(self, sizes: Sizes, budget_bytes: int, split: Split) -> Tactic:
        """Return the tactic, or raise `BudgetError` with the least budget that would do."""
        ...


@dataclass(frozen=True, slots=True)
class Plan:
    """How a join has split its budget."""

    settings: MeshJoinSettings | IndexJoinSettings
    cached_rows: int = 0


class StreamJoin(ABC):
    """What all joins share: sizing, admission, emission, the books.

    A subclass says in `_run` how tuples and pages meet. It keeps its waiting tuples in `_window`
    and reads pages through `_disk`. A front stage, if there is one, sees each tuple before it has
    to wait, and each match of a page.
    """

    _window: "Waiting"
    _disk: DiskBuffer

    def __init__(
        self,
        relation: Relation,
        spec: JoinSpec,
        budget_bytes: int,
        partition: int | None = None,
        make_front: MakeFront | None = None,
        split: Split = USUAL,
    ) -> None:
        """Open the relation's page table; nothing else is allocated before rows arrive."""
        self.plan: Plan | None = None
        self.ledger = MemoryLedger(budget_bytes)
        self.telemetry = Telemetry()
        self.stopwatch = Stopwatch()
        self._relation = relation
        self._spec = spec
        self._routing = None if partition is None else Routing(partition, relation.partition_count)
        self._is_exact = relation.coder.is_exact
        self._read_columns = read_columns(relation, spec)
        whole = relation.reading.whole_pages
        parts = relation.schema.names if whole else list(self._read_columns)
        self._reader = relation.reader(parts, partition)
        # Whatever the stream's schema promises, a null may come.
        self._stored_schema = pa.schema([f.with_nullable(True) for f in spec.stream_schema])
        # A stream key that is the code itself is not stored again.
        self._implied = spec.stream_key_indexes[0] if self._is_exact else None
        self._make_front = make_front
        self._split = split
        self._front: FrontStage | None = None
        self._is_draining = False
        self._output_rows = 0
        self._pages_of_turn = 0

    def join(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Join the stream; see `Operator.join`."""
        stream = StreamBuffer(
            batches,
            self._spec,
            self._relation.coder,
            self._reader.may_hold,
            self._routing,
            self.stopwatch,
        )
        self.stopwatch.lap("outside")
        try:
            for batch in self._run(stream):
                self.telemetry.output_rows += batch.num_rows
                self.stopwatch.lap("loop")
                yield batch
                self.stopwatch.lap("outside")
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

    def _take_front_share(self, least_bytes: int) -> int:
        """Make the front stage, if one is wanted and fits; return what is left of the budget."""
        budget = self.ledger.budget_bytes
        if self._make_front is not None and budget > least_bytes:
            wanted_bytes = self._split.front_bytes
            share = int(budget * FRONT_SHARE) if wanted_bytes is None else wanted_bytes
            share = min(share, budget - least_bytes)
            wanted = (self._reader, self._read_columns, share, self.telemetry)
            reserved = self.ledger.reserve("front stage", share)
            self._front = self._make_front(*wanted)
            if self._front is None:
                reserved.release()
            else:
                budget -= share
        return budget

    def _cached_rows(self, size_bytes: int) -> int:
        return WAYS * set_count(CachedColumns.of(self._reader, self._read_columns), size_bytes)

    @property
    def _cached_rows_now(self) -> int:
        return self._front.capacity if isinstance(self._front, TupleCache) else 0

    def _disk_bytes(self, pages: int) -> int:
        tallies = self._make_front is not None
        return disk_buffer_bytes(self._reader, self._read_columns, pages, tallies)

    def _pinned_bytes(self, pages: int) -> int:
        return pinned_part_bytes(self._reader, self._read_columns, pages)

    def _disk_buffer(self, pages: int) -> DiskBuffer:
        tallies = self._make_front is not None
        return DiskBuffer(self._reader, self._read_columns, pages, tallies, self.stopwatch)

    def _output_row_bytes(self, value_bytes: Sequence[float]) -> int:
        added = sum(column_bytes(self._reader, column) for column in self._read_columns)
        return int(_PAIR_BYTES + sum(value_bytes) + added)

    def _hopeless(self, stream: StreamBuffer) -> Iterator[pa.RecordBatch]:
        """Emit the rows that cannot match, if the join keeps misses."""
        for batch in stream.take_hopeless():
            yield self._spec.assemble(batch.columns, None, batch.num_rows)

    def _settle(self, stream: StreamBuffer) -> Iterator[pa.RecordBatch]:
        """Let the front stage settle what it can of tuples that have arrived; the rest may enter.

        A piece at a time, so that it can learn from the first tuples of a large batch what will
        help the last.
        """
        front = self._front
        if front is None or front.is_passed_by:
            stream.let_wait(stream.take_arrived(None if front is None else self._output_rows))
            return
        piece = stream.take_arrived(max(1, self._output_rows // front.pairs_per_tuple))
        waits = np.zeros(len(piece), np.bool_)
        tuples = Arrived(piece)
        self.stopwatch.lap("read")
        for probes, rows in front.matches(piece.codes, waits):
            self.stopwatch.lap("look_up")
            yield from self._emit(rows, probes, front, tuples)
        self.stopwatch.lap("look_up")
        missed = (tuples.matched & kernels.MATCHED == 0) & ~waits
        if missed.any():
            yield from self._emit_misses(np.flatnonzero(missed), tuples)
        stream.let_wait(piece.only(waits))
        self.stopwatch.lap("look_up")

    def _admit(self, stream: StreamBuffer, wanted: int) -> Generator[pa.RecordBatch, None, int]:
        """Let up to `wanted` tuples into the window, past the front stage; return how many.

        Those who wait already must not wait for ever while the front stage settles all who come:
        after so many arrivals it is their turn again.
        """
        admitted = 0
        arrivals_left = PATIENCE * max(wanted, self._window.capacity)
        while admitted < wanted and stream.pull():
            if not stream.has_waiting:
                if arrivals_left <= 0 and self._window.count:
                    break
                arrived = stream.arrived_rows
                yield from self._settle(stream)
                arrivals_left -= arrived - stream.arrived_rows
            waiting = stream.peek() if stream.has_waiting else None
            if waiting is not None:
                room = self._window.room(waiting[: wanted - admitted])
                if room == 0:
                    if self._window.count == 0:
                        self._report_wide_row(waiting)
                    break
                entering = stream.take(room)
                self._window.insert(entering.batch, entering.codes)
                admitted += room
                self.stopwatch.lap("append")
            if stream.kept_hopeless_rows >= self._output_rows:
                break  # or they would pile up
        self._is_draining = stream.is_exhausted  # nobody comes who could profit from learning
        peak = max(self.telemetry.window_rows_peak, self._window.count)
        self.telemetry.window_rows_peak = peak
        return admitted

    def _emit_misses(self, slots: Slots, tuples: StreamSide) -> Iterator[pa.RecordBatch]:
        """Emit those of the tuples that found no match, if the join keeps them."""
        known = tuples.matched[slots]
        missed = slots[known & kernels.MATCHED == 0]
        self.telemetry.missed_rows += len(missed)
        if self._is_learning and not isinstance(tuples, Arrived):
            assert self._front is not None
            self._front.learn_missing(tuples.codes_at(slots[known == 0]))
        if self._spec.keeps_misses:
            for at in range(0, len(missed), self._output_rows):
                some = missed[at : at + self._output_rows]
                yield self._spec.assemble(tuples.gather(some), None, len(some))

    def _emit(
        self, rows: NDArray[np.int64], slots: Slots, relation: RelationSide, tuples: StreamSide
    ) -> Iterator[pa.RecordBatch]:
        """Turn (row of R, slot) pairs into output, after checking keys that are hashes."""
        columns = relation.gather(self._read_columns, rows)
        if not self._is_exact:
            same = self._same_keys(columns, slots, tuples)
            if not same.all():
                tuples.matched[slots[~same]] |= kernels.SHARES_CODE
                columns = [column.filter(pa.array(same)) for column in columns]
                rows, slots = rows[same], slots[same]
        if self._is_learning and relation is not self._front:
            self.stopwatch.lap("output")
            self._teach(rows, columns)
            self.stopwatch.lap("learn")
        self.telemetry.matched_pairs += len(rows)
        if self._spec.how == "semi":
            slots = slots[kernels.first_matches(tuples.matched, slots)]
        else:
            kernels.mark_matched(tuples.matched, slots)
        if len(slots) and self._spec.how != "anti":
            added = [columns[self._read_columns.index(name)] for name in self._spec.columns]
            joined = self._spec.assemble(tuples.gather(slots), added, len(slots))
            self.stopwatch.lap("hit" if relation is self._front else "output")
            yield joined

    @property
    def _is_learning(self) -> bool:
        front = self._front
        if front is None or self._is_draining:
            return False
        return front.learns_from_matches and not front.is_resting

    def _teach(self, rows: NDArray[np.int64], columns: Sequence[pa.Array]) -> None:
        """Tell the front stage which rows on the pages in the disk buffer have matched."""
        assert self._front is not None
        pairs, tallies = self._disk.tally(rows)
        self._front.learn(
            Matched(
                self._disk.codes,
                rows[pairs],
                tallies,
                take=lambda which: [column.take(pa.array(pairs[which])) for column in columns],
                gather=lambda some: self._disk.gather(self._read_columns, some),
            )
        )

    def _load(self, first: int, last: int) -> None:
        """Read pages into the disk buffer."""
        self.stopwatch.lap("loop")
        self._disk.load(first, last)
        self.stopwatch.lap("io")
        self.telemetry.pages_scanned += last - first
        if self._front is not None:
            self._front.pages_loaded(first, last, self._disk)
            self._pages_of_turn += last - first
            if self._pages_of_turn >= self._reader.page_count:
                self._pages_of_turn = 0
                self._front.turn()

    def _same_keys(
        self, columns: Sequence[pa.Array], slots: Slots, tuples: StreamSide
    ) -> NDArray[np.bool_]:
        coder = self._relation.coder
        ours = coder.canonical([columns[self._read_columns.index(k)] for k in self._relation.key])
        theirs = coder.canonical(tuples.gather(slots, self._spec.stream_key_indexes))
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
        tactics: TacticMaker,
        partition: int | None = None,
        make_front: MakeFront | None = None,
        split: Split = USUAL,
    ) -> None:
        """Open the relation's page table; nothing else is allocated before rows arrive."""
        super().__init__(relation, spec, budget_bytes, partition, make_front, split)
        self._tactics = tactics
        self._upcoming: tuple[int, int] | None = None

    def _run(self, stream: StreamBuffer) -> Iterator[pa.RecordBatch]:
        yield from self._start(stream)
        sample = stream.peek()
        if sample is None:
            return
        self._allocate(sample[:SAMPLE_ROWS])
        while not (stream.is_exhausted and self._window.count == 0):
            yield from self._expire(self._tactic.leaving(self._window))
            entered = yield from self._admit(stream, self._tactic.entering(self._window))
            self._window.queue.append(entered)
            yield from self._hopeless(stream)
            if self._window.count:
                yield from self._probe(*self._next_pages())
                self.telemetry.iterations += 1

    def _next_pages(self) -> tuple[int, int]:
        """Return which pages to read now; when reading ahead, note which ones will follow."""
        pages = self._upcoming or self._tactic.next_pages(self._window)
        if self._relation.reading.read_ahead:
            self._upcoming = self._tactic.next_pages(self._window)
        return pages

    def _allocate(self, sample: pa.RecordBatch) -> None:
        """Size everything by a sample of the stream, reserve it, then make it."""
        value_bytes = [average_value_bytes(column) for column in sample.columns]
        sizes = self.size_up(value_bytes)
        budget = self._take_front_share(self._tactics.least_bytes(sizes))
        tactic = self._tactics.for_budget(sizes, budget, self._split)
        self.plan = Plan(tactic.settings, self._cached_rows_now)
        self.ledger.reserve("page table", sizes.table_bytes)
        self.ledger.reserve("disk buffer", sizes.disk_bytes(tactic.pages_per_read))
        self.ledger.reserve("window", sizes.window_bytes(tactic.window_tuples))
        self.ledger.reserve("output buffer", tactic.output_rows * sizes.output_row_bytes)
        self._tactic = tactic
        self._output_rows = tactic.output_rows
        self._disk = self._disk_buffer(tactic.pages_per_read)
        buckets = Buckets.choose(self._reader, tactic.window_tuples)
        self._window = Window(
            self._stored_schema,
            tactic.window_tuples,
            value_bytes,
            self._implied,
            buckets,
            tactic.output_rows,
        )

    def size_up(self, value_bytes: Sequence[float]) -> Sizes:
        """Return what everything takes, for stream rows with columns of these sizes."""
        schema = self._stored_schema
        return Sizes(
            page_count=self._reader.page_count,
            disk_bytes=cache(self._disk_bytes),
            pinned_bytes=cache(self._pinned_bytes),
            cached_rows=self._cached_rows,
            tuple_bytes=bytes_per_tuple(schema, value_bytes, self._implied),
            window_base_bytes=window_base_bytes(schema),
            output_row_bytes=self._output_row_bytes(value_bytes),
            table_bytes=self._reader.table_bytes,
        )

    def _expire(self, count: int) -> Iterator[pa.RecordBatch]:
        """Let the oldest tuples go, emitting those that found no match if the join keeps them."""
        while count:
            some = min(count, self._output_rows)
            leaving = self._window.oldest(some)
            yield from self._emit_misses(leaving, self._window)
            self._window.expire(leaving)
            self.stopwatch.lap("expire")
            count -= some

    def _probe(self, first: int, last: int) -> Iterator[pa.RecordBatch]:
        """Read pages and join them with everything in the window."""
        self._load(first, last)
        if self._upcoming:
            self._disk.announce(*self._upcoming)
        for rows, slots in self._window.table.matches(self._disk.codes, is_sorted=True):
            self.stopwatch.lap("probe")
            yield from self._emit(rows, slots, self._disk, self._window)
        self.stopwatch.lap("probe")
        self.telemetry.bytes_read = self._disk.bytes_read
