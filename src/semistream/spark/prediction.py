"""What a query on Spark will deliver: the plan that `enrich` would make, and its prediction.

Nothing runs: the plan is chosen by the same rules, for a number of cores instead of a session.
"""

import os

import pyarrow as pa

from semistream.advice.auto import AUTO
from semistream.advice.calibration import calibration_for
from semistream.advice.calibration.sparkcosts import known_costs
from semistream.advice.explain_spark import Plan, SparkExplanation, SparkModel, explain_plan
from semistream.advice.question import Question
from semistream.errors import OptionError
from semistream.relation.relation import Relation
from semistream.spark.parallelism import Cores
from semistream.spark.routing import Given, Route, choose_route
from semistream.spec import Columns, JoinSpec, On
from semistream.units import parse_budget


def plan_query(
    relation: Relation,
    spec: JoinSpec,
    memory: int | str,
    cores: int,
    tasks: int | None = None,
    routing: str = AUTO,
) -> Plan:
    """Return how `enrich` would plan a query; `tasks` are those that its rows arrive in."""
    for name, count in (("cores", cores), ("tasks", tasks)):
        if count is not None and count < 1:
            raise OptionError(f"{name} must be at least 1; got {count}")
    budget_bytes = parse_budget(memory, relation.size_bytes)
    given = Given(budget_bytes, None)
    route = choose_route(routing, AUTO, relation, spec, given, Cores(cores))
    joining = (tasks or cores) if route.is_local else relation.partition_count
    return Plan(cores, joining, route.is_local, budget_bytes, route.join_bytes)


def model_of(relation: Relation, spec: JoinSpec, route: Route) -> SparkModel:
    """Return the model of a query that is planned like this.

    Keys are taken to be requested equally often, because nothing is known of the stream yet.
    """
    tasks = route.tasks if route.is_local else relation.partition_count
    plan = Plan(route.tasks, tasks, route.is_local, route.share_bytes, route.join_bytes)
    asked = Question(relation, spec, calibration_for(relation, spec))
    return SparkModel(asked, plan, known_costs())


def explain_query(
    relation: Relation,
    *,
    memory: int | str,
    cores: int | None = None,
    tasks: int | None = None,
    routing: str = AUTO,
    batch: int | None = None,
    rate: float | None = None,
    skew: float | None = None,
    sample: pa.Table | None = None,
    on: On | None = None,
    columns: Columns | None = None,
) -> SparkExplanation:
    """Return the predicted time of a query's micro-batches; see `SparkExplanation`.

    `cores` are those of all executors, this machine's unless given. `tasks` are those that the rows
    of a micro-batch arrive in, as many as cores unless given; with a shuffle they are R's
    partitions. Without `batch`, the rows of a micro-batch, it has the rows of a second at `rate`,
    or 100,000.
    """
    asked = Question.of(
        relation, rate=rate, skew=skew, sample=sample, on=on, columns=columns, batch=batch
    )
    cores = cores if cores is not None else len(os.sched_getaffinity(0))
    plan = plan_query(relation, asked.spec, memory, cores, tasks, routing)
    return explain_plan(asked, plan, known_costs(), rate=rate, batch=batch)
