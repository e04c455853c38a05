from collections.abc import Iterator
from dataclasses import replace
from math import ceil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import semistream as ss
from semistream.budget.meshjoin import (
    MeshJoinSettings,
    least_memory_bytes,
    least_reduced_bytes,
    memory_bytes,
    reduced_settings_for_budget,
    settings_for_budget,
)
from semistream.budget.rowsizes import Widths
from semistream.budget.rules import RULES
from semistream.budget.sizes import Sizes
from semistream.budget.split import LEAST_OUTPUT_ROWS, MOST_OUTPUT_ROWS
from semistream.embedded import prepare
from semistream.errors import BudgetError
from semistream.joins.buckets import Buckets
from semistream.joins.meshjoin import MeshJoin
from semistream.joins.rmeshjoin import RMeshJoin
from semistream.joins.scanjoin import ScanJoin
from semistream.joins.scanwindow import ScanWindow
from semistream.joins.streamjoin import JoinTask
from semistream.spec import resolve
from semistream.testing import same_rows
from tests.oracle import duckdb_join


def tactic(pages: int, pages_per_read: int, start_page: int = 0) -> MeshJoin:
    reads = ceil(pages / pages_per_read)
    return MeshJoin(MeshJoinSettings(pages_per_read, 5 * reads, reads, 64), pages, start_page)


def empty_window(capacity: int = 100) -> ScanWindow:
    schema, widths = pa.schema([("k", pa.int64())]), Widths.equal([8.0])
    return ScanWindow(schema, capacity, widths, 0, Buckets.hashed(16), 64)


@given(pages=st.integers(1, 40), pages_per_read=st.integers(1, 45), start=st.integers(0, 39))
def test_a_cycle_covers_every_page_once(pages: int, pages_per_read: int, start: int) -> None:
    pages_per_read, start = min(pages, pages_per_read), start % pages
    mesh, window = tactic(pages, pages_per_read, start), empty_window()
    for cycle in range(3):
        reads = [mesh.next_pages(window) for _ in range(mesh.settings.reads_per_cycle)]
        covered = [page for first, last in reads for page in range(first, last)]
        assert sorted(covered) == list(range(pages)), cycle
        assert all(last - first <= pages_per_read for first, last in reads)
        assert reads[0][0] <= start < reads[0][1]


def test_a_batch_leaves_after_a_cycle() -> None:
    mesh, window = tactic(pages=9, pages_per_read=4), empty_window()
    assert mesh.settings.reads_per_cycle == 3
    left = []
    for batch in (5, 0, 2, 5, 0):
        left.append(mesh.leaving(window))
        window.queue.append(batch)
    assert left == [0, 0, 0, 5, 0]
    assert mesh.leaving(window) == 2


N_STREAM = 5_000
BUDGETS = [100_000, 300_000, 2_000_000]


@pytest.fixture(scope="module")
def tables() -> tuple[pa.Table, pa.Table]:
    """A stream, and a relation that has the even keys only, some of them twice."""
    rng = np.random.default_rng(5)
    stream = pa.table({"k": rng.integers(0, 40_000, N_STREAM), "q": np.arange(N_STREAM)})
    keys = np.concatenate([np.arange(0, 40_000, 2), np.arange(0, 40_000, 14)])
    return stream, pa.table({"k": keys, "v": rng.integers(0, 99, len(keys))})


@pytest.fixture(scope="module")
def relation(
    tables: tuple[pa.Table, pa.Table], tmp_path_factory: pytest.TempPathFactory
) -> ss.Relation:
    folder = tmp_path_factory.mktemp("mesh")
    return ss.build_relation(tables[1], folder, key="k", partitions=3, page_size=512)


@pytest.fixture(scope="module")
def expected(tables: tuple[pa.Table, pa.Table]) -> pa.Table:
    """The join by DuckDB; the nested loop would take its time over 100 million pairs."""
    return duckdb_join(tables[0], tables[1], on="k")


class Recorder:
    """Makes MESHJOIN and keeps it, so that a test can see its settings."""

    def __init__(self, start_page: int = 0) -> None:
        self._start_page = start_page
        self.mesh: Any = None

    def __call__(self, settings: MeshJoinSettings, page_count: int) -> MeshJoin:
        self.mesh = MeshJoin(settings, page_count, self._start_page)
        return self.mesh


