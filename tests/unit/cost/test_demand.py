"""The demand: what a sample tells about skew, and what follows from it."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import semistream as ss
from semistream.advice.situation import demand_in, skew_of
from semistream.cost.demand import Demand, fit_exponent, poisson_below
from semistream.errors import OptionError
from semistream.workload.zipf import scatter, zipf_ranks

KEYS = 200_000


def sample_counts(exponent: float, draws: int, keys: int = KEYS) -> np.ndarray:
    ranks = zipf_ranks(np.random.default_rng(3), draws, keys, exponent)
    return np.unique(ranks, return_counts=True)[1]


def exact_hits(exponent: float, cached: int) -> float:
    weights = np.arange(1, KEYS + 1, dtype=np.float64) ** -exponent
    return float(weights[:cached].sum() / weights.sum())


@pytest.mark.parametrize("exponent", [0.0, 0.3, 0.8, 1.0, 1.3, 2.0])
@pytest.mark.parametrize("cached", [1, 70, 5_000, 120_000, KEYS])
def test_hit_ratio_of_zipf_is_the_papers_sum(exponent: float, cached: int) -> None:
    """Equation 1 of `cmeshjoin-front-stage.txt`, added up term by term."""
    assert Demand.zipf(exponent, KEYS).hit_ratio(cached) == pytest.approx(
        exact_hits(exponent, cached), rel=2e-3
    )


@pytest.mark.parametrize("exponent", [0.5, 0.8, 1.0, 1.2, 1.5])
@pytest.mark.parametrize("draws", [8_000, 60_000])
def test_exponent_from_a_sample(exponent: float, draws: int) -> None:
    counts = sample_counts(exponent, draws)
    assert fit_exponent(len(counts), draws, KEYS) == pytest.approx(exponent, abs=0.05)


@pytest.mark.parametrize("exponent", [0.0, 0.8, 1.0, 1.2])
def test_hit_ratios_from_a_sample(exponent: float) -> None:
    demand = Demand.from_counts(sample_counts(exponent, 30_000), KEYS)
    for cached in (100, 2_000, 40_000):
        assert demand.hit_ratio(cached) == pytest.approx(exact_hits(exponent, cached), abs=0.04)


def test_hit_curve_is_the_samples_where_it_is_no_zipf() -> None:
    """Nine of ten tuples request a thousand keys, equally often; the others any."""
    rng = np.random.default_rng(1)
    is_hot = rng.random(60_000) < 0.9
    keys = np.where(is_hot, rng.integers(0, 1_000, 60_000), rng.integers(0, KEYS, 60_000))
    demand = Demand.from_counts(np.unique(keys, return_counts=True)[1], KEYS)
    # Those counted most often were so in part by chance.
    assert demand.hit_ratio(500) == pytest.approx(0.45, abs=0.08)
    assert demand.hit_ratio(1_000) == pytest.approx(0.9, abs=0.03)
    assert demand.hit_ratio(100_000) == pytest.approx(0.95, abs=0.02)


@given(
    counts=st.lists(st.integers(1, 500), max_size=300),
    more_keys=st.integers(0, 10_000),
    sets=st.integers(1, 2_000),
)
def test_shares_always_add_up(counts: list[int], more_keys: int, sets: int) -> None:
    demand = Demand.from_counts(np.array(counts, np.int64), max(1, len(counts) + more_keys))
    assert demand.by_page(37).sum() == pytest.approx(1.0)
    assert demand.hit_ratio(demand.key_count) == pytest.approx(1.0)
    hits, rest = demand.cached_share(sets, 7)
    assert 0.0 <= hits <= 1.0
    assert rest.by_page(37).sum() == pytest.approx(1.0)


def test_a_set_associative_cache_hits_a_little_less_than_the_best() -> None:
    demand = Demand.zipf(1.0, KEYS)
    hits, _ = demand.cached_share(1_000, 7)
    assert 0.97 * demand.hit_ratio(7_000) < hits < demand.hit_ratio(7_000)


def test_poisson_below_is_the_sum_of_its_terms() -> None:
    mean = np.array([0.1, 3.0, 20.0])
    drawn = np.random.default_rng(0).poisson(mean, (200_000, 3)) < 7
    assert poisson_below(7, mean) == pytest.approx(drawn.mean(axis=0), abs=5e-3)


def test_a_sample_knows_where_its_keys_lie(tmp_path) -> None:  # type: ignore[no-untyped-def]
    """Of a table of which only the first fifth is requested, the other pages have no demand."""
    table = pa.table({"k": np.arange(20_000), "v": np.arange(20_000)})
    relation = ss.build_relation(table, tmp_path / "r", key="k", partitions=1, page_size=2048)
    reader = relation.reader([])
    keys = np.random.default_rng(2).integers(0, 4_000, 5_000)
    demand = demand_in(pa.table({"k": keys}), relation, ["k"], reader)
    assert skew_of(keys, reader) == demand.skew
    pages = demand.by_page(reader.page_count)
    first = reader.page_count // 5 + 2
    assert pages[:first].sum() > 0.95
    spread = demand_in(
        pa.table({"k": scatter(np.arange(5_000), 20_000)}), relation, ["k"], reader
    ).by_page(reader.page_count)
    assert spread[:first].sum() == pytest.approx(0.2, abs=0.05)


def test_a_skew_must_be_possible() -> None:
    with pytest.raises(OptionError, match="at least 0; got -1"):
        Demand.zipf(-1.0, 10)


@pytest.mark.parametrize("sets", [100, 400, 1_200])
@pytest.mark.parametrize("learns_after", [1.0, 0.5])
def test_an_empty_cache_learns_as_fast_as_in_a_simulation(learns_after: float, sets: int) -> None:
    """A key enters when two tuples of the last window request it, or one if a place is free.

    That is looked at once in a window, or twice. What is requested most often may stay.
    """
    keys, window, windows, ways = 20_000, 4_000, 8, 7
    random = np.random.default_rng(5)
    draws = zipf_ranks(random, window * windows, keys, 1.0)
    set_of = random.integers(0, sets, keys + 1)
    cached = np.zeros(keys + 1, np.bool_)
    hits, step = 0, int(learns_after * window)
    for end in range(step, len(draws) + 1, step):
        hits += np.count_nonzero(cached[draws[end - step : end]])
        waiting = draws[max(0, end - window) : end]
        counts = np.bincount(waiting[~cached[waiting]], minlength=keys + 1)
        for key in np.flatnonzero(counts):  # the smallest number is requested most often
            rivals = np.flatnonzero(cached & (set_of == set_of[key]))
            if len(rivals) < ways:
                cached[key] = True
            elif counts[key] >= 2 and key < rivals[-1]:
                cached[[key, rivals[-1]]] = True, False
    about = (len(draws), window, sets, ways, learns_after)
    expected = Demand.zipf(1.0, keys).learned_share(*about)
    assert expected == pytest.approx(hits / len(draws), rel=0.05)
