"""`auto`: a join that chooses its algorithm and its split by the model, and again when it must.

::

    stream ──► a sample of its keys ──► demand ──► model ──► algorithm, budget, split ───► join
    `sampling`       ▲                             `tuner`                                  │
                     └── every few windows: has the demand changed, or the rate? ◄──────────┘
                                           `watch`

Dynamic tuning (`meshjoin.txt` section 3.3). While a join runs, the keys that arrive are sampled. If
they are requested with another skew than was assumed, the model is run again. If another split or
another algorithm would be better by `watch.HYSTERESIS`, the running join is told that the stream
has ended, and a new one continues with the rest. What moves from one to the other:

* tuples that wait in an index join, if another index join follows: they go on waiting there
  (`joins/handover.py`). Other windows are drained, which costs about a cycle of R.
* the rows of the front stage, if both joins have one, as many as the new one has room for.

So each row is resolved by exactly one join, and a change can lose nothing. If the model chooses
again what runs, for what the stream is like now, nothing ends.

With an expected `rate` the join uses only as much of the budget as holds that rate, and more or
less of it as the arrivals become more or fewer. With a `latency_s` as well, it uses as much as
holds both; if nothing does, it warns once, and comes as close as it can.

Memory: one ledger and one page table serve all joins that run. The model needs
`Tuner.model_bytes`. At the start that is reserved while nothing else is; later the model uses the
memory that the running join has reserved for input and output, which are empty between two batches.
If that is too little, demand is not looked at again; if the model does not fit at the start, the
choice is made without it. `semistream.memory` says what is not counted.
"""

import logging
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from time import perf_counter

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from semistream.advice.calibration import factors_for
from semistream.advice.checks import check_options
from semistream.advice.choice import LOOK_UP, RESIDENT, Advisor, Option, are_few, most_preferred
from semistream.advice.history import HISTORY, History
from semistream.advice.ordered import make_ordered
from semistream.advice.sampling import SampledSource
from semistream.advice.settings import ALIASES, Settings, split_of
from semistream.advice.situation import uncached_share
from semistream.advice.tuner import Chosen, Tuner
from semistream.advice.watch import Retune, Watch
from semistream.budget.rowsizes import Widths
from semistream.budget.split import USUAL, Split
from semistream.columns import plain_batch
from semistream.cost.factors import CostFactors
from semistream.cost.options import condition_s, with_tuple_cost
from semistream.errors import BudgetError, OptionError, did_you_mean
from semistream.joins.frontstage import Learned
from semistream.joins.handover import HandedOver
from semistream.joins.keptfront import KeptFront
from semistream.joins.opened import Opened
from semistream.joins.protocols import Operator
from semistream.joins.registry import ALGORITHMS, make_operator
from semistream.joins.stopwatch import Stopwatch
from semistream.joins.stream import StreamBuffer
from semistream.joins.streamjoin import FIRST_SLICE_BYTES, SAMPLE_ROWS, JoinTask, StreamJoin
from semistream.joins.telemetry import Telemetry
from semistream.joins.thetajoin import ThetaJoin
from semistream.memory import MemoryLedger, return_free_memory, return_freed_pages
from semistream.relation.reader import PageReader
from semistream.relation.relation import Relation
from semistream.spec import JoinSpec, read_columns

AUTO = "auto"
MESHJOIN = ALGORITHMS["meshjoin"].name
HANDS_OVER = True  # the rows of the front stage, from one join to the next
_LOG = logging.getLogger(__name__)
_FIRST_ROWS = 100_000  # expected of a stream of which nothing is known


