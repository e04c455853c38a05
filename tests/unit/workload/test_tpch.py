from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from semistream.errors import OptionError
from semistream.workload import tpch
from semistream.workload.base import stream_batches
from semistream.workload.registry import make_workload
from semistream.workload.skewed_tpch import SkewedTpch
from semistream.workload.tpch import Tpch


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("tpch")


@pytest.mark.parametrize(
    ("name", "relation_rows", "stream_rows"),
    [("tpch-orders", 1_500, 15_000), ("tpch-lineitem", 2_000, 60_175)],
)
def test_tables_refer_to_each_other(
    folder: Path, name: str, relation_rows: int, stream_rows: int
) -> None:
    workload = make_workload(name, scale="0.01", folder=str(folder))
    relation = pa.Table.from_batches(workload.relation_batches())
    assert relation.num_rows == workload.relation_rows == relation_rows
    assert relation.schema == workload.relation_schema
    stream = pa.Table.from_batches(stream_batches(workload, None, 9_000))
    assert stream.num_rows == stream_rows
    assert stream.schema == workload.stream_schema
    keys = np.asarray(relation[workload.key])
    assert np.isin(np.asarray(stream[workload.stream_key]), keys).all()


def test_rows_are_the_same_across_row_groups(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    workload = Tpch(0.01, "part-lineitem", folder)
    path = workload.generate() / "lineitem.parquet"
    small = tmp_path / "small.parquet"
    whole = pa.parquet.read_table(path)
    pa.parquet.write_table(whole, small, row_group_size=700)
    table = tpch._ParquetTable(str(small))
    for first, count in ((0, 5), (690, 30), (0, 3_000), (60_000, 1_000), (70_000, 5)):
        rows = table.rows(first, count)
        expected = whole["l_orderkey"].slice(first, count).to_pylist()
        assert rows.column("l_orderkey").to_pylist() == expected


def test_skewed_customers_have_zipfs_shares_of_the_orders(folder: Path) -> None:
    """Of 1,500 customers that stand for 150,000, the first fifteen have the first 1 %'s share."""
    workload = SkewedTpch(Tpch(0.01, "customer-orders", folder), times=100.0)
    orders = workload.stream_rows(0, 200_000).column("o_custkey").to_numpy()
    customers = pa.Table.from_batches(workload.relation_batches())["c_custkey"].to_numpy()
    assert np.isin(orders, customers).all()
    shares = np.sort(np.bincount(orders))[::-1].cumsum() / len(orders)
    weights = 1 / np.arange(1, 150_001)
    for count in (15, 150, 750):
        exact = weights[: count * 100].sum() / weights.sum()
        assert shares[count - 1] == pytest.approx(exact, rel=0.03)
    popular = np.argsort(np.bincount(orders))[::-1][:15]
    assert popular.min() < 750 < popular.max()  # anywhere among the keys


def test_tables_are_made_once_and_nothing_else_is_left(folder: Path) -> None:
    workload = Tpch(0.01, "customer-orders", folder)
    made = workload.generate()
    before = (made / "orders.parquet").stat().st_mtime_ns
    assert workload.generate() == made
    assert (made / "orders.parquet").stat().st_mtime_ns == before
    assert not list(folder.glob(".*"))


def test_what_is_missing_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tpch.shutil, "which", lambda *a, **k: None)
    with pytest.raises(OptionError, match=r"pip install 'semistream\[lab\]'"):
        Tpch(0.01, folder=tmp_path).generate()


def test_a_failed_run_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tpch, "_program", lambda: "false")
    with pytest.raises(OptionError, match="could not make customer and orders"):
        Tpch(0.01, folder=tmp_path / "t").generate()
    assert not list((tmp_path / "t").iterdir())


def test_tables_that_are_not_offered_are_refused() -> None:
    with pytest.raises(OptionError, match="Did you mean 'customer-orders'"):
        Tpch(tables="customer-order")
    with pytest.raises(OptionError, match="scale"):
        Tpch(scale=0)
