import pickle

import numpy as np
import pyarrow as pa
import pytest

from semistream.errors import OptionError
from semistream.workload.base import CHUNK_ROWS, Workload, stream_batches
from semistream.workload.bursty import bursts
from semistream.workload.clouds import Clouds
from semistream.workload.drift import Drifting
from semistream.workload.registry import WORKLOADS as REGISTERED
from semistream.workload.registry import make_workload
from semistream.workload.retail import PRODUCTS, Retail
from semistream.workload.synthetic import Synthetic
from semistream.workload.zipf import scatter, zipf_ranks

EXPONENTS = [0.0, 0.3, 0.5, 1.0, 1.2, 2.0, 3.0]


def _assert_fits(observed: np.ndarray, expected: np.ndarray) -> None:
    """Chi-square, bins that expect too little pooled, bounded by six standard deviations."""
    assert observed.sum() == round(expected.sum())
    often = expected > 20
    if not often.all():
        observed = np.append(observed[often], observed[~often].sum())
        expected = np.append(expected[often], expected[~often].sum())
    chi_square = ((observed - expected) ** 2 / np.maximum(expected, 1.0)).sum()
    degrees = max(1, len(expected) - 1)
    assert chi_square < degrees + 6 * np.sqrt(2 * degrees)


@pytest.mark.parametrize("exponent", EXPONENTS)
@pytest.mark.parametrize("domain", [1, 2, 7, 500, 3_000])
def test_zipf_follows_its_law(exponent: float, domain: int) -> None:
    count = 500_000
    ranks = zipf_ranks(np.random.default_rng(5), count, domain, exponent)
    weights = 1.0 / np.arange(1, domain + 1) ** exponent
    observed = np.bincount(ranks, minlength=domain + 1)[1:]
    _assert_fits(observed, weights / weights.sum() * count)


