"""`auto`: a join that chooses its algorithm and its split by the model, and again when it must.

::

    stream ──► a sample of its keys ──► demand ──► model ──► algorithm, b, front stage ──► join
                     ▲                                                                      │
                     └── every few windows: has the demand moved, or the arrival rate? ◄────┘

Dynamic tuning (`meshjoin.txt` section 3.3). While a join runs, the keys that arrive are sampled. If
they are asked for otherwise than was assumed, the model is asked again; if another split or another
algorithm would be better by `HYSTERESIS`, the running join is told that the stream has ended. It
joins all it holds and gives its memory back, and a new one goes on with the rest. So each row is
dealt with by exactly one join, from beginning to end, and a change can lose nothing. It costs the
drain of one window and a cold front stage.

With an expected `rate` the join takes only as much of the budget as holds that rate, and more or
less of it as the arrivals become more or fewer.

Memory: one ledger and one page table serve all joins that run. What the model computes takes
`_MODEL_BYTES_PER_PAGE`. At the start that is reserved while nothing else is; later the model uses
what the running join has reserved for input and output, which are empty between two batches. If
that is too little, demand is not looked at again; if the model does not fit at the start, the
choice is made without it. `semistream.memory` says what is not counted.
"""

from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, fields, replace
from functools import cached_property
from math import inf
from time import perf_counter
from typing import TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from semistream.advice.calibration import factors_for
from semistream.advice.choice import CHOICES, RESIDENT, SHORT_CHOICES, Advisor, Option
from semistream.advice.situation import demand_of, largest_partition, layout_of
from semistream.budget.rowsizes import Widths
from semistream.budget.split import USUAL
from semistream.columns import plain_batch
from semistream.cost.conditions import Conditions, Layout
from semistream.cost.demand import Demand
from semistream.cost.factors import CostFactors
from semistream.cost.models import MODELS
from semistream.cost.tuning import least_budget, tune
from semistream.errors import BudgetError, OptionError, did_you_mean
from semistream.joins.frontstage import POLICY
from semistream.joins.opened import Opened
from semistream.joins.protocols import Operator
from semistream.joins.registry import ALGORITHMS, make_operator
from semistream.joins.stopwatch import Stopwatch
from semistream.joins.stream import StreamBuffer
from semistream.joins.streamjoin import FIRST_SLICE_BYTES, StreamJoin
from semistream.joins.streamjoin import SAMPLE_ROWS as SIZED_ROWS
from semistream.joins.telemetry import Telemetry
from semistream.keys import KeyCoder
from semistream.memory import MemoryLedger, return_free_memory, return_freed_pages
from semistream.relation.reader import PageReader
from semistream.relation.relation import Relation
from semistream.spec import JoinSpec, read_columns

_Any = TypeVar("_Any")

AUTO = "auto"
HYSTERESIS = 1.15  # another choice must be better by this much
SAMPLE_ROWS = 16_384
_ROWS_PER_BATCH = 2_048
_MOVED = 0.1  # of the hit ratio at any of the sizes below: then the demand is another one
_PROBED_SHARES = (1e-4, 1e-3, 1e-2, 1e-1)
_WINDOWS = 1  # between two looks
_MOST_OVERHEAD = 0.02  # looking may take this part of the time
# With an expected rate: what the join is tuned for, and how far arrivals may be from that.
_HEADROOM = 1.25
_FEWER = 0.6
_STARVED = 0.05  # if the join waits this part of the time for input, arrivals set the pace
_BUSY_LOOKS = 2  # in a row, then there is more input than it can take
_WINDOW_SHARE = 0.6  # of the budget, for waiting tuples: what a stream must fit to be short
_TUPLE_BYTES = 30  # about what a waiting tuple takes besides its values
_REMEMBERED = 64
_FALLBACK = "chybridjoin"  # where R has no rows there is nothing to choose
_MODEL_BYTES_PER_PAGE = 96  # the page index, shares by page, and what is computed from them
_UNCOUNTED_BYTES = 1 << 20  # of these
_SLICE_ROWS = 256  # of a batch, whose keys are sampled together


