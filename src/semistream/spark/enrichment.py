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
from collections.abc import Callable
from datetime import timedelta
from inspect import signature
from typing import Concatenate, ParamSpec

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import StructField, StructType

from semistream.advice.auto import AUTO
from semistream.advice.checks import check_options, latency_in_s
from semistream.advice.settings import Settings, named_algorithm, split_of
from semistream.advice.shed import check_shed, weighted_spec
from semistream.conditions.condition import Conditions
from semistream.embedded import DEFAULT_MEMORY, JoinOptions, open_relation
from semistream.errors import ColumnError, OptionError
from semistream.joins.shedding import Shedding, shedding_of
from semistream.relation.relation import Relation
from semistream.relation.staleness import Staleness
from semistream.sources import named
from semistream.spark.failures import unless_error
from semistream.spark.holding import hold
from semistream.spark.keys import column, partition_expression
from semistream.spark.latency import task_rate
from semistream.spark.metrics import TELEMETRY_COLUMN, Observed, observe
from semistream.spark.missing import Missing, packed_schema, packing_of
from semistream.spark.parallelism import Cores
from semistream.spark.routing import Given, Route, choose_route, routing_for_order
from semistream.spark.setaside import check_reason
from semistream.spark.shedding import Thinned, check_aside, served_rate, sketch_bytes, thin
from semistream.spark.spreading import spread_expression
from semistream.spark.tasks import Step, Task, added_fields
from semistream.spark.types import arrow_schema, check_collation, check_times, spark_type
from semistream.spark.warm import Warmth, remove_when_stopped
from semistream.spark.wire import INNER_COLUMNS, INNER_FIELDS
from semistream.spark.workers import check_workers
from semistream.spec import Columns, JoinSpec, On
from semistream.units import parse_budget

