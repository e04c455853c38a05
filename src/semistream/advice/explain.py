"""`explain`: the throughput that a budget buys, before anything runs.

For a relation, a budget, a rate and a skew (or a sample of the stream): the algorithms ranked by
their predicted rates, how the best one splits the budget, the latency of a tuple, the rates of half
and twice the budget, the least budget that holds the rate, and when something simpler performs as
well. For a micro-batch: what it takes by each algorithm, and what it reads (`microbatch`).

Nothing is measured: the cost factors are those of `semistream calibrate`, or of a common machine.
"""

from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from datetime import timedelta
from functools import partial
from os import PathLike
from typing import Any

import pyarrow as pa

from semistream.advice.auto import AUTO
from semistream.advice.calibration import Calibration
from semistream.advice.checks import latency_in_s
from semistream.advice.choice import LOOK_UP, RESIDENT, Option
from semistream.advice.explain_options import Asked, OptionCost, option_costs
from semistream.advice.explain_text import (
    aligned_lines,
    milliseconds,
    rate_text,
    rounded,
    seconds,
)
from semistream.advice.microbatch import BatchModel, Curves, MicroBatch
from semistream.advice.question import Question
from semistream.budget.sizes import Sizes
from semistream.conditions.condition import Conditions as PairConditions
from semistream.cost import resident
from semistream.cost.models import MODELS
from semistream.cost.prediction import Target
from semistream.cost.tuning import least_budget
from semistream.errors import BudgetError
from semistream.extras import needs_extra
from semistream.joins.shedding import Shedding, shedding_of
from semistream.relation.relation import Relation
from semistream.spec import Columns, On
from semistream.units import format_bytes, parse_budget

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
    rate: float | None
    skew: float
    skew_from: str
    algorithm: str
    ranking: tuple[Row, ...]
    split: dict[str, int]  # bytes by part, of one task
    other_budgets: dict[int, float]  # rates of half and twice the budget
    # That holds the rate, and the latency if there is one; None if none does, or no rate was given.
    least_memory_bytes: int | None
    resident_bytes: int  # to hold all of R with the columns that are read
    scan_s: float  # to read the columns of R once, and hash its rows
    even_rows: float | None  # in larger micro-batches, reading all of R is as fast
    calibrated: str  # what the cost factors are
    is_calibrated: bool  # whether they were measured on this machine
    typical_error: float  # of the cost factors, relative
    latency_s: float | None = None  # that tuples may have on average
    options: tuple[OptionCost, ...] = ()  # conditions, versions, order, shedding
    batch: MicroBatch | None = None  # if a size of a micro-batch was given
    # For the chart of a micro-batch, computed when it is drawn.
    curves: Callable[[], Curves] | None = field(default=None, repr=False, compare=False)

    @property
    def tuples_per_s(self) -> float:
        """The predicted rate of what `auto` chooses."""
        return next(r.tuples_per_s for r in self.ranking if r.algorithm == self.algorithm)

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
        return [
            f"{self.relation}: {self.rows:,} rows, {format_bytes(self.relation_bytes)}",
            f"memory {format_bytes(self.memory_bytes)} "
            f"({self.memory_bytes / max(1, self.relation_bytes):.1%} of the relation); {arrives}; "
            f"skew: Zipf {self.skew:.2f} ({self.skew_from})",
            "The join alone, over all of R on one core, as ss.join runs it; for a query: --spark.",
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
                rate_text(row.tuples_per_s),
                _share(row.tuples_per_s / self.ranking[0].tuples_per_s),
                f"{row.hit_ratio:.0%}",
                f"{row.pages_per_read:,}",
                f"{row.waiting_tuples:,}",
                seconds(row.latency_s),
                f"{row.pages_per_tuple:.2g}",
                *([] if row.waiting_s is None else [seconds(row.waiting_s)]),
            ]
            for row in self.ranking
        ]
        return aligned_lines([titles, *lines])

    def _findings(self) -> list[str]:
        parts = ", ".join(f"{name} {format_bytes(size)}" for name, size in self.split.items())
        said = [
            f"{'For such a stream ' if self.batch else ''}auto chooses {self.algorithm}"
            + (f"; it splits its memory into {parts}." if parts else "."),
        ]
        if self.algorithm != self.ranking[0].algorithm:
            said[0] += (
                " The algorithms above it are predicted to be faster, but by less than the "
                "model's error."
            )
        if self.other_budgets:
            bought = [
                f"{format_bytes(size)} buys {rate_text(rate)} tuples/s"
                for size, rate in sorted(self.other_budgets.items())
            ]
            said.append(f"Another budget: {', '.join(bought)}.")
        said += [option.said for option in self.options]
        if self.rate:
            said.append(self._about_rate(self.rate))
        said.append(
            f"A broadcast needs {format_bytes(self.resident_bytes)} in every executor at least; "
            "if you can afford that, it performs as well."
        )
        if self.even_rows is not None:
            said.append(
                f"Plain Spark reads and hashes all of R in every micro-batch, "
                f"at least {seconds(self.scan_s)} on one core: plain Spark catches up only "
                f"above {self.even_rows:,.0f} rows per micro-batch."
            )
        error = f"typical error {self.typical_error:.0%}"
        hint = "" if self.is_calibrated else "; `semistream calibrate` measures those of this one"
        said.append(f"Cost factors: {self.calibrated}, {error}{hint}.")
        return said

    def _about_rate(self, rate: float) -> str:
        target = f"{rate:,.0f} tuples/s"
        if self.latency_s is not None:
            target += f" with a latency of {seconds(self.latency_s)}"
        if self.least_memory_bytes is None:
            return f"No memory up to that of all of R holds {target} on one core."
        is_held = self.tuples_per_s >= rate
        if self.latency_s is not None:  # auto uses no more of a budget than it needs
            is_held = self.memory_bytes >= self.least_memory_bytes
        verdict = "holds" if is_held else "does not hold"
        least = format_bytes(self.least_memory_bytes)
        return f"This budget {verdict} {target}; the least that does is {least}."


