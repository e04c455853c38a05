"""`explain`: the throughput that a budget buys, before anything runs.

For a relation, a budget, a rate and a skew (or a sample of the stream): the algorithms ranked by
their predicted rates, how the best one splits the budget, the latency of a tuple, the rates of half
and twice the budget, the least budget that holds the rate, and when something simpler performs as
well. For a micro-batch: what it takes by each algorithm, and what it reads (`microbatch`).

Nothing is measured: the cost factors are those of `semistream calibrate`, or of a common machine.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from os import PathLike
from typing import Any

import pyarrow as pa

from semistream.advice.calibration import Calibration, calibration_for, usual_spec
from semistream.advice.choice import RESIDENT, Advisor, Option
from semistream.advice.microbatch import BatchModel, Curves, MicroBatch
from semistream.advice.situation import (
    demand_in,
    largest_partition,
    layout_of,
    reader_for,
    stream_widths,
)
from semistream.budget.sizes import Sizes
from semistream.cost import resident
from semistream.cost.conditions import Conditions
from semistream.cost.demand import Demand
from semistream.cost.models import MODELS
from semistream.cost.tuning import least_budget
from semistream.errors import BudgetError, OptionError
from semistream.extras import needs_extra
from semistream.joins.frontstage import POLICY
from semistream.relation.relation import Relation
from semistream.spec import Columns, JoinSpec, On, read_columns, resolve
from semistream.units import format_bytes, parse_budget

_MOST_SAMPLE_ROWS = 1_000_000
_GOES_ON = "A stream that goes on:"


@dataclass(frozen=True, slots=True)
class Row:
    """One algorithm at one budget."""

    algorithm: str
    tuples_per_s: float
    hit_ratio: float  # resolved by the front stage or by pinned pages
    pages_per_read: int
    waiting_tuples: int
    latency_s: float  # between the arrival of a tuple and its last match, on average
    waiting_s: float | None  # until a loop has enough tuples, at the rate that was given
    pages_per_tuple: float


@dataclass(frozen=True, slots=True)
class Explanation:
    """What the model predicts. Print it, or use its fields."""

    relation: str
    rows: int
    relation_bytes: int
    memory_bytes: int
    tasks: int  # that share the budget, one for each partition
    rate: float | None
    skew: float
    skew_from: str
    algorithm: str
    ranking: tuple[Row, ...]
    split: dict[str, int]  # bytes by part, of one task
    other_budgets: dict[int, float]  # rates of half and twice the budget
    least_memory_bytes: int | None  # that holds the rate; None if none does, or no rate was given
    resident_bytes: int  # to hold all of R with the columns that are read
    scan_s: float  # to read the columns of R once, and hash its rows
    even_rows: float | None  # in larger micro-batches, reading all of R is as fast
    calibrated: str  # what the cost factors are
    is_calibrated: bool  # whether they were measured on this machine
    typical_error: float  # of the cost factors, relative
    batch: MicroBatch | None = None  # if a size of a micro-batch was given
    # For the chart of a micro-batch, computed when it is drawn.
    curves: Callable[[], Curves] | None = field(default=None, repr=False, compare=False)

    @property
    def tuples_per_s(self) -> float:
        """The predicted rate of the best, all tasks together."""
        return self.ranking[0].tuples_per_s

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain values, for JSON."""
        values = asdict(replace(self, curves=None))
        del values["curves"]
        return {**values, "tuples_per_s": self.tuples_per_s}

    def plot(self, path: str | PathLike[str]) -> None:
        """Draw the rates by algorithm and by budget into a file: PNG, SVG, what its name says.

        With a micro-batch, its time is drawn instead, against its rows and against the size of R.
        """
        with needs_extra("charts", "a chart"):
            from semistream.advice.explain_chart import BatchChart, Chart

        if self.batch is not None and self.curves is not None:
            BatchChart(
                title=f"A micro-batch with {format_bytes(self.memory_bytes)} of memory, "
                f"Zipf {self.skew:.2f}: predicted time",
                curves=self.curves(),
                rows=self.batch.rows,
                relation_rows=self.rows,
                chosen=self.batch.algorithm,
            ).draw(path)
            return
        Chart(
            title=f"{self.rows:,} rows, {format_bytes(self.memory_bytes)}, "
            f"Zipf {self.skew:.2f}: predicted service rate",
            by_algorithm={row.algorithm: row.tuples_per_s for row in self.ranking},
            chosen=self.algorithm,
            by_budget={**self.other_budgets, self.memory_bytes: self.tuples_per_s},
            memory_bytes=self.memory_bytes,
            arrivals=self.rate,
        ).draw(path)

    def __str__(self) -> str:
        """Return the explanation as text."""
        batch = [] if self.batch is None else [*_batch_lines(self.batch), "", _GOES_ON]
        return "\n".join([*self._heading(), "", *batch, *self._table(), "", *self._findings()])

    def _heading(self) -> list[str]:
        arrives = f"{self.rate:,.0f} tuples/s arrive" if self.rate else "no rate given"
        shared = f", {self.tasks} tasks with {format_bytes(self.memory_bytes / self.tasks)} each"
        return [
            f"{self.relation}: {self.rows:,} rows, {format_bytes(self.relation_bytes)}",
            f"memory {format_bytes(self.memory_bytes)} "
            f"({self.memory_bytes / max(1, self.relation_bytes):.1%} of the relation)"
            f"{shared if self.tasks > 1 else ''}; {arrives}; "
            f"skew: Zipf {self.skew:.2f} ({self.skew_from})",
        ]

    def _table(self) -> list[str]:
        titles = [
            "algorithm",
            "tuples/s",
            "of best",
            "hits",
            "pages/read",
            "window",
            "latency",
            "pages/tuple",
        ]
        titles += ["wait"] * bool(self.rate)
        lines = [
            [
                row.algorithm,
                f"{row.tuples_per_s:,.0f}",
                f"{row.tuples_per_s / self.tuples_per_s:.0%}",
                f"{row.hit_ratio:.0%}",
                f"{row.pages_per_read:,}",
                f"{row.waiting_tuples:,}",
                _seconds(row.latency_s),
                f"{row.pages_per_tuple:.2g}",
                *([] if row.waiting_s is None else [_seconds(row.waiting_s)]),
            ]
            for row in self.ranking
        ]
        return _aligned_lines([titles, *lines])

    def _findings(self) -> list[str]:
        parts = ", ".join(f"{name} {format_bytes(size)}" for name, size in self.split.items())
        said = [
            f"{'For such a stream ' if self.batch else ''}auto chooses {self.algorithm}"
            + (f"; each task splits its memory into {parts}." if parts else "."),
            "Another budget: "
            + ", ".join(
                f"{format_bytes(size)} buys {rate:,.0f} tuples/s"
                for size, rate in sorted(self.other_budgets.items())
            )
            + ".",
        ]
        if self.rate:
            said.append(self._about_rate(self.rate))
        said.append(
            f"A broadcast needs {format_bytes(self.resident_bytes)} in every executor at least; "
            "if you can afford that, it performs as well."
        )
        if self.even_rows is not None:
            said.append(
                f"Plain Spark reads and hashes all of R in every micro-batch, "
                f"at least {_seconds(self.scan_s)} for each task: plain Spark catches up only "
                f"above {self.even_rows:,.0f} rows per micro-batch."
            )
        error = f"typical error {self.typical_error:.0%}"
        hint = "" if self.is_calibrated else "; `semistream calibrate` measures those of this one"
        said.append(f"Cost factors: {self.calibrated}, {error}{hint}.")
        return said

    def _about_rate(self, rate: float) -> str:
        if self.least_memory_bytes is None:
            return f"No memory up to that of all of R holds {rate:,.0f} tuples/s on this machine."
        verdict = "holds" if self.tuples_per_s >= rate else "does not hold"
        return (
            f"This budget {verdict} {rate:,.0f} tuples/s; the least that does is "
            f"{format_bytes(self.least_memory_bytes)}."
        )


