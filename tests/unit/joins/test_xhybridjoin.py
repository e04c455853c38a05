"""X-HYBRIDJOIN: the split of its disk buffer, and which pages it pins."""

from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import semistream as ss
from semistream.budget.frontsizes import pinned_part_bytes
from semistream.budget.indexjoin import IndexJoinSettings, least_memory_bytes
from semistream.budget.rules import EQUAL_PARTS, RULES, BudgetRules
from semistream.budget.sizes import Sizes
from semistream.budget.xhybridjoin import equal_parts, tuned_parts
from semistream.joins.indexjoin import IndexJoin
from semistream.joins.pinned import PinnedPages
from semistream.joins.streamjoin import JoinTask
from semistream.joins.xhybridjoin import XHybridJoin
from semistream.spec import resolve
from semistream.testing import nested_loop_join, same_rows
from semistream.workload.zipf import scatter, zipf_ranks
from tests.unit.joins.test_meshjoin import all_sizes

N_ROWS, N_STREAM = 20_000, 60_000
BUDGET = 120_000
PLAIN, TUNED = RULES["hybridjoin"], RULES["xhybridjoin"]


def memory_bytes(sizes: Sizes, settings: IndexJoinSettings) -> int:
    return (
        sizes.disk_bytes(settings.pages_per_read)
        + (sizes.pinned_bytes(settings.pinned_pages) if settings.pinned_pages else 0)
        + sizes.window_bytes(settings.waiting_tuples)
        + settings.output_bytes
        + settings.input_bytes
        + sizes.table_bytes
    )


@given(sizes=all_sizes(), spare=st.integers(0, 10**9), least_pages=st.integers(1, 2))
def test_parts_fit_the_budget(sizes: Sizes, spare: int, least_pages: int) -> None:
    budget = least_memory_bytes(sizes, least_pages) + spare
    for split in (equal_parts, tuned_parts):
        settings = split(sizes, budget, least_pages)
        assert memory_bytes(sizes, settings) <= budget
        assert settings.waiting_tuples >= 1
        assert 0 <= settings.pinned_pages <= sizes.page_count
        if split is equal_parts and settings.pinned_pages:
            assert settings.pinned_pages == settings.pages_per_read


@pytest.fixture(scope="module")
def table() -> pa.Table:
    rng = np.random.default_rng(1)
    return pa.table({"k": rng.permutation(N_ROWS), "v": rng.integers(0, 99, N_ROWS)})


@pytest.fixture(scope="module")
def scattered() -> pa.Table:
    """A skewed stream whose hot keys lie anywhere in R."""
    rng = np.random.default_rng(5)
    keys = scatter(zipf_ranks(rng, N_STREAM, N_ROWS, 1.0), N_ROWS)
    return pa.table({"k": keys, "n": np.arange(N_STREAM)})


