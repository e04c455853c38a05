"""The lab: the miniature is true to scale, answers are checked, figures are reproducible."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from semistream.budget.split import Split
from semistream.cli.lab import Setup, choose, run_figures
from semistream.cli.main import main
from semistream.errors import OptionError
from semistream.joins.registry import ALGORITHMS
from semistream.lab.catalogue import FIGURES
from semistream.lab.charts import style_of
from semistream.lab.claims import Finding, Table, Verdict, falls, has_peak, rises
from semistream.lab.figures import Lab, Scale
from semistream.lab.rig import POOLED, REAL, Rig
from semistream.lab.runner import OURS, Result, claims_of, results_in, run_figure, score
from semistream.workload.miniature import Miniature
from semistream.workload.synthetic import Synthetic

TINY = Scale("tiny", is_full=False, smaller=8.0)
MB = 1e6
# The table of the papers' figures.
EXPECTED = {
    "meshjoin": "5a 5b 6a 6b 6c 6d",
    "meshjoin-default-settings": "5 6 7 8 9 10a 10b",
    "hybridjoin": "3 6 8 9 10a 10b 10c seek 10d intermittent 11",
    "xhybridjoin": "3a 3b 3c 3d 4 6a 6b 7a 7b 8",
    "cmeshjoin": "2 3a 3b 3c 3d 3e 3f",
    "beyond": "summary",
}


def rig(
    folder: Path,
    times: float,
    device: str = "hdd-papers",
    *,
    exponent: float = 0.5,
    by_frequency: bool = False,
    rows: float = 1e6,
) -> Rig:
    workload = Miniature(int(rows / times), exponent, by_frequency=by_frequency, times=times)
    return Rig.build(folder / f"{times}.rel", workload, device, times, 120, 4096)


def test_every_figure_of_the_papers_is_there() -> None:
    names = [f"{paper}-{number}" for paper, all_ in EXPECTED.items() for number in all_.split()]
    assert list(FIGURES) == names


def test_each_claim_says_something_and_where_it_stands() -> None:
    for figure in FIGURES.values():
        assert figure.claims, f"{figure.name} has no claim"
        for claim in figure.claims:
            assert claim.says.endswith(".")
            assert claim.source == OURS or claim.source.startswith("section")


def test_a_new_algorithm_has_a_look_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    new = replace(ALGORITHMS["meshjoin"], name="newjoin", label="NEWJOIN")
    monkeypatch.setitem(ALGORITHMS, "newjoin", new)
    styles = {name: style_of(name) for name in ALGORITHMS}
    assert styles["newjoin"].label == "NEWJOIN"
    assert len({(style.colour, style.marker) for style in styles.values()}) == len(ALGORITHMS)


def test_series_that_are_no_algorithm_are_told_apart_by_position() -> None:
    first, second = style_of(20.0, 0, lambda mb: f"M = {mb:g} MB"), style_of(40.0, 1)
    assert first.label == "M = 20 MB"
    assert (first.colour, first.marker) != (second.colour, second.marker)


@pytest.mark.parametrize("algorithm", ["meshjoin", "hybridjoin", "cmeshjoin"])
def test_rates_do_not_depend_on_the_miniature(tmp_path: Path, algorithm: str) -> None:
    """With everything half as large the rate is the same: comparisons with the papers need this."""
    rates = [rig(tmp_path, t).measure_tuned(algorithm, 24 * MB).rate for t in (10.0, 20.0)]
    # A page is a larger part of the disk buffer.
    assert rates[1] == pytest.approx(rates[0], rel=0.05)


@pytest.mark.parametrize("algorithm", ["meshjoin", "rmeshjoin"])
def test_a_scan_serves_the_same_whatever_the_keys(tmp_path: Path, algorithm: str) -> None:
    """So it is measured once for all skews and seeds; an index join is not."""
    lab = Lab(tmp_path, TINY)
    rigs = [
        lab.rig(lambda t, e=e, s=s: Miniature(int(1e6 / t), e, seed=s, times=t), 50.0)  # type: ignore[misc]
        for e, s in ((0.0, 7), (1.0, 7), (1.0, 3))
    ]
    fresh = [one._measure(algorithm, 24 * MB, Split(2)).rate for one in rigs]
    assert len(set(fresh)) == 1
    assert len({id(one.measure(algorithm, 24 * MB, Split(2))) for one in rigs}) == 1
    assert len({id(one.measure("hybridjoin", 24 * MB, Split(2))) for one in rigs}) == 3


@pytest.mark.parametrize("algorithm", ["rmeshjoin", "hybridjoin", "xhybridjoin"])
def test_a_larger_relation_has_no_smaller_window(tmp_path: Path, algorithm: str) -> None:
    """What a join keeps for each page does not shrink; it must not take the miniature's memory."""
    places = []
    for rows in (0.5e6, 4e6):
        here = rig(tmp_path / str(rows), 20.0, rows=rows)
        places.append(here.evaluate(algorithm, 50 * MB, Split(1)).settings.places)
    assert places[1] == pytest.approx(places[0], rel=0.03)


