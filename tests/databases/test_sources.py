"""Relations are built, refreshed and changed from tables in databases."""

from datetime import datetime
from pathlib import Path

import pyarrow as pa
import pytest

import semistream as ss
from semistream.databases import source
from semistream.errors import ColumnError, OptionError
from semistream.testing import same_rows
from tests.databases.fill import Filled

ROWS = 2_000


def _rows_of(relation: ss.Relation, keys: pa.Table) -> pa.Table:
    return pa.Table.from_batches(list(ss.join(keys, relation, how="inner", memory="30MB")))


@pytest.fixture(scope="module")
def table(database: Filled) -> pa.Table:
    at = [datetime(2024, 1, 1 + i % 20, 5, 6, 7, i) for i in range(ROWS)]
    rows = pa.table(
        {
            "k": [3 * i for i in range(ROWS)],
            "name": [None if i % 9 == 0 else f"näme, {i}" for i in range(ROWS)],
            "changed_at": [t.isoformat(" ") for t in at]
            if database.kind == "sqlite"
            else pa.array(at, pa.timestamp("us")),
            "gone": [i % 2 for i in range(ROWS)],
        }
    )
    database.put(rows, "stock", ["k"])
    return rows


def test_a_relation_is_built_in_parallel_ranges(
    database: Filled, table: pa.Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source, "_RANGE_BYTES", 10_000)
    rows = ss.sql_table(database.url, "stock", key="k")
    built = ss.build_relation(rows, tmp_path / "r.rel", key="k", partitions=2)
    assert built.row_count == ROWS
    assert same_rows(_rows_of(built, table.select(["k"])), table)


def test_changes_by_a_column(database: Filled, table: pa.Table, tmp_path: Path) -> None:
    since = datetime(2024, 1, 19)
    value = since.isoformat(" ") if database.kind == "sqlite" else since
    base = table.slice(0, 100).drop_columns(["gone"])
    built = ss.build_relation(base, tmp_path / "r.rel", key="k", partitions=2)
    changes = ss.sql_table(
        database.url,
        "stock",
        key="k",
        changed_since=("changed_at", value),
        where="k < 600",
        booleans=["gone"],
    )
    found = pa.table(changes)
    rows = table.to_pylist()
    fits = [r for r in rows if r["changed_at"] > value and r["k"] < 600]
    assert found.schema.field("gone").type == pa.bool_()
    assert sorted(found.column("k").to_pylist()) == [r["k"] for r in fits]
    new = built.upsert(changes, deletes="gone")
    kept = {r["k"]: r for r in rows[:100]} | {r["k"]: r for r in fits}
    gone = {r["k"] for r in fits if r["gone"]}
    expected = [{n: r[n] for n in base.column_names} for k, r in kept.items() if k not in gone]
    found = _rows_of(new, table.select(["k"]))
    assert same_rows(found, pa.Table.from_pylist(expected, schema=base.schema))


def test_composite_keys_in_ranges(
    database: Filled, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source, "_RANGE_BYTES", 2_000)
    rows = pa.table({"a": [i // 50 for i in range(500)], "b": [f"b{i % 50}" for i in range(500)]})
    database.put(rows, "pairs", ["a", "b"])
    found = pa.table(ss.sql_table(database.url, "pairs", key=["a", "b"], connections=3))
    assert same_rows(found, rows)


def test_what_is_wrong_is_said(database: Filled, table: pa.Table) -> None:
    with pytest.raises(ColumnError, match="no column 'kk'"):
        pa.table(ss.sql_table(database.url, "stock", key="kk"))
    with pytest.raises(ColumnError, match="no column 'dead'"):
        pa.table(ss.sql_table(database.url, "stock", key="k", booleans=["dead"]))
    with pytest.raises(OptionError, match="connections must be at least 1"):
        ss.sql_table(database.url, "stock", key="k", connections=0)