@pytest.fixture(scope="module")
def gathered() -> pa.Table:
    """A skewed stream whose hot keys are neighbours, in the middle of R."""
    rng = np.random.default_rng(5)
    keys = (zipf_ranks(rng, N_STREAM, N_ROWS, 1.0) + N_ROWS // 2) % N_ROWS
    return pa.table({"k": keys, "n": np.arange(N_STREAM)})


def run(relation: ss.Relation, stream: pa.Table, rules: BudgetRules, table: pa.Table) -> IndexJoin:
    task = JoinTask(relation, resolve(relation, stream.schema), BUDGET)
    join = IndexJoin(task, rules, XHybridJoin)
    out = pa.Table.from_batches(join.join(stream.to_batches(max_chunksize=1_000)))
    expected = stream.join(table, "k", join_type="left outer").select(["k", "n", "v"])
    assert same_rows(out, expected)
    assert join.ledger.peak_bytes <= BUDGET
    return join


def build(table: pa.Table, folder: object, **options: object) -> ss.Relation:
    with patch("semistream.relation.hot.HOT_SHARE", 1.0):
        return ss.build_relation(
            table,
            folder,  # type: ignore[arg-type]
            key="k",
            partitions=1,
            page_size=1_000,
            **options,  # type: ignore[arg-type]
        )


@pytest.mark.parametrize("rules", [TUNED, EQUAL_PARTS], ids=["tuned", "equal"])
def test_with_r_in_order_of_frequency_the_first_pages_are_pinned(
    table: pa.Table,
    scattered: pa.Table,
    tmp_path_factory: pytest.TempPathFactory,
    rules: BudgetRules,
) -> None:
    sample = scattered[: N_STREAM // 4].select(["k"])
    folder = tmp_path_factory.mktemp("frequency")
    relation = build(table, folder, order="frequency", sample=sample)
    join = run(relation, scattered, rules, table)
    assert isinstance(join._front, PinnedPages)
    pinned = join._front.pages
    assert pinned
    assert set(range(5)) <= set(pinned), "the most frequent pages come first"
    assert np.median(pinned) <= len(pinned)
    assert join.telemetry.front_hits > N_STREAM / 3
    plain = run(relation, scattered, PLAIN, table)
    assert join.telemetry.pages_scanned < plain.telemetry.pages_scanned


def test_without_sorting_the_pages_that_are_requested_are_pinned(
    table: pa.Table, gathered: pa.Table, tmp_path_factory: pytest.TempPathFactory
) -> None:
    relation = build(table, tmp_path_factory.mktemp("key"))
    join = run(relation, gathered, TUNED, table)
    assert isinstance(join._front, PinnedPages)
    middle = relation.page_count // 2
    assert {middle, middle + 1} & set(join._front.pages)
    assert join.telemetry.front_hits > N_STREAM / 4
    plain = run(relation, gathered, PLAIN, table)
    assert join.telemetry.pages_scanned < plain.telemetry.pages_scanned


def test_pinned_pages_follow_the_stream(
    table: pa.Table, gathered: pa.Table, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """When other pages become popular, they take the places."""
    relation = build(table, tmp_path_factory.mktemp("key"))
    elsewhere = pa.table(
        {"k": (gathered["k"].to_numpy() + N_ROWS // 4) % N_ROWS, "n": gathered["n"]}
    )
    stream = pa.concat_tables([gathered, elsewhere])
    join = run(relation, stream, TUNED, table)
    assert isinstance(join._front, PinnedPages)
    quarter = 3 * relation.page_count // 4
    assert {quarter, quarter + 1} & set(join._front.pages)


def test_a_pinned_part_takes_what_it_says(
    table: pa.Table, tmp_path_factory: pytest.TempPathFactory
) -> None:
    relation = build(table, tmp_path_factory.mktemp("key"))
    stream = pa.table({"k": np.arange(100), "n": np.arange(100)})
    join = run(relation, stream, TUNED, table)
    pinned = join._front
    assert isinstance(pinned, PinnedPages)
    arrays = [v for v in vars(pinned).values() if isinstance(v, np.ndarray)]
    own = [a for a in arrays if a is not pinned._row_bounds]
    stores = [store._values for store in pinned._rows._stores if hasattr(store, "_values")]
    held = sum(a.nbytes for a in own) + sum(s.base.nbytes for s in stores)
    reader = relation.reader(["v"])
    assert held <= pinned_part_bytes(reader, ("v",), len(pinned._page_at))


def test_hot_pages_and_a_partition_without_rows(tmp_path: object) -> None:
    table = pa.table({"k": np.arange(0, 400, 2), "v": np.arange(200)})
    stream = pa.table({"k": np.tile(np.arange(0, 40, 2), 10)})
    with patch("semistream.relation.hot.HOT_SHARE", 0.5):
        relation = ss.build_relation(
            table,
            tmp_path,  # type: ignore[arg-type]
            key="k",
            partitions=2,
            page_size=256,
            order="frequency",
            sample=stream,
        )
    out = ss.join(stream.to_batches(), relation, memory="1MB", algorithm="xhybridjoin")
    assert same_rows(pa.Table.from_batches(out), nested_loop_join(stream, table, on="k"))


def test_one_duplicate_key_does_not_keep_pages_from_being_pinned(
    table: pa.Table, gathered: pa.Table, tmp_path_factory: pytest.TempPathFactory
) -> None:
    extra = pa.table({"k": [N_ROWS // 2], "v": [5]})
    doubled = pa.concat_tables([table, extra])
    relation = build(doubled, tmp_path_factory.mktemp("doubled"))
    join = run(relation, gathered, TUNED, doubled)
    assert isinstance(join._front, PinnedPages)
    assert len(join._front.pages) > 5
    assert join.telemetry.front_hits > N_STREAM / 4
