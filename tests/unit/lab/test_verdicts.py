"""Verdicts: margins of numbers, several seeds, confidence intervals, data that we do not have."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from semistream.lab.catalogue import FIGURES
from semistream.lab.charts import Lines
from semistream.lab.claims import Claim, Finding, Row, Table, Verdict
from semistream.lab.common import on_real_reports
from semistream.lab.figures import Figure, Lab, Scale
from semistream.lab.runner import judge, run_figure


@pytest.mark.parametrize(
    ("found", "verdict"),
    [
        (100, Verdict.HOLDS),
        (76, Verdict.HOLDS),
        (124, Verdict.HOLDS),
        (74, Verdict.IN_SHAPE),
        (126, Verdict.IN_SHAPE),
        (199, Verdict.IN_SHAPE),
        (51, Verdict.IN_SHAPE),
        (201, Verdict.NOT_HERE),
        (49, Verdict.NOT_HERE),
    ],
)
def test_a_number_holds_within_a_quarter_and_in_shape_within_a_factor_of_two(
    found: float, verdict: Verdict
) -> None:
    assert Finding.of_numbers("", (found, 100.0)).verdict is verdict
    # One number of several decides, and so does their order.
    assert Finding.of_numbers("", (100.0, 100.0), (found, 100.0)).verdict is verdict
    assert Finding.of_numbers("", (found, 100.0), in_order=False).verdict is Verdict.NOT_HERE


def test_means_and_intervals_over_seeds() -> None:
    tables = [Table([{"x": 1.0, "name": "a", "y": y}]) for y in (9.0, 10.0, 11.0)]
    mean = Table.mean_of(tables)
    assert (mean.rows[0]["name"], mean.values("x"), mean.values("y")) == ("a", [1.0], [10.0])
    assert mean.intervals("y") == pytest.approx([2.484], rel=1e-3)
    assert mean.intervals("x") is None
    with pytest.raises(AssertionError, match="seeds of a figure differ in 'name'"):
        Table.mean_of([tables[0], Table([{"x": 1.0, "name": "b", "y": 1.0}])])
    with pytest.raises(AssertionError, match="different numbers of rows"):
        Table.mean_of([tables[0], Table([])])


def _figure(judged: Claim) -> Figure:
    def points(lab: Lab) -> list:  # type: ignore[type-arg]
        def row() -> Row:
            return {"x": 1.0, "y": {7: 10.0, 8: 10.5, 9: 14.0}[lab.seed]}

        return [row]

    lines = Lines("x", "y", "x", "y")
    return Figure("beyond", "test", "A test", points, lines, (judged,), medium="a test")


def test_the_worst_verdict_of_any_seed_counts(tmp_path: Path) -> None:
    claim = Claim(
        "It is 10.",
        "section 1",
        lambda table: Finding.of_numbers(f"{table.values('y')[0]:.1f}", (table.values("y")[0], 10)),
    )
    result = run_figure(_figure(claim), Lab(tmp_path), tmp_path, seeds=3)
    assert result.seeds == (7, 8, 9)
    assert result.claims[0].verdict == Verdict.IN_SHAPE  # by seed 9 alone
    assert result.claims[0].number == "11.5; the seeds differ, the worst counts"
    assert Table.read(tmp_path / "beyond-test.csv").values("y") == [11.5]
    fixed = replace(_figure(claim), is_random=False)
    assert run_figure(fixed, Lab(tmp_path), tmp_path, seeds=3).seeds == (7,)


def test_claims_on_the_stand_in_are_not_judged() -> None:
    def always(table: Table) -> Finding:
        return Finding.of("5 times", holds=True)

    for reports, verdict in (("stand-in", Verdict.NOT_JUDGED), ("real", Verdict.HOLDS)):
        found = on_real_reports(always)(Table([{"reports": reports}]))
        assert found.verdict is verdict
        assert "5 times" in found.number
    for name in ("meshjoin-6d", "cmeshjoin-3f"):
        rows: list[Row] = [
            {"memory_percent": 1.0, "algorithm": a, "tuples_per_s": r, "reports": "stand-in"}
            for a, r in (("meshjoin", 9.0), ("inlj-pool", 1.0), ("cmeshjoin", 20.0))
        ]
        assert judge(FIGURES[name], Table(rows))[0].verdict == Verdict.NOT_JUDGED


def test_a_join_that_never_waits_can_be_compared() -> None:
    """Figure 10(b) of HYBRIDJOIN: at a low rate INLJ may not wait at all."""
    rates = (75.0, 100.0, 125.0, 250.0, 500.0, 2000.0)
    waits = {"meshjoin": [9.0] * 6, "hybridjoin": [0.1] * 6, "inlj": [0.0, 0.0, 0.0, 1.0, 2.0, 9.0]}
    rows: list[Row] = [
        {"arrivals_per_s": rate, "algorithm": name, "seconds": seconds}
        for name, each in waits.items()
        for rate, seconds in zip(rates, each, strict=True)
    ]
    claims = judge(FIGURES["hybridjoin-10b"], Table(rows))
    assert {claim.verdict for claim in claims} == {Verdict.HOLDS}
    both = Table([{"x": 1.0, "s": s, "y": 0.0} for s in "ab"])
    assert both.ratios("x", "y", "s", "a", "b") == [1.0]


def test_real_reports_are_judged(tmp_path: Path) -> None:
    """Two months in the archive's format: the figure is made from them, and has a verdict."""
    months = tmp_path / "months"
    months.mkdir()
    rng = np.random.default_rng(1)
    for name in ("DEC85L", "SEP85L"):
        lines = [f"85 9 1 01 1234{lon:5d}{'1' * 37}\n" for lon in rng.integers(0, 36_000, 30_000)]
        (months / name).write_text("".join(lines))
    lab = Lab(tmp_path, clouds=months)
    claim = run_figure(FIGURES["cmeshjoin-3f"], lab, tmp_path).claims[0]
    assert claim.verdict != Verdict.NOT_JUDGED
    assert "stand-in" not in claim.number
    assert Table.read(tmp_path / "cmeshjoin-3f.csv").distinct("reports") == ["real"]


