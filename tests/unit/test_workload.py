import numpy as np
import pytest

from semistream.errors import OptionError
from semistream.workload.bursty import bursts
from semistream.workload.retail import PRODUCTS, Retail
from semistream.workload.zipf import scatter, zipf_ranks


@pytest.mark.parametrize("exponent", [0.0, 0.3, 0.5, 1.0, 1.2, 1.5, 3.0])
@pytest.mark.parametrize("domain", [1, 2, 7, 500])
def test_zipf_follows_its_law(exponent: float, domain: int) -> None:
    count = 200_000
    ranks = zipf_ranks(np.random.default_rng(5), count, domain, exponent)
    weights = 1.0 / np.arange(1, domain + 1) ** exponent
    expected = weights / weights.sum() * count
    observed = np.bincount(ranks, minlength=domain + 1)[1:]
    assert observed.sum() == count
    often = expected > 20
    chi_square = ((observed - expected)[often] ** 2 / expected[often]).sum()
    degrees = max(1, often.sum() - 1)
    assert chi_square < degrees + 6 * np.sqrt(2 * degrees)


def test_zipf_is_repeatable() -> None:
    first, second = (zipf_ranks(np.random.default_rng(3), 100, 1000, 1.0) for _ in range(2))
    assert first.tolist() == second.tolist()


@pytest.mark.parametrize(("domain", "exponent"), [(0, 1.0), (10, -0.1)])
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