def explain(
    relation: Relation,
    *,
    memory: int | str,
    rate: float | None = None,
    skew: float | None = None,
    sample: pa.Table | None = None,
    on: On | None = None,
    columns: Columns | None = None,
    batch: int | None = None,
    calibration: Calibration | None = None,
) -> Explanation:
    """Return what the model says of a join; see `Explanation`.

    With `batch`, the rows of a micro-batch, it also says what that takes.

    Without a `sample` of the stream its rows are taken to be key, quantity and price. Without
    `skew`, a Zipf exponent, and without a sample all keys are taken to be requested equally often,
    which is the least favourable case.
    """
    if sample is not None and skew is not None:
        raise OptionError("give either skew or a sample of the stream, not both")
    if rate is not None and rate <= 0:
        raise OptionError(f"rate must be positive: tuples per second; got {rate}")
    if batch is not None and batch < 1:
        raise OptionError(f"batch must be at least 1: rows of a micro-batch; got {batch}")
    if not relation.row_count:
        raise OptionError(f"{relation.location} has no rows: any budget and any algorithm will do")
    spec = _spec(relation, sample, on, columns)
    calibration = calibration or calibration_for(relation, spec)
    budget_bytes = parse_budget(memory, relation.size_bytes)
    explainer = _Explainer(relation, spec, sample, calibration)
    try:
        return explainer.explain(budget_bytes, rate, skew, batch)
    except BudgetError as error:
        raise error.for_all_tasks(relation.partition_count) from None