@pytest.mark.parametrize("memory", BUDGETS)
@pytest.mark.parametrize("start", [0, 1, 100, -1])
def test_output_and_effort_from_any_start(
    relation: ss.Relation,
    tables: tuple[pa.Table, pa.Table],
    expected: pa.Table,
    start: int,
    memory: int,
) -> None:
    stream, recorder = tables[0], Recorder(start)
    spec = resolve(relation, stream.schema)
    operator = ScanJoin(JoinTask(relation, spec, memory), RULES["meshjoin"], recorder)
    out = pa.Table.from_batches(operator.join(stream.to_batches(max_chunksize=700)))
    assert same_rows(out, expected)
    mesh, counted = recorder.mesh, operator.telemetry
    entries = ceil(N_STREAM / mesh.settings.tuples_per_read)
    assert counted.window_rows_peak <= mesh.settings.window_tuples
    assert counted.iterations <= entries + mesh.settings.reads_per_cycle
    reads = entries + mesh.settings.reads_per_cycle
    assert counted.pages_scanned <= reads * mesh.settings.pages_per_read
    cycles = ceil((entries + mesh.settings.reads_per_cycle) / mesh.settings.reads_per_cycle)
    assert counted.pages_scanned <= cycles * relation.page_count
    assert counted.pages_scanned >= relation.page_count


def test_budgets_reach_from_many_reads_to_one(relation: ss.Relation) -> None:
    """The budgets above are worth testing only if they lead to different settings."""
    reads = []
    for memory in BUDGETS:
        recorder = Recorder()
        spec = resolve(relation, pa.schema([("k", pa.int64())]))
        operator = ScanJoin(JoinTask(relation, spec, memory), RULES["meshjoin"], recorder)
        list(operator.join([pa.record_batch({"k": [1]})]))
        reads.append(recorder.mesh.settings.reads_per_cycle)
    assert reads[0] > reads[1] > reads[2] == 1


def test_a_lone_tuple_costs_one_cycle(relation: ss.Relation) -> None:
    recorder = Recorder(start_page=17)
    stream = pa.table({"k": [14]})
    spec = resolve(relation, stream.schema)
    operator = ScanJoin(JoinTask(relation, spec, 200_000), RULES["meshjoin"], recorder)
    out = pa.Table.from_batches(operator.join(stream.to_batches()))
    assert out.num_rows == 2
    assert operator.telemetry.iterations == recorder.mesh.settings.reads_per_cycle
    assert operator.telemetry.pages_scanned == relation.page_count


def test_a_tuple_leaves_though_the_stream_only_pauses(relation: ss.Relation) -> None:
    recorder, schema = Recorder(), pa.schema([("k", pa.int64())])
    spec = resolve(relation, schema, how="anti")
    operator = ScanJoin(JoinTask(relation, spec, 200_000), RULES["meshjoin"], recorder)
    pulled = 0

    def source() -> Iterator[pa.RecordBatch]:
        nonlocal pulled
        while True:
            keys = [] if pulled else [1]
            pulled += 1
            yield pa.record_batch([pa.array(keys, pa.int64())], schema=schema)

    assert next(operator.join(source())).to_pylist() == [{"k": 1}]
    assert 1 < pulled <= recorder.mesh.settings.reads_per_cycle + 1


@st.composite
def all_sizes(draw: st.DrawFn) -> Sizes:
    page_bytes = draw(st.integers(1, 200_000))
    disk_base = draw(st.integers(0, 10_000))
    return Sizes(
        page_count=draw(st.integers(1, 3_000_000)),
        disk_bytes=lambda pages: disk_base + pages * page_bytes,
        pinned_bytes=lambda pages: (disk_base + 2 * pages * page_bytes) * (pages > 0),
        tuple_bytes=draw(st.integers(18, 3_000)),
        window_base_bytes=draw(st.integers(0, 100_000)),
        output_row_bytes=draw(st.integers(26, 3_000)),
        table_bytes=draw(st.integers(0, 10**7)),
    )


def check_settings(sizes: Sizes, settings: MeshJoinSettings, budget_bytes: int) -> None:
    assert memory_bytes(sizes, settings) <= budget_bytes
    assert settings.tuples_per_read >= 1
    assert 1 <= settings.pages_per_read <= sizes.page_count
    assert settings.reads_per_cycle == ceil(sizes.page_count / settings.pages_per_read)
    assert LEAST_OUTPUT_ROWS <= settings.output_rows <= MOST_OUTPUT_ROWS


@given(sizes=all_sizes(), spare=st.integers(0, 10**10))
def test_settings_fit_the_budget(sizes: Sizes, spare: int) -> None:
    budget = least_memory_bytes(sizes) + spare
    check_settings(sizes, settings_for_budget(sizes, budget), budget)


@given(all_sizes())
def test_the_least_budget_is_the_least(sizes: Sizes) -> None:
    least = least_memory_bytes(sizes)
    check_settings(sizes, settings_for_budget(sizes, least), least)
    with pytest.raises(BudgetError, match=f"Raise memory to {least} bytes") as error:
        settings_for_budget(sizes, least - 1)
    assert error.value.least_bytes == least