def explain(
    relation: Relation,
    *,
    memory: int | str,
    rate: float | None = None,
    latency: float | str | timedelta | None = None,
    skew: float | None = None,
    sample: pa.Table | None = None,
    on: On | None = None,
    columns: Columns | None = None,
    batch: int | None = None,
    condition: PairConditions | None = None,
    valid_at: str | None = None,
    ordered: str | None = None,
    shed: Shedding | str | None = None,
    calibration: Calibration | None = None,
) -> Explanation:
    """Return what the model says of a join; see `Explanation`.

    With a `rate` and a `latency`, as in `join`, it says which memory holds both. With `batch`, the
    rows of a micro-batch, it also says what that takes. `condition`, `valid_at`,
    `ordered` and `shed` are those of `join`: it says what each costs. A condition and versions need
    a sample, for the stream's columns.

    Without a `sample` of the stream its rows are taken to be key, quantity and price. Without
    `skew`, a Zipf exponent, and without a sample all keys are taken to be requested equally often,
    which is the least favourable case.
    """
    asked = Question.of(
        relation,
        rate=rate,
        skew=skew,
        sample=sample,
        on=on,
        columns=columns,
        batch=batch,
        condition=condition,
        valid_at=valid_at,
        calibration=calibration,
    )
    budget_bytes = parse_budget(memory, relation.size_bytes)
    explainer = _Explainer(asked)
    about_latency = (latency, AUTO, asked.spec)
    latency_s = latency_in_s(*about_latency, rate=rate, ordered=ordered, shed=shedding_of(shed))
    explained = explainer.explain(budget_bytes, rate, latency_s, batch)
    rates = {row.algorithm: row.tuples_per_s for row in explained.ranking}
    about = (relation, asked.spec, budget_bytes, rates, explained.algorithm, rate)
    costs = option_costs(Asked(ordered, shed), *about, partial(explainer.in_order, budget_bytes))
    return replace(explained, options=costs)