def make_join(
    name: str,
    relation: Relation,
    spec: JoinSpec,
    budget_bytes: int,
    partition: int | None = None,
    *,
    factors: CostFactors | None = None,
    rate: float | None = None,
    latency_s: float | None = None,
    stream_rows: int | None = None,
    front: KeptFront | None = None,
    history: History = HISTORY,
    ordered: str | None = None,
    settings: Settings | None = None,
) -> Operator:
    """Return a join, ready to run, over a relation or one partition of it.

    If it is `ordered`, by ``stream`` or ``key``, rows leave in the order of the stream. A named
    algorithm may have `settings` (`semistream.advice.settings`).

    A named algorithm splits its budget by the usual shares. ``auto`` chooses algorithm and split by
    the model; the `factors` it needs for that are those of this machine, if it was calibrated, or
    of a common one. `stream_rows` is the length of the stream, if known. With a `rate` it uses only
    the memory that this rate needs, or with a `latency_s` that both need. `front` is a front stage
    that outlives the join, in memory of its own, and `history` what is known of earlier streams.
    """
    known = [AUTO, *ALGORITHMS, *ALIASES]
    if name not in known or name in ALIASES:
        raise OptionError(
            f"algorithm must be one of {', '.join(known)}; got {name!r}.{did_you_mean(name, known)}"
        )
    check_options(name, spec, ordered=ordered, rate=rate, settings=settings)
    requested = split_of(settings, name, relation, budget_bytes)
    if not spec.stream_key:
        return ThetaJoin(JoinTask(relation, spec, budget_bytes, partition, requested))

    def make(name: str, spec: JoinSpec, budget_bytes: int, split: Split = USUAL) -> Operator:
        if name != AUTO:
            return make_operator(name, relation, spec, budget_bytes, partition, split, front=front)
        about = (relation, spec, budget_bytes, partition)
        expected = (factors, rate, stream_rows)
        return SelfTuningJoin(*about, *expected, latency_s, front=front, history=history)

    if ordered is None:
        return make(name, spec, budget_bytes, requested)
    is_long = stream_rows is not None and stream_rows >= relation.row_count
    chosen = [name] if name != AUTO else [RESIDENT, LOOK_UP] if is_long else [LOOK_UP]
    return make_ordered(chosen, relation, spec, budget_bytes, make)


@dataclass(frozen=True, slots=True)
class Change:
    """A choice that was made in the course of a stream, and why."""

    at_row: int
    reason: str
    algorithm: str
    budget_bytes: int
    option: Option | None  # None if the model was not used


@dataclass(frozen=True, slots=True)
class _Run:
    """A join that runs or comes next, and the choice that it was made by."""

    chosen: Chosen | None  # None if the model was not used
    join: StreamJoin


