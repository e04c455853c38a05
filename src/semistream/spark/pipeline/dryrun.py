"""What a pipeline would do: its parts, what each join's memory buys, and Spark's plan."""

from contextlib import redirect_stdout
from io import StringIO

from pyspark.sql import SparkSession

from semistream.pipeline.model import Pipeline
from semistream.pipeline.steps import EnrichStar, JoinPart
from semistream.spark.pipeline.hidden import HIDDEN
from semistream.spark.pipeline.running import Plan, pipeline_session
from semistream.spark.pipeline.sourcing import read_source
from semistream.spark.prediction import explain_query
from semistream.spark.star import plan_star
from semistream.spark.starplan import StarPlan


def dry_run(pipeline: Pipeline, *, spark: SparkSession | None = None) -> str:
    """Return what a pipeline would do, as text; nothing is started, no secret is shown.

    Relations that are not there are built, because their columns are part of the plan.
    """
    secrets = pipeline.secrets()
    pipeline.check_source()
    session = pipeline_session(pipeline, secrets) if spark is None else spark
    try:
        plan = Plan.of(pipeline, session)
        cores = session.sparkContext.defaultParallelism
        parts = [_parts(pipeline), *_joins(plan, cores), _columns(plan), _spark_plan(plan)]
        return secrets.hidden("\n\n".join(parts))
    finally:
        if spark is None:
            session.stop()


def _parts(pipeline: Pipeline) -> str:
    sink, dead = pipeline.sink, pipeline.dead_letter_sink
    lines = [
        f"{pipeline.name}",
        f"  source        {_shown(pipeline.source)}",
        *([f"  parse         {_shown(pipeline.parse)}"] if pipeline.parse else []),
        *(f"  step {i}        {step.kind}" for i, step in enumerate(pipeline.steps, 1)),
        f"  sink          {_shown(sink)}",
        f"  dead letters  {_shown(dead)}, at most {pipeline.dead_letters.share:.0%}",
        f"  memory        {pipeline.memory}",
        f"  trigger       {pipeline.trigger or 'at once'}",
        f"  checkpoint    {pipeline.checkpoint_place}",
    ]
    return "\n".join(lines)


def _shown(part: object) -> str:
    """Return a part without its options; references to secrets stay references."""
    given = part.model_dump(exclude_defaults=True, by_alias=True)  # type: ignore[attr-defined]
    given.pop("options", None)
    return ", ".join(f"{name} {value}" for name, value in given.items())


def _joins(plan: Plan, cores: int) -> list[str]:
    found = []
    for number, step in enumerate(plan.pipeline.steps, 1):
        part = step.value
        if isinstance(part, EnrichStar) and step in plan.steps.streaming():
            found.append(f"step {number}, {step.kind}\n{_star(plan, number - 1, part)}")
        if not isinstance(part, JoinPart) or part.relation is None or part.memory_per_task:
            continue
        memory = plan.pipeline.memory_of(part)
        assert memory is not None, "a join without memory of its own has a share"
        relation = plan.steps.relation(part.relation)
        explained = explain_query(relation, memory=memory, cores=cores, routing=part.routing)
        found.append(f"step {number}, {step.kind} with {part.relation}\n{explained}")
    return found


def _star(plan: Plan, before: int, part: EnrichStar) -> StarPlan:
    """Return how a star would be joined, after the steps before it."""
    source = read_source(plan.rows.sparkSession, plan.pipeline, plan.secrets)
    rows = plan.steps.apply(source, plan.pipeline.steps[:before])
    rows, joins = plan.steps.star_joins(rows, part)
    return plan_star(rows, joins, **plan.steps.star_memory(part))  # type: ignore[arg-type]


def _columns(plan: Plan) -> str:
    shown = [f for f in plan.rows.schema.fields if f.name not in HIDDEN]
    listed = "\n".join(f"  {f.name}  {f.dataType.simpleString()}" for f in shown)
    later = [step.kind for step in plan.steps.of_a_batch()]
    after = f"\n  then, on each micro-batch: {', '.join(later)}" if later else ""
    return f"columns\n{listed}{after}"


def _spark_plan(plan: Plan) -> str:
    """Return Spark's plan, which it can only print."""
    text = StringIO()
    with redirect_stdout(text):
        plan.rows.explain()
    return f"Spark's plan\n{text.getvalue().rstrip()}"