@pytest.mark.parametrize("exponent", EXPONENTS)
@pytest.mark.parametrize("domain", [3_500_000, 10**12])
def test_zipf_follows_its_law_on_a_large_domain(exponent: float, domain: int) -> None:
    """Single ranks at the head, eight bins to an octave in the tail."""
    count, head = 1_000_000, 1_000
    ranks = zipf_ranks(np.random.default_rng(6), count, domain, exponent)
    assert ranks.min() >= 1
    assert ranks.max() <= domain
    edges = np.unique(np.geomspace(head, domain, 8 * (domain // head).bit_length()).astype(int))
    observed = np.append(
        np.bincount(ranks[ranks <= head], minlength=head + 1)[1:],
        np.histogram(ranks[ranks > head], edges + 0.5)[0],
    )
    single = np.arange(1, head + 1, dtype=float) ** -exponent
    weights = np.append(single, np.diff(_integral_of_power(edges + 0.5, exponent)))
    _assert_fits(observed, weights / weights.sum() * count)


def _integral_of_power(x: np.ndarray, exponent: float) -> np.ndarray:
    """∫ x^-s dx; over whole ranks beyond the 1000th it is their sum to one part in 10^6."""
    return np.log(x) if exponent == 1 else x ** (1 - exponent) / (1 - exponent)


def test_zipf_with_a_steep_law_is_nearly_always_first() -> None:
    ranks = zipf_ranks(np.random.default_rng(5), 10_000, 10**9, 40.0)
    assert set(ranks.tolist()) == {1}


def test_zipf_goes_on_where_it_stopped() -> None:
    rng = np.random.default_rng(3)
    parts = [zipf_ranks(rng, 50, 1000, 0.8) for _ in range(2)]
    whole = zipf_ranks(np.random.default_rng(3), 100, 1000, 0.8)
    assert np.concatenate(parts).tolist() == whole.tolist()


def test_zipf_is_repeatable() -> None:
    first, second = (zipf_ranks(np.random.default_rng(3), 100, 1000, 1.0) for _ in range(2))
    assert first.tolist() == second.tolist()


@pytest.mark.parametrize(("domain", "exponent"), [(0, 1.0), (10, -0.1), (2**60, 1.0)])
def test_zipf_refuses_nonsense(domain: int, exponent: float) -> None:
    with pytest.raises(OptionError, match="Zipf"):
        zipf_ranks(np.random.default_rng(0), 1, domain, exponent)


@pytest.mark.parametrize("domain", [1, 2, 3, 10, 97, 4096, 100_000])
def test_scatter_is_one_to_one(domain: int) -> None:
    keys = scatter(np.arange(1, domain + 1), domain)
    assert sorted(keys.tolist()) == list(range(domain))


def test_bursts_share_out_all_rows_unevenly() -> None:
    sizes = bursts(np.random.default_rng(2026), 12, 4_000_000)
    assert len(sizes) == 12
    assert sum(sizes) == 4_000_000
    assert max(sizes) > 3 * min(sizes) > 0


def test_retail_is_repeatable_and_refers_to_itself() -> None:
    retail = Retail(products=5_000, sales=20_000, batches=4)
    products = list(retail.product_batches())
    assert sum(b.num_rows for b in products) == 5_000
    assert products[0].schema == PRODUCTS
    ids = {i for b in products for i in b.column("product_id").to_pylist()}
    assert len(ids) == 5_000
    sales = [i for b in retail.sales_batches() for i in b.column("product_id").to_pylist()]
    again = [i for b in retail.sales_batches() for i in b.column("product_id").to_pylist()]
    assert sales == again
    unknown = sum(i not in ids for i in sales)
    assert 0 < unknown < 0.01 * len(sales)


WORKLOADS: list[Workload] = [
    Synthetic(relation_rows=5_000),
    Synthetic(relation_rows=100_000, exponent=0.5, relation_exponent=0.7),
    Synthetic(relation_rows=5_000, by_frequency=True, payload_bytes=8),
    Synthetic(relation_rows=5_000, in_columns=True),
    Drifting(relation_rows=5_000, every_rows=30_000, share=0.25),
    Retail(products=5_000),
    Clouds(relation_rows=70_000),
    Clouds(relation_rows=5_000, row_bytes=128),
]


def _relation(workload: Workload) -> pa.Table:
    return pa.Table.from_batches(workload.relation_batches(), workload.relation_schema)


def _keys(workload: Workload, rows: int) -> np.ndarray:
    return np.asarray(workload.stream_rows(0, rows).column(workload.stream_key))


@pytest.mark.parametrize("workload", WORKLOADS, ids=repr)
def test_a_stream_is_the_same_however_it_is_cut(workload: Workload) -> None:
    rows = 2 * CHUNK_ROWS + 1_000
    whole = pa.Table.from_batches([workload.stream_rows(0, rows)])
    assert whole.schema.equals(workload.stream_schema, check_metadata=True)
    for batch_rows in (10_000, CHUNK_ROWS, 100_000):
        batches = list(stream_batches(workload, rows, batch_rows))
        assert pa.Table.from_batches(batches).equals(whole)
    again = pickle.loads(pickle.dumps(workload))
    assert again.stream_rows(CHUNK_ROWS - 5, 10).equals(
        whole.slice(CHUNK_ROWS - 5, 10).combine_chunks().to_batches()[0]
    )
    assert workload.stream_rows(70, 0).num_rows == 0
    assert workload.stream_rows(70, 0).schema == workload.stream_schema


@pytest.mark.parametrize("workload", WORKLOADS, ids=repr)
def test_a_relation_can_be_had_again(workload: Workload) -> None:
    relation = _relation(workload)
    assert relation.num_rows == workload.relation_rows
    assert relation.equals(_relation(workload))
    assert workload.key in relation.schema.names


def test_a_stream_without_end_goes_on() -> None:
    batches = stream_batches(Synthetic(relation_rows=10), None, 7)
    assert [next(batches).num_rows for _ in range(3)] == [7, 7, 7]


def test_rows_before_the_first_are_refused() -> None:
    with pytest.raises(OptionError, match="at least 0"):
        Synthetic(relation_rows=10).stream_rows(-1, 5)
    with pytest.raises(OptionError, match="batch_rows"):
        next(stream_batches(Synthetic(relation_rows=10), 5, 0))


def test_the_payload_is_one_column_or_several_of_the_same_width() -> None:
    table = Synthetic(relation_rows=1_000, payload_bytes=24, in_columns=True).relation()
    assert table.column_names == ["k", "c0", "c1", "c2"]
    assert set(table.schema.types) == {pa.int64()}
    assert sorted(table["k"].to_pylist()) == list(range(1_000))
    with pytest.raises(OptionError, match="multiple of 8"):
        Synthetic(relation_rows=10, payload_bytes=20, in_columns=True)


def test_the_endless_stream_has_the_same_columns_and_the_skew_it_is_given() -> None:
    workload = Synthetic(relation_rows=1_000)
    batches = [next(workload.endless(exponent, 20_000)) for exponent in (0.0, 1.0)]
    assert all(batch.schema == workload.stream_schema for batch in batches)
    most = [np.bincount(batch.column("k").to_numpy()).max() / 20_000 for batch in batches]
    assert most[0] < 0.005
    assert most[1] == pytest.approx(1 / (1.0 / np.arange(1, 1_001)).sum(), rel=0.1)


def test_synthetic_rows_have_the_papers_sizes() -> None:
    workload = Synthetic(relation_rows=1_000)
    relation = next(workload.relation_batches())
    assert relation.nbytes == 120 * 1_000
    assert workload.stream_rows(0, 1_000).nbytes == 20 * 1_000
    assert relation.column("k").to_pylist() == list(range(1_000))
    assert len(set(relation.column("payload").to_pylist())) == 1_000


def test_synthetic_keys_lie_by_frequency_or_scattered() -> None:
    sorted_keys = _keys(Synthetic(relation_rows=1_000, by_frequency=True), 50_000)
    counts = np.bincount(sorted_keys, minlength=1_000)
    assert counts[0] == counts.max()
    assert counts[:10].min() > counts[100:].max()
    scattered = np.bincount(_keys(Synthetic(relation_rows=1_000), 50_000), minlength=1_000)
    assert sorted(counts.tolist()) == sorted(scattered.tolist())
    assert scattered[:200].sum() < 0.5 * len(sorted_keys)


def test_a_skewed_relation_has_popular_keys_and_missing_ones() -> None:
    workload = Synthetic(relation_rows=100_000, exponent=0.5, relation_exponent=1.0)
    in_relation = np.bincount(np.asarray(_relation(workload)["k"]), minlength=100_000)
    in_stream = np.bincount(_keys(workload, 400_000), minlength=100_000)
    assert (in_relation == 0).mean() > 0.3
    assert in_relation.argmax() == in_stream.argmax()


@pytest.mark.parametrize(("domain", "share"), [(1_000, 0.785), (1_000_000, 0.888)])
def test_a_fifth_of_the_keys_gets_four_fifths_of_the_stream(domain: int, share: float) -> None:
    """Exponent 1 is the 80/20 rule for a thousand keys; with more keys the head weighs more."""
    keys = _keys(Synthetic(relation_rows=domain, by_frequency=True), 400_000)
    assert (keys < domain // 5).mean() == pytest.approx(share, abs=0.01)


@pytest.mark.parametrize(
    "options",
    [{"relation_rows": 0}, {"payload_bytes": 0}, {"exponent": -1}, {"relation_exponent": -0.1}],
)
def test_synthetic_refuses_nonsense(options: dict[str, float]) -> None:
    with pytest.raises(OptionError):
        Synthetic(**options)  # type: ignore[arg-type]


def _hottest(keys: np.ndarray, count: int) -> set[int]:
    return set(np.argsort(np.bincount(keys))[::-1][:count].tolist())


def test_a_drifting_stream_replaces_a_share_of_its_hot_keys() -> None:
    workload = Drifting(relation_rows=20_000, exponent=1.2, every_rows=100_000, share=0.2)
    epochs = [
        _hottest(np.asarray(workload.stream_rows(e * 100_000, 100_000).column("k")), 20)
        for e in (0, 1, 2, 5)
    ]
    kept = [len(epochs[0] & later) for later in epochs[1:]]
    assert kept[0] == pytest.approx(16, abs=2)
    assert kept[1] == pytest.approx(12, abs=2)
    assert kept[2] == 0


@pytest.mark.parametrize(("rows", "hot"), [(1_000, None), (997, 50), (10, 10), (7, 1)])
def test_each_key_has_one_rank_after_every_change(rows: int, hot: int | None) -> None:
    workload = Drifting(relation_rows=rows, every_rows=rows, share=0.3, hot_keys=hot)
    ranks = np.arange(1, rows + 1)
    for change in range(9):
        keys = workload.keys_of(ranks, change * rows)
        assert sorted(keys.tolist()) == list(range(rows))


def test_a_drift_that_is_none_is_refused() -> None:
    for options in ({"every_rows": 0}, {"share": 0.0}, {"share": 1.5}, {"hot_keys": 0}):
        with pytest.raises(OptionError):
            Drifting(relation_rows=100, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("row_bytes", [32, 128])
def test_cloud_reports_are_of_the_papers_size_and_say_what_they_are(row_bytes: int) -> None:
    workload = Clouds(relation_rows=2_000, row_bytes=row_bytes)
    relation = next(workload.relation_batches())
    assert relation.nbytes == row_bytes * 2_000
    assert workload.stream_rows(0, 1_000).nbytes == row_bytes * 1_000
    assert b"stand-in" in relation.schema.metadata[b"origin"]
    with pytest.raises(OptionError, match="row_bytes"):
        Clouds(row_bytes=16)


def test_longitudes_come_in_clusters_and_months_differ_a_bit() -> None:
    workload = Clouds(relation_rows=400_000)
    relation, stream = np.asarray(_relation(workload)["lon"]), _keys(workload, 400_000)
    assert relation.min() >= 0
    assert relation.max() <= 36_000
    counts, others = (np.bincount(x, minlength=36_001) for x in (relation, stream))
    assert 5_000 < (counts > 0).sum() < 12_000
    assert 0.001 < (counts[stream] == 0).mean() < 0.1
    assert 0.8 < np.corrcoef(counts, others)[0, 1] < 0.99


def test_retail_goes_on_selling() -> None:
    retail = Retail(products=1_000)
    sales = retail.stream_rows(100_000, 5)
    assert sales.column("sale_id").to_pylist() == list(range(100_000, 100_005))
    with pytest.raises(OptionError, match="product"):
        Retail(products=0)


def test_workloads_are_made_by_name_with_options_as_text() -> None:
    made = make_workload("zipf", relation_rows="1_000", exponent="0.5", by_frequency="true")
    assert made == Synthetic(relation_rows=1_000, exponent=0.5, by_frequency=True)
    assert make_workload("zipf", relation_exponent="none") == Synthetic()
    assert make_workload("zipf", relation_exponent="0.3") == Synthetic(relation_exponent=0.3)
    assert make_workload("retail", relation_rows=10).key == "product_id"
    assert set(REGISTERED) == {
        "zipf", "drifting", "retail", "clouds", "tpch-orders", "tpch-lineitem"
    }  # fmt: skip


@pytest.mark.parametrize(
    ("name", "options", "hint"),
    [
        ("zpf", {}, "Did you mean 'zipf'"),
        ("zipf", {"exponnt": 1}, "Did you mean 'exponent'"),
        ("zipf", {"relation_rows": "many"}, "a whole number"),
        ("zipf", {"by_frequency": "perhaps"}, "true or false"),
        ("zipf", {"relation_exponent": "x"}, "a number or none"),
    ],
)
def test_the_registry_says_what_is_wrong(name: str, options: dict[str, object], hint: str) -> None:
    with pytest.raises(OptionError, match=hint):
        make_workload(name, **options)
