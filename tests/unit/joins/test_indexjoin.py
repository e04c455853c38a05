"""The index joins read few pages: theorems 1 and 2 of `hybridjoin.txt` 4.3, as properties."""

from collections.abc import Generator, Iterator
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import semistream as ss
from semistream.budget.rules import RULES
from semistream.budget.split import USUAL, Split
from semistream.joins import indexwindow_kernels as kernels
from semistream.joins.hybridjoin import HybridJoin
from semistream.joins.indexjoin import IndexJoin
from semistream.joins.inlj import BatchedInlj, Inlj
from semistream.joins.streamjoin import JoinTask
from semistream.relation.pageindex import PageIndex
from semistream.spec import JoinSpec, resolve
from semistream.testing import nested_loop_join, same_rows

BUDGET = 60_000
NAMES = {HybridJoin: "hybridjoin", BatchedInlj: "binlj", Inlj: "inlj"}


OLDEST, URGENT = Split(oldest_picks=True), Split(oldest_picks=False)


def arguments(
    relation: ss.Relation, spec: JoinSpec, tactic: Any, split: Split = USUAL
) -> tuple[Any, ...]:
    """Return what a join is made of: its task, its budget rules, and what makes its tactic."""
    return JoinTask(relation, spec, BUDGET, split=split), RULES[NAMES[tactic]], tactic


