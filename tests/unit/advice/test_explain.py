"""`explain`: what a budget buys and what a micro-batch takes, in words, numbers and charts."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import semistream as ss
from semistream.advice import explain_chart
from semistream.advice.explain import explain
from semistream.cli.main import main
from semistream.cost.models import MODELS
from semistream.errors import OptionError
from semistream.relation.device import EmulatedDevice, Reading
from semistream.workload.zipf import scatter, zipf_ranks

ROWS = 60_000


@pytest.fixture(autouse=True)
def _empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SEMISTREAM_CACHE", str(tmp_path / "cache"))


@pytest.fixture(scope="module")
def relation(tmp_path_factory: pytest.TempPathFactory) -> ss.Relation:
    numbers = np.arange(ROWS)
    names = [f"name {i}" for i in range(ROWS)]
    table = pa.table({"k": numbers, "a": numbers, "b": numbers, "name": names})
    folder = tmp_path_factory.mktemp("explain")
    return ss.build_relation(table, folder / "r.rel", key="k", partitions=2, page_size="8KiB")


def stream(exponent: float, rows: int) -> pa.Table:
    ranks = zipf_ranks(np.random.default_rng(1), rows, ROWS, exponent)
    return pa.table({"k": scatter(ranks, ROWS), "n": np.arange(rows)})


def emulated(relation: ss.Relation) -> ss.Relation:
    return relation.read_by(Reading(EmulatedDevice.named("hdd-2007")))


def test_explain_adds_up(relation: ss.Relation) -> None:
    said = explain(relation, memory="600KB", rate=1_000, skew=1.0, columns=["a"])
    rates = [row.tuples_per_s for row in said.ranking]
    assert len(rates) == len(MODELS)
    assert said.tuples_per_s >= 0.97 * max(rates)
    assert sum(said.split.values()) <= 600_000
    half, twice = sorted(said.other_budgets)
    assert (half, twice) == (300_000, 1_200_000)
    assert said.other_budgets[half] <= said.tuples_per_s <= said.other_budgets[twice]
    assert said.least_memory_bytes is not None
    assert said.least_memory_bytes <= 600_000
    text = str(said)
    for words in (
        "auto chooses",
        "the least that does",
        "A broadcast needs",
        "Zipf 1.00 (as given)",
    ):
        assert words in text
    assert json.loads(json.dumps(said.to_dict()))["algorithm"] == said.algorithm


def printed_rates(text: str) -> dict[str, float]:
    """Return the column of rates, by algorithm, in the order of the table."""
    rows = [line.split() for line in text.splitlines() if line.startswith(tuple(MODELS))]
    return {row[0]: float(row[1].replace(",", "")) for row in rows}


def test_rows_are_ordered_as_they_are_printed(relation: ss.Relation) -> None:
    slow = emulated(relation)
    for memory in ("200KB", "600KB", "100MB"):
        for skew in (0.0, 1.0):
            said = slow.explain(memory=memory, skew=skew, columns=["a"])
            rates = printed_rates(str(said))
            assert list(rates) == [r.algorithm for r in said.ranking if r.algorithm in MODELS]
            assert list(rates.values()) == sorted(rates.values(), reverse=True)
            best = max(said.ranking, key=lambda row: row.tuples_per_s)
            assert said.tuples_per_s >= 0.99 * best.tuples_per_s


def test_no_row_says_that_nothing_is_joined(relation: ss.Relation) -> None:
    said = relation.explain(memory="60KB", columns=["a"])
    rows = tuple(replace(row, tuples_per_s=row.tuples_per_s / 1e9) for row in said.ranking)
    text = str(replace(said, ranking=rows))
    assert all(rate > 0 for rate in printed_rates(text).values())
    # In half of that nothing runs: no rate is given for it.
    assert sorted(said.other_budgets) == [120_000]
    assert " 0 tuples/s" not in text


def test_explain_from_a_sample(relation: ss.Relation) -> None:
    slow = emulated(relation)
    said = slow.explain(memory="600KB", sample=stream(1.0, 50_000), columns=["a"])
    assert said.skew == pytest.approx(1.0, abs=0.05)
    assert "from 50,000 sampled rows" in str(said)
    assert said.ranking[0].hit_ratio > 0.3
    with pytest.raises(OptionError, match="either skew or a sample"):
        relation.explain(memory="1MB", skew=1.0, sample=stream(1.0, 10))
    with pytest.raises(OptionError, match="rate must be positive"):
        relation.explain(memory="1MB", rate=0)


def test_explain_a_latency(relation: ss.Relation, capsys: pytest.CaptureFixture[str]) -> None:
    """A shorter one needs more memory; the verdict is by the least that holds rate and latency."""
    slow = emulated(relation)
    asked = {"memory": "100KB", "rate": 2_000, "columns": ["a"]}
    least = []
    for latency in ("10s", "100ms"):
        said = slow.explain(latency=latency, **asked)
        assert said.least_memory_bytes is not None
        least.append(said.least_memory_bytes)
        is_held = "holds" if said.least_memory_bytes <= 100_000 else "does not hold"
        about = f"2,000 tuples/s with a latency of {latency.replace('10s', '10.0 s')}"
        assert f"This budget {is_held} {about.replace('100ms', '100 ms')}; the least" in str(said)
    assert least[0] <= 100_000 < least[1]
    with pytest.raises(OptionError, match="latency needs rate"):
        relation.explain(memory="1MB", latency="1s")
    place = ["explain", relation.location, "--latency", "1s", "--rate", "100"]
    assert main(place) == 0
    assert "100 tuples/s with a latency of 1.0 s; the least" in capsys.readouterr().out
    assert main([*place, "--spark"]) == 2
    assert "--latency is explained for the join alone" in capsys.readouterr().err


def test_explain_where_all_fits(relation: ss.Relation) -> None:
    said = relation.explain(memory="100MB")
    assert said.algorithm == "resident"
    assert said.split == {}


def test_commands(
    relation: ss.Relation, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = relation.location
    assert main(["explain", place, "--memory", "5%", "--columns", "a", "--skew", "0.8"]) == 0
    assert "auto chooses" in capsys.readouterr().out
    chart = tmp_path / "chart.png"
    asked = ["--memory", "600KB", "--device", "hdd-2007", "--json", "--plot", str(chart)]
    assert main(["explain", place, *asked, "--rate", "100"]) == 0
    assert json.loads(capsys.readouterr().out)["rate"] == 100
    assert chart.read_bytes()[:4] == b"\x89PNG"
    assert main(["explain", place, "--memory", "x%"]) == 2
    assert "a size or a share" in capsys.readouterr().err
    assert main(["explain", place, "--sample", str(tmp_path / "none.parquet")]) == 2
    assert "cannot be read" in capsys.readouterr().err
    assert main(["calibrate", place, "--columns", "a"]) == 0
    assert "│ add " in capsys.readouterr().out


def test_nothing_to_explain(tmp_path: Path) -> None:
    empty = pa.table({"k": pa.array([], pa.int64()), "v": pa.array([], pa.int64())})
    relation = ss.build_relation(empty, tmp_path / "e.rel", key="k", partitions=2)
    with pytest.raises(OptionError, match="has no rows: any budget"):
        relation.explain(memory="20KB")


def test_without_a_calibration_one_line_says_so(relation: ss.Relation) -> None:
    said = relation.explain(memory="600KB", columns=["a"])
    assert not said.is_calibrated
    lines = [line for line in str(said).splitlines() if "common machine" in line]
    assert lines == [
        "Cost factors: those of a common machine, typical error 30%; "
        "`semistream calibrate` measures those of this one."
    ]


def test_a_micro_batch(relation: ss.Relation) -> None:
    said = relation.explain(memory="600KB", skew=1.0, columns=["a"], batch=10_000)
    batch = said.batch
    assert batch is not None
    assert {row.algorithm for row in batch.ranking} == set(MODELS)
    times = [row.time_ms for row in batch.ranking]
    assert times == sorted(times)
    assert batch.rows == 10_000
    assert batch.time_ms <= times[0] / 0.9
    text = str(said)
    assert "A micro-batch of 10,000 rows:" in text
    assert f"auto chooses {batch.algorithm} for it: " in text
    assert text.index("A micro-batch of") < text.index("A stream that goes on:")
    stored = json.loads(json.dumps(said.to_dict()))
    assert stored["batch"]["algorithm"] == batch.algorithm
    assert stored["batch"]["ranking"][0] == {
        "algorithm": batch.ranking[0].algorithm,
        "time_ms": batch.ranking[0].time_ms,
        "pages": batch.ranking[0].pages,
        "bytes_read": batch.ranking[0].bytes_read,
    }
    assert "curves" not in stored
    with pytest.raises(OptionError, match="batch must be at least 1"):
        relation.explain(memory="1MB", batch=0)


def test_the_chart_of_a_micro_batch(
    relation: ss.Relation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn: list[explain_chart.BatchChart] = []
    draw = explain_chart.BatchChart.draw

    def noted(chart: explain_chart.BatchChart, path: Path) -> None:
        drawn.append(chart)
        draw(chart, path)

    monkeypatch.setattr(explain_chart.BatchChart, "draw", noted)
    path = tmp_path / "batch.svg"
    asked = ["--memory", "600KB", "--columns", "a", "--batch", "5000", "--plot", str(path)]
    assert main(["explain", relation.location, *asked]) == 0
    curves = drawn[0].curves
    assert set(curves.by_rows) == set(curves.by_size)
    assert 3 <= len(curves.by_rows) <= 6
    for by_rows in curves.by_rows.values():
        assert min(by_rows) == 1_000
        assert max(by_rows) == 10_000_000
        assert 5_000 in by_rows
    text = path.read_text()
    for label in ("milliseconds", "rows of the micro-batch"):
        assert f"<!-- {label} -->" in text
    assert text.count(" (auto) -->") == 1
