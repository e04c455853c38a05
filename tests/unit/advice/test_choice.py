"""The ranking of the algorithms, where the model cannot tell them apart."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import semistream as ss
from semistream.advice.choice import Advisor
from semistream.advice.situation import layout_of, reader_for, stream_widths
from semistream.cost.conditions import Conditions
from semistream.cost.demand import Demand
from semistream.cost.factors import CostFactors
from semistream.cost.models import MODELS
from semistream.errors import BudgetError
from semistream.joins.frontstage import POLICY
from semistream.joins.registry import ALGORITHMS
from semistream.relation.device import EmulatedDevice
from semistream.spec import JoinSpec, read_columns, resolve

ROWS = 20_000
STREAM = pa.schema([("k", pa.int64()), ("n", pa.int64())])


@pytest.fixture(scope="module")
def relation(tmp_path_factory: pytest.TempPathFactory) -> ss.Relation:
    folder: Path = tmp_path_factory.mktemp("choice")
    table = pa.table({"k": np.arange(ROWS), "v": np.arange(ROWS)})
    return ss.build_relation(table, folder / "r.rel", key="k", page_size="8KiB")


@pytest.fixture
def spec(relation: ss.Relation) -> JoinSpec:
    return resolve(relation, STREAM)


@pytest.fixture
def advisor(relation: ss.Relation, spec: JoinSpec) -> Advisor:
    return Advisor(relation, spec, stream_widths(relation, spec))


@pytest.fixture
def conditions(relation: ss.Relation, spec: JoinSpec) -> Conditions:
    reader = reader_for(relation, spec)
    layout = layout_of(reader, read_columns(relation, spec))
    reader.close()
    disk = CostFactors.of_device(*EmulatedDevice.named("hdd-2007").costs)
    return Conditions(layout, Demand.zipf(0.5, ROWS), disk, POLICY)


@pytest.fixture
def newcomer(monkeypatch: pytest.MonkeyPatch) -> str:
    """An algorithm that is just as good as HYBRIDJOIN, but the least preferred."""
    record = replace(ALGORITHMS["hybridjoin"], name="newjoin", preference=99)
    monkeypatch.setitem(ALGORITHMS, "newjoin", record)
    monkeypatch.setitem(MODELS, "newjoin", MODELS["hybridjoin"])
    return "newjoin"


def test_of_equal_options_the_preferred_one_comes_first(
    advisor: Advisor, conditions: Conditions, newcomer: str
) -> None:
    ranked = advisor.rank(100_000, conditions, [newcomer, "hybridjoin"])
    assert [option.name for option in ranked] == ["hybridjoin", newcomer]
    assert ranked[0].rate == ranked[1].rate
    assert [option.name for option in advisor.rank(100_000, conditions, [newcomer])] == [newcomer]


def test_too_little_memory_for_all_options_is_an_error(
    advisor: Advisor, conditions: Conditions, newcomer: str
) -> None:
    with pytest.raises(BudgetError, match="needs at least"):
        advisor.rank(1_000, conditions, [newcomer, "hybridjoin"])