@pytest.mark.parametrize(
    ("deviation", "verdict"),
    [(0.006, Verdict.HOLDS), (0.009, Verdict.IN_SHAPE), (0.011, Verdict.NOT_HERE)],
)
def test_a_stated_deviation_has_the_margins_of_a_number(deviation: float, verdict: Verdict) -> None:
    """Figure 6(a) of X-HYBRIDJOIN: 0.5 %. Our own model and the corrected one do not count."""
    rates = {"measured": 100.0, "printed": 100 * (1 + deviation), "corrected": 50, "model": 50}
    rows: list[Row] = [{"swapped_mb": 1.0, "what": w, "tuples_per_s": r} for w, r in rates.items()]
    assert judge(FIGURES["xhybridjoin-6a"], Table(rows))[0].verdict == verdict


def test_equation_9_as_printed_chooses_hardly_any_pinned_part(tmp_path: Path) -> None:
    """Figure 4 of X-HYBRIDJOIN has the best sizes by the equations, and the rates measured there.

    The claim is judged on the equation as printed.
    """
    figure = FIGURES["xhybridjoin-4"]
    lab = Lab(tmp_path, Scale("tiny", is_full=False, smaller=8.0))
    printed, corrected, model = (point() for point in figure.points(lab)[-3:])
    rows = Table([printed, corrected, model])  # type: ignore[list-item]
    assert rows.distinct("what") == ["printed", "corrected", "model"]
    few, corrected_mb, model_mb = rows.values("pinned_mb")
    assert few < 1.0
    assert corrected_mb == pytest.approx(model_mb, rel=0.3)
    assert min(corrected_mb, model_mb) > 5.0
    rates = rows.values("tuples_per_s")
    assert rates[0] < 0.8 * min(rates[1:])
    best = {"swapped_mb": 4.0, "pinned_mb": 10.0, "what": "measured", "tuples_per_s": max(rates)}
    finding = figure.claims[-1].judge(Table([best, *rows]))
    assert finding.verdict is not Verdict.HOLDS
    assert f"{rates[0] / max(rates):.0%} of the best rate" in finding.number


def test_each_seeds_bursts_are_judged_and_not_their_mean(tmp_path: Path) -> None:
    figure = FIGURES["hybridjoin-9"]
    rows = Table(figure.points(Lab(tmp_path, seed=7))[0]())  # type: ignore[arg-type]
    assert [c.verdict for c in judge(figure, rows)] == [Verdict.HOLDS, Verdict.IN_SHAPE]
    noise = np.random.default_rng(1).poisson(500, len(rows)).tolist()
    even: list[Row] = [
        {**row, "tuples_of_third_seed": float(n)} for row, n in zip(rows, noise, strict=True)
    ]
    assert {c.verdict for c in judge(figure, Table(even))} == {Verdict.NOT_HERE}
