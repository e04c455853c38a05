"""A join that sheds stream rows where more arrive than it can serve: any join, behind a filter.

::

    stream ─► kept with probability p, weight 1/p ─► any join ─► joined rows, each with its weight
                   └ shed: counted, and handed aside

See `semistream.joins.shedding`. The share of the rows that is kept is the service rate divided by
the `rate` at which rows arrive, at most 1. The service rate is the `capacity` that was given, or it
is measured: the rows that the join took, divided by the time that it had them in work, its last
looks most. Until the first look no row is shed. The time in which it waited for the stream, or its
output was in other hands, does not count.

With ``auto`` the join has all of the memory: whoever sheds has none to spare.

Memory: what decides on rows, and one slice of the stream, are reserved beside the join's budget. A
slice of a batch is copied without the rows that are shed. Each tuple carries 8 bytes more.
"""

import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from time import perf_counter

import numpy as np
import pyarrow as pa

from semistream.errors import BudgetError, ColumnError, OptionError
from semistream.joins.protocols import Operator
from semistream.joins.shedding import KEEP_RARE, KeepRare, Numbers, Shedding, thinning
from semistream.joins.stopwatch import Stopwatch
from semistream.joins.stream import rows_within
from semistream.joins.telemetry import Telemetry
from semistream.memory import MemoryLedger
from semistream.relation.relation import Relation
from semistream.spec import JoinSpec

_SLICE_BYTES = 64 << 10  # of the stream, that may be copied
_NUMBER_BYTES = 40  # of a row: its hash, weight, code, flags
_LOOK_ROWS = 4_096  # that the join takes between two looks
_OLD = 0.75  # what earlier looks count, each time
# Makes the join of a spec within a budget.
MakeJoin = Callable[[JoinSpec, int], Operator]


def check_shed(shed: Shedding, algorithm: str, spec: JoinSpec, rate: float | None) -> float:
    """Raise if a join cannot shed rows like this; return the rate."""
    if shed.policy == KEEP_RARE and not spec.stream_key:
        raise OptionError(
            "shed='keep-rare' tells rare keys from frequent ones, but on=[] compares no keys; use "
            "shed='uniform'"
        )
    if rate is None or rate <= 0:
        raise OptionError(
            "shed needs rate, the stream's rows per second: rows are shed only where that is more "
            f"than the join can serve; got rate={rate}"
        )
    if algorithm == "offline":
        raise OptionError(
            "offline reads the whole stream before it joins, so no row would ever be shed; "
            "leave shed out, or name another algorithm"
        )
    return rate


def weighted_spec(spec: JoinSpec, shed: Shedding) -> JoinSpec:
    """Return the spec of the join, whose stream has a column of weights."""
    if shed.weight in spec.output_schema.names:
        raise ColumnError(
            f"shed adds a column {shed.weight!r} of weights, but the output has one of that name; "
            f"pass shed=semistream.shedding({shed.policy!r}, weight='another_name')"
        )
    added = list(spec.output_schema)[len(spec.stream_schema) :]
    stream = spec.stream_schema.append(pa.field(shed.weight, pa.float64()))
    return replace(spec, stream_schema=stream, output_schema=pa.schema([*stream, *added]))


def shed_text(rate: float, served: float, policy: str) -> str:
    """Say that rows are shed, and why."""
    return (
        f"{rate:,.0f} rows/s arrive and {served:,.0f} can be served: {1 - served / rate:.0%} of "
        f"the rows are shed ({policy}). Their weights make up for them in sums and counts. Raise "
        "memory, or use more cores, to keep all"
    )


class Pace:
    """How many rows per second a join serves."""

    def __init__(self, capacity: float | None, clock: Callable[[], float]) -> None:
        """Begin with what was given, or with nothing measured."""
        self._capacity = capacity
        self._clock = clock
        self._began_s: float | None = None  # when the join got control, if it has it
        self._busy_s = self._rows = 0.0  # since the last look
        self._old_busy_s = self._old_rows = 0.0  # of the looks before

    def enter(self) -> None:
        """The join has control from now on."""
        self._began_s = self._clock()

    def leave(self) -> None:
        """The join waits, for the stream or for whoever takes its output."""
        if self._began_s is not None:
            self._busy_s += self._clock() - self._began_s
        self._began_s = None

    def take(self, rows: int) -> None:
        """Count rows that the join takes."""
        self._rows += rows

    @property
    def served(self) -> float:
        """The rows per second that are served; infinite before the first look."""
        if self._capacity is not None:
            return self._capacity
        if self._rows >= _LOOK_ROWS:
            self._old_rows = _OLD * self._old_rows + self._rows
            self._old_busy_s = _OLD * self._old_busy_s + self._busy_s
            self._rows = self._busy_s = 0.0
        return self._old_rows / self._old_busy_s if self._old_busy_s > 0 else np.inf


