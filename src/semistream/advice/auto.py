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

Memory: the budget is the running join's. Not counted in it: the sample, `SAMPLE_ROWS` keys; another
copy of the page table; and the model's arrays, a few megabytes for a moment.
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

from semistream.advice.calibration import factors_for
from semistream.advice.choice import CHOICES, RESIDENT, SHORT_CHOICES, Advisor, Option
from semistream.advice.situation import demand_in, largest_partition, layout_of, reader_for
from semistream.columns import plain_batch
from semistream.cost.conditions import Conditions, Layout
from semistream.cost.demand import Demand
from semistream.cost.factors import CostFactors
from semistream.cost.models import MODELS
from semistream.cost.tuning import least_budget, tune
from semistream.errors import OptionError, did_you_mean
from semistream.joins.operator import SAMPLE_ROWS as SIZED_ROWS
from semistream.joins.operator import Operator
from semistream.joins.registry import ALGORITHMS, make_operator
from semistream.joins.rows import average_value_bytes
from semistream.joins.spec import JoinSpec, read_columns
from semistream.joins.stopwatch import Stopwatch
from semistream.joins.telemetry import Telemetry
from semistream.memory import MemoryLedger
from semistream.relation.reader import PageReader
from semistream.relation.relation import Relation

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
    return not Advisor(relation, spec, (), largest_partition(relation)).fits(budget_bytes)


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
        self._plain = _FALLBACK
        self._finished = Telemetry()
        self._operator: Operator | None = None
        self._value_bytes: list[float] = []
        self._layout: Layout | None = None
        self.changes: list[Change] = []

    @cached_property
    def _reader(self) -> PageReader:
        """Knows how R lies; the joins have their own."""
        return reader_for(self._relation, self._spec, self._partition)

    @property
    def telemetry(self) -> Telemetry:
        """The counters of all joins so far."""
        counted = self._finished
        if self._operator is not None:
            counted = _sum(counted, self._operator.telemetry)
        return replace(counted, retunings=max(0, len(self.changes) - 1))

    @property
    def ledger(self) -> MemoryLedger:
        """The ledger of the join that runs now."""
        if self._operator is None:
            return MemoryLedger(self._budget_bytes)
        return self._operator.ledger

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
        source = _Source(iter(batches), self._spec, clock)
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
        _remember(_streams, self._key(), source.row_count)

    def _make(self, chosen: "_Chosen | None") -> Operator:
        about = (self._relation, self._spec)
        if chosen is None:
            return make_operator(self._plain, *about, self._budget_bytes, self._partition)
        split = chosen.option.tuned.split
        name = chosen.option.name
        return make_operator(name, *about, chosen.budget_bytes, self._partition, split)

    def _choose(self, source: "_Source") -> "_Chosen | None":
        """Return what to run next; nothing to choose if all of R can be held in memory."""
        if not self._value_bytes:
            rows = self._hopeful(source.peek())
            self._value_bytes = [average_value_bytes(column) for column in rows.columns]
        if self._advisor().fits(self._budget_bytes):
            self._plain = RESIDENT
            return None
        if not self._reader.row_count:
            return None
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

    def _hopeful(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the rows that a join will size its structures by."""
        key = [batch.column(i) for i in self._spec.stream_key_indexes]
        codes, has_key = self._relation.coder.codes(key)
        may_match = has_key & self._reader.may_hold(codes)
        rows = batch.filter(pa.array(may_match)) if may_match.any() else batch
        return plain_batch(rows)[:SIZED_ROWS]

    def _advisor(self) -> Advisor:
        """Return a new advisor: it holds page tables, which are not to stay while a join runs."""
        about = (self._relation, self._spec, self._value_bytes, self._partition)
        return Advisor(*about, self._reader)

    def _is_short(self, row_count: int) -> bool:
        """Return whether the stream will be over before a window is full, as others were."""
        usual = max(_streams.get(self._key(), self._budget_bytes), row_count)
        tuple_bytes = sum(self._value_bytes) + _TUPLE_BYTES
        return usual * tuple_bytes <= _WINDOW_SHARE * self._budget_bytes

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
        return _Chosen(budget_bytes, Option(option.name, tuned), demand, rate)

    def conditions(self, demand: Demand) -> Conditions:
        """Return what the model is to assume."""
        if self._layout is None:
            columns = read_columns(self._relation, self._spec)
            self._layout = layout_of(self._reader, columns)
        if self._factors is None:
            self._factors = factors_for(self._relation, self._spec, self._budget_bytes)
        return Conditions(self._layout, demand, self._factors)

    def demand(self, sample: pa.Table) -> Demand:
        """Return the demand that a sample shows."""
        return demand_in(sample, self._relation, self._spec.stream_key, self._reader)

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
        operator: Operator,
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
    """The stream, with a sample of the keys that came last."""

    def __init__(
        self,
        batches: Iterator[pa.RecordBatch],
        spec: JoinSpec,
        now_s: Callable[[], float],
    ) -> None:
        self._batches = batches
        self._names = spec.stream_key
        self._key = spec.stream_key_indexes
        self.now_s = now_s
        self._pending: pa.RecordBatch | None = None
        self._recent: deque[list[pa.Array]] = deque()
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

    def sample(self) -> pa.Table:
        """Return the keys that came last, and those that come next if they are known."""
        parts = [*self._recent]
        if self._pending is not None:
            parts.append([self._pending.column(i)[:SAMPLE_ROWS] for i in self._key])
        columns = [pa.chunked_array(list(column)) for column in zip(*parts, strict=True)]
        return pa.table(columns, names=list(self._names))

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
        """Copy some of a batch's keys; those of the oldest batches are forgotten."""
        self.row_count += batch.num_rows
        step = max(1, batch.num_rows // _ROWS_PER_BATCH)
        some = pa.array(np.arange(0, batch.num_rows, step)[:_ROWS_PER_BATCH])
        if len(some):
            self._recent.append([batch.column(i).take(some) for i in self._key])
            self._recent_rows += len(some)
        while self._recent and self._recent_rows - len(self._recent[0][0]) >= SAMPLE_ROWS:
            self._recent_rows -= len(self._recent.popleft()[0])


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
