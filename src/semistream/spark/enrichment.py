"""`enrich`: a DataFrame in, the same DataFrame with the relation's columns out.

::

    df ── repartitionById(P, code mod P) ── mapInArrow(task p ⋈ partition p) ── observe ── filter
          (JVM)                             (one operator per task)             (telemetry rows)

or, with local routing (`semistream.spark.routing`), without the first step and over all of R::

    df ── mapInArrow(task ⋈ R) ── observe ── filter

Everything is lazy and built of public DataFrame operations, so it works on streaming and batch
frames, in `DataFrame.transform`, and in Spark Connect sessions. Each task joins all its rows before
it ends: no state outlives a micro-batch, and Spark's checkpoint makes it exactly once.

Telemetry is sent as rows: each task ends with one row that is empty but for a list of counters.
`observe` sums them under the name of the join, where Spark reports them in
`StreamingQueryProgress.observedMetrics`; a filter removes these rows from the data. An error is
sent as a row as well, and raised by the filter (`semistream.spark.failures`).

What can be known without the stream's rows is checked on the driver, when `enrich` is called:
columns, types, the budget of a task, and whether the workers can run semistream at all.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import timedelta
from inspect import signature
from itertools import chain
from typing import Concatenate, ParamSpec

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import ArrayType, LongType, StringType, StructField, StructType

from semistream.advice.auto import AUTO, check_rate, make_join
from semistream.advice.calibration import factors_for
from semistream.advice.settings import Settings, split_of, with_front_stage
from semistream.advice.shed import check_shed, weighted_spec
from semistream.conditions.condition import Conditions
from semistream.cost.factors import CostFactors
from semistream.embedded import DEFAULT_MEMORY, JoinOptions, open_relation
from semistream.errors import BudgetError, ColumnError, OptionError, SemistreamError
from semistream.joins.shedding import Shedding, shedding_of
from semistream.joins.telemetry import Telemetry
from semistream.relation.relation import Relation
from semistream.relation.staleness import Staleness
from semistream.spark.failures import ERROR_COLUMN, text_of, unless_error
from semistream.spark.following import followed, snapshot_values
from semistream.spark.holding import hold
from semistream.spark.keys import column, partition_expression
from semistream.spark.merging import Merging
from semistream.spark.metrics import TELEMETRY_COLUMN, JoinClock, counted, observe
from semistream.spark.parallelism import Cores
from semistream.spark.routing import Given, Route, choose_route, routing_for_order
from semistream.spark.setaside import SetAside, check_reason
from semistream.spark.shedding import Thinned, check_aside, served_rate, sketch_bytes, thin
from semistream.spark.spreading import spread_expression
from semistream.spark.types import arrow_schema, check_collation, spark_type, wire_type
from semistream.spark.warm import WarmTask, Warmth, remove_when_stopped
from semistream.spark.workers import check_workers
from semistream.spec import Columns, JoinSpec, On
from semistream.units import parse_budget

_PARTITION_COLUMN = "__semistream_partition"
_INNER_COLUMNS = (TELEMETRY_COLUMN, ERROR_COLUMN)  # the last two of what a task returns
_TELEMETRY_TYPE = pa.list_(pa.int64())
_P = ParamSpec("_P")


def enrich(
    stream: DataFrame,
    relation: Relation | str | os.PathLike[str],
    *,
    on: On | None = None,
    how: str = "left",
    columns: Columns | None = None,
    memory: int | str | None = None,
    memory_per_task: int | str | None = None,
    algorithm: str = AUTO,
    routing: str = AUTO,
    suffix: str | None = None,
    condition: Conditions | None = None,
    valid_at: str | None = None,
    ordered: str | None = None,
    front_stage: bool = False,
    settings: Settings | None = None,
    shed: Shedding | str | None = None,
    name: str | None = None,
    max_staleness: float | str | timedelta | None = None,
    on_stale: str = "warn",
    rate: float | None = None,
    reason: str | None = None,
) -> DataFrame:
    """Join a DataFrame, streaming or not, with a relation within a memory budget.

    `on` names the key: a column, a list, or a mapping from stream name to relation name; the
    default is the relation's own key. `columns` are the relation's columns to add (a mapping
    renames them); the default is all but the key. `how` is ``left``, ``inner``, ``semi`` or
    ``anti``, or Spark's name for one of them (``left_anti``). `memory` is the budget of the whole
    join, a size or a share of the relation (``"5%"``), 64 MB unless given: tasks that run at once
    share it equally. Give `memory_per_task` instead if executors are sized by core. A `condition`
    must hold for a pair to match, beside equal keys (`semistream.conditions.condition`). With
    `valid_at`, a column of the stream, the version of a row matches that was valid then. With
    ``ordered="stream"`` the rows of an input partition leave in their order, and stay in it; with
    ``ordered="key"`` those of an input partition that have the same key leave in their order.
    ``front_stage=True`` puts the front stage before a named algorithm; `settings` are its operating
    parameters (`semistream.advice.settings`), sizes for each task.

    With `routing` ``shuffle`` each row moves to the task of its partition of R; with ``local`` it
    stays where it is, and each task joins with all of R; ``auto`` chooses between them when the
    plan is built (`semistream.spark.routing`). With a `rate`, in rows per second of the whole
    stream, ``auto`` uses only the part of `memory` that it needs to keep up. With `shed` as well,
    ``"uniform"``, ``"keep-rare"`` or `semistream.shedding`, it uses all of `memory`; if the rate is
    more than can be served, only a part of the rows is joined, each with a weight that makes up for
    the others (`semistream.spark.shedding`). The join's counters
    appear in the query's observed metrics under `name`, which is ``semistream:<relation>`` unless
    given, and ``semistream:<relation>#2`` for a second join with the same relation.

    `reason` names a text column of the stream that says why a row cannot be joined: rows in which
    it is not null pass by, with nulls for the relation's columns, and a row that is too wide for
    the memory gets one instead of ending the query.

    A streaming query joins each micro-batch with the snapshot that is current when it begins, also
    when the micro-batch is repeated; open the relation at a snapshot to keep to that one. If the
    snapshot was published longer ago than `max_staleness` (``"10min"``, seconds, a timedelta), the
    workers log a warning, or with ``on_stale="stop"`` the query ends with an error.

    ::

        enriched = ss.enrich(sales, "products.rel", on="product_id", memory="64MB")
    """
    relation = open_relation(relation)
    session = stream.sparkSession
    options = JoinOptions(on, how, columns, suffix=suffix, condition=condition, valid_at=valid_at)
    case_sensitive = session.conf.get("spark.sql.caseSensitive") == "true"
    spec = options.spec(relation, arrow_schema(stream.schema), case_sensitive=case_sensitive)
    check_collation(stream.schema, spec.stream_key)
    check_reason(spec, reason, ordered, shed)
    staleness = Staleness.of(max_staleness, on_stale)
    if relation.is_fixed or not stream.isStreaming:
        hold(relation)
    given = _given(memory, memory_per_task, relation)
    algorithm = with_front_stage(algorithm, front_stage)
    routing = routing_for_order(ordered, routing, algorithm)
    cores, shedding = Cores.of(session), shedding_of(shed)
    if shedding is not None:
        check_shed(shedding, algorithm, spec, rate)
        check_aside(shedding)
        spec = weighted_spec(spec, shedding)
        given = given.less(sketch_bytes(shedding), max(cores.count, relation.partition_count))
    route = choose_route(routing, algorithm, relation, spec, given, cores)
    split_of(settings, algorithm, relation, route.join_bytes)  # raises what is wrong with them
    check_workers(session)
    thinned = Thinned(stream, None)
    if shedding is not None and rate is not None:
        served = served_rate(shedding, algorithm, relation, spec, route, rate)
        thinned = thin(stream, relation, spec, shedding, rate, served, name)
        stream, rate = thinned.kept, None
    check_rate(algorithm, rate)
    schema = _joined_schema(stream, spec, case_sensitive)
    share = None if rate is None else rate / route.tasks
    is_plain = ordered is None and settings is None and bool(spec.stream_key)
    warmth = _warmth(stream, route) if is_plain else None
    about = (relation, spec, algorithm, route, staleness, warmth, share, ordered, settings)
    task = Task(*about, reason=reason).with_factors()
    joined = _routed(stream, relation, spec, route).mapInArrow(task, schema)
    observed = observe(joined, relation, route, name)
    is_joined = unless_error(column(TELEMETRY_COLUMN).isNull())
    return _beside(thinned.shed, observed.filter(is_joined).drop(*_INNER_COLUMNS))


def _beside(shed: DataFrame | None, joined: DataFrame) -> DataFrame:
    """Return the joined rows, and those that were shed, with nulls for the relation's columns."""
    if shed is None:
        return joined
    added = joined.schema.fields[len(shed.columns) :]
    nulls = [F.lit(None).cast(field.dataType).alias(field.name) for field in added]
    return joined.union(shed.select(*(column(name) for name in shed.columns), *nulls))