def make_join(
    name: str,
    relation: Relation,
    spec: JoinSpec,
    budget_bytes: int,
    partition: int | None = None,
    *,
    factors: CostFactors | None = None,
    rate: float | None = None,
) -> Operator:
    """Return a join, ready to run, over a relation or one partition of it.

    A named algorithm splits its budget by the usual shares. ``auto`` chooses algorithm and split by
    the model; the `factors` it needs for that are measured unless they are given. With a `rate` it
    takes only the memory that this rate needs.
    """
    known = [AUTO, *ALGORITHMS]
    if name not in known:
        raise OptionError(
            f"algorithm must be one of {', '.join(known)}; got {name!r}.{did_you_mean(name, known)}"
        )
    if rate is not None and (rate <= 0 or name != AUTO):
        raise OptionError(
            f"rate is a positive number of tuples per second, for algorithm='auto'; got {rate} "
            f"and {name!r}"
        )
    if name != AUTO:
        return make_operator(name, relation, spec, budget_bytes, partition)
    return SelfTuningJoin(relation, spec, budget_bytes, partition, factors=factors, rate=rate)


def needs_factors(name: str, relation: Relation, spec: JoinSpec, budget_bytes: int) -> bool:
    """Return whether a task with this budget, on any partition, would ask the model."""
    if name != AUTO or not relation.row_count:
        return False
    no_rows = Widths.equal([0.0] * len(spec.stream_schema))
    return not Advisor(relation, spec, no_rows, largest_partition(relation)).fits(budget_bytes)


@dataclass(frozen=True, slots=True)
class Change:
    """A choice that was made in the course of a stream, and why."""

    at_row: int
    reason: str
    algorithm: str
    budget_bytes: int
    option: Option | None  # none where all of R is held in memory


@dataclass(frozen=True, slots=True)
class _Chosen:
    """What runs now, and what it was chosen for."""

    budget_bytes: int
    option: Option
    demand: Demand
    rate: float | None = None
    is_short: bool = False  # the stream was expected to be


_remembered: OrderedDict[object, _Chosen] = OrderedDict()
# How long streams of a kind were the last time: micro-batches are often of a size.
_streams: OrderedDict[object, int] = OrderedDict()


