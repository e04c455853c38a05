"""What the papers' modules share: rows of service rates, and some judgements."""

from math import nan

import numpy as np

from semistream.errors import BudgetError
from semistream.lab.claims import Finding, Row, Table
from semistream.lab.figures import Lab
from semistream.lab.rig import Rig
from semistream.workload.clouds import Clouds

MB = 1e6


def cloud_reports(lab: Lab, rows: int, row_bytes: int, quick_times: float) -> Rig:
    """Return a rig with the stand-in for the cloud reports."""

    def make(times: float) -> Clouds:
        return Clouds(int(rows / times), row_bytes=row_bytes, seed=lab.seed)

    return lab.rig(make, lab.times(quick_times), row_bytes=row_bytes)


def rate_row(rig: Rig, algorithm: str, memory_bytes: float, **labels: float | str) -> list[Row]:
    """Return the service rate at the best split as a row; no number if the budget is too small."""
    try:
        rate = rig.measure_tuned(algorithm, memory_bytes).rate
    except BudgetError:
        rate = nan
    return [{**labels, "algorithm": algorithm, "tuples_per_s": rate}]


def tracks(table: Table, x: str, y: str = "tuples_per_s") -> Finding:
    """Judge whether the model tracks what was measured."""
    ratios = table.ratios(x, y, "what", "model", "measured")
    errors = [abs(r - 1) for r in ratios]
    return Finding.of(
        f"median error {np.median(errors):.1%}, worst {max(errors):.1%}",
        holds=bool(np.median(errors) <= 0.1) and max(errors) <= 0.25,
        in_shape=bool(np.median(errors) <= 0.25),
    )


def ahead(table: Table, x: str, winner: str, loser: str) -> Finding:
    """Judge whether one algorithm is ahead of another everywhere."""
    ratios = table.ratios(x, "tuples_per_s", "algorithm", winner, loser)
    return Finding.of(
        f"{min(ratios):,.2f} to {max(ratios):,.2f} times",
        holds=min(ratios) > 1,
        in_shape=float(np.median(ratios)) > 1 and min(ratios) > 0.95,
    )


def models_track(table: Table) -> Finding:
    """Judge whether every algorithm's model tracks what was measured."""
    worst = {}
    for name in table.distinct("algorithm"):
        of_one = table.where(algorithm=name)
        ratios = of_one.ratios("memory_mb", "tuples_per_s", "what", "model", "measured")
        worst[name] = max(abs(r - 1) for r in ratios)
    told = ", ".join(f"{name} {error:.1%}" for name, error in worst.items())
    return Finding.of(
        f"worst errors: {told}",
        holds=max(worst.values()) <= 0.1,
        in_shape=max(worst.values()) <= 0.25,
    )