class _Explainer:
    """Asks the model about one join at any budget."""

    def __init__(self, asked: Question) -> None:
        self._asked = asked
        self._relation, self._calibration = asked.relation, asked.calibration
        self._advisor = asked.advisor()
        self._conditions, self._skew_from = asked.conditions()

    def in_order(self, budget_bytes: int) -> tuple[float, int]:
        """Return the rate of look-ups in the stream's order, and the size of their results."""
        advisor = replace(self._asked, spec=replace(self._asked.spec, in_order=True)).advisor()
        (option,) = advisor.rank(budget_bytes, self._conditions, [LOOK_UP])
        plain, ordered = (a.sizes(LOOK_UP).tuple_bytes for a in (self._advisor, advisor))
        return option.rate, option.tuned.settings.places * (ordered - plain)

    def explain(
        self, budget: int, rate: float | None, latency_s: float | None, batch_rows: int | None
    ) -> Explanation:
        relation, conditions = self._relation, self._conditions
        factors = conditions.factors
        options = self._advisor.rank(budget, conditions, tuple(MODELS))
        ranking = [self._row(option, rate) for option in options]
        best, chosen = options[0], options[0].name
        is_resident = self._advisor.fits(budget)
        if is_resident:
            ranking.append(self._resident_row(rate))
            chosen = RESIDENT
        ranking.sort(key=lambda row: (-rounded(row.tuples_per_s), row.algorithm != chosen))
        rate_of_best = next(row.tuples_per_s for row in ranking if row.algorithm == chosen)
        # Any join that begins with all of R has to read it and to store its rows.
        scan_s = resident.load_s(conditions.layout, factors)
        spared = 1 / rate_of_best - factors.resident_s
        model = BatchModel(self._advisor, conditions, budget, 1)
        batch = None if batch_rows is None else model.explain(batch_rows)
        return Explanation(
            relation=relation.location,
            rows=relation.row_count,
            relation_bytes=relation.size_bytes,
            memory_bytes=budget,
            rate=rate,
            skew=conditions.demand.exponent,
            skew_from=self._skew_from,
            algorithm=chosen,
            ranking=tuple(ranking),
            split={} if is_resident else self._split(best, budget),
            other_budgets=self._others(budget),
            least_memory_bytes=self._least(rate, latency_s, best),
            resident_bytes=self._advisor.resident_bytes,
            scan_s=scan_s,
            even_rows=scan_s / spared if spared > 0 and not is_resident else None,
            calibrated=about(self._calibration),
            is_calibrated=self._calibration.is_measured,
            typical_error=self._calibration.typical_error,
            latency_s=latency_s,
            batch=batch,
            curves=None if batch is None else partial(model.curves, batch),
        )

    def _row(self, option: Option, rate: float | None) -> Row:
        tuned, predicted = option.tuned, option.tuned.prediction
        return Row(
            option.name,
            predicted.rate,
            predicted.hit_ratio,
            tuned.settings.pages_per_read,
            tuned.settings.places,
            predicted.latency_s,
            None if rate is None else predicted.waiting_s(rate),
            predicted.pages_per_tuple,
        )

    def _resident_row(self, arrivals: float | None) -> Row:
        predicted = resident.predict(self._calibration.factors)
        waiting_s = None if arrivals is None else 0.0
        return Row(
            RESIDENT, predicted.rate, predicted.hit_ratio, 0, 0, predicted.latency_s, waiting_s, 0.0
        )

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

    def _others(self, budget_bytes: int) -> dict[int, float]:
        """Return the rates of half and twice a budget; nothing for one in which nothing runs."""
        rates = {}
        for budget in (budget_bytes // 2, budget_bytes * 2):
            if self._advisor.fits(budget):
                rates[budget] = resident.predict(self._conditions.factors).rate
            try:
                ranked = self._advisor.rank(budget, self._conditions)[0].rate
            except BudgetError:
                continue
            rates[budget] = max(ranked, rates.get(budget, 0.0))
        return rates

    def _least(self, rate: float | None, latency_s: float | None, best: Option) -> int | None:
        if rate is None:
            return None
        most, conditions = self._advisor.resident_bytes, self._conditions
        most_bytes, option, target = most, best, Target(rate)
        if latency_s is not None:
            target = Target(rate, latency_s)
            conditions = replace(conditions, target=target)
            most_bytes, option = self._advisor.choose_for(most, conditions)
        sizes = self._advisor.sizes(option.name)
        least = least_budget(MODELS[option.name], sizes, conditions, target, most_bytes)
        if least is None and rate <= resident.predict(conditions.factors).rate:
            least = most
        return least


def _share(share: float) -> str:
    return f"{share:.0%}" if share >= 0.01 else f"{share:.1g}"


def about(calibration: Calibration) -> str:
    """Say what cost factors are."""
    if calibration.is_measured:
        return f"measured {calibration.measured} on {calibration.host}"
    return f"those of {calibration.host}"


def _batch_lines(batch: MicroBatch) -> list[str]:
    lines = [
        [
            row.algorithm,
            milliseconds(row.time_ms),
            f"{row.pages:,.0f}",
            format_bytes(row.bytes_read),
        ]
        for row in batch.ranking
    ]
    return [
        f"A micro-batch of {batch.rows:,} rows:",
        *aligned_lines([["algorithm", "time", "pages read", "bytes read"], *lines]),
        f"auto chooses {batch.algorithm} for it: {milliseconds(batch.time_ms)}.",
    ]