class SelfTuningJoin:
    """Runs one join after another over a stream, each chosen for what the stream is like."""

    def __init__(
        self,
        relation: Relation,
        spec: JoinSpec,
        budget_bytes: int,
        partition: int | None = None,
        *,
        factors: CostFactors | None = None,
        rate: float | None = None,
    ) -> None:
        """Prepare; nothing is read before rows arrive."""
        self._relation, self._spec, self._partition = relation, spec, partition
        self._budget_bytes = budget_bytes
        self._factors = factors
        self._rate = rate
        self._plain = _FALLBACK  # what runs where the model has no say
        self._finished = Telemetry()  # of the joins before the one that runs now
        self._operator: StreamJoin | None = None
        self._widths: Widths | None = None
        self._layout: Layout | None = None
        self.ledger = MemoryLedger(budget_bytes)
        self.changes: list[Change] = []

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
        if self._operator is not None:
            counted = _sum(counted, self._operator.telemetry)
        return replace(
            counted,
            retunings=max(0, len(self.changes) - 1),
            memory_bytes_peak=self.ledger.peak_bytes,
        )

    @property
    def stopwatch(self) -> Stopwatch:
        """The stopwatch of the join that runs now."""
        return Stopwatch() if self._operator is None else self._operator.stopwatch

    @property
    def is_emulated(self) -> bool:
        """Whether R is read from an emulated device, so that only its clock counts."""
        return self._relation.reading.device is not None

    def has_all_memory(self, chosen: "_Chosen") -> bool:
        """Return whether a choice takes the whole budget."""
        return chosen.budget_bytes >= self._budget_bytes

    def join(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Join the stream; see `Operator.join`."""
        device = self._relation.reading.device
        clock = perf_counter if device is None else lambda: device.now_s
        source = _Source(iter(batches), self._spec, self._relation.coder, clock)
        try:
            yield from self._run(source)
        finally:
            if "_opened" in self.__dict__:
                self._reader.close()
        _remember(_streams, self._key(), source.row_count)

    def _run(self, source: "_Source") -> Iterator[pa.RecordBatch]:
        reason = "at the start"
        while source.has_rows():
            chosen = self._choose(source)
            self._note(source, chosen, reason)
            self._operator = self._make(chosen)
            watch = _Watch(self, source, chosen, self._operator)
            yield from self._operator.join(source.until(watch))
            self._finished = self.telemetry
            self._operator = None
            reason = watch.reason
            del watch  # it knows the join that has ended, which is to be freed before the next
            return_free_memory()

    def _make(self, chosen: "_Chosen | None") -> StreamJoin:
        name, budget_bytes, split = self._plain, self._budget_bytes, USUAL
        if chosen is not None:
            name, budget_bytes = chosen.option.name, chosen.budget_bytes
            split = chosen.option.tuned.split
        about = (self._relation, self._spec, budget_bytes, self._partition)
        return make_operator(name, *about, split, self._opened)

    def _choose(self, source: "_Source") -> "_Chosen | None":
        """Return what to run next; None where the model is not asked."""
        if self._widths is None:
            self._widths = Widths.of(self._first_rows(source.peek()))
        if not self._reader.row_count:
            return None
        if self._advisor().fits(self._budget_bytes):
            self._plain = RESIDENT
            return None
        try:
            return self._choose_by_model(source)
        except BudgetError:
            self._plain = self._advisor().first_that_fits(self._budget_bytes)
            return None

    def _choose_by_model(self, source: "_Source") -> "_Chosen":
        if self._factors is None:
            left = self.ledger.available_bytes
            self._factors = factors_for(self._relation, self._spec, left)
        reserved = self.ledger.reserve("cost model", self.model_bytes)
        try:
            return self._known_or_best(source)
        finally:
            reserved.release()
            if self.model_bytes:
                return_freed_pages()  # the join that follows uses them

    @property
    def model_bytes(self) -> int:
        """What the model needs to compare the algorithms, the first megabyte aside."""
        return max(0, _MODEL_BYTES_PER_PAGE * self._reader.page_count - _UNCOUNTED_BYTES)

    def _known_or_best(self, source: "_Source") -> "_Chosen":
        demand = self.demand(source.sample())
        rate = source.rate if source.rate is not None else self._rate
        is_short = self._is_short(source.row_count)
        key = (self._key(), self._factors, is_short)
        known = _remembered.get(key)
        if known is not None and known.rate == rate and not has_moved(known.demand, demand):
            _remembered.move_to_end(key)
            chosen = known
        else:
            chosen = self.best(demand, rate, is_short)
        if not chosen.is_short and self._fits_window(chosen, source.row_count):
            chosen = self.best(demand, rate, is_short=True)
        _remember(_remembered, key, chosen)
        return chosen

    def _fits_window(self, chosen: "_Chosen", row_count: int) -> bool:
        """Return whether streams like this one are over before the window of a choice is full."""
        usual = _streams.get(self._key())
        return usual is not None and max(usual, row_count) <= chosen.option.tuned.settings.places

    def _first_rows(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the rows that a join will size its structures by, if this batch has them."""
        about = (self._spec, self._relation.coder, self._reader.may_hold, None, Stopwatch())
        stream = StreamBuffer([batch], *about, FIRST_SLICE_BYTES)
        while not stream.pull() and not stream.is_exhausted:
            stream.take_unmatchable()
        rows = stream.sample(SIZED_ROWS)
        return plain_batch(batch[:1]) if rows is None else rows

    def _advisor(self) -> Advisor:
        assert self._widths is not None
        about = (self._relation, self._spec, self._widths, self._partition)
        return Advisor(*about, self._reader)

    def _is_short(self, row_count: int) -> bool:
        """Return whether the stream will be over before a window is full, as others were."""
        usual = _streams.get(self._key())
        if usual is None:
            return False
        assert self._widths is not None
        tuple_bytes = sum(self._widths.average) + _TUPLE_BYTES
        return max(usual, row_count) * tuple_bytes <= _WINDOW_SHARE * self._budget_bytes

    def best(self, demand: Demand, rate: float | None, is_short: bool = False) -> _Chosen:
        """Return the best choice for a demand; with a rate, the least memory that holds it."""
        advisor, conditions = self._advisor(), self.conditions(demand)
        names = SHORT_CHOICES if is_short else CHOICES
        option = advisor.rank(self._budget_bytes, conditions, names)[0]
        if rate is None:
            return _Chosen(self._budget_bytes, option, demand, is_short=is_short)
        model, sizes = MODELS[option.name], advisor.sizes(option.name)
        least = least_budget(model, sizes, conditions, _HEADROOM * rate, self._budget_bytes)
        budget_bytes = self._budget_bytes if least is None else least
        tuned = option.tuned if least is None else tune(model, sizes, budget_bytes, conditions)
        return _Chosen(budget_bytes, Option(option.name, tuned), demand, rate, is_short)

    def conditions(self, demand: Demand) -> Conditions:
        """Return what the model is to assume."""
        if self._layout is None:
            columns = read_columns(self._relation, self._spec)
            self._layout = layout_of(self._reader, columns)
        assert self._factors is not None, "measured when the first rows came"
        return Conditions(self._layout, demand, self._factors, POLICY)

    def demand(self, codes: NDArray[np.int64]) -> Demand:
        """Return the demand that a sample of key codes shows."""
        return demand_of(codes, self._reader)

    def _note(self, source: "_Source", chosen: "_Chosen | None", reason: str) -> None:
        option = None if chosen is None else chosen.option
        name = self._plain if option is None else option.name
        budget_bytes = self._budget_bytes if chosen is None else chosen.budget_bytes
        self.changes.append(Change(source.row_count, reason, name, budget_bytes, option))

    def _key(self) -> object:
        relation, spec = self._relation, self._spec
        about = (relation.location, relation.snapshot, self._partition, spec.how, spec.columns)
        device = relation.reading.device
        stream = (spec.stream_key, tuple(str(t) for t in spec.stream_schema.types))
        chosen_from = (self._budget_bytes, device and device.name, relation.reading.whole_pages)
        return about, stream, chosen_from


class _Watch:
    """Decides when a running join has had its time."""

    def __init__(
        self,
        join: SelfTuningJoin,
        source: "_Source",
        chosen: _Chosen | None,
        operator: StreamJoin,
    ) -> None:
        self._join, self._source, self._chosen = join, source, chosen
        self._operator = operator
        self._assumed = self._last = None if chosen is None else chosen.demand
        self._took_s = 0.0
        self._busy_looks = 0
        self.reason = ""
        self._restart()

    def wants_change(self) -> bool:
        """Return whether the join is to end here; called before each batch."""
        if self._chosen is None or not self._is_time(self._chosen):
            return False
        started = perf_counter()
        wants = (
            self._goes_on(self._chosen)
            or self._has_other_rate(self._chosen)
            or self._has_other_demand(self._chosen)
        )
        self._took_s = perf_counter() - started
        if not wants:
            self._restart()
        return wants

    def _restart(self) -> None:
        self._looked_s = perf_counter()
        self._since_s, self._waited_s = self._source.now_s(), self._source.waited_s
        self._rows, self._hits = self._source.row_count, self._operator.telemetry.front_hits
        self._source.forget_sample()

    def _is_time(self, chosen: _Chosen) -> bool:
        rows = self._source.row_count - self._rows
        waited = rows - (self._operator.telemetry.front_hits - self._hits)
        if rows < SAMPLE_ROWS or waited < _WINDOWS * chosen.option.tuned.settings.places:
            return False
        looked_s = perf_counter() - self._looked_s
        return self._join.is_emulated or looked_s * _MOST_OVERHEAD >= self._took_s

    def _goes_on(self, chosen: _Chosen) -> bool:
        if not chosen.is_short:
            return False
        self.reason = "there are more rows than in the streams before"
        return True

    def _has_other_demand(self, chosen: _Chosen) -> bool:
        if self._join.model_bytes > self._operator.idle_bytes:
            return False
        last, demand = self._last, self._join.demand(self._source.sample())
        self._last = demand
        assert self._assumed is not None
        assert last is not None
        # A sample from before and after a change is like neither: wait for two that are alike.
        if not has_moved(self._assumed, demand) or has_moved(last, demand):
            return False
        tuned = chosen.option.tuned
        model = MODELS[chosen.option.name]
        conditions = self._join.conditions(demand)
        now = model.predict(conditions, tuned.settings, tuned.cached_rows)
        best = self._join.best(demand, chosen.rate)
        is_same_size = best.budget_bytes == chosen.budget_bytes
        was, self._assumed = self._assumed, demand
        if is_same_size and best.option.rate < HYSTERESIS * now.rate:
            return False
        self.reason = (
            f"keys are asked for as by Zipf {demand.exponent:.2f}, no longer {was.exponent:.2f}"
        )
        return True

    def _has_other_rate(self, chosen: _Chosen) -> bool:
        if chosen.rate is None:
            return False
        elapsed = max(1e-9, self._source.now_s() - self._since_s)
        waited = self._source.waited_s - self._waited_s
        arrivals = (self._source.row_count - self._rows) / elapsed
        if waited < _STARVED * elapsed:
            # The join sets the pace, or catches up with what came while it was started.
            self._busy_looks += 1
            if self._join.has_all_memory(chosen) or self._busy_looks < _BUSY_LOOKS:
                return False
            # How many would come is not known, only that it is more: all memory, for now.
            self._source.rate = inf
            self.reason = f"more than {arrivals:,.0f} tuples/s arrive, not {chosen.rate:,.0f}"
            return True
        self._busy_looks = 0
        if _FEWER * chosen.rate <= arrivals <= _HEADROOM * chosen.rate:
            return False
        self._source.rate = arrivals
        was = "as many as can be served" if chosen.rate == inf else f"{chosen.rate:,.0f}"
        self.reason = f"{arrivals:,.0f} tuples/s arrive, no longer {was}"
        return True


class _Source:
    """The stream, with a sample of the keys that came last, by their codes."""

    def __init__(
        self,
        batches: Iterator[pa.RecordBatch],
        spec: JoinSpec,
        coder: KeyCoder,
        now_s: Callable[[], float],
    ) -> None:
        self._batches = batches
        self._key = spec.stream_key_indexes
        self._coder = coder
        self.now_s = now_s
        self._pending: pa.RecordBatch | None = None  # read, but not handed on yet
        self._recent: deque[NDArray[np.int64]] = deque()  # codes, those of a batch together
        self._recent_rows = 0
        self.row_count = 0
        self.waited_s = 0.0
        self.rate: float | None = None

    def has_rows(self) -> bool:
        """Return whether there are more rows, waiting for them if need be."""
        while self._pending is None or not self._pending.num_rows:
            self._pending = self._next()
            if self._pending is None:
                return False
        return True

    def peek(self) -> pa.RecordBatch:
        """Return the rows that come next."""
        assert self._pending is not None
        return self._pending

    def sample(self) -> NDArray[np.int64]:
        """Return the codes of keys that came last, and of those that come next, if known."""
        coming = [] if self._pending is None else [self._codes(self._pending, SAMPLE_ROWS)]
        return np.concatenate([*self._recent, *coming, np.zeros(0, np.int64)])

    def forget_sample(self) -> None:
        """Begin a new sample."""
        self._recent.clear()
        self._recent_rows = 0

    def until(self, watch: _Watch) -> Iterator[pa.RecordBatch]:
        """Yield batches until there are none, or the watch wants a change."""
        while True:
            batch, self._pending = self._pending, None
            if batch is None:
                batch = self._next()
            if batch is None:
                return
            if batch.num_rows and watch.wants_change():
                self._pending = batch
                return
            self._keep(batch)
            yield batch

    def _next(self) -> pa.RecordBatch | None:
        asked = self.now_s()
        batch = next(self._batches, None)
        self.waited_s += self.now_s() - asked
        return batch

    def _keep(self, batch: pa.RecordBatch) -> None:
        """Note some of a batch's keys; those of the oldest batches are forgotten."""
        self.row_count += batch.num_rows
        codes = self._codes(batch, _ROWS_PER_BATCH)
        if len(codes):
            self._recent.append(codes)
            self._recent_rows += len(codes)
        while self._recent and self._recent_rows - len(self._recent[0]) >= SAMPLE_ROWS:
            self._recent_rows -= len(self._recent.popleft())

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


def _remember(known: OrderedDict[object, _Any], key: object, value: _Any) -> None:
    known[key] = value
    known.move_to_end(key)
    while len(known) > _REMEMBERED:
        known.popitem(last=False)


def has_moved(assumed: Demand, demand: Demand) -> bool:
    """Return whether caches of some size would hit clearly more or less than was assumed."""
    probed = [max(1.0, share * assumed.key_count) for share in _PROBED_SHARES]
    moves = [abs(assumed.hit_ratio(keys) - demand.hit_ratio(keys)) for keys in probed]
    return max(moves) > _MOVED


def _sum(one: Telemetry, other: Telemetry) -> Telemetry:
    summed = replace(one)
    for field in fields(Telemetry):
        a, b = getattr(one, field.name), getattr(other, field.name)
        setattr(summed, field.name, max(a, b) if "peak" in field.name else a + b)
    return summed
