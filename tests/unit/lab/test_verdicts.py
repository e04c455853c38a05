"""Verdicts: margins of numbers, several seeds, confidence intervals, data that we do not have."""

from dataclasses import replace
from pathlib import Path

import pytest

from semistream.lab.catalogue import FIGURES
from semistream.lab.charts import Lines
from semistream.lab.claims import Claim, Finding, Row, Table, Verdict
from semistream.lab.common import on_real_reports
from semistream.lab.figures import Figure, Lab
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