def _spec(
    relation: Relation, sample: pa.Table | None, on: On | None, columns: Columns | None
) -> JoinSpec:
    if sample is None:
        if on is not None and not isinstance(on, Mapping) and on != relation.key:
            named = [on] if isinstance(on, str) else list(on)
            resolve(relation, pa.schema([relation.schema.field(k) for k in relation.key]), on=named)
        return usual_spec(relation, columns)
    return resolve(relation, sample.schema, on=on, how="left", columns=columns, suffix="_r")


class _Explainer:
    """Asks the model about one join at any budget."""

    def __init__(
        self,
        relation: Relation,
        spec: JoinSpec,
        sample: pa.Table | None,
        calibration: Calibration,
    ) -> None:
        self._relation, self._spec, self._sample = relation, spec, sample
        self._calibration = calibration
        # As on Spark: a task for each partition, each with its share of the budget.
        self._tasks = relation.partition_count
        self._partition = largest_partition(relation)  # stands for all
        widths = stream_widths(relation, spec, sample)
        self._advisor = Advisor(relation, spec, widths, self._partition)

    def explain(
        self, memory_bytes: int, rate: float | None, skew: float | None, batch_rows: int | None
    ) -> Explanation:
        relation, tasks = self._relation, self._tasks
        demand, skew_from = self._demand(skew)
        reader = reader_for(relation, self._spec, self._partition)
        layout = layout_of(reader, read_columns(relation, self._spec))
        factors = self._calibration.factors_on(relation.reading.device)
        conditions = Conditions(layout, demand, factors, POLICY)
        budget = memory_bytes // tasks
        options = self._advisor.rank(budget, conditions, tuple(MODELS))
        ranking = [self._row(option, rate) for option in options]
        resident_bytes = self._advisor.resident_bytes
        if resident_bytes <= budget:
            ranking.insert(0, self._resident_row(rate))
        best = options[0]
        # Any join that begins with all of R has to read it and to store its rows.
        scan_s = resident.load_s(layout, factors)
        spared = 1 / ranking[0].tuples_per_s - factors.resident_s / tasks
        is_resident = ranking[0].algorithm == RESIDENT
        model = BatchModel(self._advisor, conditions, budget, tasks)
        batch = None if batch_rows is None else model.explain(batch_rows)
        return Explanation(
            relation=relation.location,
            rows=relation.row_count,
            relation_bytes=relation.size_bytes,
            memory_bytes=memory_bytes,
            tasks=tasks,
            rate=rate,
            skew=demand.exponent,
            skew_from=skew_from,
            algorithm=ranking[0].algorithm,
            ranking=tuple(ranking),
            split={} if is_resident else self._split(best, budget),
            other_budgets=self._others(budget, conditions),
            least_memory_bytes=self._least(rate, conditions, best.name),
            resident_bytes=resident_bytes * tasks,
            scan_s=scan_s,
            even_rows=scan_s / spared if spared > 0 and not is_resident else None,
            calibrated=_about(self._calibration),
            is_calibrated=self._calibration.is_measured,
            typical_error=self._calibration.typical_error,
            batch=batch,
            curves=None if batch is None else partial(model.curves, batch),
        )

    def _demand(self, skew: float | None) -> tuple[Demand, str]:
        reader = reader_for(self._relation, self._spec, self._partition)
        keys = max(1, reader.row_count)
        if self._sample is None:
            said = "assumed: the least favourable" if skew is None else "as given"
            return Demand.zipf(skew or 0.0, keys), said
        sample = self._sample[:_MOST_SAMPLE_ROWS]
        demand = demand_in(sample, self._relation, self._spec.stream_key, reader)
        return demand, f"from {sample.num_rows:,} sampled rows"

    def _row(self, option: Option, rate: float | None) -> Row:
        tuned, predicted = option.tuned, option.tuned.prediction
        return Row(
            option.name,
            predicted.rate * self._tasks,
            predicted.hit_ratio,
            tuned.settings.pages_per_read,
            tuned.settings.places,
            predicted.latency_s,
            None if rate is None else predicted.waiting_s(rate / self._tasks),
            predicted.pages_per_tuple,
        )

    def _resident_row(self, arrivals: float | None) -> Row:
        predicted = resident.predict(self._calibration.factors)
        waiting_s = None if arrivals is None else 0.0
        rate = predicted.rate * self._tasks
        return Row(RESIDENT, rate, predicted.hit_ratio, 0, 0, predicted.latency_s, waiting_s, 0.0)

    def _split(self, option: Option, budget_bytes: int) -> dict[str, int]:
        sizes: Sizes = self._advisor.sizes(option.name)
        tuned, settings = option.tuned, option.tuned.settings
        model = MODELS[option.name]
        parts = {
            "front stage": model.rules.front_bytes(sizes, budget_bytes, tuned.split),
            "pinned pages": sizes.pinned_bytes(settings.pinned_pages),
            "disk buffer": sizes.disk_bytes(settings.pages_per_read),
            "waiting tuples": sizes.window_bytes(settings.places),
            "input": settings.input_bytes,
            "output": settings.output_bytes,
            "page table": sizes.table_bytes,
        }
        return {name: size for name, size in parts.items() if size}

    def _others(self, budget_bytes: int, conditions: Conditions) -> dict[int, float]:
        rates = {}
        for budget in (budget_bytes // 2, budget_bytes * 2):
            try:
                rate = self._advisor.rank(budget, conditions)[0].rate
            except BudgetError:
                rate = 0.0
            if self._advisor.fits(budget):
                rate = max(rate, resident.predict(conditions.factors).rate)
            rates[budget * self._tasks] = rate * self._tasks
        return rates

    def _least(self, rate: float | None, conditions: Conditions, name: str) -> int | None:
        if rate is None:
            return None
        most = self._advisor.resident_bytes
        task_rate = rate / self._tasks
        sizes = self._advisor.sizes(name)
        least = least_budget(MODELS[name], sizes, conditions, task_rate, most)
        if least is None and task_rate <= resident.predict(conditions.factors).rate:
            least = most
        return None if least is None else least * self._tasks


def _about(calibration: Calibration) -> str:
    if calibration.is_measured:
        return f"measured {calibration.measured} on {calibration.host}"
    return f"those of {calibration.host}"


def _batch_lines(batch: MicroBatch) -> list[str]:
    lines = [
        [
            row.algorithm,
            _milliseconds(row.time_ms),
            f"{row.pages:,.0f}",
            format_bytes(row.bytes_read),
        ]
        for row in batch.ranking
    ]
    return [
        f"A micro-batch of {batch.rows:,} rows:",
        *_aligned_lines([["algorithm", "time", "pages read", "bytes read"], *lines]),
        f"auto chooses {batch.algorithm} for it: {_milliseconds(batch.time_ms)}.",
    ]


def _aligned_lines(lines: list[list[str]]) -> list[str]:
    widths = [max(len(line[i]) for line in lines) for i in range(len(lines[0]))]
    return ["  ".join(_aligned(line, widths)) for line in lines]


def _aligned(line: Sequence[str], widths: Sequence[int]) -> list[str]:
    first, *rest = zip(line, widths, strict=True)
    return [first[0].ljust(first[1]), *(text.rjust(width) for text, width in rest)]


def _seconds(seconds: float) -> str:
    """Return a time with a unit that suits it.

    >>> _seconds(0.00042), _seconds(0.112), _seconds(3.21)
    ('0.42 ms', '112 ms', '3.2 s')
    """
    if seconds < 1:
        return f"{seconds * 1e3:.0f} ms" if seconds >= 0.01 else f"{seconds * 1e3:.2g} ms"
    return f"{seconds:,.1f} s"


def _milliseconds(time_ms: float) -> str:
    """Return a time in milliseconds, however long it is.

    >>> _milliseconds(0.4567), _milliseconds(11.2), _milliseconds(12345.6)
    ('0.46 ms', '11 ms', '12,346 ms')
    """
    return f"{time_ms:,.0f} ms" if time_ms >= 10 else f"{time_ms:.2g} ms"
