"""What all joins share: how a join begins, takes its memory, runs and ends.

::

    stream ──► FRONT STAGE ──► WINDOW (H, Q) ──► probed by DISK BUFFER ──► OUTPUT
       │           └ tuples that it resolves ─────────────────────────────►
       └ rows that cannot match ──────────────────────────────────────────►

`StreamJoin` is the frame of every join. `WindowedJoin` adds what the joins share that keep tuples
in a window while pages of R are read; its two drivers are `scanjoin.py` and `indexjoin.py`. Tuples
enter by `admission.py` and leave by `emission.py`. A join pulls from the source only when it has
room, and drains at the end: when it returns, every row it was given has been joined.

Memory: page table, input, front stage, disk buffer, window and output buffer are reserved in the
ledger before they are allocated. `semistream.memory` says what is not counted. A piece of output is
dropped here when it is handed on.

Degenerate cases: no stream rows, no output; no rows in R, every stream row is a miss; a stream
row wider than its share of the window, or a joined row wider than the output buffer, a
`BudgetError` that names the row.
"""

from abc import ABC, abstractmethod
from collections.abc import Generator, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from semistream.budget.rowsizes import ARENA_SLACK, Widths, variable_columns
from semistream.budget.rules import BudgetRules, Settings
from semistream.budget.sizes import Sizes
from semistream.budget.sizing import Sizing
from semistream.budget.split import LEAST_OUTPUT_BYTES, OUTPUT_SHARE, USUAL, Split
from semistream.joins.admission import Admission
from semistream.joins.diskbuffer import DiskBuffer
from semistream.joins.emission import Emission
from semistream.joins.frontstage import Learned, TupleCache
from semistream.joins.handover import HandedOver, buffer_bytes
from semistream.joins.keptfront import KeptFront
from semistream.joins.learning import Learning
from semistream.joins.opened import Opened
from semistream.joins.output import OutputBuffer
from semistream.joins.protocols import Codes, FrontStage, MakeFront, Rows, Waiting
from semistream.joins.rows import Slots
from semistream.joins.stopwatch import Stopwatch
from semistream.joins.stream import Routing, StreamBuffer
from semistream.joins.telemetry import Telemetry
from semistream.joins.thresholdcache import ThresholdCache
from semistream.memory import MemoryLedger, Reservation
from semistream.relation.relation import Relation
from semistream.spec import JoinSpec, read_columns

SAMPLE_ROWS = 4096
# Everything is sized by rows of the first slice, which is the same whatever the budget is.
FIRST_SLICE_BYTES = 64 << 10


@dataclass(frozen=True, slots=True)
class JoinTask:
    """What a join is to do: one join of a stream with a relation, or with one partition of it."""

    relation: Relation
    spec: JoinSpec
    budget_bytes: int
    partition: int | None = None
    split: Split = USUAL  # how the budget is to be split
    opened: Opened | None = None  # the relation, if it has been opened before
    front: KeptFront | None = None  # used instead of a front stage of the join's own


@dataclass(frozen=True, slots=True)
class Plan:
    """How a join has split its budget."""

    settings: Settings
    cached_rows: int = 0


