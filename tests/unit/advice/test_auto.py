"""`auto`, calibration and `explain`: exact whatever is chosen, and clear about why."""

import json
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import semistream as ss
from semistream.advice import auto
from semistream.advice.auto import SelfTuningJoin, make_join, needs_factors
from semistream.advice.calibration import calibrate, factors_for, load, store, usual_spec
from semistream.advice.explain import explain
from semistream.advice.history import History
from semistream.cli.main import main
from semistream.cost.factors import CostFactors
from semistream.embedded import prepare
from semistream.errors import BudgetError, OptionError
from semistream.relation.device import EmulatedDevice, Reading
from semistream.spec import resolve
from semistream.workload.zipf import scatter, zipf_ranks
from tests.oracle import duckdb_join

ROWS = 60_000
MORE_THAN_CAN_BE_SERVED = 1e9  # tuples per second: then all memory is used, as without a rate
DISK = CostFactors.of_device(*EmulatedDevice.named("hdd-2007").costs)


@pytest.fixture(scope="module")
def table() -> pa.Table:
    rng = np.random.default_rng(1)
    return pa.table(
        {
            "k": rng.permutation(ROWS),
            "a": rng.integers(0, 2**40, ROWS),
            "b": rng.integers(0, 2**40, ROWS),
            "name": [f"name {i}" for i in range(ROWS)],
        }
    )


@pytest.fixture(scope="module")
def relation(table: pa.Table, tmp_path_factory: pytest.TempPathFactory) -> ss.Relation:
    folder = tmp_path_factory.mktemp("auto")
    return ss.build_relation(table, folder / "r.rel", key="k", partitions=2, page_size="8KiB")


def stream(exponent: float, rows: int, seed: int = 1) -> pa.Table:
    ranks = zipf_ranks(np.random.default_rng(seed), rows, ROWS + 5_000, exponent)
    keys = scatter(ranks, ROWS + 5_000)  # some of them R does not have
    return pa.table({"k": keys, "n": np.arange(rows)})


def check_left_join(
    out: Iterable[pa.RecordBatch], stream: pa.Table, table: pa.Table, columns: list[str]
) -> None:
    """Compare all rows of a left join with DuckDB's; `n` numbers the stream's rows."""
    actual = pa.Table.from_batches(out)
    actual.validate(full=True)
    expected = duckdb_join(stream, table, on="k", columns=columns)
    assert 0 < expected[columns[0]].null_count < len(stream) / 2
    assert actual.sort_by("n").equals(expected.sort_by("n"))


def emulated(relation: ss.Relation) -> ss.Relation:
    return relation.read_by(Reading(EmulatedDevice.named("hdd-2007")))


def test_changes_lose_nothing(relation: ss.Relation, table: pa.Table) -> None:
    """A stream that changes twice."""
    parts = [stream(0.0, 150_000, 1), stream(1.2, 250_000, 2), stream(0.0, 150_000, 3)]
    whole = pa.concat_tables(parts)
    whole = whole.set_column(1, "n", pa.array(np.arange(len(whole))))
    spec = resolve(relation, whole.schema, how="left", columns=["a", "name"])
    join = SelfTuningJoin(emulated(relation), spec, 400_000, factors=DISK)
    out = join.join(whole.to_batches(max_chunksize=4_000))
    check_left_join(out, whole, table, ["a", "name"])
    assert join.telemetry.retunings >= 2
    assert [c.at_row for c in join.changes] == sorted({c.at_row for c in join.changes})
    assert all(c.reason and c.option is not None for c in join.changes)
    assert join.telemetry.stream_rows == join.telemetry.output_rows == len(whole)
    assert join.telemetry.memory_bytes_peak <= 400_000


def test_a_steady_stream_is_left_alone(relation: ss.Relation, table: pa.Table) -> None:
    sales = stream(0.9, 400_000)
    spec = resolve(relation, sales.schema, columns=["a"])
    join = SelfTuningJoin(emulated(relation), spec, 400_000, factors=DISK)
    check_left_join(join.join(sales.to_batches(max_chunksize=5_000)), sales, table, ["a"])
    assert join.telemetry.retunings == 0
    assert [c.reason for c in join.changes] == ["at the start"]


def test_pauses_and_empty_batches(relation: ss.Relation, table: pa.Table) -> None:
    sales = stream(1.0, 30_000)
    batches = sales.to_batches(max_chunksize=700)
    empty = batches[0][:0]

    def source() -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield empty
            yield batch
        yield empty

    spec = resolve(relation, sales.schema, columns=["a"])
    join = SelfTuningJoin(emulated(relation), spec, 400_000, factors=DISK)
    check_left_join(join.join(source()), sales, table, ["a"])


