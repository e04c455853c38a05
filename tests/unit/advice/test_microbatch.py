"""What a micro-batch takes: by rows and by the size of R; nothing here is timed."""

import numpy as np
import pyarrow as pa
import pytest

import semistream as ss
from semistream.advice.calibration import usual_spec
from semistream.advice.calibration.record import shipped_factors
from semistream.advice.choice import Advisor
from semistream.advice.microbatch import BatchModel, MicroBatch
from semistream.advice.situation import layout_of, reader_for, stream_widths
from semistream.cost.conditions import Conditions
from semistream.cost.demand import Demand
from semistream.cost.models import MODELS
from semistream.errors import BudgetError
from semistream.joins.frontstage import POLICY
from semistream.spec import read_columns

ROWS = 200_000
TASKS = 2


@pytest.fixture(scope="module")
def advisor(tmp_path_factory: pytest.TempPathFactory) -> tuple[Advisor, Conditions]:
    table = pa.table({"k": np.arange(ROWS), "a": np.arange(ROWS), "b": np.arange(ROWS)})
    folder = tmp_path_factory.mktemp("microbatch")
    relation = ss.build_relation(table, folder / "r.rel", key="k", partitions=1, page_size="8KiB")
    spec = usual_spec(relation, ["a"])
    layout = layout_of(reader_for(relation, spec), read_columns(relation, spec))
    demand = Demand.zipf(0.0, ROWS)
    conditions = Conditions(layout, demand, shipped_factors(relation, spec), POLICY)
    return Advisor(relation, spec, stream_widths(relation, spec)), conditions


@pytest.fixture
def model(advisor: tuple[Advisor, Conditions]) -> BatchModel:
    return BatchModel(*advisor, budget_bytes=500_000, tasks=TASKS)


def of(batch: MicroBatch, name: str) -> tuple[float, float, float]:
    row = next(row for row in batch.ranking if row.algorithm == name)
    return row.time_ms, row.pages, row.bytes_read


def test_few_rows_are_looked_up_and_many_wait_in_a_window(
    advisor: tuple[Advisor, Conditions],
) -> None:
    skewed = advisor[1].with_demand(Demand.zipf(1.0, ROWS))
    model = BatchModel(advisor[0], skewed, budget_bytes=1_500_000, tasks=1)
    few, many = model.explain(100), model.explain(10_000_000)
    assert few.algorithm == "lookup" == few.ranking[0].algorithm
    assert many.algorithm != "lookup"
    # The choice is made by a coarser search than the ranking.
    assert of(many, many.algorithm)[0] <= 1.03 * many.ranking[0].time_ms


def test_what_is_read(model: BatchModel, advisor: tuple[Advisor, Conditions]) -> None:
    """Look-ups read the pages of their rows, a scan all of R in each task."""
    pages, code_bytes = advisor[1].layout.page_count, advisor[1].layout.code_bytes
    few = model.explain(100)
    assert of(few, "lookup")[1] == pytest.approx(100, rel=0.1)
    assert of(few, "rmeshjoin")[1] == pytest.approx(TASKS * pages, rel=0.01)
    for row in few.ranking:
        assert row.bytes_read >= row.pages * code_bytes


def test_tasks_share_a_micro_batch(advisor: tuple[Advisor, Conditions]) -> None:
    """Two tasks need the time of one with half of the rows, and read twice as much."""
    one, two = (BatchModel(*advisor, 500_000, tasks).explain(1_000 * tasks) for tasks in (1, 2))
    for row in one.ranking:
        time_ms, pages, read_bytes = of(two, row.algorithm)
        assert time_ms == pytest.approx(row.time_ms)
        assert pages == pytest.approx(2 * row.pages)
        assert read_bytes == pytest.approx(2 * row.bytes_read)


def test_resident_where_it_fits(advisor: tuple[Advisor, Conditions]) -> None:
    """As `auto` does, but for a few rows: loading R takes longer than to look them up."""
    model = BatchModel(*advisor, 50_000_000, 1)
    assert model.explain(100).algorithm == "lookup"
    batch = model.explain(1_000_000)
    assert batch.algorithm == "resident"
    assert batch.time_ms == of(batch, "resident")[0]
    layout = advisor[1].layout
    assert of(batch, "resident")[1] == layout.page_count


def test_curves(model: BatchModel) -> None:
    batch = model.explain(3_000)
    curves = model.curves(batch)
    assert batch.algorithm in curves.by_rows
    assert "inlj" not in curves.by_rows
    for by_rows in curves.by_rows.values():
        assert by_rows[10_000_000] > 10 * by_rows[1_000]
    for by_size in curves.by_size.values():
        sizes = sorted(by_size)
        assert by_size[sizes[-1]] > by_size[sizes[0]]
    # For few rows a larger R costs look-ups little, and all others its scan.
    largest = max(curves.by_size["lookup"])
    others = [by_size[largest] for name, by_size in curves.by_size.items() if name != "lookup"]
    assert curves.by_size["lookup"][largest] < min(others) / 3


def test_too_small_a_budget_for_some(advisor: tuple[Advisor, Conditions]) -> None:
    """What cannot run is left out."""
    least = MODELS["lookup"].rules.least_bytes(advisor[0].sizes("lookup"))
    batch = BatchModel(*advisor, least, 1).explain(1_000)
    assert batch.algorithm == "lookup"
    assert 1 <= len(batch.ranking) < len(MODELS)
    with pytest.raises(BudgetError, match="it needs at least"):
        BatchModel(*advisor, least // 2, 1).explain(1_000)
