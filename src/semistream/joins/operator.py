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

Memory: page table, input, front stage, disk buffer, window and output buffer are reserved in the
ledger before they are allocated. `semistream.memory` says what is not counted. A piece of output is
dropped here when it is handed on.

Degenerate cases: no stream rows, no output; no rows in R, every stream row is a miss; a stream
row wider than its share of the window, or a joined row wider than the output buffer, a
`BudgetError` that names the row.
"""

from abc import ABC, abstractmethod
from collections.abc import Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from semistream.budget.indexjoin import IndexJoinSettings
from semistream.budget.meshjoin import MeshJoinSettings
from semistream.budget.rowsizes import Widths
from semistream.budget.sizes import Sizes
from semistream.budget.sizing import Sizing
from semistream.budget.split import LEAST_OUTPUT_BYTES, OUTPUT_SHARE, USUAL, Split, front_share
from semistream.columns import Encoding, encoding_of, take_rows, total_bytes
from semistream.errors import BudgetError
from semistream.joins import kernels
from semistream.joins.buckets import Buckets
from semistream.joins.diskbuffer import DiskBuffer, LocatedRows
from semistream.joins.frontstage import (
    POLICY,
    FrontStage,
    MakeFront,
    Matched,
    TupleCache,
)
from semistream.joins.opened import Opened
from semistream.joins.output import OutputBuffer
from semistream.joins.rows import Slots
from semistream.joins.stopwatch import Stopwatch
from semistream.joins.stream import Arrived, Routing, StreamBuffer
from semistream.joins.telemetry import Telemetry
from semistream.joins.window import Window
from semistream.memory import MemoryLedger, Reservation, return_freed_pages
from semistream.relation.relation import Relation
from semistream.spec import JoinSpec, read_columns
from semistream.units import format_bytes

SAMPLE_ROWS = 4096
# Everything is sized by rows of the first slice, which is the same whatever the budget is.
FIRST_SLICE_BYTES = 64 << 10
_PIECES_KEPT = 4


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

    def sizes(self, slots: Slots) -> NDArray[np.int64] | None:
        """Return what the variable-width values of each row take; None without any."""
        ...

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

    def locate(self, rows: NDArray[np.int64]) -> LocatedRows:
        """Find out where the columns of these rows lie, and how wide they are."""
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
        opened: Opened | None = None,
    ) -> None:
        """Reserve and open the relation's page table, unless somebody else has `opened` it.

        Nothing else is allocated before rows arrive.
        """
        self.plan: Plan | None = None
        self._owns_reader = opened is None
        opened = opened or Opened.within(MemoryLedger(budget_bytes), relation, spec, partition)
        self.ledger = opened.ledger
        self.telemetry = Telemetry()
        self.stopwatch = Stopwatch()
        self._budget_bytes = budget_bytes
        self._reader = opened.reader
        self._reservations: list[Reservation] = []
        self._relation = relation
        self._spec = spec
        self._routing = None if partition is None else Routing(partition, relation.partition_count)
        self._is_exact = relation.coder.is_exact
        self._read_columns = read_columns(relation, spec)
        self._sizing = Sizing.of(relation, spec, self._reader, make_front is not None)
        self._make_front = make_front
        self._split = split
        self._front: FrontStage | None = None
        self._is_draining = False
        self._output = OutputBuffer()
        self._pages_of_turn = 0
        self._pieces_kept = 0  # pieces of output since the heap was trimmed
        # Arrow copies values of nested types partly in its own pool, which keeps what was freed.
        self._has_nested = any(
            encoding_of(field.type) is Encoding.NESTED for field in spec.output_schema
        )

    def join(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Join the stream; see `Operator.join`."""
        # If even that is too much, the budget will be refused as a whole.
        first_slice_bytes = min(FIRST_SLICE_BYTES, self.ledger.available_bytes)
        self._input = self._reserve("input", first_slice_bytes)
        self._reserve_first_output()
        stream = StreamBuffer(
            batches,
            self._spec,
            self._relation.coder,
            self._reader.may_hold,
            self._routing,
            self.stopwatch,
            FIRST_SLICE_BYTES,
        )
        self.stopwatch.lap("outside")
        try:
            for batch in self._run(stream):
                self.telemetry.output_rows += batch.num_rows
                self.stopwatch.lap("loop")
                yield batch
                del batch  # or the next one would be made beside it
                self.stopwatch.lap("outside")
        finally:
            if self._owns_reader:
                self._reader.close()
            self._give_back()
            self.telemetry.stream_rows = stream.row_count
            self.telemetry.null_key_rows = stream.null_key_rows
            self.telemetry.missed_rows += stream.hopeless_rows
            self.telemetry.memory_bytes_peak = self.ledger.peak_bytes

    @abstractmethod
    def _run(self, stream: StreamBuffer) -> Iterator[pa.RecordBatch]:
        """Join everything; the window must be empty at the end."""

    def _start(self, stream: StreamBuffer) -> Iterator[pa.RecordBatch]:
        """Read on until there is a tuple to size everything by, or the stream has ended."""
        while not stream.pull() and not stream.is_exhausted:
            yield from self._hopeless(stream)
        yield from self._hopeless(stream)

    def _take_front_share(self, least_bytes: int) -> int:
        """Make the front stage, if one is wanted and fits; return what is left of the budget."""
        self._release_first_buffers()
        budget = self._budget_bytes
        if self._make_front is not None and budget > least_bytes:
            share = front_share(budget, least_bytes, self._split)
            wanted = (self._reader, self._read_columns, share, self.telemetry)
            reserved = self._reserve("front stage", share)
            self._front = self._make_front(*wanted)
            if self._front is None:
                reserved.release()
            else:
                budget -= share
        return budget

    def _reserve(self, holder: str, size_bytes: int) -> Reservation:
        """Reserve memory until the join ends."""
        reservation = self.ledger.reserve(holder, size_bytes)
        self._reservations.append(reservation)
        return reservation

    @property
    def _spare_bytes(self) -> int:
        """What of the budget is not reserved yet."""
        held = sum(reservation.size_bytes for reservation in self._reservations)
        left = self._budget_bytes - self._reader.table_bytes - held
        return min(left, self.ledger.available_bytes)

    @property
    def idle_bytes(self) -> int:
        """What is reserved but not in use while the next batch is fetched: input and output."""
        return self._input.size_bytes + self._output.size_bytes

    def _give_back(self) -> None:
        for reservation in self._reservations:
            reservation.release()

    def _resize_input(self, stream: StreamBuffer, size_bytes: int) -> None:
        self._input.resize(size_bytes)
        stream.limit_bytes = size_bytes

    def _reserve_first_output(self) -> None:
        """Reserve what rows that cannot match may take before there is one to size all else by.

        In a budget of less than a few hundred kilobytes there may be no room for that, either.
        """
        size_bytes = max(LEAST_OUTPUT_BYTES, int(self._budget_bytes * OUTPUT_SHARE))
        reserved_bytes = min(size_bytes, self.ledger.available_bytes)
        self._first_output = self._reserve("output buffer", reserved_bytes)
        base_bytes = self._sizing.output_base_bytes
        self._output = OutputBuffer(size_bytes=size_bytes, row_bytes=base_bytes)

    def _release_first_buffers(self) -> None:
        """Give back what was reserved for the beginning, before the budget is split."""
        self._input.release()
        self._first_output.release()

    def _reserve_output(self, rows: int, size_bytes: int) -> None:
        self._reserve("output buffer", size_bytes)
        self._output = OutputBuffer(rows, size_bytes, self._sizing.output_base_bytes)

    @property
    def _cached_rows_now(self) -> int:
        return self._front.capacity if isinstance(self._front, TupleCache) else 0

    def _disk_buffer(self, pages: int) -> DiskBuffer:
        tallies = self._make_front is not None
        return DiskBuffer(self._reader, self._read_columns, pages, tallies, self.stopwatch)

    def _hopeless(self, stream: StreamBuffer) -> Iterator[pa.RecordBatch]:
        """Emit the rows that cannot match, if the join keeps misses."""
        for tuples in stream.take_hopeless():
            rows, slots = Arrived(tuples), np.arange(len(tuples))
            for piece in self._output.pieces(len(tuples), rows.sizes(slots)):
                some = slots[piece]
                yield self._spec.assemble(rows.gather(some), None, len(some))

    def _settle(self, stream: StreamBuffer) -> Iterator[pa.RecordBatch]:
        """Let the front stage settle what it can of tuples that have arrived; the rest may enter.

        A piece at a time, so that it can learn from the first tuples of a large batch what will
        help the last.
        """
        front = self._front
        if front is None or front.is_passed_by:
            stream.let_wait(stream.take_arrived(None if front is None else self._output.rows))
            return
        piece = stream.take_arrived(max(1, self._output.rows // front.pairs_per_tuple))
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
        arrivals_left = POLICY.patience * max(wanted, self._window.capacity)
        while admitted < wanted and stream.pull():
            if not stream.has_waiting:
                if arrivals_left <= 0 and self._window.count:
                    break
                arrived = stream.arrived_rows
                yield from self._settle(stream)
                arrivals_left -= arrived - stream.arrived_rows
            if stream.has_waiting:
                waiting = stream.waiting_rows(wanted - admitted)
                room = self._window.room(waiting)
                if room == 0:
                    if self._window.count == 0:
                        self._report_wide_row(waiting)
                    break
                self._window.insert(waiting[:room], stream.take_codes(room))
                admitted += room
                self.stopwatch.lap("append")
            if stream.must_collect:
                yield from self._hopeless(stream)
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
            for piece in self._output.pieces(len(missed), tuples.sizes(missed)):
                some = missed[piece]
                yield self._spec.assemble(tuples.gather(some), None, len(some))

    def _emit(
        self, rows: NDArray[np.int64], slots: Slots, relation: RelationSide, tuples: StreamSide
    ) -> Iterator[pa.RecordBatch]:
        """Turn (row of R, slot) pairs into output, in pieces that fit the output buffer."""
        located = relation.locate(rows)
        sizes = (located.sizes, tuples.sizes(slots))
        if self._output.holds(len(rows), *sizes):
            yield from self._emit_piece(rows, slots, located, relation, tuples)
            if self._has_nested:
                self._return_memory()
            return
        for piece in self._output.pieces(len(rows), *sizes):
            some = relation.locate(rows[piece])
            yield from self._emit_piece(rows[piece], slots[piece], some, relation, tuples)
            self._return_memory()

    def _return_memory(self) -> None:
        """Now and then return what the allocator keeps of large pieces that were handed on."""
        self._pieces_kept = (self._pieces_kept + 1) % _PIECES_KEPT
        if not self._pieces_kept:
            return_freed_pages()

    def _emit_piece(
        self,
        rows: NDArray[np.int64],
        slots: Slots,
        located: LocatedRows,
        relation: RelationSide,
        tuples: StreamSide,
    ) -> Iterator[pa.RecordBatch]:
        """Turn pairs into an output batch, after checking keys that are hashes."""
        sizes, columns = located.sizes, located.gather()
        if not self._is_exact:
            same = self._same_keys(columns, slots, tuples)
            if not same.all():
                tuples.matched[slots[~same]] |= kernels.SHARES_CODE
                for i in range(len(columns)):  # one by one, so that few are there twice
                    columns[i] = take_rows(columns[i], np.flatnonzero(same))
                rows, slots = rows[same], slots[same]
                sizes = None if sizes is None else sizes[same]
        if self._is_learning and relation is not self._front:
            self.stopwatch.lap("output")
            self._teach(rows, columns, sizes)
            self.stopwatch.lap("learn")
        self.telemetry.matched_pairs += len(rows)
        if self._spec.how == "semi":
            slots = slots[kernels.first_matches(tuples.matched, slots)]
        else:
            kernels.mark_matched(tuples.matched, slots)
        if len(slots) and self._spec.how != "anti":
            added = [columns[self._read_columns.index(name)] for name in self._spec.columns]
            joined = self._spec.assemble(tuples.gather(slots), added, len(slots))
            del columns, added
            self.stopwatch.lap("hit" if relation is self._front else "output")
            yield joined

    @property
    def _is_learning(self) -> bool:
        front = self._front
        if front is None or self._is_draining:
            return False
        return front.learns_from_matches and not front.is_resting

    def _teach(
        self,
        rows: NDArray[np.int64],
        columns: Sequence[pa.Array],
        sizes: NDArray[np.int64] | None,
    ) -> None:
        """Tell the front stage which rows on the pages in the disk buffer have matched."""
        assert self._front is not None
        pairs, tallies = self._disk.tally(rows)
        self._front.learn(
            Matched(
                self._disk.codes,
                rows[pairs],
                tallies,
                None if sizes is None else sizes[pairs],
                take=lambda which: [take_rows(column, pairs[which]) for column in columns],
                locate=self._disk.locate,
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
        size = total_bytes(waiting[:1].columns)
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
        opened: Opened | None = None,
    ) -> None:
        """Open the relation's page table; nothing else is allocated before rows arrive."""
        super().__init__(relation, spec, budget_bytes, partition, make_front, split, opened)
        self._tactics = tactics
        self._upcoming: tuple[int, int] | None = None

    def _run(self, stream: StreamBuffer) -> Iterator[pa.RecordBatch]:
        yield from self._start(stream)
        sample = stream.sample(SAMPLE_ROWS)
        if sample is None:
            return
        self._allocate(sample, stream)
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

    def _allocate(self, sample: pa.RecordBatch, stream: StreamBuffer) -> None:
        """Size everything by a sample of the stream, reserve it, then make it."""
        widths = Widths.of(sample)
        sizes = self._sizing.for_scan(widths)
        budget = self._take_front_share(self._tactics.least_bytes(sizes))
        tactic = self._tactics.for_budget(sizes, budget, self._split)
        self.plan = Plan(tactic.settings, self._cached_rows_now)
        self._resize_input(stream, tactic.settings.input_bytes)
        self._reserve("disk buffer", sizes.disk_bytes(tactic.pages_per_read))
        self._reserve("window", sizes.window_bytes(tactic.window_tuples))
        self._reserve_output(tactic.output_rows, tactic.settings.output_bytes)
        self._tactic = tactic
        self._disk = self._disk_buffer(tactic.pages_per_read)
        buckets = Buckets.choose(self._reader, tactic.window_tuples)
        self._window = Window(
            self._sizing.stored_schema,
            tactic.window_tuples,
            widths,
            self._sizing.implied,
            buckets,
            tactic.output_rows,
        )

    def _expire(self, count: int) -> Iterator[pa.RecordBatch]:
        """Let the oldest tuples go, emitting those that found no match if the join keeps them."""
        while count:
            some = min(count, self._output.rows)
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