@given(sizes=all_sizes(), spare=st.integers(0, 10**10))
def test_the_budget_is_used(sizes: Sizes, spare: int) -> None:
    """One more tuple per read would not fit; a split that wastes memory is a slow one."""
    budget = least_memory_bytes(sizes) + spare
    chosen = settings_for_budget(sizes, budget)
    more = replace(chosen, window_tuples=chosen.window_tuples + chosen.reads_per_cycle)
    assert memory_bytes(sizes, more) > budget


@given(all_sizes(), st.integers(0, 10**9), st.integers(0, 10**9))
def test_more_memory_is_never_a_smaller_window(sizes: Sizes, spare: int, more: int) -> None:
    least = least_memory_bytes(sizes)
    small = settings_for_budget(sizes, least + spare)
    large = settings_for_budget(sizes, 10 * (least + spare) + more)
    assert large.window_tuples >= small.window_tuples


@given(sizes=all_sizes(), spare=st.integers(0, 10**10))
def test_reduced_settings_use_the_budget(sizes: Sizes, spare: int) -> None:
    """R-MESHJOIN fits, wastes less than a tuple, and no page of its disk buffer is idle."""
    budget = least_reduced_bytes(sizes) + spare
    chosen = reduced_settings_for_budget(sizes, budget)
    assert budget - sizes.tuple_bytes < memory_bytes(sizes, chosen) <= budget
    assert chosen.window_tuples >= 1
    assert chosen.reads_per_cycle == ceil(sizes.page_count / chosen.pages_per_read)
    smaller = chosen.pages_per_read - 1
    assert smaller == 0 or ceil(sizes.page_count / smaller) > chosen.reads_per_cycle
    with pytest.raises(BudgetError, match="Raise memory"):
        reduced_settings_for_budget(sizes, least_reduced_bytes(sizes) - 1)


def test_rmeshjoin_saves_a_cycle_on_a_finite_stream(
    relation: ss.Relation, tables: tuple[pa.Table, pa.Table]
) -> None:
    """As many cycles as windows; MESHJOIN's staggered entry takes one more."""
    scanned = {}
    for name, make_tactic in (("meshjoin", MeshJoin), ("rmeshjoin", RMeshJoin)):
        stream = tables[0][:2_000]
        expected = duckdb_join(stream, tables[1], on="k")
        spec = resolve(relation, stream.schema)
        operator = ScanJoin(JoinTask(relation, spec, 200_000), RULES[name], make_tactic)
        out = pa.Table.from_batches(operator.join(stream.to_batches()))
        assert same_rows(out, expected)
        scanned[name] = operator.telemetry.pages_scanned / relation.page_count
        windows = ceil(stream.num_rows / operator.telemetry.window_rows_peak)
        if name == "rmeshjoin":
            assert scanned[name] <= windows
    assert scanned["rmeshjoin"] < scanned["meshjoin"]


@pytest.mark.parametrize("algorithm", ["meshjoin", "rmeshjoin", "cmeshjoin"])
@pytest.mark.parametrize("order", ["key", "frequency"])
def test_changed_keys_wait_apart_and_their_memory_is_counted(
    tmp_path: Path, algorithm: str, order: str
) -> None:
    """Reads of a few pages that hold clustered, hot and delta pages of three partitions."""
    keys = np.arange(6_000)
    table = pa.table({"k": keys, "v": keys})
    sample = pa.table({"k": np.repeat(keys[:500], 3)}) if order == "frequency" else None
    about: dict[str, Any] = {"partitions": 3, "page_size": 1_000, "order": order, "sample": sample}
    relation = ss.build_relation(table, tmp_path / "r.rel", key="k", **about)
    assert (relation.hot_page_count > 0) == (order == "frequency")
    changes = pa.table({"k": keys[::8], "v": -keys[::8], "gone": keys[::8] % 3 == 0})
    changed = relation.upsert(changes, deletes="gone")
    kept = pa.table({"k": keys, "v": np.where(keys % 8 == 0, -keys, keys)})
    kept = kept.filter(pa.array(keys % 24 != 0))
    stream = pa.table({"k": np.random.default_rng(3).permutation(np.repeat(keys, 3))})
    options: dict[str, Any] = {"how": "left", "memory": "150KB", "algorithm": algorithm}
    operator, batches = prepare(stream, changed, **options)
    joined = pa.Table.from_batches(list(operator.join(batches)))
    assert same_rows(joined, duckdb_join(stream, kept, on="k"))

    reader = changed.reader(["v"])
    bits = reader.listed_bits()
    assert bits is not None
    assert operator.ledger.peaks()["page index"] == bits.bits.nbytes
    assert operator.ledger.peak_bytes <= 150_000
    window = operator._window
    assert window.table._heads.nbytes <= 5 * window.capacity + 8
    reader.close()
