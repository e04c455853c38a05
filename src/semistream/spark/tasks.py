"""What a Python worker does with the rows of a task: one join, or several one after the other.

::

    rows ──► step 1 ⋈ R₁ ──► merging ──► step 2 ⋈ R₂ ──► merging ──► … ──► joined rows
                 │                           │
                 └───────── counters ────────┴──────────────────────────► one row of telemetry

The joined rows of a step are the stream of the next one, batch by batch, so rows cross into Python
and back once, however many relations there are. Each step has memory of its own. The telemetry row
has the counters of all steps, one step's after the other's.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import chain

import pyarrow as pa
from pyspark import TaskContext

from semistream.advice.auto import AUTO, make_join
from semistream.advice.calibration import factors_for
from semistream.advice.settings import Settings
from semistream.cost.factors import CostFactors
from semistream.errors import BudgetError, CorruptRelationError, SemistreamError
from semistream.joins.telemetry import Telemetry
from semistream.relation.relation import Relation
from semistream.relation.staleness import Staleness
from semistream.spark.following import followed, report_damage, snapshot_values
from semistream.spark.garbage import leave_modules_out
from semistream.spark.merging import Merging
from semistream.spark.metrics import JoinClock, counted
from semistream.spark.packing import PackedWire, Packing
from semistream.spark.routing import Route
from semistream.spark.setaside import SetAside
from semistream.spark.warm import WarmTask, Warmth
from semistream.spark.wire import Wire
from semistream.spec import JoinSpec


@dataclass(frozen=True)
class Step:
    """The join of a task with one relation, or with a partition of it."""

    relation: Relation
    spec: JoinSpec
    algorithm: str
    route: Route  # how rows come to the task, and its memory
    # How old the snapshot may be.
    staleness: Staleness = field(default_factory=Staleness)
    warmth: Warmth | None = None  # of a streaming query: what stays warm between micro-batches
    rate: float | None = None  # rows per second that a task must keep up with
    ordered: str | None = None  # in which order rows leave
    settings: Settings | None = None  # of a named algorithm
    factors: CostFactors | None = None  # of the driver's host, for `auto`
    reason: str | None = None  # the column that says why a row is set aside

    def with_factors(self) -> "Step":
        """Return the step with the cost factors of the driver's host, by which `auto` chooses."""
        if self.algorithm != AUTO or not self.spec.stream_key:
            return self
        return replace(self, factors=factors_for(self.relation, self.spec))


class _WholeBudgetError(Exception):
    """Has a `BudgetError` that names the memory that the user gave, not the share of a task."""

    def __init__(self, error: BudgetError) -> None:
        super().__init__(str(error))
        self.error = error


class _Running:
    """A step of one task, while the task runs."""

    def __init__(self, step: Step, schema: pa.Schema, partition: int | None) -> None:
        """Make the join for rows of a schema; `partition` is the task's, None if rows stayed."""
        self._route = step.route
        # Spark labels timestamps with the session's time zone: use the schema of the rows.
        self.spec = step.spec.with_stream_schema(schema)
        self._merging, self._clock = Merging(step.route.merged_bytes), JoinClock()
        self._aside = SetAside(self.spec, step.reason, step.route.join_bytes)
        self._relation = followed(step.relation, self.spec)
        step.staleness.check(self._relation)
        own = None if step.route.is_local else partition
        joined = None if step.route.joins_all else own
        self._warm = WarmTask()
        if step.warmth is not None:
            self._warm = step.warmth.begin(self._relation, own, joined)
        try:
            self._operator = make_join(
                step.algorithm,
                self._relation,
                self.spec,
                step.route.join_bytes,
                joined,
                factors=step.factors,
                rate=step.rate,
                ordered=step.ordered,
                settings=step.settings,
                front=self._warm.front,
                history=self._warm.history,
            )
        except BudgetError as error:
            raise _WholeBudgetError(step.route.explained(error)) from None

    def join(self, rows: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the joined rows, small pieces merged."""
        sound = self._clock.rows(self._aside.sound(rows))
        joined = self._clock.joined(iter(self._operator.join(sound)))
        try:
            yield from chain(self._merging.merge(joined), self._aside.rows())
        except BudgetError as error:
            raise _WholeBudgetError(self._route.explained(error)) from None

    def end(self) -> list[int]:
        """Keep what is to stay warm, and return the counters; all rows have been joined."""
        self._warm.keep(self._operator.telemetry.front_admissions)
        beside_bytes = self._merging.peak_bytes + self._warm.peak_bytes
        counters: Telemetry = counted(self._operator, beside_bytes, self._clock)
        return [*counters.values(), *snapshot_values(self._relation)]


@dataclass(frozen=True)
class Task:
    """The function of a Python worker: all rows of a task through all steps."""

    steps: tuple[Step, ...]
    packing: Packing | None = None  # if rows leave in blobs

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Join the rows of a task, then yield one row: telemetry, or an error of ours."""
        leave_modules_out()
        batches = (batch for batch in batches if batch.num_rows)
        first = next(batches, None)
        if first is None:
            return
        stream = map(self._stream_rows, chain([first], batches))
        schema, partition = self._stream_rows(first).schema, self._partition(first)
        specs = [step.spec for step in self.steps]
        inner = Wire(schema, [f for s in specs for f in added_fields(s)])
        wire = inner if self.packing is None else PackedWire(self.packing, self._bucket(), inner)
        try:
            running = []
            rows: Iterator[pa.RecordBatch] = stream
            for step in self.steps:
                running.append(_Running(step, schema, partition))
                rows, schema = running[-1].join(rows), running[-1].spec.output_schema
            for batch in rows:
                yield wire.rows(batch)
            yield wire.telemetry([value for each in running for value in each.end()])
        except _WholeBudgetError as error:
            yield wire.error(error.error)
        except SemistreamError as error:
            if isinstance(error, CorruptRelationError):
                for step in self.steps:
                    report_damage(step.relation)
            yield wire.error(error)

    def _bucket(self) -> int:
        """Return a bucket for rows that may go to any: tasks differ in theirs."""
        context = TaskContext.get()
        return 0 if context is None else context.partitionId() % self._buckets

    @property
    def _buckets(self) -> int:
        return self.steps[0].relation.partition_count

    def _partition(self, first: pa.RecordBatch) -> int | None:
        """Return the partition that a task is for, by its first rows; None if rows stay.

        Not the task's own number: after coalesce or union a task runs other partitions.
        """
        if all(step.route.is_local for step in self.steps):
            return None
        return int(first.column(first.num_columns - 1)[0].as_py())

    def _stream_rows(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return a batch with the stream's columns only, under their own names."""
        names = self.steps[0].spec.stream_schema.names
        fields = list(batch.schema)[: len(names)]
        named = [f.with_name(n) for f, n in zip(fields, names, strict=True)]
        return pa.RecordBatch.from_arrays(batch.columns[: len(names)], schema=pa.schema(named))


def added_fields(spec: JoinSpec) -> list[pa.Field]:
    """Return the columns that a join adds to its stream."""
    return list(spec.output_schema)[len(spec.stream_schema) :]
