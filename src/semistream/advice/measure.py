"""The measuring harness: the service rate of a join, in tuples per second once it is warm.

::

    Harness: relation, spec ──► make a join ──► endless stream ──► warm-up │ measured │ (no drain)
                                                     every output batch ──► check

As in `meshjoin.txt` section 4.1 a stream tuple is available at every request, the first cycles of R
are not counted, and neither is the drain at the end. Calibration, the lab's figures and the
validation of the cost models all measure with this harness; they differ in relation, stream, period
and check.
"""

from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass, replace
from math import inf
from time import perf_counter
from typing import TypeAlias

import pyarrow as pa

from semistream.budget.rules import Settings
from semistream.budget.split import Split
from semistream.joins.opened import Opened
from semistream.joins.protocols import Operator
from semistream.joins.registry import make_operator
from semistream.joins.stopwatch import Stopwatch
from semistream.joins.streamjoin import Plan, StreamJoin
from semistream.joins.telemetry import Telemetry
from semistream.relation.relation import Relation
from semistream.spec import JoinSpec

Clock: TypeAlias = Callable[[], float]
Check: TypeAlias = Callable[[pa.RecordBatch], None]
MakeJoin: TypeAlias = Callable[
    [str, Relation, JoinSpec, int, int | None, Split, Opened | None], StreamJoin
]


@dataclass(frozen=True, slots=True)
class _Mark:
    """The counters and timers of a join at one moment."""

    tuples: int
    now_s: float
    telemetry: Telemetry
    stopwatch: Stopwatch


@dataclass(frozen=True, slots=True)
class ServiceRate:
    """What was measured between two moments."""

    start: _Mark
    end: _Mark

    @property
    def tuples(self) -> int:
        """The number of tuples that were taken from the stream."""
        return self.end.tuples - self.start.tuples

    @property
    def elapsed_s(self) -> float:
        """The time between the two moments."""
        return self.end.now_s - self.start.now_s

    @property
    def rate(self) -> float:
        """Tuples per second."""
        return self.tuples / self.elapsed_s

    @property
    def own_rate(self) -> float:
        """The rate without the time that was spent outside of the join."""
        return max(1, self.tuples) / (self.elapsed_s - self.seconds("outside"))

    @property
    def hit_ratio(self) -> float:
        """The share of the tuples that a front stage has resolved."""
        return self.counted("front_hits") / self.tuples

    @property
    def loops(self) -> int:
        """The number of loops of the join, at least one."""
        return max(1, self.counted("iterations"))

    def counted(self, name: str) -> int:
        """Return by how much a counter of the telemetry has grown."""
        return int(getattr(self.end.telemetry, name) - getattr(self.start.telemetry, name))

    def seconds(self, *steps: str) -> float:
        """Return the CPU time of some steps."""
        end, start = self.end.stopwatch, self.start.stopwatch
        return sum(end.seconds(step) - start.seconds(step) for step in steps)


@dataclass(frozen=True, slots=True)
class Period:
    """How long to warm up and to measure: cycles of R, within a limit for each of the two."""

    warm_cycles: float = 4
    cycles: float = 2
    most_tuples: float = inf
    most_s: float = inf


@dataclass(frozen=True, slots=True)
class Measured:
    """A join that was measured: how it split its budget, and what it did once it was warm."""

    plan: Plan
    service: ServiceRate
    rate: float  # tuples per second
    loop_s: float  # seconds of a loop

    @property
    def settings(self) -> Settings:
        """The settings that the budget was split into."""
        return self.plan.settings

    @property
    def cached_rows(self) -> int:
        """The rows that its front stage has space for."""
        return self.plan.cached_rows

    @property
    def tuples_per_loop(self) -> float:
        """The tuples that a loop served on average."""
        return self.service.tuples / self.service.loops


