"""`explain` for a query on Spark: the time of a micro-batch, and the rows per second that follow.

The time of the join comes from the models of `semistream.advice.microbatch`, with the memory and
the rows that one task gets; Spark's own part from `semistream.cost.spark`. What Spark's part costs
was measured by `semistream calibrate --spark`, or is that of a common machine.
"""

from dataclasses import asdict, dataclass
from typing import Any

from semistream.advice.calibration.record import weight_of
from semistream.advice.calibration.sparkcosts import KnownCosts
from semistream.advice.explain_text import aligned_lines, rate_text, seconds
from semistream.advice.microbatch import BatchModel, BatchRow, MicroBatch
from semistream.advice.question import Question
from semistream.advice.situation import largest_partition
from semistream.cost.spark import Load
from semistream.units import format_bytes

USUAL_BATCH_ROWS = 100_000
# Other micro-batches of which the rate is given, as multiples of the one that is asked about.
_MULTIPLES = (0.1, 10.0)
_LEAST_ROWS, _MOST_ROWS = 1_000, 100_000_000  # of micro-batches that may hold a rate


@dataclass(frozen=True, slots=True)
class Plan:
    """How a query joins: what `enrich` decides when it plans one."""

    cores: int
    tasks: int  # that join the rows of a micro-batch
    is_local: bool  # rows stay in the tasks that they are in
    memory_bytes: int  # of all tasks that run at once
    task_bytes: int  # of the join of one task


@dataclass(frozen=True, slots=True)
class SparkRow:
    """One algorithm and one micro-batch."""

    algorithm: str
    time_s: float
    join_s: float  # of that, the join's part
    rows_per_s: float
    bytes_read: float  # by all tasks


class SparkModel:
    """Predicts the micro-batches of one query."""

    def __init__(self, asked: Question, plan: Plan, known: KnownCosts) -> None:
        """Prepare: a task joins with all of R, or with the largest partition stands for all."""
        self._plan, self._costs = plan, known.costs
        partition = None if plan.is_local else largest_partition(asked.relation)
        self.conditions, self.skew_from = asked.conditions(partition)
        self._model = BatchModel(
            asked.advisor(partition), self.conditions, plan.task_bytes, plan.tasks
        )
        spec = asked.spec
        self._values_in = sum(map(weight_of, spec.stream_schema.types))
        self._values_out = sum(map(weight_of, spec.output_schema.types))

    def load(self, rows: int) -> Load:
        """Return a micro-batch as Spark sees it."""
        plan, values = self._plan, (self._values_in, self._values_out)
        return Load(rows, plan.cores, plan.tasks, *values, not plan.is_local)

    def own_s(self, rows: int) -> float:
        """Return the time of Spark's part."""
        return self._costs.own_s(self.load(rows))

    def join_s(self, rows: int) -> float:
        """Return the time of what `auto` chooses for the join."""
        return self._joined_s(self.load(rows), self._model.explain(rows).time_ms)

    def time_s(self, rows: int) -> float:
        """Return the time of a micro-batch."""
        return self.own_s(rows) + self.join_s(rows)

    def rows_per_s(self, rows: int) -> float:
        """Return what a query delivers if one micro-batch follows the other."""
        return rows / self.time_s(rows)

    def ranking(self, rows: int) -> tuple[MicroBatch, tuple[SparkRow, ...]]:
        """Return the micro-batch as the join sees it, and each algorithm's time, fastest first."""
        batch, load = self._model.explain(rows), self.load(rows)
        own_s = self.own_s(rows)
        return batch, tuple(self._row(row, load, own_s) for row in batch.ranking)

    def least_rows(self, rate: float) -> int | None:
        """Return the smallest micro-batch that holds a rate, to a factor of 2; None if none."""
        rows = _LEAST_ROWS
        while rows <= _MOST_ROWS:
            if self.rows_per_s(rows) >= rate:
                return rows
            rows *= 2
        return None

    def _row(self, row: BatchRow, load: Load, own_s: float) -> SparkRow:
        join_s = self._joined_s(load, row.time_ms)
        time_s = own_s + join_s
        return SparkRow(row.algorithm, time_s, join_s, load.rows / time_s, row.bytes_read)

    def _joined_s(self, load: Load, task_ms: float) -> float:
        return load.waves * task_ms / 1e3