class RecordingJoin(IndexJoin):
    """Notes every load, and how many tuples had entered by then."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.loads: list[tuple[int, int]] = []
        self.entered: list[int] = []
        self.entered_so_far = 0

    def _admit(self, *arguments: Any) -> Generator[pa.RecordBatch, None, int]:
        entered = yield from super()._admit(*arguments)
        self.entered_so_far += entered
        return entered

    def _load(self, first: int, last: int, *requested: Any) -> None:
        self.loads.append((first, last))
        self.entered.append(self.entered_so_far)
        super()._load(first, last, *requested)


def run(
    tmp_path_factory: pytest.TempPathFactory, table: pa.Table, stream: pa.Table, tactic: Any
) -> RecordingJoin:
    folder = tmp_path_factory.mktemp("relation")
    relation = ss.build_relation(table, folder, key="k", partitions=1, page_size=200)
    spec = resolve(relation, stream.schema, how="left")
    join = RecordingJoin(*arguments(relation, spec, tactic))
    out = pa.Table.from_batches(list(join.join(stream.to_batches(max_chunksize=50))))
    assert same_rows(out, nested_loop_join(stream, table, on="k"))
    return join


def tables(seed: int, rows: int, tuples: int, duplicates: bool) -> tuple[pa.Table, pa.Table]:
    rng = np.random.default_rng(seed)
    keys = rng.integers(0, rows // 4 + 1, rows) if duplicates else rng.permutation(rows)
    requested = np.minimum(rng.zipf(1.3, tuples), rows * 2)
    table = pa.table({"k": keys, "payload": np.arange(rows)})
    return table, pa.table({"k": requested, "n": np.arange(tuples)})


@settings(max_examples=25)
@given(seed=st.integers(0, 10**6), duplicates=st.booleans())
def test_hybridjoin_page_accesses(
    tmp_path_factory: pytest.TempPathFactory, seed: int, duplicates: bool
) -> None:
    table, stream = tables(seed, 300, 400, duplicates)
    join = run(tmp_path_factory, table, stream, HybridJoin)
    # Theorem 2: never more loads than tuples.
    assert len(join.loads) <= stream.num_rows
    # Theorem 1: between two loads of the same pages, a window of tuples may have entered since the
    # first, and at least one must have: those that were there have all been served.
    last_seen: dict[tuple[int, int], int] = {}
    for load, entered in zip(join.loads, join.entered, strict=True):
        if load in last_seen:
            assert entered > last_seen[load]
        last_seen[load] = entered


@settings(max_examples=25)
@given(seed=st.integers(0, 10**6), duplicates=st.booleans())
def test_no_tuple_waits_longer_than_a_full_queue(
    tmp_path_factory: pytest.TempPathFactory, seed: int, duplicates: bool
) -> None:
    """A tuple leaves after at most as many loads as tuples can wait, or as reads cover R."""
    table, stream = tables(seed, 600, 900, duplicates)
    folder = tmp_path_factory.mktemp("relation")
    relation = ss.build_relation(table, folder, key="k", partitions=1, page_size=200)
    for tactic, split in ((HybridJoin, OLDEST), (HybridJoin, URGENT), (BatchedInlj, USUAL)):
        spec = resolve(relation, stream.schema)
        join = RecordingJoin(*arguments(relation, spec, tactic, split))
        left: dict[int, int] = {}
        for batch in join.join(stream.to_batches(max_chunksize=50)):
            left |= dict.fromkeys(batch.column("n").to_pylist(), len(join.loads))
        # Tuples enter in the order of the stream, those that may match at all.
        keys = stream["k"].to_numpy()
        entered = np.flatnonzero(keys <= max(table["k"].to_pylist())).tolist()
        slots = join._window.capacity
        for place, n in enumerate(entered):
            before = sum(count <= place for count in join.entered)
            cycle = -(-relation.page_count // join._pages_per_read)
            assert left[n] - before <= (slots if split is not URGENT else 2 * cycle + slots)


@pytest.mark.parametrize(
    ("tactic", "split"), [(HybridJoin, OLDEST), (HybridJoin, URGENT), (BatchedInlj, USUAL)]
)
def test_no_tuple_is_passed_over_for_ever(
    tmp_path_factory: pytest.TempPathFactory, tactic: Any, split: Split
) -> None:
    """A tuple whose page is the last of a read, and may run on, while others keep coming."""
    keys = np.append(np.arange(4_000), 3_999)
    folder = tmp_path_factory.mktemp("relation")
    relation = ss.build_relation(
        pa.table({"k": keys}), folder, key="k", partitions=1, page_size=512
    )
    schema = pa.schema([("k", pa.int64()), ("n", pa.int64())])
    join = IndexJoin(*arguments(relation, resolve(relation, schema, how="semi"), tactic, split))
    fed = 0

    def source() -> Iterator[pa.RecordBatch]:
        nonlocal fed
        yield pa.record_batch([[0], [0]], schema=schema)
        last_of_read = int(join._reader.first_codes[join._pages_per_read - 1]) + 1
        yield pa.record_batch([[last_of_read], [-1]], schema=schema)
        for fed in range(1_000):
            yield pa.record_batch([[0], [fed]], schema=schema)
            yield pa.record_batch([[], []], schema=schema)

    for batch in join.join(source()):
        if -1 in batch.column("n").to_pylist():
            break
    assert 0 < join._pages_per_read < relation.page_count
    assert fed < 10


@settings(max_examples=20)
@given(seed=st.integers(0, 10**6), pages_per_read=st.integers(1, 5))
def test_the_most_urgent_load_is_read(seed: int, pages_per_read: int) -> None:
    """Against a list of tuples, each with its page and the load before which it came."""
    rng = np.random.default_rng(seed)
    waiting, since = np.zeros(23, np.int32), np.zeros(-(-23 // pages_per_read), np.uint32)
    tuples: list[tuple[int, int]] = []
    for now in range(1, 60):
        for page in (rng.zipf(1.4, int(rng.integers(1, 9))) % 23).tolist():
            waiting[page] += 1
            tuples.append((page, now))
        found = int(kernels.most_urgent(waiting, since, pages_per_read, now, 0, 0))
        urgency = {}
        for load in {page // pages_per_read for page, _ in tuples}:
            came = [c for page, c in tuples if page // pages_per_read == load]
            urgency[load] = len(came) * (now - min(came) + 1)
        assert urgency[found // pages_per_read] == max(urgency.values())
        assert waiting[found]
        first = found // pages_per_read * pages_per_read
        last = min(first + pages_per_read, 23)
        kernels.forget_loads(first, last, waiting, since, pages_per_read)
        waiting[first:last] = 0
        tuples = [(page, c) for page, c in tuples if not first <= page < last]


@pytest.mark.parametrize("start", [0, 1, 7, 29])
def test_a_sweep_may_start_anywhere(tmp_path_factory: pytest.TempPathFactory, start: int) -> None:
    table, stream = tables(11, 600, 500, duplicates=True)
    folder = tmp_path_factory.mktemp("relation")
    relation = ss.build_relation(table, folder, key="k", partitions=1, page_size=200)
    join = IndexJoin(*arguments(relation, resolve(relation, stream.schema), BatchedInlj))
    join._after = start
    out = pa.Table.from_batches(join.join(stream.to_batches(max_chunksize=50)))
    assert same_rows(out, nested_loop_join(stream, table, on="k"))


@pytest.mark.parametrize("duplicates", [False, True])
def test_inlj_reads_once_per_tuple(
    tmp_path_factory: pytest.TempPathFactory, duplicates: bool
) -> None:
    table, stream = tables(3, 300, 100, duplicates)
    join = run(tmp_path_factory, table, stream, Inlj)
    assert len(join.loads) <= stream.num_rows
    assert join.telemetry.window_rows_peak == 1
    if not duplicates:
        assert all(last - first == 1 for first, last in join.loads)


def test_batched_inlj_sweeps(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Reads go forward through R and begin again at its start; a window is served in two sweeps."""
    table, stream = tables(5, 4_000, 3_000, duplicates=False)
    join = run(tmp_path_factory, table, stream, BatchedInlj)
    firsts = [first for first, _ in join.loads]
    wraps = sum(later <= earlier for earlier, later in pairwise(firsts))
    reads_per_sweep = len(set(join.loads))
    assert reads_per_sweep > 1
    assert len(join.loads) <= (wraps + 1) * reads_per_sweep
    # What came in while a sweep was under way leaves by the end of the next one.
    sweeps = stream.num_rows / join.telemetry.window_rows_peak
    assert wraps <= 2 * sweeps + 1