def _warmth(stream: DataFrame, route: Route) -> Warmth | None:
    """Return how the tasks find what stays warm between micro-batches; None without these."""
    if not stream.isStreaming:
        return None
    session = stream.sparkSession
    local_dirs = tuple((session.conf.get("spark.local.dir", "") or "").split(","))
    warmth = Warmth(route.warm_bytes, route.tasks, tuple(place for place in local_dirs if place))
    remove_when_stopped(session, warmth)
    return warmth


def _given(memory: int | str | None, per_task: int | str | None, relation: Relation) -> Given:
    """Return the memory in bytes; raise if it is given twice."""
    if memory is not None and per_task is not None:
        raise OptionError(
            f"give either memory, of all tasks that run at once, or memory_per_task; got both, "
            f"{memory!r} and {per_task!r}"
        )
    if per_task is not None:
        return Given(None, parse_budget(per_task, relation.size_bytes))
    memory = DEFAULT_MEMORY if memory is None else memory
    return Given(parse_budget(memory, relation.size_bytes), None)


def _routed(stream: DataFrame, relation: Relation, spec: JoinSpec, route: Route) -> DataFrame:
    """Return the stream as its tasks receive it: with a shuffle, the partition is the last column.

    Columns are numbered: mapInArrow looks them up by unquoted names, which fails for "a.b" and
    "a`b".
    """
    numbered = [f"c{i}" for i in range(len(stream.columns))]
    if route.is_local:
        return stream.toDF(*numbered)
    about = (relation.coder, spec.stream_key, relation.partition_count)
    if route.spread:
        partition = spread_expression(stream, *about, route.spread)
    else:
        partition = partition_expression(*about)
    return (
        stream.withColumn(_PARTITION_COLUMN, partition)
        .toDF(*numbered, _PARTITION_COLUMN)
        .repartitionById(relation.partition_count, column(_PARTITION_COLUMN))
    )