@dataclass(frozen=True, slots=True)
class SparkExplanation:
    """What the model predicts for a query on Spark. Print it, or use its fields."""

    relation: str
    rows: int
    relation_bytes: int
    plan: Plan
    batch_rows: int
    rate: float | None
    skew: float
    skew_from: str
    algorithm: str  # that `auto` chooses
    time_s: float  # of a micro-batch with it
    rows_per_s: float
    ranking: tuple[SparkRow, ...]  # fastest first
    other_batches: dict[int, float]  # rows per second of smaller and larger micro-batches
    least_batch_rows: int | None  # that holds the rate; None if none does, or no rate was given
    known: KnownCosts  # of Spark's part

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain values, for JSON."""
        return asdict(self)

    def __str__(self) -> str:
        """Return the explanation as text."""
        return "\n".join([*self._heading(), "", *self._table(), "", *self._findings()])

    def _heading(self) -> list[str]:
        plan = self.plan
        moved = "stay in their tasks" if plan.is_local else "are shuffled to a task per partition"
        return [
            f"{self.relation}: {self.rows:,} rows, {format_bytes(self.relation_bytes)}",
            f"Assumed: {plan.cores} cores that do nothing else; rows {moved}, {plan.tasks} tasks; "
            f"memory {format_bytes(plan.memory_bytes)}, {format_bytes(plan.task_bytes)} for each "
            f"join; micro-batches of {self.batch_rows:,} rows, one after the other; "
            f"skew: Zipf {self.skew:.2f} ({self.skew_from}); R in the page cache; "
            "a sink that costs nothing.",
        ]

    def _table(self) -> list[str]:
        titles = ["algorithm", "rows/s", "micro-batch", "join", "Spark", "bytes read"]
        lines = [
            [
                row.algorithm,
                rate_text(row.rows_per_s),
                seconds(row.time_s),
                seconds(row.join_s),
                seconds(row.time_s - row.join_s),
                format_bytes(row.bytes_read),
            ]
            for row in self.ranking
        ]
        return aligned_lines([titles, *lines])

    def _findings(self) -> list[str]:
        others = [
            f"{rows:,} rows: {rate_text(rate)} rows/s" for rows, rate in self.other_batches.items()
        ]
        said = [
            f"auto chooses {self.algorithm}: {rate_text(self.rows_per_s)} rows/s, a micro-batch "
            f"takes {seconds(self.time_s)}.",
            f"Other micro-batches: {'; '.join(others)}.",
        ]
        if self.rate is not None:
            said.append(self._about_rate(self.rate))
        return [*said, self.known.text()]

    def _about_rate(self, rate: float) -> str:
        if self.least_batch_rows is None:
            return f"No micro-batch holds {rate:,.0f} rows/s: more cores are needed."
        verdict = "hold" if self.rows_per_s >= rate else "do not hold"
        return (
            f"Micro-batches of {self.batch_rows:,} rows {verdict} {rate:,.0f} rows/s; those of "
            f"{self.least_batch_rows:,} and more do, one every "
            f"{seconds(self.least_batch_rows / rate)} or more."
        )


def explain_plan(
    asked: Question, plan: Plan, known: KnownCosts, *, rate: float | None, batch: int | None
) -> SparkExplanation:
    """Return what a planned query delivers; without `batch`, with the rows of a second."""
    model, relation = SparkModel(asked, plan, known), asked.relation
    rows = batch or (USUAL_BATCH_ROWS if rate is None else max(1, int(rate)))
    micro_batch, ranking = model.ranking(rows)
    chosen = next(row for row in ranking if row.algorithm == micro_batch.algorithm)
    others = [max(1, int(times * rows)) for times in _MULTIPLES]
    return SparkExplanation(
        relation=relation.location,
        rows=relation.row_count,
        relation_bytes=relation.size_bytes,
        plan=plan,
        batch_rows=rows,
        rate=rate,
        skew=model.conditions.demand.exponent,
        skew_from=model.skew_from,
        algorithm=chosen.algorithm,
        time_s=chosen.time_s,
        rows_per_s=chosen.rows_per_s,
        ranking=ranking,
        other_batches={n: model.rows_per_s(n) for n in others if n != rows},
        least_batch_rows=None if rate is None else model.least_rows(rate),
        known=known,
    )