def test_a_buffer_pool_saves_its_share_of_the_reads(tmp_path: Path) -> None:
    """With keys anywhere, a pool of a quarter of R holds a quarter of the requested pages."""
    here = rig(tmp_path, 50.0, exponent=0.0)
    plain, pooled = (here.measure(name, 30 * MB).rate for name in ("inlj", POOLED))
    assert pooled == pytest.approx(plain / 0.75, rel=0.1)


def test_one_read_each_is_measured_on_the_whole_device(tmp_path: Path) -> None:
    measured = rig(tmp_path, 20.0).measure("inlj", 12 * MB)
    assert 100 < measured.rate < 125  # a seek of 8 ms, some overhead, a page


def test_the_model_knows_the_row_store(tmp_path: Path) -> None:
    for by_frequency in (False, True):
        folder = tmp_path / str(by_frequency)
        here = rig(folder, 10.0, exponent=1.0, by_frequency=by_frequency)
        for algorithm in ("meshjoin", "hybridjoin", "xhybridjoin"):
            measured = here.measure_tuned(algorithm, 12 * MB)
            predicted = here.predict(algorithm, measured).rate
            assert predicted == pytest.approx(measured.rate, rel=0.15), algorithm


def test_an_index_join_is_measured_over_whole_swings(tmp_path: Path) -> None:
    """One load has most of the stream, and is read in step: within a cycle the rate doubles."""
    here = rig(tmp_path, 20.0, "hdd-one-cost", exponent=1.0, by_frequency=True, rows=2e6)
    measured = here.measure("hybridjoin", 50 * MB, Split(1))
    assert measured.rate == pytest.approx(here.predict("hybridjoin", measured).rate, rel=0.08)


def test_a_wrong_row_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here = rig(tmp_path, 50.0)
    rows = here.workload.stream_rows

    def with_other_keys(self: Synthetic, first: int, count: int) -> pa.RecordBatch:
        return rows(first, count)

    monkeypatch.setattr(Synthetic, "stream_rows", with_other_keys)
    here.measure("meshjoin", 12 * MB)
    monkeypatch.setattr("semistream.lab.stamps._STAMP", 1)
    with pytest.raises(AssertionError, match="row of another key"):
        here.measure("meshjoin", 13 * MB)


def test_the_machines_own_device_is_read_past_the_page_cache(tmp_path: Path) -> None:
    here = rig(tmp_path, 50.0, REAL)
    assert here.measure_tuned("meshjoin", 12 * MB).rate > 0


def test_figures_that_need_a_clock_say_so(tmp_path: Path) -> None:
    out = tmp_path / "out"
    with pytest.raises(OptionError, match=r"hybridjoin-10a can only be made on an emulated"):
        run_figures(["hybridjoin-10a"], Setup(device=REAL), out)
    run_figure(FIGURES["hybridjoin-6"], Lab(tmp_path, Scale("t", False, 40.0), REAL), out)
    assert "page cache dropped" in Result.read(out / "hybridjoin-6.json").device


def test_lost_rows_are_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here = rig(tmp_path, 50.0)
    half = here.relation.row_count // 2
    few = Synthetic(half)
    lossy = Rig.build(tmp_path / "few", few, "hdd-papers", 50.0, 120, 4096)
    monkeypatch.setattr(lossy, "workload", here.workload)
    with pytest.raises(AssertionError, match="lost rows"):
        lossy.measure("meshjoin", 12 * MB)


@pytest.mark.parametrize("name", ["meshjoin-5a", "hybridjoin-9"])
def test_the_same_seed_gives_the_same_table(tmp_path: Path, name: str) -> None:
    results = []
    for run in ("a", "b"):
        folder = tmp_path / f"work-{run}"
        folder.mkdir()
        results.append(run_figure(FIGURES[name], Lab(folder, TINY), tmp_path / run))
    for ending in ("csv", "svg"):
        first, second = ((tmp_path / run / f"{name}.{ending}").read_bytes() for run in "ab")
        assert first == second
    assert results[0].claims == results[1].claims
    assert (tmp_path / "a" / f"{name}.png").stat().st_size > 10_000


