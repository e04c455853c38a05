"""A latency on Spark: how fast the tasks' joins must be, so that micro-batches are short enough.

::

    a row arrives ─► waits while another micro-batch runs ─► is in a micro-batch itself ─► output
                     └──────────── T at most ───────────┘    └──────────── T ─────────┘

So a micro-batch may take T = L/2, half of the latency. At λ rows per second it then has n = λ·T
rows. Spark's own part of its time is predicted (`semistream.cost.spark`); the rest is for the
joins, and each of them has to serve the rows of its task in that time.
"""

import logging

from semistream.advice.explain_text import seconds
from semistream.relation.relation import Relation
from semistream.spark.prediction import model_of
from semistream.spark.routing import Route
from semistream.spec import JoinSpec

_LOG = logging.getLogger(__name__)


def task_rate(
    relation: Relation,
    spec: JoinSpec,
    route: Route,
    rate: float | None,
    latency_s: float | None,
) -> float | None:
    """Return the rows per second that a task's join has to serve; None if it takes all memory.

    If no memory holds the latency, it warns: then all of it comes closest.
    """
    if rate is None or latency_s is None or not relation.row_count:
        return None if rate is None else rate / route.tasks
    model, most_s = model_of(relation, spec, route), latency_s / 2
    rows = max(1, round(rate * most_s))
    own_s, join_s = model.own_s(rows), model.join_s(rows)
    if own_s + join_s > most_s:
        _LOG.warning(_missed_text(latency_s, rows, own_s, join_s))
        return None
    load = model.load(rows)
    return load.waves * load.task_rows / (most_s - own_s)


def _missed_text(latency_s: float, rows: int, own_s: float, join_s: float) -> str:
    """Say that a latency is not held, what is predicted and what would help."""
    most_s, time_s = latency_s / 2, own_s + join_s
    memory = "" if own_s > most_s else "raise memory, "
    return (
        f"latency={seconds(latency_s)} is not held: a micro-batch of {rows:,} rows may take half "
        f"of that, {seconds(most_s)}, but {seconds(time_s)} are predicted, {seconds(own_s)} of it "
        f"for Spark's own part. Use more cores, request fewer columns, {memory}allow a longer "
        "latency, or start the query without a trigger interval"
    )
