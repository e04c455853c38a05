"""What the papers' modules share: rows of service rates, and some judgements."""

from collections.abc import Callable
from dataclasses import replace
from math import nan

import numpy as np

from semistream.errors import BudgetError
from semistream.lab.claims import FAR, NEAR, Finding, Row, Table, Verdict
from semistream.lab.equations.symbols import Symbols
from semistream.lab.figures import Lab
from semistream.lab.rig import Rig
from semistream.relation.device import EmulatedDevice
from semistream.workload.cloudfiles import CloudFiles
from semistream.workload.clouds import Clouds

MB = 1e6
PAGE_BYTES = 8192.0  # of a page in the papers' equations
STAND_IN, REAL_REPORTS = "stand-in", "real"


def cloud_reports(lab: Lab, rows: int, row_bytes: int, quick_times: float) -> Rig:
    """Return a rig with the real cloud reports, at their own size, or the stand-in for them."""
    folder = lab.clouds
    if folder is not None:
        return lab.rig(lambda times: CloudFiles(folder), 1.0, row_bytes=row_bytes)

    def make(times: float) -> Clouds:
        return Clouds(int(rows / times), row_bytes=row_bytes, seed=lab.seed)

    return lab.rig(make, lab.times(quick_times), row_bytes=row_bytes)


def reports_of(lab: Lab) -> str:
    """Return which cloud reports a lab has, for the tables of its figures."""
    return STAND_IN if lab.clouds is None else REAL_REPORTS


def on_real_reports(judge: Callable[[Table], Finding]) -> Callable[[Table], Finding]:
    """Return a judgement that is only made on the real cloud reports."""

    def judge_or_not(table: Table) -> Finding:
        finding = judge(table)
        if table.distinct("reports") == [REAL_REPORTS]:
            return finding
        return Finding(Verdict.NOT_JUDGED, f"on the stand-in: {finding.number}")

    return judge_or_not


def rate_row(rig: Rig, algorithm: str, memory_bytes: float, **labels: float | str) -> list[Row]:
    """Return the service rate at the best split as a row; no number if the budget is too small."""
    try:
        rate = rig.measure_tuned(algorithm, memory_bytes).rate
    except BudgetError:
        rate = nan
    return [{**labels, "algorithm": algorithm, "tuples_per_s": rate}]


def symbols_of(rig: Rig, algorithm: str, node_bytes: float, *, seeks: bool = False) -> Symbols:
    """Return the papers' symbols for a rig: the device's costs, and the f of our hash table.

    A tuple that waits has f·v_S bytes in the hash table and `node_bytes` in the queue. On the
    device's clock computing takes no time. `seeks`: each load costs a seek.
    """
    disk = EmulatedDevice.named(rig.device)
    fixed_s = disk.request_s + seeks * disk.seek_s
    symbols = Symbols(
        page_count=rig.size_bytes / PAGE_BYTES,
        io_s=lambda pages: fixed_s + pages * PAGE_BYTES / disk.bytes_per_s,
        page_bytes=PAGE_BYTES,
        row_bytes=rig.row_bytes,
        pointer_bytes=node_bytes,
    )
    fudge = (rig.tuple_bytes(algorithm) - node_bytes) / symbols.stream_bytes
    return replace(symbols, fudge=fudge)


def tracks(table: Table, x: str, y: str = "tuples_per_s", what: str = "printed") -> Finding:
    """Judge whether the paper's equations track what was measured; our model is told beside it."""
    ratios = table.ratios(x, y, "what", what, "measured")
    errors = [abs(r - 1) for r in ratios]
    ours = [abs(r - 1) for r in table.ratios(x, y, "what", "model", "measured")]
    return Finding.of(
        f"the paper's equations: median error {np.median(errors):.1%}, worst {max(errors):.1%}; "
        f"our model: {np.median(ours):.1%} and {max(ours):.1%}",
        holds=max(errors) <= NEAR,
        in_shape=max(errors) <= FAR - 1 and min(ratios) >= 1 / FAR,
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
    """Judge whether the paper's equations track what was measured, for every algorithm."""
    worst: dict[str, dict[object, float]] = {"printed": {}, "model": {}}
    for name in table.distinct("algorithm"):
        of_one = table.where(algorithm=name)
        for what, errors in worst.items():
            ratios = of_one.ratios("memory_mb", "tuples_per_s", "what", what, "measured")
            errors[name] = max(max(r, 1 / r) for r in ratios) - 1
    told = {w: ", ".join(f"{n} {e:.0%}" for n, e in found.items()) for w, found in worst.items()}
    most = max(worst["printed"].values())
    return Finding.of(
        f"worst errors of the paper's equations: {told['printed']}; of our model: {told['model']}",
        holds=most <= NEAR,
        in_shape=most <= FAR - 1,
    )