def test_another_seed_gives_another_table(tmp_path: Path) -> None:
    tables = [
        Table(FIGURES["hybridjoin-9"].points(Lab(tmp_path, TINY, seed=seed))[0]())  # type: ignore[arg-type]
        for seed in (1, 2)
    ]
    assert tables[0].values("tuples") != tables[1].values("tuples")


def test_the_command_makes_files_and_a_page(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["lab", "run", "meshjoin-5a", "meshjoin-5b", "--out", str(tmp_path)]) == 0
    printed = capsys.readouterr().out
    assert "5 hold / 0 in shape / 0 do not / 0 not judged" in printed
    result = Result.read(tmp_path / "meshjoin-5b.json")
    assert result.claims[0].verdict == Verdict.HOLDS
    assert score(claims_of([result])).startswith("2 hold /")
    assert "meshjoin-5a" in (tmp_path / "index.html").read_text()
    assert main(["lab", "report", "--out", str(tmp_path)]) == 0


def test_the_command_names_what_it_does_not_know(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["lab", "list"]) == 0
    assert "cmeshjoin-3e" in capsys.readouterr().out
    with pytest.raises(OptionError, match="Did you mean 'meshjoin-6b'"):
        choose(["meshjoin-6bb"])
    assert [f.paper for f in choose(["hybridjoin"])] == ["hybridjoin"] * 11


def test_a_report_of_nothing_says_what_to_do(tmp_path: Path) -> None:
    assert main(["lab", "report", "--out", str(tmp_path)]) != 0


def test_tables_come_back_as_they_were_written(tmp_path: Path) -> None:
    table = Table([{"x": 1.0, "what": "a"}, {"x": 2.5, "what": "b"}])
    table.write(tmp_path / "t.csv")
    assert list(Table.read(tmp_path / "t.csv")) == list(table)
    assert table.where(what="b").values("x") == [2.5]
    assert Table([{"x": 1, "s": "a", "y": 4}, {"x": 1, "s": "b", "y": 2}]).ratios(
        "x", "y", "s", "a", "b"
    ) == [2.0]


def test_verdicts_are_the_best_that_applies() -> None:
    assert Finding.of("1", holds=True).verdict is Verdict.HOLDS
    assert Finding.of("1", holds=False, in_shape=True).verdict is Verdict.IN_SHAPE
    assert Finding.of("1", holds=False).verdict is Verdict.NOT_HERE


def test_claims_can_fail() -> None:
    """Each verdict of a measured figure depends on its numbers: other numbers, another verdict."""
    claim = FIGURES["meshjoin-6b"].claims[0]
    rows: list[dict[str, float | str]] = [
        {"memory_percent": 1.0, "algorithm": "computing", "tuples_per_s": 100.0},
        {"memory_percent": 1.0, "algorithm": POOLED, "tuples_per_s": 200.0},
    ]
    assert claim.judge(Table(rows)).verdict is Verdict.NOT_HERE
    for other, verdict in ((6.0, Verdict.IN_SHAPE), (9.0, Verdict.HOLDS)):
        assert claim.judge(Table([rows[0], {**rows[1], "tuples_per_s": other}])).verdict is verdict


def test_shapes() -> None:
    assert falls([3, 2, 2.01], 0.01)
    assert rises([1, 2, 1.99], 0.01)
    assert not rises([1, 2, 1.5], 0.01)
    assert has_peak([1, 3, 2], 0.3)
    assert not has_peak([1, 3, 2.9], 0.3)


def test_results_are_plain_json(tmp_path: Path) -> None:
    result = run_figure(FIGURES["meshjoin-5a"], Lab(tmp_path), tmp_path)
    stored = json.loads((tmp_path / "meshjoin-5a.json").read_text())
    assert stored["claims"][0]["verdict"] == result.claims[0].verdict
    assert Result.read(tmp_path / "meshjoin-5a.json") == replace(result)
    assert np.isfinite(stored["seconds"])


def test_a_folder_that_cannot_be_written_is_said_at_once(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OptionError, match="cannot write to"):
        run_figures(["meshjoin-5a"], Setup(), tmp_path / "file" / "out")


def test_other_files_in_the_folder_do_no_harm(tmp_path: Path) -> None:
    (tmp_path / "package.json").write_text("{}")
    run_figure(FIGURES["meshjoin-5a"], Lab(tmp_path), tmp_path)
    assert [result.name for result in results_in(tmp_path)] == ["meshjoin-5a"]
