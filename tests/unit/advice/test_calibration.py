"""Calibration: what is measured, what is stored, and what holds without it."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import semistream as ss
from semistream.advice.calibration import (
    Calibration,
    calibrate,
    calibration_for,
    factors_for,
    load,
    store,
    usual_spec,
)
from semistream.advice.calibration.fit import _request_costs
from semistream.advice.calibration.record import shipped_factors
from semistream.advice.calibration.runs import Runs
from semistream.advice.explain import explain
from semistream.cost.factors import CostFactors
from semistream.errors import OptionError
from semistream.relation.device import EmulatedDevice, Reading
from semistream.spec import JoinSpec, resolve

SAMPLE = pa.table({"k": np.arange(100)})
FACTORS = CostFactors.of_device(*EmulatedDevice.named("hdd-2007").costs)


@pytest.fixture(autouse=True)
def _empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SEMISTREAM_CACHE", str(tmp_path / "cache"))


@pytest.fixture(scope="module")
def relation(tmp_path_factory: pytest.TempPathFactory) -> ss.Relation:
    folder: Path = tmp_path_factory.mktemp("calibration")
    table = pa.table({"k": np.arange(5_000), "v": np.arange(5_000)})
    return ss.build_relation(table, folder / "r.rel", key="k", page_size="8KiB")


@pytest.fixture
def usual(relation: ss.Relation) -> JoinSpec:
    return usual_spec(relation, ["v"])


@pytest.fixture
def other(relation: ss.Relation) -> JoinSpec:
    """The same join of a stream with another schema."""
    return resolve(relation, SAMPLE.schema, columns=["v"])


def made_up(measured: str) -> Calibration:
    """Return a calibration, told from others by when it was made."""
    waiting = {"scan": 40.0, "index": 40.0, "lookup": 40.0}
    about = ("host", "device", measured, 1.0, 20.0)
    return Calibration(FACTORS, {"rounds": 0.01, "io": 0.01}, *about, waiting)


def ask_for_calibration(relation: ss.Relation, spec: JoinSpec) -> None:
    calibration_for(relation, spec)


def ask_for_factors(relation: ss.Relation, spec: JoinSpec) -> None:
    factors_for(relation, spec)


def ask_to_explain(relation: ss.Relation, _: JoinSpec) -> None:
    explain(relation, memory="2MB", sample=SAMPLE, columns=["v"])


@pytest.mark.parametrize("use", [ask_for_calibration, ask_for_factors, ask_to_explain])
def test_what_is_borrowed_from_another_schema_is_not_kept_as_its_own(
    relation: ss.Relation,
    usual: JoinSpec,
    other: JoinSpec,
    use: Callable[[ss.Relation, JoinSpec], None],
) -> None:
    """So a newer calibration of the lender is seen, and one of its own takes its place."""
    first, second, own = (made_up(f"2026-01-0{day}") for day in (1, 2, 3))
    store(first, relation, usual)
    use(relation, other)
    assert load(relation, other) == first
    store(second, relation, usual)
    assert load(relation, other) == second
    use(relation, other)
    store(own, relation, other)
    assert load(relation, other) == own
    assert load(relation, usual) == second


def test_explain_says_when_what_it_borrowed_was_measured(
    relation: ss.Relation, usual: JoinSpec
) -> None:
    for day in ("2026-01-01", "2026-01-02"):
        store(made_up(day), relation, usual)
        said = explain(relation, memory="2MB", sample=SAMPLE, columns=["v"])
        assert f"measured {day} on host" in str(said)


def test_calibration_is_measured_and_kept(tmp_path: Path) -> None:
    columns = {"a": np.arange(60_000), "name": [f"name {i}" for i in range(60_000)]}
    table = pa.table({"k": np.arange(60_000), **columns})
    relation = ss.build_relation(table, tmp_path / "r.rel", key="k", page_size="8KiB")
    spec = usual_spec(relation, ["a", "name"])
    assert load(relation, spec) is None
    steps: list[tuple[int, int]] = []
    calibration = calibrate(
        relation, spec, progress=lambda done, total: steps.append((done, total))
    )
    assert steps[-1][0] == steps[-1][1] == len(steps)
    factors = calibration.factors
    for point in (*factors.scan, *factors.index, *factors.look_up):
        assert point.rows > 0
        assert min(point.read_s, point.output_s, point.probe_s, point.loop_s) > 0
    assert all(np.diff(factors.io.seconds) >= 0)
    assert calibration.is_measured
    assert calibration.typical_error > 0
    assert calibration.stream_bytes == 8 + 4 + 8
    for family in ("scan", "index", "lookup"):
        assert 1.0 < calibration.fudge(family) < 6.0
    assert factors.look_up != factors.index
    # Look-ups are this machine's own, not the shipped ones at another scale.
    shipped = shipped_factors(relation, spec)
    scales = [factors.look_up[0].read_s / shipped.look_up[0].read_s]
    scales.append(factors.requests.request_s / shipped.requests.request_s)
    scales.append(factors.requests.byte_s / shipped.requests.byte_s)
    assert min(scales) > 0
    assert max(scales) > 1.01 * min(scales)
    store(calibration, relation, spec)
    assert load(relation, spec) == calibration
    # Another stream with the same relation: better than nothing.
    other = resolve(relation, pa.schema([("k", pa.int64())]), columns=["a", "name"])
    assert load(relation, other) == calibration
    # Other columns cost something else.
    assert load(relation, usual_spec(relation, ["a"])) is None


def test_look_ups_are_run_dense_and_sparse(tmp_path: Path) -> None:
    """Their windows request nearly all pages or few; the time of their reads is known."""
    table = pa.table({"k": np.arange(60_000), "v": np.arange(60_000)})
    about = {"key": "k", "partitions": 1, "page_size": "2KiB"}
    relation = ss.build_relation(table, tmp_path / "r.rel", **about)  # type: ignore[arg-type]
    runs = Runs(relation, usual_spec(relation, ["v"]), None)
    list(runs._look_ups())
    pages = runs.layout.page_count
    shares = [
        run.service.counted("pages_scanned") / run.service.loops / pages for run in runs.look_up
    ]
    assert min(shares) < 0.05
    assert max(shares) > 0.9
    assert len({run.measured.settings.places for run in runs.look_up}) == 3
    assert all(run.service.seconds("io") > 0 for run in runs.look_up)


def test_the_cost_of_requests_is_told_from_that_of_bytes() -> None:
    """Dense look-ups make few large requests, sparse ones many small ones."""
    amounts = np.array([[10, 5e6], [12, 2e6], [400, 1.7e6]])
    costs, deviation = _request_costs(amounts, amounts @ [2e-6, 3e-10])
    assert costs.request_s == pytest.approx(2e-6)
    assert costs.byte_s == pytest.approx(3e-10)
    assert deviation == pytest.approx(0.0, abs=1e-9)


def test_requests_and_bytes_that_cannot_be_told_apart() -> None:
    amounts = np.array([[10.0, 1e6]])
    costs, _ = _request_costs(amounts, np.array([1e-3]))
    assert 10 * costs.request_s == pytest.approx(0.5e-3)
    assert 1e6 * costs.byte_s == pytest.approx(0.5e-3)


def test_without_a_calibration_the_factors_are_those_of_a_common_machine(
    relation: ss.Relation, usual: JoinSpec
) -> None:
    """Nothing is measured, and nothing is kept."""
    common = calibration_for(relation, usual)
    assert not common.is_measured
    assert common.factors == factors_for(relation, usual) == shipped_factors(relation, usual)
    assert common.stream_bytes == 8 + 4 + 8
    for family in ("scan", "index", "lookup"):
        assert 1.0 < common.fudge(family) < 6.0
    assert common.typical_error == 0.3
    assert load(relation, usual) is None


def test_an_emulated_device_charges_its_time_on_top(relation: ss.Relation, usual: JoinSpec) -> None:
    slow = relation.read_by(Reading(EmulatedDevice.named("hdd-2007")))
    ours, theirs = factors_for(relation, usual), factors_for(slow, usual)
    assert theirs.io(1_000) - ours.io(1_000) == pytest.approx(0.008 + 1_000 / 80e6)
    assert theirs.requests.request_s == pytest.approx(0.008 + ours.requests.request_s)
    assert theirs.look_up == ours.look_up


def test_a_calibration_that_was_cut_off(relation: ss.Relation, usual: JoinSpec) -> None:
    """It is as if there was none."""
    path = store(made_up("2026-01-01"), relation, usual)
    path.write_text(path.read_text()[:100])
    assert load(relation, usual) is None
    assert factors_for(relation, usual) == shipped_factors(relation, usual)


def test_nothing_to_calibrate(tmp_path: Path) -> None:
    empty = pa.table({"k": pa.array([], pa.int64()), "v": pa.array([], pa.int64())})
    relation = ss.build_relation(empty, tmp_path / "e.rel", key="k", partitions=2)
    with pytest.raises(OptionError, match="has no rows to measure"):
        calibrate(relation)