class SelfTuningJoin:
    """Runs one join after another over a stream, each chosen for what the stream is like."""

    def __init__(
        self,
        relation: Relation,
        spec: JoinSpec,
        budget_bytes: int,
        partition: int | None = None,
        factors: CostFactors | None = None,
        rate: float | None = None,
        stream_rows: int | None = None,
        latency_s: float | None = None,
        *,
        front: KeptFront | None = None,
        history: History = HISTORY,
        clock: Callable[[], float] = perf_counter,
    ) -> None:
        """Prepare; nothing is read before rows arrive.

        `clock` times arrivals and looks; on an emulated device its own clock times the arrivals.
        """
        self._relation, self._spec, self._partition = relation, spec, partition
        self._budget_bytes = budget_bytes
        self._factors = factors  # loaded when the model is first used, unless given
        self._rate = rate  # expected arrivals per second, at the start of a stream
        self._stream_rows = stream_rows  # of the stream, if known
        self._latency_s = latency_s  # that tuples may have on average, if there is a rate
        self._warned = False  # that the latency will be longer
        self._front = front  # that outlives all joins
        self._history = history  # of earlier streams
        self._clock = clock
        self._plain = most_preferred()  # the algorithm that runs if the model is not used
        self._finished = Telemetry()  # of the joins before the one that runs now
        self._join: StreamJoin | None = None  # that runs now
        self._retune: Retune | None = None  # why the last join ended, if the stream goes on
        self._next: _Run | None = None  # what follows, if it was chosen while the join ran
        self._learned: Learned | None = None  # the front stage of the join before
        self._handed_over: HandedOver | None = None  # tuples that wait in no join now
        self._widths: Widths | None = None  # of the stream's columns, when a choice was made last
        self._tuner: Tuner | None = None  # once the model was used
        self._uncached_share = 0.0  # of R, that the model counts as read from a disk
        self.ledger = MemoryLedger(budget_bytes)
        self.changes: list[Change] = []  # every choice, the first one included

    @cached_property
    def _opened(self) -> Opened:
        """The relation's page table, which all joins share."""
        return Opened.within(self.ledger, self._relation, self._spec, self._partition)

    @property
    def _reader(self) -> PageReader:
        return self._opened.reader

    @property
    def telemetry(self) -> Telemetry:
        """The counters of all joins so far."""
        counted = self._finished
        if self._join is not None:
            counted = counted.plus(self._join.telemetry)
        return replace(
            counted,
            retunings=max(0, len(self.changes) - 1),
            memory_bytes_peak=self.ledger.peak_bytes,
            predicted_us=round(1e6 * self._predicted_s(counted.stream_rows)),
        )

    def _predicted_s(self, rows: int) -> float:
        """Return the time of this number of rows by the model; 0 if a choice was made without."""
        ends = [*(change.at_row for change in self.changes[1:]), rows]
        predicted_s = 0.0
        for change, end in zip(self.changes, ends, strict=False):
            if change.option is None:
                return 0.0
            predicted_s += max(0, end - change.at_row) / change.option.speed
        return predicted_s

    @property
    def stopwatch(self) -> Stopwatch:
        """The stopwatch of the join that runs now."""
        return Stopwatch() if self._join is None else self._join.stopwatch

    def join(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Join the stream; see `Operator.join`."""
        device = self._relation.reading.device
        clock = self._clock if device is None else lambda: device.now_s
        about = (self._spec, self._relation.coder, clock, self._stream_rows)
        source = SampledSource(iter(batches), *about)
        try:
            yield from self._run(source)
        finally:
            if "_opened" in self.__dict__:
                self._reader.close()
        self._history.row_counts.put(self._kind, source.row_count)

    def _run(self, source: SampledSource) -> Iterator[pa.RecordBatch]:
        """Run one join after another, until the stream ends."""
        reason, rate = "at the start", self._rate
        while source.has_rows():
            if self.changes:
                return_free_memory()  # of the join that has ended, before the next one is made
            run = self._next or self._make(self._choose(source, rate))
            self._next = None
            self._note(source, run.chosen, reason)
            yield from self._run_one(source, run)
            self._finished = self.telemetry
            self._keep_learned()
            self._handed_over = run.join.hand_over()
            del run  # and the memory of its join
            self._join = None
            if self._retune is not None:
                reason, rate = self._retune.reason, self._retune.rate

    def _keep_learned(self) -> None:
        """Keep the front stage of the join that has ended until the next one has its rows."""
        join = self._join
        if join is None or join.learned is None or self._retune is None or not HANDS_OVER:
            return
        memory = self.ledger.reserve("front stage", join.front_bytes)
        self._learned = Learned(join.learned, memory)

    def _drop_learned(self) -> None:
        if self._learned is not None:
            self._learned.release()
        self._learned = None

    def _run_one(self, source: SampledSource, run: _Run) -> Iterator[pa.RecordBatch]:
        """Run one join until the stream ends, or a retune makes another choice."""
        self._join = run.join
        run.join.take_over(self._learned, self._handed_over)
        self._learned = self._handed_over = None
        yield from run.join.join(self._batches(source, run))

    def _batches(self, source: SampledSource, run: _Run) -> Iterator[pa.RecordBatch]:
        """Yield batches until there are none, or a retune makes another choice."""
        watch = self._watch(source, run)
        self._retune = None
        while (batch := source.take()) is not None:
            if batch.num_rows and watch is not None:
                self._retune = watch.look()
            if self._retune is None:
                source.note(batch)
                yield batch
                continue
            source.put_back(batch)
            if not self._can_choose(run.join):
                return  # when the join has ended, there is memory for the model
            chosen = self._choose(source, self._retune.rate)
            if chosen is None or run.chosen is None or not chosen.is_like(run.chosen):
                self._next = self._make(chosen)
                run.join.successor = self._next.join
                return
            # The best is what runs, for what the stream is like now, too.
            run, self._retune = _Run(chosen, run.join), None
            watch = self._watch(source, run)

    def _can_choose(self, running: StreamJoin) -> bool:
        """Return whether the model fits the memory that a join does not use between batches."""
        return self._tuner is not None and self._tuner.model_bytes <= running.idle_bytes

    def _watch(self, source: SampledSource, run: _Run) -> Watch | None:
        if run.chosen is None:
            return None
        assert self._tuner is not None, "it made the choice"
        is_emulated = self._relation.reading.device is not None
        about = (self._tuner, source, run.chosen, run.join)
        return Watch(*about, clock=self._clock, limits_overhead=not is_emulated)

    def _make(self, chosen: Chosen | None) -> _Run:
        name, budget_bytes, split = self._plain, self._budget_bytes, USUAL
        if chosen is not None:
            name, budget_bytes = chosen.option.name, chosen.budget_bytes
            split = chosen.option.tuned.split
        about = (self._relation, self._spec, budget_bytes, self._partition)
        join = make_operator(name, *about, split, self._opened, self._front)
        return _Run(chosen, join)

    def _choose(self, source: SampledSource, rate: float | None) -> Chosen | None:
        """Return what to run next; None if the model is not used."""
        widths = Widths.of(self._first_rows(source.peek()))
        if widths != self._widths:
            self._widths, self._tuner = widths, None
        if not self._reader.row_count:
            return None
        advisor = Advisor(self._relation, self._spec, widths, self._partition, self._reader)
        expected = self._expected_rows(source)
        is_short = expected is not None and are_few(expected, self._reader.page_count)
        if advisor.fits(self._budget_bytes) and not is_short:
            self._plain = RESIDENT
            return None
        try:
            return self._choose_by_model(advisor, source, rate)
        except BudgetError:
            self._plain = advisor.first_that_fits(self._budget_bytes)
            return None

    def _choose_by_model(
        self, advisor: Advisor, source: SampledSource, rate: float | None
    ) -> Chosen:
        if self._factors is None:
            self._factors = factors_for(self._relation, self._spec)
        if self._tuner is None:
            columns = read_columns(self._relation, self._spec)
            checked_s = condition_s(self._spec.condition, self._reader.rows_per_key)
            factors = with_tuple_cost(self._factors, checked_s)
            self._uncached_share = uncached_share(self._relation, self._reader)
            about = (self._reader, columns, self._budget_bytes, factors, self._latency_s)
            self._tuner = Tuner(advisor, *about, self._uncached_share)
        expected = self._expected_rows(source)
        few = None if expected is None or rate is not None else self._tuner.for_few(expected)
        if few is not None:
            return few
        codes = source.sample()
        chosen = self._known(self._tuner, codes, rate, expected)
        if chosen is None:
            chosen = self._best(self._tuner, codes, rate, expected)
        self._warn_if_late(chosen)
        return chosen

    def _warn_if_late(self, chosen: Chosen) -> None:
        """Warn, once, if a choice does not hold the target."""
        text = chosen.missed_text(self._latency_s)
        if text and not self._warned:
            self._warned = True
            _LOG.warning(text)

    def _known(
        self, tuner: Tuner, codes: NDArray[np.int64], rate: float | None, expected: int | None
    ) -> Chosen | None:
        """Return what was chosen for a stream like this one, if there was one."""
        known = self._history.choices.get(self._choice_key(expected))
        if known is None or known.rate != rate or not known.fits(tuner.skew(codes)):
            return None
        return known if tuner.can_run(known) else None

    def _best(
        self, tuner: Tuner, codes: NDArray[np.int64], rate: float | None, expected: int | None
    ) -> Chosen:
        # While a join runs, the model uses memory that it has reserved and does not use now.
        model_bytes = tuner.model_bytes if self._join is None else 0
        if model_bytes > self.ledger.available_bytes:
            self._drop_learned()
        reserved = self.ledger.reserve("cost model", model_bytes)
        try:
            chosen = tuner.best(tuner.demand(codes), rate, expected)
        finally:
            reserved.release()
            if tuner.model_bytes:
                return_freed_pages()  # the join that follows uses them
        self._history.choices.put(self._choice_key(expected), chosen)
        return chosen

    def _choice_key(self, expected: int | None) -> object:
        length = None if expected is None else expected.bit_length()
        return self._kind, self._factors, self._uncached_share, length

    def _expected_rows(self, source: SampledSource) -> int | None:
        """Return how many rows are still to come; None if the stream may go on for ever.

        That is known of a table or a list of batches. Other streams are expected to be like the
        last one of their kind, and the first one to be short: if it is not, the choice is made
        again, which costs little.
        """
        total = source.total_rows or self._history.row_counts.get(self._kind) or _FIRST_ROWS
        left = total - source.row_count
        return left if left > 0 else None

    def _first_rows(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the rows that a join will size its structures by, if this batch has them."""
        about = (self._spec, self._relation.coder, self._reader.may_hold, None, Stopwatch())
        stream = StreamBuffer([batch], *about, FIRST_SLICE_BYTES)
        while not stream.pull() and not stream.is_exhausted:
            stream.take_unmatchable()
        rows = stream.sample(SAMPLE_ROWS)
        return plain_batch(batch[:1]) if rows is None else rows

    def _note(self, source: SampledSource, chosen: Chosen | None, reason: str) -> None:
        option = None if chosen is None else chosen.option
        name = self._plain if option is None else option.name
        budget_bytes = self._budget_bytes if chosen is None else chosen.budget_bytes
        self.changes.append(Change(source.row_count, reason, name, budget_bytes, option))

    @cached_property
    def _kind(self) -> object:
        """What streams must have in common to be of one kind."""
        relation, spec = self._relation, self._spec
        about = (relation.location, relation.snapshot, self._partition, spec.how, spec.columns)
        device = relation.reading.device
        types = tuple(str(dtype) for dtype in spec.stream_schema.types)
        stream = (spec.stream_key, types, spec.condition)
        chosen_from = (self._budget_bytes, device and device.name, relation.reading.whole_pages)
        return about, stream, chosen_from, self._latency_s
