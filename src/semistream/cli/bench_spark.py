"""``semistream bench spark``: predictions of queries on Spark against the queries themselves.

Costs are measured on one relation, and predictions checked on that and on another: one with
integers as keys, one with texts. Both kinds of queries take turns, in rounds, so that what else the
machine does falls on all of them.
"""

import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
from rich.console import Console

from semistream.advice.calibration import (
    Calibration,
    calibrate,
    calibration_for,
    usual_spec,
)
from semistream.advice.calibration.sparkcosts import KnownCosts
from semistream.api import Relation, build_relation
from semistream.cli.progress import Progress
from semistream.spark.routing import LOCAL, SHUFFLE
from semistream.spark.session import ended_by_interrupt, local_session
from semistream.spark.trials import Trial, Trials
from semistream.workload.synthetic import Synthetic

GOAL = 0.15  # of the median error
_ROWS = {"integers": 2_000_000, "texts": 500_000}  # of R, by its key
_BATCHES = (5_000, 50_000, 400_000)
_SHARES = (0.05, 0.2)
_ROUNDS = 3
_QUICK = 20  # times smaller


@dataclass(frozen=True, slots=True)
class Checked:
    """One query: what was predicted, and what was measured."""

    key: str
    trial: Trial
    predicted_s: float
    measured_s: float

    @property
    def error(self) -> float:
        """By how much the prediction is off, relative to the measurement."""
        return self.predicted_s / self.measured_s - 1


def run_bench_spark(quick: bool, out: Path | None) -> int:
    """Measure, print the table, and write it to a file if one is named."""
    with tempfile.TemporaryDirectory(prefix="semistream-bench-") as folder, ended_by_interrupt():
        report = "\n".join(_table(*_measure(Path(folder), quick)))
    console = Console()
    console.print(report, markup=False, highlight=False)
    if out is not None:
        out.write_text(report + "\n")
        console.print(f"written to {out}")
    return 0


def _measure(folder: Path, quick: bool) -> tuple[KnownCosts, list[Checked]]:
    times = _QUICK if quick else 1
    relations = {key: _build(folder, key, rows // times) for key, rows in _ROWS.items()}
    calibrations = {
        key: calibration_for(r, usual_spec(r, None)) if quick else calibrate(r)
        for key, r in relations.items()
    }
    session = local_session("semistream-bench", folder, memory="2g")
    try:
        trials = {key: Trials(session, r, folder / key) for key, r in relations.items()}
        queries = {key: list(_queries(trials[key].cores, relations[key], quick)) for key in trials}
        usual = trials["integers"].usual()
        rounds = 1 if quick else _ROUNDS
        total = rounds * (len(usual) + sum(map(len, queries.values())))
        done = 0
        with Progress("queries", lambda runs: f"{runs:,.0f}", "runs") as progress:
            for _ in range(rounds):
                for key, asked in (("integers", usual), *queries.items()):
                    for _ in trials[key].run(asked, 1):
                        progress.update(done := done + 1, total)
        known = trials["integers"].costs(usual, calibrations["integers"])
        return known, list(_checked(trials, queries, known, calibrations))
    finally:
        session.stop()


def _checked(
    trials: dict[str, Trials],
    queries: dict[str, list[Trial]],
    known: KnownCosts,
    calibrations: dict[str, Calibration],
) -> Iterator[Checked]:
    for key, asked in queries.items():
        for trial in asked:
            model = trials[key].model(trial, known, calibrations[key])
            times = (model.time_s(trial.rows), trials[key].measured_s(trial))
            yield Checked(key, trial, *times)


def _queries(cores: int, relation: Relation, quick: bool) -> Iterator[Trial]:
    """Yield queries of several micro-batches, budgets and columns, with a shuffle and without."""
    others = [n for n in relation.schema.names if n not in relation.key]
    for rows in _BATCHES[: 1 if quick else None]:
        for routing in (LOCAL, SHUFFLE):
            for share, columns in zip(_SHARES, (others[:2], others), strict=True):
                memory = int(max(8e6, share * relation.size_bytes))
                yield Trial(rows, routing, memory, tuple(columns), cores)


def _build(folder: Path, key: str, rows: int) -> Relation:
    table = Synthetic(rows, seed=7, in_columns=True).relation()
    if key == "texts":
        names = pa.array([f"C-{code:012d}" for code in table.column("k").to_pylist()])
        table = table.set_column(table.schema.get_field_index("k"), "k", names)
    return build_relation(table, folder / f"{key}.rel", key="k", partitions=4)


def _table(known: KnownCosts, checked: list[Checked]) -> Iterator[str]:
    yield "## Queries on Spark\n"
    yield (
        f"R of {_ROWS['integers']:,} rows with integers as keys, and of {_ROWS['texts']:,} with "
        "texts, 14 columns; micro-batches of a file source into the no-op sink; the median of 5, "
        "in the fastest round. Costs measured on the first R only.\n"
    )
    yield "| key | micro-batch | routing | columns | memory | predicted | measured | error |"
    yield "| --- | ---: | --- | ---: | ---: | ---: | ---: | ---: |"
    for c in checked:
        t = c.trial
        yield (
            f"| {c.key} | {t.rows:,} | {t.routing} | {len(t.columns)} | {t.memory / 1e6:.0f} MB | "
            f"{c.predicted_s * 1e3:,.0f} ms | {c.measured_s * 1e3:,.0f} ms | {c.error:+.0%} |"
        )
    errors = np.abs([c.error for c in checked])
    median = float(np.median(errors))
    yield (
        f"\nMedian error {median:.1%} (goal: at most {GOAL:.0%}), "
        f"{np.mean(errors <= 0.25):.0%} within 25 %, worst {errors.max():.0%}."
    )
    yield f"\n{known.costs}"