class SheddingJoin:
    """Runs a join on the rows of a stream that it can serve."""

    def __init__(
        self,
        relation: Relation,
        spec: JoinSpec,
        budget_bytes: int,
        shed: Shedding,
        rate: float,
        make: MakeJoin,
        *,
        clock: Callable[[], float] = perf_counter,
    ) -> None:
        """Make the join with its part of the budget; `clock` times it."""
        if isinstance(shed.aside, bool) and shed.aside:
            raise OptionError(
                "aside=True is for enrich; in join, aside is a function that is called with the "
                "batches that are shed"
            )
        device = relation.reading.device
        self._shed, self._rate = shed, rate
        self._budget_bytes = budget_bytes
        self._coder, self._key = relation.coder, spec.stream_key_indexes
        self._beside_bytes = beside_bytes(shed, budget_bytes)  # of the budget
        try:
            join_bytes = max(1, budget_bytes - self._beside_bytes)
            self._join = make(weighted_spec(spec, shed), join_bytes)
        except BudgetError as error:
            raise self._explained(error) from None
        self._pace = Pace(shed.capacity, clock if device is None else lambda: device.now_s)
        self._numbers = Numbers(shed.seed)
        self._thinning = thinning(shed, budget_bytes)
        self._shed_rows = 0
        self._warned = False

    @property
    def ledger(self) -> MemoryLedger:
        """What the join has reserved, and what is beside it."""
        ledger = MemoryLedger(self._budget_bytes)
        ledger.peak_bytes = self._join.ledger.peak_bytes + self._beside_bytes
        return ledger

    @property
    def telemetry(self) -> Telemetry:
        """What the join has counted, and the rows that were shed."""
        counted = self._join.telemetry
        peak_bytes = counted.memory_bytes_peak + self._beside_bytes
        return replace(counted, memory_bytes_peak=peak_bytes, shed_rows=self._shed_rows)

    @property
    def stopwatch(self) -> Stopwatch:
        """Where the join's time went."""
        return self._join.stopwatch

    def join(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Join the rows that are kept."""
        self._pace.enter()
        try:
            for batch in self._join.join(self._thinned(batches)):
                self._pace.leave()
                yield batch
                self._pace.enter()
        except BudgetError as error:
            raise self._explained(error) from None

    def _thinned(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the rows that are kept, with their weights, slice by slice."""
        self._pace.leave()
        for batch in batches:
            first = 0
            while first < max(1, batch.num_rows):
                rest = batch[first:]
                count = rows_within(rest.columns, _NUMBER_BYTES, _SLICE_BYTES)
                kept = self._kept(rest[:count])
                first += count
                if kept.num_rows or not batch.num_rows:  # an empty batch says that the stream rests
                    self._pace.take(kept.num_rows)
                    self._pace.enter()
                    yield kept
                    self._pace.leave()
        self._pace.enter()

    def _kept(self, some: pa.RecordBatch) -> pa.RecordBatch:
        """Return the rows of a slice that are kept, with their weights."""
        served = self._pace.served
        share = min(1.0, served / self._rate)
        codes = None
        if self._thinning.needs_codes:
            codes, _ = self._coder.codes([some.column(i) for i in self._key])
        weights = self._thinning.weights(self._numbers.next(some.num_rows), codes, share)
        is_kept = weights > 0
        dropped = some.num_rows - int(np.count_nonzero(is_kept))
        weighted = some.append_column(self._shed.weight, pa.array(weights))
        if not dropped:
            return weighted
        self._begin(served)
        self._shed_rows += dropped
        if callable(self._shed.aside):
            self._shed.aside(some.filter(pa.array(~is_kept)))
        return weighted.filter(pa.array(is_kept))

    def _begin(self, served: float) -> None:
        """Warn when the first row is shed."""
        if not self._warned:
            text = shed_text(self._rate, served, self._shed.policy)
            warnings.warn(text, stacklevel=2)
        self._warned = True

    def _explained(self, error: BudgetError) -> BudgetError:
        """Return the error of the join with the least budget of the whole."""
        if error.least_bytes is None:
            return error
        # What is beside the join may grow with the budget.
        least = error.least_bytes + self._beside_bytes
        while least - beside_bytes(self._shed, least) < error.least_bytes:
            least = error.least_bytes + beside_bytes(self._shed, least)
        return BudgetError(f"with shed, {error.problem}", least, error.otherwise)


def beside_bytes(shed: Shedding, budget_bytes: int) -> int:
    """Return what shedding takes of a budget."""
    sketch_bytes = KeepRare.bytes_within(budget_bytes) if shed.policy == KEEP_RARE else 0
    return sketch_bytes + _SLICE_BYTES