def _without_stream(
    function: Callable[Concatenate[DataFrame, _P], DataFrame],
) -> Callable[_P, Callable[[DataFrame], DataFrame]]:
    """Return a function of all arguments but the first, whose result takes the first."""
    whole = signature(function)
    taken = whole.replace(
        parameters=list(whole.parameters.values())[1:],
        return_annotation=Callable[[DataFrame], DataFrame],
    )

    def given(*args: _P.args, **options: _P.kwargs) -> Callable[[DataFrame], DataFrame]:
        taken.bind(*args, **options)  # so that a wrong name is reported here
        return lambda stream: function(stream, *args, **options)

    given.__signature__ = taken  # type: ignore[attr-defined]
    given.__name__ = given.__qualname__ = f"{function.__name__}_with"
    given.__doc__ = (
        f"Return `{function.__name__}` with all arguments but the DataFrame, for "
        f"``df.transform({given.__name__}(…))``."
    )
    return given


# Takes the arguments of `enrich` but the DataFrame: ``df.transform(enrich_with(relation, …))``.
enrich_with = _without_stream(enrich)


@dataclass(frozen=True)
class Task:
    """The function of a Python worker: one operator over the relation, or a partition of it."""

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

    def with_factors(self) -> "Task":
        """Return the task with the cost factors of the driver's host, by which `auto` chooses."""
        if self.algorithm != AUTO or not self.spec.stream_key:
            return self
        return replace(self, factors=factors_for(self.relation, self.spec))

    @contextmanager
    def _whole_budget(self) -> Iterator[None]:
        """Let a `BudgetError` name the memory that the user gave, not the share of a task."""
        try:
            yield
        except BudgetError as error:
            raise self.route.explained(error) from None

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Join the rows of a task, then yield one row: telemetry, or an error of ours."""
        batches = (batch for batch in batches if batch.num_rows)
        first = next(batches, None)
        if first is None:
            return
        stream = map(self._stream_rows, chain([first], batches))
        # Spark labels timestamps with the session's time zone: use the schema of the batch.
        spec = self.spec.with_stream_schema(self._stream_rows(first).schema)
        wire, merging, clock = _Wire(spec), Merging(self.route.merged_bytes), JoinClock()
        try:
            with self._whole_budget():
                relation = followed(self.relation, spec)
                self.staleness.check(relation)
                partition = self._partition(first)
                joined = None if self.route.joins_all else partition
                warm = WarmTask()
                if self.warmth is not None:
                    warm = self.warmth.begin(relation, partition, joined)
                about = (relation, spec, self.route.join_bytes, joined)
                operator = make_join(
                    self.algorithm,
                    *about,
                    factors=self.factors,
                    rate=self.rate,
                    ordered=self.ordered,
                    settings=self.settings,
                    front=warm.front,
                    history=warm.history,
                )
                aside = SetAside(spec, self.reason, self.route.join_bytes)
                joined_rows = clock.joined(iter(operator.join(clock.rows(aside.sound(stream)))))
                for batch in chain(merging.merge(joined_rows), aside.rows()):
                    yield wire.rows(batch)
                warm.keep(operator.telemetry.front_admissions)
                beside_bytes = merging.peak_bytes + warm.peak_bytes
                yield wire.telemetry(counted(operator, beside_bytes, clock), relation)
        except SemistreamError as error:
            yield wire.error(error)

    def _partition(self, first: pa.RecordBatch) -> int | None:
        """Return the partition that a task is for, by its first rows; None with local routing.

        Not the task's own number: after coalesce or union a task runs other partitions.
        """
        if self.route.is_local:
            return None
        return int(first.column(first.num_columns - 1)[0].as_py())

    def _stream_rows(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return a batch with the stream's columns only, under their own names."""
        names = self.spec.stream_schema.names
        fields = list(batch.schema)[: len(names)]
        named = [f.with_name(n) for f, n in zip(fields, names, strict=True)]
        return pa.RecordBatch.from_arrays(batch.columns[: len(names)], schema=pa.schema(named))


