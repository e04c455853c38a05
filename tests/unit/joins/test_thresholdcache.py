"""The paper's cache policy: who enters, who leaves, and how the threshold adapts."""

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pytest

import semistream as ss
from semistream.joins.protocols import Matched
from semistream.joins.telemetry import Telemetry
from semistream.joins.thresholdcache import ThresholdCache

N_ROWS = 5_000


@pytest.fixture(scope="module")
def relation(tmp_path_factory: pytest.TempPathFactory) -> ss.Relation:
    keys = np.arange(N_ROWS)
    table = pa.table({"k": keys, "v": keys * 7, "text": [f"{k:x}" * (k % 9) for k in keys]})
    return ss.build_relation(table, tmp_path_factory.mktemp("r"), key="k", partitions=1)


def make_cache(relation: ss.Relation, columns: tuple[str, ...], size_bytes: int) -> ThresholdCache:
    reader = relation.reader(list(columns))
    cache = ThresholdCache.for_budget(reader, columns, size_bytes, Telemetry())
    assert cache is not None
    return cache


def matched(rows: np.ndarray, tallies: np.ndarray, *, has_texts: bool = False) -> Matched:
    """Rows that have matched: row i has key i, value 7·i and a text."""

    def texts(some: np.ndarray) -> pa.Array:
        return pa.array([f"{k:x}" * (k % 9) for k in rows[some]], pa.string())

    def take(some: np.ndarray) -> list[pa.Array]:
        return [pa.array(rows[some] * 7), *([texts(some)] if has_texts else [])]

    every = np.arange(len(rows))
    sizes = np.array([len(t.as_py()) for t in texts(every)], np.int64) if has_texts else None
    return Matched(np.arange(N_ROWS), rows, tallies.astype(np.uint8), sizes, take, _nowhere)


def _nowhere(rows: np.ndarray) -> object:
    raise AssertionError("keys have one row")


def hits(cache: ThresholdCache, codes: np.ndarray) -> Iterator[tuple[int, int]]:
    """Yield (code, value) of those that are found, and check that the others wait."""
    waits = np.zeros(len(codes), np.bool_)
    found = set()
    for probes, rows in cache.matches(codes, waits):
        values = cache.locate(rows).gather()[0].to_pylist()
        found.update(codes[probes].tolist())
        yield from zip(codes[probes].tolist(), values, strict=True)
    assert found == set(codes[~waits].tolist())


@pytest.mark.parametrize("has_texts", [False, True])
def test_the_least_frequent_leaves(relation: ss.Relation, has_texts: bool) -> None:
    """Against a dictionary of counts: what leaves had no more hits than anything that stays."""
    columns = ("v", "text") if has_texts else ("v",)
    cache = make_cache(relation, columns, 60_000 if has_texts else 24_000)
    rng = np.random.default_rng(5)
    counts: dict[int, int] = {}  # of what is cached, by key
    replaced = 0
    for _ in range(300):
        asked = np.minimum(rng.zipf(1.3, 200), N_ROWS) - 1
        found = list(hits(cache, asked))
        assert sorted(found) == sorted((k, 7 * k) for k in asked.tolist() if k in counts)
        for key, _ in found:
            counts[key] += 1
        rows = np.unique(rng.integers(0, N_ROWS, 6))
        tallies = rng.integers(0, 9, len(rows))
        cache.observe_matches(matched(rows, tallies, has_texts=has_texts))
        entering = {
            int(k): int(f)
            for k, f in zip(rows, tallies, strict=True)
            if f > cache.threshold and k not in counts
        }
        probe = np.array(sorted({*counts, *entering}))
        # A look-up counts as a hit; it is done twice here, so that no key gains by it.
        held = {key for key, _ in hits(cache, probe)}
        left = set(counts) - held
        replaced += len(left)
        kept = {k: n for k, n in counts.items() if k in held}
        most_left = max((counts[k] for k in left), default=0)
        assert most_left <= min(kept.values(), default=most_left)
        counts = {**kept, **{k: f for k, f in entering.items() if k in held}}
        counts = {key: count + 1 for key, count in counts.items()}
        if not left and not has_texts:
            assert set(entering) <= held  # there was room
        assert len(counts) <= cache.capacity
    assert replaced > 50


def test_all_that_stays_is_found(relation: ss.Relation) -> None:
    """Half of the rows leave, from all over the hash table, and others come."""
    cache = make_cache(relation, ("v",), 24_000)
    rng = np.random.default_rng(2)
    keys = rng.permutation(N_ROWS)[: cache.capacity + cache.capacity // 2]
    first, later = keys[: cache.capacity], np.sort(keys[cache.capacity :])
    cache.observe_matches(matched(np.sort(first), np.full(len(first), 2)))
    popular = first[rng.random(len(first)) < 0.5]
    assert len(list(hits(cache, popular))) == len(popular)
    fitting = later[: cache.capacity - len(popular)]
    cache.observe_matches(matched(fitting, np.full(len(fitting), 200)))
    assert len(list(hits(cache, popular))) == len(popular)
    assert len(list(hits(cache, fitting))) == len(fitting)


def test_the_threshold_adapts(relation: ss.Relation) -> None:
    cache = make_cache(relation, ("v",), 24_000)
    assert cache.threshold == 1
    cache.observe_matches(matched(np.arange(10), np.ones(10)))
    assert cache.is_bypassed  # f must be greater
    cache.end_cycle()
    assert cache.threshold == 0  # there was room
    every = np.arange(cache.capacity)
    cache.observe_matches(matched(every, np.full(len(every), 2)))
    cache.end_cycle()
    assert cache.threshold == 0  # it is full, and nothing was replaced
    some = np.arange(N_ROWS - cache.capacity // 20, N_ROWS)
    cache.observe_matches(matched(some, np.full(len(some), 3)))
    cache.end_cycle()
    assert cache.threshold == 1  # a twentieth was replaced
    assert {k for k, _ in hits(cache, some)} == set(some.tolist())


def test_a_row_much_wider_than_the_others(relation: ss.Relation) -> None:
    """It does not enter, and its place is the next that is used."""
    cache = make_cache(relation, ("v", "text"), 60_000)
    wide = matched(np.array([3]), np.array([9]), has_texts=True)
    sizes = np.array([10**6])
    cache.observe_matches(
        Matched(wide.page_codes, wide.rows, wide.tallies, sizes, wide.take, wide.locate)
    )
    assert not list(hits(cache, np.array([3])))
    cache.observe_matches(matched(np.array([4]), np.array([9]), has_texts=True))
    assert list(hits(cache, np.array([4]))) == [(4, 28)]
