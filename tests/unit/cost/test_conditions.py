"""What the model says of reading: against all that can happen, and against work that is counted."""

from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

import semistream as ss
from semistream.advice.situation import layout_of, reader_for
from semistream.budget.split import Split
from semistream.cost.conditions import Conditions, Loads
from semistream.cost.demand import Demand
from semistream.cost.factors import CostFactors, IoCurve
from semistream.cost.models import MODELS
from semistream.joins.frontstage import POLICY
from semistream.joins.registry import ALGORITHMS
from semistream.joins.streamjoin import JoinTask
from semistream.relation.device import EmulatedDevice, Reading
from semistream.spec import read_columns, resolve

ROWS = 200_000
COLUMNS = 14
PAGES_PER_READ = 64

shares = st.lists(st.sampled_from([0.0, 0.01, 0.3, 0.9, 1.0]), min_size=1, max_size=7)


def runs_of(pages: tuple[int, ...], most_gap: int) -> tuple[int, int]:
    """Return the runs that some pages are read in, and how many pages these have."""
    found: list[list[int]] = []
    for page in (i for i, is_requested in enumerate(pages) if is_requested):
        if found and page - found[-1][1] <= most_gap:
            found[-1][1] = page + 1
        else:
            found.append([page, page + 1])
    return len(found), sum(last - first for first, last in found)


@given(others=shares, most_gap=st.integers(0, 8), asks=st.booleans())
def test_runs_are_those_of_all_cases(others: list[float], most_gap: int, asks: bool) -> None:
    """Every set of pages that may be requested, with its probability."""
    count = len(others)
    v = np.array(others)
    u = np.arange(1.0, count + 1) / np.arange(1.0, count + 1).sum() if asks else np.zeros(count)
    expected = np.zeros(2)
    for pages in product((0, 1), repeat=count):
        chance = float(np.prod(np.where(pages, v, 1 - v)))
        if not asks:
            expected += chance * np.array(runs_of(pages, most_gap))
        for page in range(count) if asks else ():
            also = (*pages[:page], 1, *pages[page + 1 :])
            expected += chance * u[page] * np.array(runs_of(also, most_gap))
    touched = (1 - (1 - u) * (1 - v))[None, :]
    loads = Loads(count, touched, np.zeros(1), 100.0, asks=u[None, :] if asks else None)
    assert np.concatenate(loads.runs(most_gap)) == pytest.approx(expected, abs=1e-9)


def test_large_gaps_cost_no_more_to_compute() -> None:
    """Nothing of the size of the gap is allocated or gone through."""
    touched = np.full((2, 1000), 0.01)
    runs, pages = Loads(1000, touched, np.zeros(2), 100.0).runs(10**15)
    assert runs == pytest.approx(1 - 0.99**1000)
    assert (pages < 1000).all()


@pytest.fixture(scope="module")
def relation(tmp_path_factory: pytest.TempPathFactory) -> ss.Relation:
    keys = np.random.default_rng(3).permutation(ROWS)
    columns = {f"c{i}": keys * 10 + i for i in range(COLUMNS)}
    folder: Path = tmp_path_factory.mktemp("relation")
    return ss.build_relation(pa.table({"k": keys, **columns}), folder, key="k", partitions=1)


def counted(
    relation: ss.Relation, device: EmulatedDevice, algorithm: str, keys: NDArray[np.int64]
) -> tuple[int, int, Conditions, object]:
    """Join some keys; return requests and bytes, and what the model needs for its own count."""
    stream = pa.table({"k": keys})
    read = relation.read_by(Reading(device))
    spec = resolve(read, stream.schema, how="inner", columns=["c1", "c4"])
    split = Split(pages_per_read=PAGES_PER_READ)
    join = ALGORITHMS[algorithm].make(JoinTask(read, spec, 4_000_000, split=split))
    out = pa.Table.from_batches(join.join(stream.to_batches()))
    assert sorted(out["c1"].to_pylist()) == sorted((keys * 10 + 1).tolist())
    assert join.plan is not None
    assert join.telemetry.bytes_read == device.bytes_read
    layout = layout_of(reader_for(read, spec), read_columns(read, spec))
    factors = CostFactors.of_device(*device.costs)
    demand = Demand.zipf(0.0, ROWS)
    conditions = Conditions(layout, demand, factors, POLICY)
    return device.requests, device.bytes_read, conditions, join.plan.settings


def predicted(conditions: Conditions, settings: object, algorithm: str, tuples: int) -> list[float]:
    """Return the requests and the bytes that the model charges for."""
    both_s = MODELS[algorithm].drain_back(conditions, settings, tuples).seconds
    costs = conditions.factors.requests
    free_bytes = IoCurve((0.0, 1.0), (costs.request_s, costs.request_s))
    factors = CostFactors(free_bytes, requests=costs)
    free = replace(conditions, factors=factors, _pages=[])
    requests_s = MODELS[algorithm].drain_back(free, settings, tuples).seconds
    return [requests_s / costs.request_s, (both_s - requests_s) / costs.byte_s]


@pytest.mark.parametrize("device", ["hdd-2007", "ssd", "object-store"])
@pytest.mark.parametrize("tuples", [25, 100, 400])
@pytest.mark.parametrize("algorithm", ["hybridjoin", "rmeshjoin"])
def test_requests_and_bytes_are_those_that_are_counted(
    relation: ss.Relation, device: str, tuples: int, algorithm: str
) -> None:
    sums = np.zeros((2, 2))
    for seed in range(3):
        keys = np.random.default_rng(seed).integers(0, ROWS, tuples)
        emulated = EmulatedDevice.named(device)
        *found, conditions, settings = counted(relation, emulated, algorithm, keys)
        sums += [found, predicted(conditions, settings, algorithm, tuples)]
    assert sums[1] / sums[0] == pytest.approx(np.ones(2), abs=0.15), sums.tolist()
