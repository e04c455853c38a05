"""Stored calibrations: what streams of one schema may borrow from another's, and what is theirs.

The measurements themselves are in `test_auto`.
"""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import semistream as ss
from semistream.advice.calibration import (
    Calibration,
    calibration_for,
    factors_for,
    load,
    store,
    usual_spec,
)
from semistream.advice.explain import explain
from semistream.cost.factors import CostFactors
from semistream.relation.device import EmulatedDevice
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
    """Return a thorough calibration, told from others by when it was made."""
    waiting = {"scan": 40.0, "index": 40.0}
    about = ("host", "device", measured, 1.0, False, 20.0)
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
