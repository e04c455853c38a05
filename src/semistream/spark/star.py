"""`enrich_star`: a DataFrame in, the same DataFrame with the columns of several relations out.

::

    df ── mapInArrow(task ⋈ R₁ ⋈ R₂ ⋈ R₃) ── observe, observe, observe ── filter

One call instead of a chain of `enrich`: rows cross into Python once, shuffles are shared, and one
budget is divided by the cost model (`semistream.spark.starplan`). The result is that of the chain.
"""

import logging
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

import pyarrow as pa
from pyspark.sql import DataFrame

from semistream.advice.explain_spark import USUAL_BATCH_ROWS
from semistream.advice.settings import named_algorithm, split_of
from semistream.embedded import DEFAULT_MEMORY, open_relation
from semistream.errors import OptionError
from semistream.relation.relation import Relation
from semistream.relation.staleness import Staleness
from semistream.spark.enrichment import (
    hold_planned,
    joined_rows,
    joined_schema,
    routed,
    warmth_of,
)
from semistream.spark.keys import column
from semistream.spark.metrics import Observed, observe
from semistream.spark.parallelism import Cores
from semistream.spark.routing import Given
from semistream.spark.setaside import check_reason
from semistream.spark.staroptions import StarOptions
from semistream.spark.starplan import Member, Planned, StarPlan, plan
from semistream.spark.tasks import Step, Task, added_fields
from semistream.spark.types import arrow_schema, check_collation
from semistream.spark.workers import check_workers
from semistream.spec import JoinSpec
from semistream.units import parse_budget

_LOG = logging.getLogger("semistream.star")
Place: TypeAlias = Relation | str | os.PathLike[str]
# Each relation with its key or its options; pairs, if one relation is joined more than once.
Relations: TypeAlias = Mapping[Any, Any] | Sequence[tuple[Place, Any]]


def enrich_star(
    stream: DataFrame,
    relations: Relations,
    *,
    memory: int | str | None = None,
    memory_per_task: int | str | None = None,
    batch: int = USUAL_BATCH_ROWS,
    reason: str | None = None,
) -> DataFrame:
    """Join a DataFrame, streaming or not, with several relations within one memory budget.

    `relations` maps each relation, or its place, to its key (``"product_id"``) or to options:
    ``on``, ``how``, ``columns``, ``name`` and others of `enrich`. A relation may be joined on a
    column that one before it has added, and more than once if pairs are given instead of a
    mapping: ``[(dates, {"on": …, "columns": …}), (dates, …)]``. The result has the columns in the
    order that the relations were given in, and the rows of a chain of `enrich` calls.

    `memory` is for all relations together, 64 MB unless given; a share (``"5%"``) is of all of
    them. The cost model divides it so that micro-batches of `batch` rows are joined fastest; a
    relation with a ``memory`` of its own gets that. Relations that need no shuffle are joined in
    one pass over the rows, and those that are shuffled by the same key share the shuffle. The
    metrics of each relation are observed under its own name, as those of `enrich`. `reason` names
    a column for rows that cannot be joined, as there.

    ::

        enriched = ss.enrich_star(
            sales,
            {"products.rel": "product_id", "stores.rel": {"on": "store_id", "columns": ["city"]}},
            memory="256MB",
        )
    """
    session = stream.sparkSession
    planned = plan_star(
        stream, relations, memory=memory, memory_per_task=memory_per_task, batch=batch
    )
    check_workers(session)
    _LOG.info("%s", planned)
    members = [each.member for one in planned.passes for each in one]
    for member in members:
        hold_planned(stream, member.relation)
    joined = stream
    for one in planned.passes:
        joined = _one_pass(joined, one, reason)
    names = [*stream.columns, *_added_names(members)]
    if joined.columns == names:
        return joined
    return joined.select(*map(column, names))