def test_with_a_rate_less_memory_is_taken(relation: ss.Relation, table: pa.Table) -> None:
    sales = stream(0.0, 60_000)
    spec = resolve(relation, sales.schema, columns=["a"])
    peaks = []
    for rate in (200.0, None):
        join = SelfTuningJoin(emulated(relation), spec, 1_500_000, factors=DISK, rate=rate)
        check_left_join(join.join([*sales.to_batches()]), sales, table, ["a"])
        peaks.append(join.changes[0].budget_bytes)
    assert peaks[0] < peaks[1] / 2
    assert peaks[1] == 1_500_000


def test_resident_where_it_fits(relation: ss.Relation) -> None:
    operator, batches = prepare(stream(1.0, 1_000).to_batches(), relation, memory="64MB")
    assert operator is not None
    list(operator.join(batches))
    assert isinstance(operator, SelfTuningJoin)
    assert operator.changes[0].algorithm == "resident"
    spec = resolve(relation, stream(1.0, 1).schema)
    assert not needs_factors("auto", relation, spec, 64_000_000)
    assert needs_factors("auto", relation, spec, 300_000)
    assert not needs_factors("meshjoin", relation, spec, 300_000)


def test_choices_are_remembered(relation: ss.Relation, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next micro-batch does not rank everything again, unless its keys are others."""
    ranked = []
    rank = auto.Advisor.rank
    monkeypatch.setattr(
        auto.Advisor, "rank", lambda self, *a, **k: (ranked.append(1), rank(self, *a, **k))[1]
    )
    for exponent in (1.0, 1.0, 0.0):
        table = stream(exponent, 20_000)
        spec = resolve(relation, table.schema, columns=["b"])
        list(make_join("auto", relation, spec, 500_000, factors=DISK).join(table.to_batches()))
    assert len(ranked) == 2


@pytest.mark.parametrize("rate", [None, MORE_THAN_CAN_BE_SERVED])
def test_short_streams_need_no_cache(
    relation: ss.Relation, table: pa.Table, rate: float | None
) -> None:
    """What fits the window is over before a cache is warm; one that goes on gets one after all."""
    algorithms, history = [], History()
    for rows in (3_000, 3_000, 400_000):
        sales = stream(1.1, rows)
        spec = resolve(relation, sales.schema, columns=["a", "b"])
        join = SelfTuningJoin(
            emulated(relation), spec, 900_000, factors=DISK, rate=rate, history=history
        )
        out = join.join(sales.to_batches(max_chunksize=4_000))
        check_left_join(out, sales, table, ["a", "b"])
        algorithms.append([c.algorithm for c in join.changes])
    assert algorithms[0][0].startswith("c")
    assert algorithms[1] in (["hybridjoin"], ["rmeshjoin"], ["binlj"])
    assert algorithms[2][-1].startswith("c")
    assert "more rows than" in join.changes[1].reason


def test_the_first_stream_of_a_kind_is_not_taken_for_short(
    relation: ss.Relation, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However much fits the window: nothing is known of how long it will be."""
    monkeypatch.setattr(auto, "_WINDOW_SHARE", 1e6)
    algorithms, history = [], History()
    for _ in range(2):
        sales = stream(1.1, 3_000)
        spec = resolve(relation, sales.schema, columns=["a", "b"])
        join = SelfTuningJoin(emulated(relation), spec, 900_000, factors=DISK, history=history)
        list(join.join(sales.to_batches()))
        algorithms.append(join.changes[0].algorithm)
    assert algorithms[0].startswith("c")
    assert not algorithms[1].startswith("c"), "now it is known"


def test_a_stream_that_just_fits_the_window_is_short_too(
    relation: ss.Relation, table: pa.Table
) -> None:
    """The window that was chosen for a long stream has space for all of it: one cycle is enough."""
    sales = stream(0.0, 8_000)
    spec = resolve(relation, sales.schema, columns=["a", "b"])
    places = _places(SelfTuningJoin(emulated(relation), spec, 901_000, factors=DISK), sales)
    sales = stream(0.0, int(0.97 * places))
    algorithms, pages = [], []
    for _ in range(2):
        join = SelfTuningJoin(emulated(relation), spec, 901_000, factors=DISK)
        out = join.join(sales.to_batches(max_chunksize=2_000))
        check_left_join(out, sales, table, ["a", "b"])
        algorithms.append(join.changes[-1].algorithm)
        pages.append(join.telemetry.pages_scanned)
    assert algorithms[1] in ("hybridjoin", "rmeshjoin", "binlj")
    assert pages[1] <= pages[0]


def _places(join: SelfTuningJoin, table: pa.Table) -> int:
    list(join.join(table.to_batches(max_chunksize=2_000)))
    option = join.changes[0].option
    assert option is not None
    return option.tuned.settings.places


def test_rate_is_for_auto(relation: ss.Relation) -> None:
    batches = stream(0.0, 10).to_batches()
    with pytest.raises(OptionError, match=r"rate is a positive number.*got -1"):
        ss.join(batches, relation, rate=-1)
    with pytest.raises(OptionError, match="for algorithm='auto'"):
        ss.join(batches, relation, rate=5, algorithm="meshjoin")
    with pytest.raises(OptionError, match="Did you mean 'meshjoin'"):
        ss.join(batches, relation, algorithm="meshjion")


def test_too_small_for_anything(relation: ss.Relation) -> None:
    with pytest.raises(BudgetError, match="it needs at least") as error:
        list(ss.join(stream(0.0, 10).to_batches(), relation, memory=1_000))
    assert error.value.least_bytes is not None
    list(ss.join(stream(0.0, 10).to_batches(), relation, memory=error.value.least_bytes))


def test_calibration_is_measured_and_kept(
    relation: ss.Relation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SEMISTREAM_CACHE", str(tmp_path))
    spec = usual_spec(relation, ["a", "name"])
    assert load(relation, spec) is None
    steps = []
    calibration = calibrate(
        relation, spec, progress=lambda done, total: steps.append((done, total))
    )
    assert steps[-1][0] == steps[-1][1] >= 6
    for point in (*calibration.factors.scan, *calibration.factors.index):
        assert point.rows > 0
        assert min(point.read_s, point.output_s, point.probe_s, point.loop_s) > 0
    assert all(np.diff(calibration.factors.io.seconds) >= 0)
    assert calibration.typical_error > 0
    assert calibration.stream_bytes == 8 + 4 + 8
    assert 1.0 < calibration.fudge("scan") < 4.8 > calibration.fudge("index") > 1.0
    store(calibration, relation, spec)
    assert load(relation, spec) == calibration
    # Another stream with the same relation: better than nothing.
    other = resolve(relation, pa.schema([("k", pa.int64())]), columns=["a", "name"])
    assert load(relation, other) == calibration
    # Other columns cost something else.
    assert load(relation, usual_spec(relation, ["a"])) is None


def test_a_calibration_that_was_cut_off(
    relation: ss.Relation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SEMISTREAM_CACHE", str(tmp_path))
    spec = usual_spec(relation, ["a"])
    path = store(calibrate(relation, spec, brief=True), relation, spec)
    path.write_text(path.read_text()[:100])
    assert load(relation, spec) is None
    assert factors_for(relation, spec).index[0].read_s > 0
    assert load(relation, spec) is not None


def test_a_cache_that_cannot_be_written(
    relation: ss.Relation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A join still runs, and says what to do."""
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("SEMISTREAM_CACHE", str(tmp_path / "file"))
    with pytest.warns(UserWarning, match="set SEMISTREAM_CACHE to a folder"):
        factors = factors_for(relation, usual_spec(relation, ["b"]))
    assert factors.index[0].read_s > 0


def test_nothing_to_calibrate_or_explain(tmp_path: Path) -> None:
    empty = pa.table({"k": pa.array([], pa.int64()), "v": pa.array([], pa.int64())})
    relation = ss.build_relation(empty, tmp_path / "e.rel", key="k", partitions=2)
    with pytest.raises(OptionError, match="has no rows to measure"):
        calibrate(relation)
    with pytest.raises(OptionError, match="has no rows: any budget"):
        relation.explain(memory="20KB")
    spec = resolve(relation, pa.schema([("k", pa.int64())]))
    assert not needs_factors("auto", relation, spec, 20_000)


def test_explain_adds_up(relation: ss.Relation) -> None:
    said = explain(relation, memory="600KB", rate=1_000, skew=1.0, columns=["a"])
    rates = [row.tuples_per_s for row in said.ranking]
    assert len(rates) == 10
    assert said.algorithm == said.ranking[0].algorithm
    assert said.tuples_per_s >= 0.97 * max(rates)
    assert sum(said.split.values()) <= 300_000
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
    assert "c_A add" in capsys.readouterr().out