def test_a_run_of_duplicates_longer_than_the_disk_buffer(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    keys = np.concatenate([np.arange(40), np.full(3_000, 40), np.arange(41, 80)])
    table = pa.table({"k": keys, "payload": np.arange(len(keys))})
    stream = pa.table({"k": [39, 40, 41, 40, 99], "n": np.arange(5)})
    for tactic in (HybridJoin, Inlj, BatchedInlj):
        join = run(tmp_path_factory, table, stream, tactic)
        assert join.telemetry.matched_pairs == 2 + 2 * 3_000


@settings(max_examples=50)
@given(seed=st.integers(0, 10**6), unique=st.booleans(), partitions=st.integers(1, 4))
def test_index_finds_every_row(
    tmp_path_factory: pytest.TempPathFactory, seed: int, unique: bool, partitions: int
) -> None:
    rng = np.random.default_rng(seed)
    keys = rng.permutation(500)[:200] if unique else rng.integers(-30, 30, 200)
    relation = ss.build_relation(
        pa.table({"k": keys}),
        tmp_path_factory.mktemp("relation"),
        key="k",
        partitions=partitions,
        page_size=64,
    )
    reader = relation.reader([])
    index = PageIndex(reader)
    codes = np.empty(reader.row_count, np.int64)
    reader.read_codes(0, reader.page_count, codes)
    page_of_row = np.repeat(np.arange(reader.page_count), np.diff(reader.row_bounds))
    pages = index.pages(codes)
    ends = np.array([index.end(int(page)) for page in pages])
    assert (pages <= page_of_row).all()
    assert (page_of_row < ends).all()