def plan_star(
    stream: DataFrame,
    relations: Relations,
    *,
    memory: int | str | None = None,
    memory_per_task: int | str | None = None,
    batch: int = USUAL_BATCH_ROWS,
) -> StarPlan:
    """Return how `enrich_star` would join: passes, routing, memory of each relation. Print it."""
    if not relations:
        raise OptionError("a star needs at least one relation: {'products.rel': 'product_id'}")
    if batch < 1:
        raise OptionError(f"batch must be at least 1: rows of a micro-batch; got {batch}")
    pairs = list(relations.items()) if isinstance(relations, Mapping) else list(relations)
    opened = [(open_relation(place), StarOptions.of(said)) for place, said in pairs]
    whole_bytes = sum(relation.size_bytes for relation, _ in opened)
    if memory is not None and memory_per_task is not None:
        raise OptionError("give either memory, of all tasks that run at once, or memory_per_task")
    if memory_per_task is not None:
        given = Given(None, parse_budget(memory_per_task, whole_bytes))
    else:
        chosen = DEFAULT_MEMORY if memory is None else memory
        given = Given(parse_budget(chosen, whole_bytes), None)
    members = _members(stream, opened)
    return plan(members, given, Cores.of(stream.sparkSession), batch)


def _members(stream: DataFrame, relations: Sequence[tuple[Relation, StarOptions]]) -> list[Member]:
    """Return the relations, each resolved against the stream and all relations before it."""
    case_sensitive = stream.sparkSession.conf.get("spark.sql.caseSensitive") == "true"
    schema = arrow_schema(stream.schema)
    added_by: dict[str, int] = {}  # which relation has added a column
    members = []
    for number, (relation, options) in enumerate(relations):
        spec = options.joining.spec(relation, schema, case_sensitive=case_sensitive)
        own = [name for name in spec.stream_key if name not in added_by]
        check_collation(stream.schema, own)
        compared = set(spec.stream_key)
        if spec.condition is not None:
            compared |= set(spec.condition.columns_of("stream"))
        needs = frozenset(added_by[name] for name in compared if name in added_by)
        about_algorithm = (options.algorithm, options.front_stage, options.settings)
        algorithm, settings = named_algorithm(*about_algorithm)
        options = replace(options, settings=settings)
        memory = options.memory
        given_bytes = None if memory is None else parse_budget(memory, relation.size_bytes)
        about = (algorithm, given_bytes, options)
        members.append(Member(number, relation, spec, needs, *about))
        added_by |= {field.name: number for field in added_fields(spec)}
        schema = spec.output_schema
    joined_schema(stream, [schema.field(name) for name in added_by], case_sensitive)
    return members


def _added_names(members: Sequence[Member]) -> list[str]:
    """Return the names of all added columns, in the order in which relations were given."""
    in_order = sorted(members, key=lambda member: member.number)
    return [field.name for member in in_order for field in added_fields(member.spec)]


def _one_pass(stream: DataFrame, planned: Sequence[Planned], reason: str | None) -> DataFrame:
    """Join the stream with the relations of one pass."""
    steps: list[Step] = []
    schema = arrow_schema(stream.schema)
    added: list[pa.Field] = []
    for each in planned:
        spec = each.member.spec.with_stream_schema(schema)  # all names are known by now
        check_reason(spec, reason, None)
        steps.append(replace(_step(stream, each, spec), reason=reason))
        added += added_fields(spec)
        schema = spec.output_schema
    case_sensitive = stream.sparkSession.conf.get("spark.sql.caseSensitive") == "true"
    wire = joined_schema(stream, added, case_sensitive)
    by = next((s for s in steps if not s.route.is_local), steps[0])
    rows = routed(stream, by.relation, by.spec, by.route)
    joined = rows.mapInArrow(Task(tuple(steps)), wire)
    observing = [Observed(p.member.relation, p.route, p.member.options.name) for p in planned]
    return joined_rows(observe(joined, observing))


def _step(stream: DataFrame, planned: Planned, spec: JoinSpec) -> Step:
    member, route, options = planned.member, planned.route, planned.member.options
    split_of(options.settings, member.algorithm, member.relation, route.join_bytes)
    is_plain = options.settings is None and bool(spec.stream_key)
    return Step(
        member.relation,
        spec,
        member.algorithm,
        route,
        Staleness.of(options.max_staleness, options.on_stale),
        warmth_of(stream, route) if is_plain else None,
        settings=options.settings,
    ).with_factors()