class StreamJoin(ABC):
    """The frame of a join: it opens R, reserves memory, reads the stream, and ends.

    A subclass allocates its parts in `_allocate`, when the first rows have shown how wide they
    are, and does one step of its loop in `_iterate`.
    """

    _input: Reservation  # for what is made of a slice of the stream
    _first_output: Reservation  # for output before the budget is split

    def __init__(self, task: JoinTask, has_front: bool = False) -> None:
        """Reserve and open the relation's page table, unless the task has it opened.

        Nothing else is allocated before rows arrive.
        """
        relation, spec, opened = task.relation, task.spec, task.opened
        self.plan: Plan | None = None  # the split of the budget, once rows have arrived
        self._owns_reader = opened is None  # whether to close the reader at the end
        ledger = MemoryLedger(task.budget_bytes) if opened is None else opened.ledger
        opened = opened or Opened.within(ledger, relation, spec, task.partition)
        self.ledger = opened.ledger  # what is reserved, by this join and by others that share it
        self.telemetry = Telemetry()  # counters
        self.stopwatch = Stopwatch()  # timers
        self._relation = relation
        self._spec = spec
        self._budget_bytes = task.budget_bytes
        self._split = task.split
        self._reader = opened.reader  # of R's pages
        self._reservations: list[Reservation] = []  # of this join, given back at the end
        self._routing = _routing(relation, task.partition)  # which keys may arrive here
        self._read_columns = read_columns(relation, spec)  # columns of R that are fetched
        self._sizing = Sizing.of(relation, spec, self._reader, has_front)
        self._kept_front = task.front  # that outlives the join
        self._learned: Learned | None = None  # whose rows the front stage takes over
        self._handed_over: HandedOver | None = None  # tuples that waited in the join before
        self.successor: StreamJoin | None = None  # the join that follows, where that is known
        self.front_bytes = 0  # of the front stage, if it is the join's own
        self._front: FrontStage | None = None  # resolves tuples before they have to wait
        self._emission = Emission(relation, spec, self.telemetry, self.stopwatch)

    def join(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Join the stream; see `Operator.join`."""
        self.stopwatch.switch("loop")
        self._reserve_first_buffers()
        stream = StreamBuffer(
            batches,
            self._spec,
            self._relation.coder,
            self._may_hold,
            self._routing,
            self.stopwatch,
            FIRST_SLICE_BYTES,
        )
        try:
            for batch in self._run(stream):
                self.telemetry.output_rows += batch.num_rows
                with self.stopwatch.phase("outside"):
                    yield batch
                    del batch  # or the next one would be made beside it
        finally:
            self._end(stream)

    def _run(self, stream: StreamBuffer) -> Iterator[pa.RecordBatch]:
        """Size everything by the first rows that may match, then join until all is resolved.

        Tuples that waited in the join before are the first rows: they do not wait for others.
        """
        waited = self._handed_over
        while waited is None and not stream.pull() and not stream.is_exhausted:
            yield from self._emission.unmatchable(stream)
        yield from self._emission.unmatchable(stream)
        sample = stream.sample(SAMPLE_ROWS) if waited is None else waited.batches[0]
        if sample is None:
            return
        self._allocate(sample, stream)
        while not self._is_done(stream):
            yield from self._iterate(stream)

    def _may_hold(self, codes: Codes) -> NDArray[np.bool_]:
        """Say which codes R may have; if keys are not compared, any as long as R has rows."""
        if self._spec.stream_key:
            return self._reader.may_hold(codes)
        return np.full(len(codes), self._reader.row_count > 0)

    @abstractmethod
    def _allocate(self, sample: pa.RecordBatch, stream: StreamBuffer) -> None:
        """Size everything by a sample of the stream, reserve it, then make it."""

    @abstractmethod
    def _is_done(self, stream: StreamBuffer) -> bool:
        """Return whether the stream has ended and no tuple waits."""

    @abstractmethod
    def _iterate(self, stream: StreamBuffer) -> Iterator[pa.RecordBatch]:
        """Do one step of the loop."""

    def _end(self, stream: StreamBuffer) -> None:
        """Close the relation, give all memory back, and complete the counters."""
        if self._owns_reader:
            self._reader.close()
        for reservation in self._reservations:
            reservation.release()
        self.telemetry.stream_rows = stream.row_count
        self.telemetry.null_key_rows = stream.null_key_rows
        self.telemetry.missed_rows += stream.unmatchable_rows
        self.telemetry.memory_bytes_peak = self.ledger.peak_bytes

    # ── one join after another ──────────────────────────────────────────────────────────────────

    def take_over(self, learned: Learned | None, handed_over: HandedOver | None) -> None:
        """Begin with the front stage of the join before, and with the tuples that waited there."""
        if learned is not None and (self._kept_front is not None or not self._sizing.has_front):
            learned.release()
        self._learned, self._handed_over = learned, handed_over
        self._reservations += [taken.memory for taken in (learned, handed_over) if taken]

    def hand_over(self) -> HandedOver | None:
        """Return the tuples that wait when the join has ended, for its successor, if there are."""
        return None

    @property
    def learned(self) -> TupleCache | None:
        """The front stage, if another join could take its rows over."""
        front = self._front
        is_own = isinstance(front, TupleCache) and self._kept_front is None
        return front if is_own and isinstance(front, TupleCache) else None

    # ── memory ──────────────────────────────────────────────────────────────────────────────────

    @property
    def idle_bytes(self) -> int:
        """What is reserved but not in use while the next batch is fetched: input and output."""
        return self._input.size_bytes + self._emission.buffer.size_bytes

    @property
    def _spare_bytes(self) -> int:
        """What of the budget is not reserved yet."""
        held = sum(reservation.size_bytes for reservation in self._reservations)
        left = self._budget_bytes - self._reader.table_bytes - held
        return min(left, self.ledger.available_bytes)

    def _use_kept_front(self) -> FrontStage | None:
        """Return the front stage that outlives the join, if there is one."""
        if self._kept_front is None:
            return None
        return self._kept_front.for_join(self._reader, self._read_columns, self.telemetry)

    def _reserve(self, holder: str, size_bytes: int) -> Reservation:
        """Reserve memory until the join ends."""
        reservation = self.ledger.reserve(holder, size_bytes)
        self._reservations.append(reservation)
        return reservation

    def _widened(self, widths: Widths, tuples: int, window: Reservation) -> Widths:
        """Return larger widths for a window that is small by choice, so that wide rows fit too."""
        spare = self._spare_bytes
        variable = variable_columns(self._spec.stream_schema)
        share = spare / (len(variable) * tuples * ARENA_SLACK) if variable else 0.0
        if share < 1:
            return widths
        window.resize(window.size_bytes + spare)
        average = [size + share * (i in variable) for i, size in enumerate(widths.average)]
        return Widths(tuple(average), widths.widest)

    def _reserve_first_buffers(self) -> None:
        """Reserve input and output for the time before there is a row to size all else by.

        In a budget of less than a few hundred kilobytes there may be no room for them. If even the
        first slice is too much, the budget will be refused as a whole.
        """
        first_slice_bytes = min(FIRST_SLICE_BYTES, self.ledger.available_bytes)
        self._input = self._reserve("input", first_slice_bytes)
        size_bytes = max(LEAST_OUTPUT_BYTES, int(self._budget_bytes * OUTPUT_SHARE))
        reserved_bytes = min(size_bytes, self.ledger.available_bytes)
        self._first_output = self._reserve("output buffer", reserved_bytes)
        base_bytes = self._sizing.output_base_bytes
        self._emission.buffer = OutputBuffer(size_bytes=size_bytes, row_bytes=base_bytes)

    def _release_first_buffers(self) -> None:
        """Give back what was reserved for the beginning, before the budget is split."""
        self._input.release()
        self._first_output.release()

    def _reserve_buffers(
        self, stream: StreamBuffer, input_bytes: int, output_rows: int, output_bytes: int
    ) -> None:
        """Reserve the input and the output buffer that the join goes on with."""
        self._input.resize(input_bytes)
        stream.limit_bytes = input_bytes
        self._reserve("output buffer", output_bytes)
        base_bytes = self._sizing.output_base_bytes
        self._emission.buffer = OutputBuffer(output_rows, output_bytes, base_bytes)


class WindowedJoin(StreamJoin):
    """What the joins share that keep tuples in a window while pages of R are read."""

    _window: Waiting  # tuples that wait
    _disk: DiskBuffer  # pages of R that were read last
    _admission: Admission  # lets tuples past the front stage into the window
    _learning: Learning  # tells the front stage what the back stage sees
    _window_memory: Reservation  # of the window
    _buffer_bytes: int  # of input, output and disk buffer

    def __init__(self, task: JoinTask, rules: BudgetRules, make_front: MakeFront | None) -> None:
        """Open the relation; `rules` split the budget when rows have arrived."""
        super().__init__(task, make_front is not None)
        self._rules = rules  # least budget, and settings for a budget
        self._make_front = make_front  # makes the front stage, if there is to be one

    def _is_done(self, stream: StreamBuffer) -> bool:
        return stream.is_exhausted and self._window.count == 0

    def _split_budget(self, sizes: Sizes, stream: StreamBuffer) -> Any:
        """Make the front stage, split the rest by the rules, reserve it; return the settings."""
        self._release_first_buffers()
        back_bytes = self._budget_bytes - self._make_front_stage(sizes)
        if self._learned is not None:
            self._learned.release()
        settings = self._rules.split_back(sizes, back_bytes, self._split)
        self.plan = Plan(settings, 0 if self._front is None else self._front.capacity)
        self._buffer_bytes = buffer_bytes(sizes, settings)
        if self._handed_over is not None:  # these tuples use the buffers first
            self._handed_over.memory.release()
        buffers = (settings.input_bytes, settings.output_rows, settings.output_bytes)
        self._reserve_buffers(stream, *buffers)
        self._reserve("disk buffer", sizes.disk_bytes(settings.pages_per_read))
        self._window_memory = self._reserve("window", sizes.window_bytes(settings.places))
        return settings

    def _make_front_stage(self, sizes: Sizes) -> int:
        """Make the front stage, if there is to be one and it fits; return its size in bytes.

        One that outlives the join is not counted here.
        """
        make_front = self._make_front
        if make_front is not None and self._split.paper_cache:
            make_front = ThresholdCache.for_budget
        elif make_front is not None and self._kept_front is not None:
            self._front = self._use_kept_front()
            if self._front is not None:
                return 0
        size_bytes = self._rules.front_bytes(sizes, self._budget_bytes, self._split)
        if make_front is None or not size_bytes:
            return 0
        if self._learned is not None and size_bytes > self.ledger.available_bytes:
            self._learned.release()  # there is no room for both
        reserved = self._reserve("front stage", size_bytes)
        about = (self._reader, self._read_columns, size_bytes, self.telemetry)
        self._front = make_front(*about)
        if self._front is None:
            reserved.release()
            return 0
        learned = None if self._learned is None else self._learned.cache
        if isinstance(self._front, TupleCache) and learned is not None:
            self._front.learn_from(learned)
        self.front_bytes = size_bytes
        return size_bytes

    def _connect(self, stream: StreamBuffer, pages_per_read: int) -> None:
        """Make the disk buffer, and the parts that depend on stream and front stage."""
        tallies = self._make_front is not None
        about = (self._reader, self._read_columns, pages_per_read, tallies)
        self._disk = DiskBuffer(*about, self.stopwatch)
        self._admission = Admission(stream, self._front, self._emission, self.stopwatch)
        page_count = self._reader.page_count
        outlives = self._kept_front is not None
        about_learning = (self._front, stream, page_count, self.stopwatch)
        self._learning = Learning(*about_learning, outlives=outlives)

    def _admit(self, most: int) -> Generator[pa.RecordBatch, None, int]:
        """Let up to `most` tuples into the window, past the front stage; return how many."""
        admitted = yield from self._admission.admit(self._window, most)
        peak = max(self.telemetry.window_rows_peak, self._window.count)
        self.telemetry.window_rows_peak = peak
        return admitted

    def _load(self, first: int, last: int, requested: Rows | None = None) -> None:
        """Read pages into the disk buffer: all of them, or those that are requested."""
        with self.stopwatch.phase("io"):
            self.telemetry.pages_scanned += self._disk.load(first, last, requested)
        self._learning.observe_pages(first, last, self._disk)

    def _emit_matches(self, rows: Rows, slots: Slots) -> Iterator[pa.RecordBatch]:
        """Emit (row in the disk buffer, slot of the window) pairs."""
        is_observed = self._learning.is_active
        observe = partial(self._learning.observe_matches, self._disk) if is_observed else None
        return self._emission.matches(rows, slots, self._disk, self._window, observe=observe)

    def _emit_misses(self, slots: Slots) -> Iterator[pa.RecordBatch]:
        """Emit those of the tuples that found no match, before they leave the window."""
        if self._learning.is_active:
            # A code that a row with another key has is not missing in R.
            unknown = slots[self._window.matched[slots] == 0]
            self._learning.observe_missing(self._window.codes_at(unknown))
        return self._emission.misses(slots, self._window)


def _routing(relation: Relation, partition: int | None) -> Routing | None:
    return None if partition is None else Routing(partition, relation.partition_count)