@dataclass(frozen=True, slots=True)
class Harness:
    """Measures joins over one relation, or over one partition of it."""

    relation: Relation  # read by the device to measure on
    spec: JoinSpec
    page_count: int  # pages of a cycle
    partition: int | None = None
    opened: Opened | None = None  # the page table, if the joins share one
    make: MakeJoin = make_operator
    all_match: bool = False  # then no more tuples may be missing from the output than can wait

    @property
    def clock(self) -> Clock:
        """The clock of an emulated device, or that of this machine."""
        device = self.relation.reading.device
        return perf_counter if device is None else lambda: device.now_s

    def measure(
        self,
        algorithm: str,
        budget_bytes: int,
        split: Split,
        stream: Iterator[pa.RecordBatch],
        period: Period,
        check: Check | None = None,
    ) -> Measured:
        """Run a join on an endless stream; `BudgetError` if the budget is too small for it.

        Each output batch is passed to `check`, which raises if it is wrong.
        """
        about = (self.relation, self.spec, budget_bytes, self.partition, split, self.opened)
        join = self.make(algorithm, *about)
        sized = _Sized(stream)
        service = measure_service(join, self.page_count, sized, self.clock, period, check)
        plan = join.plan
        assert plan is not None, "a join that has served tuples has split its budget"
        if self.all_match:
            waiting = plan.settings.places + plan.settings.output_rows + sized.most_rows
            check_complete(join.telemetry, waiting)
        is_emulated = self.relation.reading.device is not None
        rate = service.rate if is_emulated else service.own_rate
        return Measured(plan, service, rate, service.elapsed_s / service.loops)


def measure_service(
    join: Operator,
    page_count: int,
    stream: Iterator[pa.RecordBatch],
    now_s: Clock,
    period: Period = Period(),  # noqa: B008  (frozen)
    check: Check | None = None,
) -> ServiceRate:
    """Run a join on an endless stream until it is warm and for some cycles of R after that."""
    timed = _Timed(join, page_count, stream, now_s, period)
    joined = join.join(timed)
    for batch in joined:
        if check is not None:
            check(batch)
        if timed.is_done:
            break
    if isinstance(joined, Generator):
        joined.close()
    return timed.result()


def check_complete(telemetry: Telemetry, most_waiting: int) -> None:
    """Raise if more tuples are missing from the output than can wait; for joins that all match."""
    missing = telemetry.stream_rows - telemetry.output_rows
    if missing > most_waiting:
        raise AssertionError(
            f"a join lost rows: {missing} are missing, {most_waiting} at most can wait: {telemetry}"
        )


class _Sized:
    """A stream, and the rows of its largest batch so far."""

    def __init__(self, stream: Iterator[pa.RecordBatch]) -> None:
        self._stream = stream
        self.most_rows = 0

    def __iter__(self) -> "_Sized":
        return self

    def __next__(self) -> pa.RecordBatch:
        batch = next(self._stream)
        self.most_rows = max(self.most_rows, batch.num_rows)
        return batch


class _Timed:
    """A source that notes when the join is warm, and when enough has been measured."""

    def __init__(
        self,
        join: Operator,
        page_count: int,
        stream: Iterator[pa.RecordBatch],
        now_s: Clock,
        period: Period,
    ) -> None:
        self._join = join
        self._page_count = page_count  # of a cycle
        self._stream = stream
        self._now_s = now_s
        self._period = period
        self._tuples = 0  # handed to the join so far
        self._begun: _Mark | None = None  # at the first batch
        self._start: _Mark | None = None  # when the join was warm
        self._end: _Mark | None = None  # when enough was measured

    @property
    def is_done(self) -> bool:
        return self._end is not None

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        for batch in self._stream:
            self._look()
            if self.is_done:
                return
            self._tuples += batch.num_rows
            yield batch

    def result(self) -> ServiceRate:
        assert self._start is not None
        assert self._end is not None
        return ServiceRate(self._start, self._end)

    def _look(self) -> None:
        join = self._join
        join.stopwatch.lap("outside")
        mark = _Mark(self._tuples, self._now_s(), replace(join.telemetry), join.stopwatch.copy())
        if self._begun is None:
            self._begun = mark
        elif self._start is None:
            if self._is_over(self._begun, mark, self._period.warm_cycles):
                self._start = mark
        elif self._is_over(self._start, mark, self._period.cycles):
            self._end = mark

    def _is_over(self, start: _Mark, now: _Mark, cycles: float) -> bool:
        pages = now.telemetry.pages_scanned - start.telemetry.pages_scanned
        return now.now_s > start.now_s and (
            pages >= cycles * self._page_count
            or now.tuples - start.tuples >= self._period.most_tuples
            or now.now_s - start.now_s >= self._period.most_s
        )
