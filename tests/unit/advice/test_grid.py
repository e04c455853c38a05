"""A small part of `python -m benchmarks.grid`, by counted work: the time of an emulated device."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import semistream as ss
from semistream.advice.auto import SelfTuningJoin
from semistream.advice.history import History
from semistream.cost.factors import CostFactors
from semistream.errors import BudgetError
from semistream.joins.protocols import Operator
from semistream.joins.registry import make_operator
from semistream.relation.device import EmulatedDevice, Reading
from semistream.spec import resolve
from semistream.workload.zipf import scatter, zipf_ranks

ROWS = 60_000
COLUMNS = 14
ALGORITHMS = ("lookup", "hybridjoin", "chybridjoin", "binlj", "cbinlj", "cmeshjoin", "rmeshjoin")
LEAST = 0.65  # of the best, at every point
LEAST_MEAN = 0.9


@pytest.fixture(scope="module")
def relation(tmp_path_factory: pytest.TempPathFactory) -> ss.Relation:
    keys = np.random.default_rng(1).permutation(ROWS)
    table = pa.table({"k": keys, **{f"c{i}": keys * i for i in range(COLUMNS)}})
    folder: Path = tmp_path_factory.mktemp("grid") / "r.rel"
    return ss.build_relation(table, folder, key="k", partitions=1, page_size="8KiB")


@pytest.mark.parametrize(
    ("device", "columns", "share"), [("hdd-2007", 2, 0.2), ("ssd", 2, 0.05), ("ssd", 14, 0.2)]
)
def test_auto_waits_about_as_little_as_the_best_algorithm(
    relation: ss.Relation, device: str, columns: int, share: float
) -> None:
    """Over short and long streams, without and with skew."""
    ratios = {
        (rows, exponent): _ratio(relation, device, columns, share, _stream(rows, exponent))
        for rows in (100, 1_000, 10_000)
        for exponent in (0.0, 1.0)
    }
    assert np.mean([*ratios.values()]) >= LEAST_MEAN, ratios
    assert min(ratios.values()) >= LEAST, ratios


def _stream(rows: int, exponent: float) -> pa.Table:
    ranks = zipf_ranks(np.random.default_rng(7), rows, ROWS, exponent)
    return pa.table({"k": scatter(ranks, ROWS), "n": np.arange(rows)})


def _ratio(
    relation: ss.Relation, device: str, columns: int, share: float, stream: pa.Table
) -> float:
    """Return the time that the best named algorithm waits, over that of `auto`."""
    spec = resolve(relation, stream.schema, columns=[f"c{i}" for i in range(columns)])
    budget = int(share * relation.size_bytes)
    waited: dict[str, float] = {}
    for name in ("auto", *ALGORITHMS):
        disk = EmulatedDevice.named(device)
        far = relation.read_by(Reading(disk))
        factors = CostFactors.of_device(*disk.costs)
        try:
            join: Operator = (
                SelfTuningJoin(
                    *(far, spec, budget),
                    factors=factors,
                    stream_rows=stream.num_rows,
                    history=History(),
                )
                if name == "auto"
                else make_operator(name, far, spec, budget)
            )
            batches = stream.to_batches(max_chunksize=4_000)
            assert sum(batch.num_rows for batch in join.join(batches)) == stream.num_rows
        except BudgetError:
            continue
        waited[name] = disk.waited_s
    return min(seconds for name, seconds in waited.items() if name != "auto") / waited["auto"]
