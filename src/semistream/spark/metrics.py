"""The metrics of a join: what its tasks count and time, and how Spark sums it up.

Spark reports them with every micro-batch, in `StreamingQueryProgress.observedMetrics` under the
name of the join. ``docs/guides/operating.md`` says what each means.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import PurePosixPath
from time import perf_counter
from typing import TypeVar

from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from semistream.joins.protocols import Operator
from semistream.joins.registry import ALGORITHMS
from semistream.joins.telemetry import Telemetry
from semistream.relation.relation import Relation
from semistream.spark.following import SNAPSHOT_METRICS, SNAPSHOT_VALUES, snapshot_metrics
from semistream.spark.keys import column
from semistream.spark.routing import LOCAL, SHUFFLE, Route

TELEMETRY_COLUMN = "__semistream_telemetry"
_VALUES = len(Telemetry.names()) + SNAPSHOT_VALUES  # of one join
# The counters of tasks; what is shed has metrics of its own (`semistream.spark.shedding`).
_OBSERVED = tuple(name for name in Telemetry.names() if name != "shed_rows")
_T = TypeVar("_T")


@dataclass(slots=True)
class JoinClock:
    """Times a join that is a generator over a generator: its own time, without its input's."""

    waited_s: float = 0.0  # for rows of Spark
    passed_s: float = 0.0  # until a batch was joined, with what it waited for

    def rows(self, batches: Iterator[_T]) -> Iterator[_T]:
        """Yield the input, and time how long each batch is waited for."""
        return self._timed(batches, "waited_s")

    def joined(self, batches: Iterator[_T]) -> Iterator[_T]:
        """Yield the output, and time how long each batch takes."""
        return self._timed(batches, "passed_s")

    @property
    def join_us(self) -> int:
        """The microseconds of the join alone."""
        return round(1e6 * (self.passed_s - self.waited_s))

    def _timed(self, batches: Iterator[_T], total: str) -> Iterator[_T]:
        while True:
            started = perf_counter()
            batch = next(batches, None)
            setattr(self, total, getattr(self, total) + perf_counter() - started)
            if batch is None:
                return
            yield batch


def counted(operator: Operator, beside_bytes: int, clock: JoinClock) -> Telemetry:
    """Return the counters of a task: of its join, with its time, and the memory beside it."""
    known = operator.telemetry.with_split(operator.ledger.peaks())
    return replace(
        known,
        memory_bytes_peak=known.memory_bytes_peak + beside_bytes,
        buffer_bytes_peak=known.buffer_bytes_peak + beside_bytes,
        join_us=clock.join_us,
    )


def metric_names() -> tuple[str, ...]:
    """Return the names of all metrics, in the order in which Spark reports them."""
    return (*_OBSERVED, "routing", *SNAPSHOT_METRICS)


@dataclass(frozen=True, slots=True)
class Observed:
    """A join whose metrics are observed."""

    relation: Relation
    route: Route
    name: str | None  # of its metrics


def observe(joined: DataFrame, joins: Sequence[Observed]) -> DataFrame:
    """Observe the metrics of joins in their rows of telemetry, each under a name of its own.

    Without a name it is the relation's, with a number if the query has that one already.
    """
    for number, join in enumerate(joins):
        metrics = _metrics(join.route, number * _VALUES)
        joined = observe_as(joined, join.relation, join.name, metrics)
    return joined


def observe_as(
    rows: DataFrame,
    relation: Relation,
    name: str | None,
    metrics: Sequence[Column],
    suffix: str = "",
) -> DataFrame:
    """Observe metrics of rows under `name`, or the relation's, with a suffix."""
    if name is not None:  # a text, or an `Observation`
        return rows.observe(f"{name}{suffix}" if suffix else name, *metrics)
    name = f"semistream:{PurePosixPath(relation.location).stem}"
    number = 1
    while True:
        try:
            numbered = name if number == 1 else f"{name}#{number}"
            observed = rows.observe(f"{numbered}{suffix}", *metrics)
            # A Connect session looks at the plan only if asked for a schema that it does not know.
            _ = observed.select(column(rows.columns[-1])).schema
            return observed
        except AnalysisException as error:
            if error.getCondition() != "DUPLICATED_METRICS_NAME":
                raise
            number += 1


def _metrics(route: Route, first: int) -> list[Column]:
    """Return the metrics of a micro-batch, of which at most `route.tasks` tasks run at once.

    Its counters begin at a place of the telemetry. Metrics are sums over all tasks; of a peak it is
    what tasks that run at once can reach together.
    """
    counters = column(TELEMETRY_COLUMN)
    names = Telemetry.names()
    found = [_total(name, counters[first + names.index(name)], route.tasks) for name in _OBSERVED]
    found.append(F.max(F.lit(LOCAL if route.is_local else SHUFFLE)))
    found += snapshot_metrics(counters, first + len(names))
    return [each.alias(name) for each, name in zip(found, metric_names(), strict=True)]


def _total(name: str, counter: Column, tasks: int) -> Column:
    if name == "algorithms":
        return _named(F.bit_or(counter))
    total = F.sum(counter)
    if name.endswith("_peak"):
        return F.least(total, F.max(counter) * tasks)
    return F.nullif(total, F.lit(0)) if name == "predicted_us" else total


def _named(bits: Column) -> Column:
    """Return the names of the algorithms that a set of bits has."""
    each = [F.when(bits.bitwiseAND(1 << i) != 0, n) for i, n in enumerate(ALGORITHMS)]
    return F.concat_ws(",", *each)