_PARTITION_COLUMN = "__semistream_partition"
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
    latency: float | str | timedelta | None = None,
    reason: str | None = None,
    on_missing: str | None = None,
    grace: float | str | timedelta | None = None,
    outcome: str | None = None,
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
    stream, ``auto`` uses only the part of `memory` that it needs to keep up, or with a `latency` as
    well (``"2s"``, seconds, a timedelta) the part with which a micro-batch takes half of that
    (`semistream.spark.latency`); if none is enough, a warning is logged. With `shed` and a `rate`,
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

    With ``on_missing="hold"`` rows without a match wait in Spark's state until a refresh of the
    relation brings their key (`semistream.spark.waiting`); after the `grace` period (``"10min"``)
    they leave with nulls. Other rows do not wait. `outcome` names a column to add that says what
    became of a row: ``matched``, ``missing``, and of held rows ``late`` or ``expired``.

    ::

        enriched = ss.enrich(sales, "products.rel", on="product_id", memory="64MB")
    """
    relation = open_relation(relation)
    check_frame(stream)
    session = stream.sparkSession
    missing = Missing.of(stream, on_missing, grace, outcome, how)
    case_sensitive = session.conf.get("spark.sql.caseSensitive") == "true"
    added = missing.with_found(relation, columns, case_sensitive)
    options = JoinOptions(on, how, added, suffix=suffix, condition=condition, valid_at=valid_at)
    spec = options.spec(relation, arrow_schema(stream.schema), case_sensitive=case_sensitive)
    check_collation(stream.schema, spec.stream_key)
    check_reason(spec, reason, ordered)
    staleness = Staleness.of(max_staleness, on_stale)
    hold_planned(stream, relation)
    given = memory_given(memory, memory_per_task, relation)
    algorithm, settings = named_algorithm(algorithm, front_stage, settings)
    routing = routing_for_order(ordered, routing, algorithm)
    cores, shedding = Cores.of(session), shedding_of(shed)
    about_latency = (latency, algorithm, spec)
    latency_s = latency_in_s(*about_latency, rate=rate, ordered=ordered, shed=shedding)
    own_rate = rate if shedding is None else None  # of the join: what is shed does not reach it
    check_options(algorithm, spec, ordered=ordered, rate=own_rate, settings=settings)
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
        about_shed = (shedding, rate, served, name, reason)
        thinned = thin(stream, relation, spec, *about_shed)
        stream, rate = thinned.kept, None
    schema = joined_schema(stream, added_fields(spec), case_sensitive)
    share = task_rate(relation, spec, route, rate, latency_s)
    is_plain = ordered is None and settings is None and bool(spec.stream_key)
    warmth = warmth_of(stream, route) if is_plain else None
    about = (relation, spec, algorithm, route, staleness, warmth, share, ordered, settings)
    step, observed = Step(*about, reason=reason).with_factors(), [Observed(relation, route, name)]
    rows = routed(stream, relation, spec, route)
    if missing.grace_ms is None:
        joined = observe(rows.mapInArrow(Task((step,)), schema), observed)
        return _beside(thinned.shed, missing.marked(joined_rows(joined)))
    packed = observe(rows.mapInArrow(Task((step,), packing_of(step)), packed_schema()), observed)
    return _beside(thinned.shed, missing.held(joined_rows(packed), step, schema, name))


def check_frame(stream: object) -> None:
    """Raise `OptionError` if the stream is no DataFrame of Spark."""
    if not hasattr(stream, "sparkSession"):
        raise OptionError(
            f"the stream must be a DataFrame of Spark; got {named(stream)}. Read files with "
            "spark.readStream…; for rows without Spark there is semistream.join"
        )


def hold_planned(stream: DataFrame, relation: Relation) -> None:
    """Hold the snapshot of a query that keeps to it."""
    if relation.is_fixed or not stream.isStreaming:
        hold(relation)


def joined_rows(observed: DataFrame) -> DataFrame:
    """Return the joined rows alone; an error of a task is raised."""
    is_joined = unless_error(column(TELEMETRY_COLUMN).isNull())
    return observed.filter(is_joined).drop(*INNER_COLUMNS)


def _beside(shed: DataFrame | None, joined: DataFrame) -> DataFrame:
    """Return the joined rows, and those that were shed, with nulls for the relation's columns."""
    if shed is None:
        return joined
    added = joined.schema.fields[len(shed.columns) :]
    nulls = [F.lit(None).cast(field.dataType).alias(field.name) for field in added]
    return joined.union(shed.select(*(column(name) for name in shed.columns), *nulls))


def warmth_of(stream: DataFrame, route: Route) -> Warmth | None:
    """Return how the tasks find what stays warm between micro-batches; None without these."""
    if not stream.isStreaming:
        return None
    session = stream.sparkSession
    local_dirs = tuple((session.conf.get("spark.local.dir", "") or "").split(","))
    warmth = Warmth(route.warm_bytes, route.tasks, tuple(place for place in local_dirs if place))
    remove_when_stopped(session, warmth)
    return warmth


def memory_given(memory: int | str | None, per_task: int | str | None, relation: Relation) -> Given:
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


def routed(stream: DataFrame, relation: Relation, spec: JoinSpec, route: Route) -> DataFrame:
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


def joined_schema(stream: DataFrame, added: list[pa.Field], case_sensitive: bool) -> StructType:
    """Return the schema of the tasks' rows. All is nullable: telemetry rows are empty."""
    check_times(stream.sparkSession, added)
    names = [*stream.columns, *(field.name for field in added)]
    for name in names:
        if names.count(name) > 1:
            raise ColumnError(f"the stream has several columns named {name!r}; rename them")
        if (name if case_sensitive else name.lower()) in INNER_COLUMNS:
            raise OptionError(
                f"the column name {name!r} is reserved for semistream; rename your column"
            )
    return StructType(
        [
            *(StructField(f.name, f.dataType, True, f.metadata) for f in stream.schema.fields),
            *(StructField(f.name, spark_type(f), True) for f in added),
            *INNER_FIELDS,
        ]
    )