class _Wire:
    """Converts joined rows and telemetry to the one schema that a task returns to Spark."""

    def __init__(self, spec: JoinSpec) -> None:
        added = list(spec.output_schema)[len(spec.stream_schema) :]
        wired = [field.with_type(wire_type(field)) for field in added]
        # The columns that Spark needs in another type: index and type.
        self._casts = {
            len(spec.stream_schema) + i: wire.type
            for i, (field, wire) in enumerate(zip(added, wired, strict=True))
            if field.type != wire.type
        }
        fields = [field.with_nullable(True) for field in (*spec.stream_schema, *wired)]
        inner = (pa.field(TELEMETRY_COLUMN, _TELEMETRY_TYPE), pa.field(ERROR_COLUMN, pa.string()))
        self._schema = pa.schema([*fields, *inner])

    def rows(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        columns = batch.columns
        for i, dtype in self._casts.items():
            columns[i] = columns[i].cast(dtype)
        empty = [pa.nulls(batch.num_rows, field.type) for field in list(self._schema)[-2:]]
        return pa.RecordBatch.from_arrays([*columns, *empty], schema=self._schema)

    def telemetry(self, counters: Telemetry, relation: Relation) -> pa.RecordBatch:
        return self._row(TELEMETRY_COLUMN, [*counters.values(), *snapshot_values(relation)])

    def error(self, error: SemistreamError) -> pa.RecordBatch:
        return self._row(ERROR_COLUMN, text_of(error))

    def _row(self, name: str, value: object) -> pa.RecordBatch:
        """Return a row that is empty but for one of the inner columns."""
        values = {field.name: None for field in list(self._schema)[-2:]} | {name: value}
        arrays = [pa.nulls(1, field.type) for field in list(self._schema)[:-2]]
        arrays += [pa.array([values[f.name]], f.type) for f in list(self._schema)[-2:]]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)


def _joined_schema(stream: DataFrame, spec: JoinSpec, case_sensitive: bool) -> StructType:
    """Return the schema of the tasks' rows. All is nullable: telemetry rows are empty."""
    for name in spec.output_schema.names:
        if spec.output_schema.names.count(name) > 1:
            raise ColumnError(f"the stream has several columns named {name!r}; rename them")
        if (name if case_sensitive else name.lower()) in _INNER_COLUMNS:
            raise OptionError(
                f"the column name {name!r} is reserved for semistream; rename your column"
            )
    added = list(spec.output_schema)[len(spec.stream_schema) :]
    return StructType(
        [
            *(StructField(f.name, f.dataType, True, f.metadata) for f in stream.schema.fields),
            *(StructField(f.name, spark_type(f), True) for f in added),
            StructField(TELEMETRY_COLUMN, ArrayType(LongType())),
            StructField(ERROR_COLUMN, StringType()),
        ]
    )
