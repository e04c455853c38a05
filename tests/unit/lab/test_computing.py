"""Computing charged: the same at every scale, more with skew and on a slower machine."""

from pathlib import Path

import pytest

from semistream.lab.catalogue import FIGURES
from semistream.lab.claims import Row, Table, Verdict
from semistream.lab.computing import OF_2007, computing_s, rate_with_computing
from semistream.lab.rig import Rig
from semistream.lab.runner import judge
from semistream.workload.miniature import Miniature

MEMORY = 24e6


def rig(folder: Path, times: float, exponent: float) -> Rig:
    workload = Miniature(int(1e6 / times), exponent, times=times)
    path = folder / f"{times}-{exponent}.rel"
    return Rig.build(path, workload, "hdd-papers", times, 120, 4096)


@pytest.mark.parametrize("algorithm", ["meshjoin", "hybridjoin", "cmeshjoin"])
def test_a_tuple_costs_the_same_in_any_miniature(tmp_path: Path, algorithm: str) -> None:
    """What is counted in a small run is charged as at full size."""
    costs = []
    for times in (10.0, 20.0):
        here = rig(tmp_path, times, 1.0)
        costs.append(computing_s(here, algorithm, here.measure_tuned(algorithm, MEMORY)))
    assert costs[1] == pytest.approx(costs[0], rel=0.1)
    assert 0.05e-6 < costs[0] < 2e-6  # about what the benchmarks have: 0.5M to 20M tuples/s


def test_skew_costs_meshjoin_computing_and_saves_cmeshjoin_some(tmp_path: Path) -> None:
    even, skewed = (rig(tmp_path, 20.0, exponent) for exponent in (0.0, 1.0))
    costs = {
        (name, here is skewed): computing_s(here, name, here.measure_tuned(name, MEMORY))
        for name in ("meshjoin", "cmeshjoin")
        for here in (even, skewed)
    }
    assert costs["meshjoin", True] == pytest.approx(1.04 * costs["meshjoin", False], rel=1e-6)
    assert costs["cmeshjoin", True] < costs["meshjoin", True]  # a hit does not wait


def test_a_slower_machine_lowers_the_rate(tmp_path: Path) -> None:
    here = rig(tmp_path, 20.0, 0.5)
    measured = here.measure_tuned("meshjoin", MEMORY)
    cost = computing_s(here, "meshjoin", measured)
    slow = rate_with_computing(here, "meshjoin", measured, OF_2007)
    assert 1 / slow == pytest.approx(1 / measured.rate + 150 * cost)
    assert slow < rate_with_computing(here, "meshjoin", measured) < measured.rate


@pytest.mark.parametrize(
    ("at_20", "at_100", "verdict"),
    [
        ((2.0, 2.0, 2.0), (3.0, 3.0, 3.0), Verdict.HOLDS),
        ((6.0, 5.0, 1.3), (3.4, 3.0, 1.6), Verdict.IN_SHAPE),  # with computing of 2007 alone
        ((6.0, 5.0, 1.7), (3.4, 3.0, 1.6), Verdict.NOT_HERE),
    ],
)
def test_the_lead_of_figure_3c_is_judged_on_all_three_clocks(
    at_20: tuple[float, ...], at_100: tuple[float, ...], verdict: Verdict
) -> None:
    rows: list[Row] = []
    for millions, leads in ((20.0, at_20), (100.0, at_100)):
        for charged, lead in zip(("", "+computing", "+computing of 2007"), leads, strict=True):
            for name, rate in (("cmeshjoin", lead * 1e3), ("meshjoin", 1e3)):
                at: Row = {"rows_millions": millions, "algorithm": f"{name}{charged}"}
                rows.append({**at, "tuples_per_s": rate})
        rows.append({"rows_millions": millions, "algorithm": "inlj", "tuples_per_s": 1.0})
    claims = {claim.says: claim.verdict for claim in judge(FIGURES["cmeshjoin-3c"], Table(rows))}
    assert claims["Its lead grows with R."] == verdict


def test_where_a_lead_ends_is_told() -> None:
    leads = {0.0: 1.5, 2.0: 1.1, 4.0: 0.9, 8.0: 0.7}
    rows: list[Row] = [
        {"rows_millions": 2.0, "seek_ms": seek, "lead": lead} for seek, lead in leads.items()
    ]
    (claim,) = judge(FIGURES["hybridjoin-seek"], Table(rows))
    assert claim.verdict == Verdict.HOLDS
    assert "the lead ends at 3.0 ms at 2M rows" in claim.number
    behind: list[Row] = [{**row, "lead": 0.9} for row in rows]
    assert judge(FIGURES["hybridjoin-seek"], Table(behind))[0].verdict == Verdict.NOT_HERE
