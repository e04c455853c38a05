"""The front stage: what it keeps, what it gives back, what it learns."""

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

import semistream as ss
from semistream.embedded import prepare
from semistream.joins import front_kernels as kernels
from semistream.joins.frontstage import TupleCache, _HitRatio
from semistream.joins.protocols import Matched
from semistream.joins.telemetry import Telemetry
from semistream.testing import nested_loop_join, same_rows
from tests.oracle import duckdb_join

N_ROWS = 4_000


@pytest.fixture(scope="module")
def table() -> pa.Table:
    return pa.table({"k": np.arange(N_ROWS), "v": np.arange(N_ROWS) * 7})


@pytest.fixture(scope="module")
def relation(table: pa.Table, tmp_path_factory: pytest.TempPathFactory) -> ss.Relation:
    return ss.build_relation(
        table, tmp_path_factory.mktemp("r"), key="k", partitions=1, page_size=500
    )


@pytest.fixture(scope="module")
def table_with_duplicates() -> pa.Table:
    keys = np.repeat(np.arange(N_ROWS // 4), np.arange(N_ROWS // 4) % 7 + 1)
    return pa.table({"k": keys, "v": np.arange(len(keys))})


@pytest.fixture(scope="module")
def duplicates(
    table_with_duplicates: pa.Table, tmp_path_factory: pytest.TempPathFactory
) -> ss.Relation:
    return ss.build_relation(
        table_with_duplicates, tmp_path_factory.mktemp("d"), key="k", partitions=1, page_size=500
    )


def make_cache(relation: ss.Relation, budget: int) -> TupleCache:
    reader = relation.reader(["v"])
    cache = TupleCache.for_budget(reader, ("v",), budget, Telemetry())
    assert cache is not None
    return cache


def matched(codes: list[int], tallies: list[int]) -> Matched:
    """Rows of one page: row i has key i and value 7·i."""
    page, rows = np.arange(N_ROWS), np.array(codes, np.int64)
    return Matched(
        page,
        rows,
        np.array(tallies, np.uint8),
        sizes=None,
        take=lambda some: [pa.array(rows[some] * 7)],
        locate=Located,
    )


class Located:
    """Rows that are fetched by their numbers; all have one size."""

    sizes = None

    def __init__(self, rows: NDArray[np.int64]) -> None:
        self._rows = rows

    def gather(self) -> list[pa.Array]:
        return [pa.array(self._rows * 7)]


def show(cache: TupleCache, codes: range, tally: int) -> None:
    """Offer all these keys, a few at a time: the cache admits a limited number at once."""
    for at in range(0, len(codes), 25):
        some = list(codes[at : at + 25])
        cache.observe_matches(matched(some, [tally] * len(some)))


def look_up(cache: TupleCache, codes: list[int]) -> tuple[dict[int, int], set[int]]:
    """Return key → value for hits, and the keys that must wait."""
    wanted = np.array(codes, np.int64)
    waits = np.zeros(len(wanted), np.bool_)
    hits = {}
    for probes, rows in cache.matches(wanted, waits):
        values = cache.locate(rows).gather()[0].to_pylist()
        hits |= dict(zip(wanted[probes].tolist(), values, strict=True))
    return hits, set(wanted[waits].tolist())


@settings(max_examples=60)
@given(
    st.lists(
        st.dictionaries(st.integers(0, N_ROWS - 1), st.integers(1, 30), max_size=200), max_size=8
    ),
    st.integers(10_000, 60_000),
)
def test_hits_are_right_whatever_came_and_went(
    relation: ss.Relation, rounds: list[dict[int, int]], budget: int
) -> None:
    cache = make_cache(relation, budget)
    for tallies in rounds:
        cache.observe_matches(matched(list(tallies), list(tallies.values())))
        hits, waiting = look_up(cache, list(range(N_ROWS)))
        assert all(value == 7 * key for key, value in hits.items())
        assert set(hits) | waiting == set(range(N_ROWS))
        assert not set(hits) & waiting
        assert len(hits) <= cache.capacity


@given(st.lists(st.integers(1, 5), min_size=1, max_size=12))
def test_only_whole_keys_are_counted(runs: list[int]) -> None:
    """Rows at either end of what is loaded may belong to a key that goes on elsewhere."""
    codes = np.repeat(np.arange(len(runs)), runs)
    rows = np.arange(len(codes))
    lengths = np.full(len(codes), 99, np.uint8)
    kernels.run_lengths(codes, rows, 3, lengths)
    firsts = np.cumsum([0, *runs[:-1]])
    expected = np.zeros(len(codes), np.uint8)
    for first, run in list(zip(firsts, runs, strict=True))[1:-1]:
        expected[first] = run if run <= 3 else 0
    assert lengths.tolist() == expected.tolist()


def test_empty_cache_hits_nothing(relation: ss.Relation) -> None:
    assert look_up(make_cache(relation, 20_000), [0, 1, -1, 2**62, -(2**63)])[0] == {}


def test_a_frequent_key_takes_the_place_of_a_rare_one(relation: ss.Relation) -> None:
    cache = make_cache(relation, 20_000)
    show(cache, range(2_000), 1)
    assert len(look_up(cache, list(range(2_000)))[0]) == cache.capacity
    newcomers = range(3_000, 3_200)
    show(cache, newcomers, 1)
    assert not look_up(cache, list(newcomers))[0], "a lone match is no evidence"
    show(cache, newcomers, 9)
    assert len(look_up(cache, list(newcomers))[0]) > 190


def test_hits_protect_and_turns_wear_down(relation: ss.Relation) -> None:
    cache = make_cache(relation, 20_000)
    show(cache, range(2_000), 1)
    kept = set(look_up(cache, list(range(2_000)))[0])
    for _ in range(12):
        look_up(cache, list(kept))
    candidates = range(2_000, 4_000)
    show(cache, candidates, 5)
    assert set(look_up(cache, list(kept))[0]) == kept
    for _ in range(12):
        cache.end_cycle()
        show(cache, candidates, 5)
    assert len(set(look_up(cache, list(kept))[0])) < len(kept) / 2


def test_missing_keys_are_remembered(relation: ss.Relation) -> None:
    cache = make_cache(relation, 20_000)
    cache.observe_missing(np.array([70_001, 70_002, 70_001]))
    hits, waiting = look_up(cache, [70_001, 70_002, 70_003])
    assert hits == {}
    assert waiting == {70_003}


def test_keys_of_several_rows_are_kept_whole(
    duplicates: ss.Relation, table_with_duplicates: pa.Table
) -> None:
    """The hot keys have up to seven rows; all of them come out of the cache, or the key waits."""
    stream = pa.table({"k": np.tile(np.arange(40), 200), "n": np.arange(8_000)})
    operator, batches = prepare(
        stream.to_batches(max_chunksize=500), duplicates, memory=100_000, algorithm="cmeshjoin"
    )
    assert operator is not None
    out = pa.Table.from_batches(operator.join(batches))
    assert same_rows(out, duckdb_join(stream, table_with_duplicates, on="k"))
    assert operator.telemetry.front_hits > 0


@pytest.mark.parametrize("algorithm", ["cmeshjoin", "chybridjoin", "cbinlj"])
def test_keys_of_wide_rows_are_kept_whole(
    tmp_path_factory: pytest.TempPathFactory, algorithm: str
) -> None:
    """Popular keys of three rows, far wider than the average: the cache has too few bytes for all.

    A key for which there is no room is given up as a whole.
    """
    keys = np.repeat(np.arange(1_500), 3)
    texts = ["w" * 300 if key < 150 else "" for key in keys]
    table = pa.table({"k": keys, "text": texts, "v": np.arange(len(keys))})
    relation = ss.build_relation(
        table, tmp_path_factory.mktemp("wide"), key="k", partitions=1, page_size=2_000
    )
    rng = np.random.default_rng(1)
    popular = rng.integers(0, 150, 12_000)
    wanted = np.where(rng.random(12_000) < 0.9, popular, rng.integers(0, 1_500, 12_000))
    stream = pa.table({"k": wanted, "n": np.arange(12_000)})
    operator, batches = prepare(
        stream.to_batches(max_chunksize=300), relation, memory=350_000, algorithm=algorithm
    )
    assert operator is not None
    out = pa.Table.from_batches(operator.join(batches))
    assert same_rows(out, duckdb_join(stream, table, on="k"))
    assert operator.telemetry.front_hits > 500


@pytest.mark.parametrize("algorithm", ["cmeshjoin", "chybridjoin", "cbinlj", "offline"])
@pytest.mark.parametrize("how", ["inner", "left", "semi", "anti"])
def test_skewed_stream_with_missing_keys(
    relation: ss.Relation, table: pa.Table, algorithm: str, how: str
) -> None:
    rng = np.random.default_rng(3)
    keys = np.minimum(rng.zipf(1.2, 6_000), 9_000)
    keys = np.where(keys % 5 == 0, keys + N_ROWS // 2, keys)
    stream = pa.table({"k": keys, "n": np.arange(len(keys))})
    operator, batches = prepare(
        stream.to_batches(max_chunksize=300),
        relation,
        how=how,
        memory=120_000,
        algorithm=algorithm,
    )
    assert operator is not None
    out = pa.Table.from_batches(operator.join(batches), schema=operator._spec.output_schema)  # type: ignore[attr-defined]
    assert same_rows(out, duckdb_join(stream, table, on="k", how=how))
    assert operator.telemetry.front_hits > len(keys) / 3


@pytest.mark.parametrize("algorithm", ["cmeshjoin", "cbinlj", "chybridjoin", "xhybridjoin"])
def test_who_waits_is_served_while_others_hit(relation: ss.Relation, algorithm: str) -> None:
    """A stream of hits that never pauses must not keep a lone miss waiting."""
    fed = 0

    def source() -> Iterator[pa.RecordBatch]:
        nonlocal fed
        for _ in range(30):
            yield pa.record_batch({"k": [5] * 200, "n": [0] * 200})
        yield pa.record_batch({"k": [3_000], "n": [-1]})
        for _ in range(20_000):
            fed += 1
            yield pa.record_batch({"k": [5] * 16, "n": [0] * 16})

    operator, batches = prepare(source(), relation, memory=120_000, algorithm=algorithm)
    assert operator is not None
    for batch in operator.join(batches):
        if -1 in batch.column("n").to_pylist():
            break
    assert fed < 19_000
    assert operator.telemetry.front_hits > 0


def test_the_offline_bound_hits_at_least_as_often(relation: ss.Relation, table: pa.Table) -> None:
    """Keys that cannot match take none of its places."""
    rng = np.random.default_rng(9)
    keys = rng.integers(0, N_ROWS, 20_000) // rng.integers(1, 60, 20_000)
    keys = np.where(rng.random(20_000) < 0.8, keys + 10 * N_ROWS, keys)
    stream = pa.table({"k": keys})
    hits = {}
    for algorithm in ("cmeshjoin", "offline"):
        operator, batches = prepare(
            stream.to_batches(max_chunksize=500), relation, memory=80_000, algorithm=algorithm
        )
        assert operator is not None
        out = pa.Table.from_batches(operator.join(batches))
        assert same_rows(out, duckdb_join(stream, table, on="k"))
        hits[algorithm] = operator.telemetry.front_hits
    assert hits["offline"] >= hits["cmeshjoin"] > 0


def test_a_key_that_shares_its_code_with_another(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two strings with one hash: neither is answered from the cache with the other's row."""
    from semistream import keys as keys_module

    real = keys_module.KeyCoder.codes

    def few_codes(self: object, columns: list[pa.Array]) -> tuple[np.ndarray, np.ndarray]:
        codes, has_key = real(self, columns)  # type: ignore[arg-type]
        return codes % 5, has_key

    monkeypatch.setattr(keys_module.KeyCoder, "codes", few_codes)
    table = pa.table({"k": [f"key-{i}" for i in range(12)], "v": np.arange(12)})
    rng = np.random.default_rng(1)
    stream = pa.table({"k": [f"key-{i}" for i in rng.integers(0, 20, 900)], "n": np.arange(900)})
    relation = ss.build_relation(table, tmp_path_factory.mktemp("c"), key="k", partitions=1)
    for algorithm in ("cmeshjoin", "chybridjoin", "cinlj", "xhybridjoin", "resident"):
        batches = stream.to_batches(max_chunksize=40)
        out = list(ss.join(batches, relation, memory="20MB", algorithm=algorithm))
        assert same_rows(pa.Table.from_batches(out), nested_loop_join(stream, table, on="k"))


def test_the_cache_stays_small(relation: ss.Relation) -> None:
    """What a cache allocates is what it was given, or less."""
    for budget in (10_000, 50_000, 200_000):
        cache = make_cache(relation, budget)
        arrays = [v for k, v in vars(cache).items() if isinstance(v, np.ndarray) and k != "_state"]
        stores = [store._values for store in cache._rows._stores]  # type: ignore[attr-defined]
        held = sum(a.nbytes for a in arrays) + sum(s.base.nbytes for s in stores)
        held += kernels.WORDS * 8  # to align the table
        assert budget * 0.8 < held <= budget
        assert cache._table.ctypes.data % 64 == 0


def test_a_broken_hit_ratio_is_noticed_once() -> None:
    ratio = _HitRatio()
    for _ in range(5):
        ratio.add(80, 100)
        assert not ratio.end_cycle()
    ratio.add(20, 100)
    assert ratio.end_cycle()
    ratio.add(20, 100)
    assert not ratio.end_cycle()
    assert not ratio.end_cycle(), "a turn without look-ups says nothing"


def test_without_skew_the_cache_rests(relation: ss.Relation) -> None:
    """Hits that any rows would have are no reason to go on learning; skew is, when it comes."""
    cache = make_cache(relation, 20_000)
    show(cache, range(2_000), 1)
    for _ in range(3):  # once may be because it has only just filled up
        assert not cache.is_resting
        look_up(cache, list(range(N_ROWS)))
        cache.end_cycle()
    assert cache.is_resting
    hot = list(look_up(cache, list(range(2_000)))[0])
    for _ in range(10):
        look_up(cache, hot)
        cache.end_cycle()
    assert not cache.is_resting


@pytest.mark.parametrize("budget", [12_000, 60_000])
def test_a_cache_takes_the_rows_of_another_over(relation: ss.Relation, budget: int) -> None:
    """All of them if they fit, else those that are requested most; with the right values."""
    old = make_cache(relation, 40_000)
    keys = np.random.default_rng(2).permutation(N_ROWS)[: old.capacity // 2].tolist()
    hot = keys[:20]
    old.observe_matches(matched(keys, [12 if key in hot else 2 for key in keys]))
    gone = np.array([N_ROWS + 5, N_ROWS + 9])
    old.observe_missing(np.repeat(gone, 9))
    new = make_cache(relation, budget)
    new.learn_from(old)
    assert new._telemetry.front_admissions == 0
    held = held_by(new, np.array(keys))
    assert held <= {key: 7 * key for key in keys}.items()
    assert len(held) >= 0.9 * min(old.occupied - 2, new.capacity // 2)
    assert {key for key, _ in held} >= set(hot[:15]) or budget > 40_000
    waits = np.ones(2, np.bool_)
    list(new.matches(gone, waits))
    assert not waits.any()  # that R does not have them is known as well


def held_by(cache: TupleCache, keys: NDArray[np.int64]) -> set[tuple[int, int]]:
    """Return the keys that a cache has, with the values that it gives."""
    waits = np.ones(len(keys), np.bool_)
    found = set()
    for probes, rows in cache.matches(keys, waits):
        values = cache.locate(rows).gather()[0].to_pylist()
        found |= set(zip(keys[probes].tolist(), values, strict=True))
    return found
