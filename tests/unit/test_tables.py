"""Delta and Iceberg tables as sources, real ones, written by their own packages."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pyiceberg.catalog.sql import SqlCatalog

import semistream as ss
from semistream.errors import ColumnError, OptionError
from semistream.tables import DeltaTarget, last_changes
from semistream.testing import same_rows

FIRST = pa.table({"k": [1, 2, 3], "v": ["a", None, "c"]})


def _rows(relation: ss.Relation) -> pa.Table:
    keys = pa.table({"k": list(range(20))})
    return pa.Table.from_batches(list(ss.join(keys, relation, how="inner")))


@pytest.fixture
def delta(tmp_path: Path) -> str:
    """Versions 0: three rows, 1: one more, 2: one deleted, 3: one changed, 4: one merged."""
    where = str(tmp_path / "delta")
    write_deltalake(where, FIRST, configuration={"delta.enableChangeDataFeed": "true"})
    write_deltalake(where, pa.table({"k": [4], "v": ["d"]}), mode="append")
    table = DeltaTable(where)
    table.delete("k = 1")
    table.update(predicate="k = 2", updates={"v": "'bb'"})
    merged = pa.table({"k": [3, 5], "v": ["cc", "e"]})
    merge = table.merge(merged, "s.k = t.k", source_alias="s", target_alias="t")
    merge.when_matched_update_all().when_not_matched_insert_all().execute()
    return where


def test_a_delta_table_by_version(delta: str, tmp_path: Path) -> None:
    first = ss.build_relation(ss.delta_table(delta, version=0), tmp_path / "r", key="k")
    assert same_rows(_rows(first), FIRST)
    newest = first.refresh(ss.delta_table(delta))
    assert same_rows(_rows(newest), pa.table({"k": [2, 3, 4, 5], "v": ["bb", "cc", "d", "e"]}))
    assert ss.delta_version(delta) == 4


@pytest.mark.parametrize("since", [0, 1, 2, 3, 4])
def test_changes_of_a_delta_table(delta: str, tmp_path: Path, since: int) -> None:
    then = ss.delta_table(delta, version=since)
    relation = ss.build_relation(then, tmp_path / "r", key="k")
    relation = relation.upsert(ss.delta_changes(delta, key="k", since=since), deletes="_deleted")
    now = pa.table(ss.delta_table(delta))
    assert same_rows(_rows(relation), now)


def test_a_key_that_is_deleted_and_comes_again(delta: str, tmp_path: Path) -> None:
    table = DeltaTable(delta)
    table.delete("k = 5")
    write_deltalake(delta, pa.table({"k": [5], "v": ["again"]}), mode="append")
    changes = pa.table(ss.delta_changes(delta, key="k", since=3)).to_pylist()
    assert {"k": 5, "v": "again", "_deleted": False} in changes
    until = pa.table(ss.delta_changes(delta, key="k", since=4, until=5)).to_pylist()
    assert until == [{"k": 5, "v": "e", "_deleted": True}]


def test_what_is_no_delta_table_is_said(tmp_path: Path, delta: str) -> None:
    with pytest.raises(OptionError, match="cannot be read as a Delta table"):
        pa.table(ss.delta_table(tmp_path / "nothing"))
    with pytest.raises(OptionError, match="in version 99"):
        pa.table(ss.delta_table(delta, version=99))


def test_an_iceberg_table_by_snapshot(tmp_path: Path) -> None:
    catalog = SqlCatalog("c", uri=f"sqlite:///{tmp_path}/c.db", warehouse=f"file://{tmp_path}/w")
    catalog.create_namespace("shop")
    table = catalog.create_table("shop.products", FIRST.schema)
    table.append(FIRST)
    first = table.current_snapshot()
    table.append(pa.table({"k": [7], "v": ["g"]}))
    relation = ss.build_relation(
        ss.iceberg_table(table, snapshot=first.snapshot_id), tmp_path / "r", key="k"
    )
    assert same_rows(_rows(relation), FIRST)
    newest = relation.refresh(ss.iceberg_table(table.metadata_location, columns=["k", "v"]))
    assert newest.row_count == 4
    with pytest.raises(OptionError, match="no snapshot 5; it has"):
        ss.iceberg_table(table, snapshot=5)


def test_the_last_change_of_each_key() -> None:
    changes = pa.table({"a": [1, 1, 2, 1, None], "b": ["x", "y", "x", "x", "x"], "v": range(5)})
    assert last_changes(changes, ["a", "b"]).column("v").to_pylist() == [1, 2, 3]
    assert last_changes(changes[:0], ["a"]).num_rows == 0
    with pytest.raises(ColumnError, match="no key column 'c'"):
        last_changes(changes, ["c"])


def test_a_micro_batch_is_appended_to_a_delta_table_once(tmp_path: Path) -> None:
    target = DeltaTarget(str(tmp_path / "sales"), ("day",))
    rows = pa.table({"day": ["mo", "tu", "mo"], "n": [1, 2, None]})
    assert target.write(rows.to_reader(), "q", 0) == 3
    assert target.write(rows.to_reader(), "q", 0) is None
    assert target.write(rows.to_reader(), "q", 1) == 3
    assert target.write(rows.to_reader(), "other", 0) == 3
    written = pa.table(ss.delta_table(tmp_path / "sales").open())
    assert same_rows(written.select(["day", "n"]), pa.concat_tables([rows] * 3))


def test_of_two_attempts_at_a_micro_batch_one_is_appended(tmp_path: Path) -> None:
    target = DeltaTarget(str(tmp_path / "sales"))
    rows = pa.table({"n": [1, 2, 3]})
    target.write(rows.to_reader(), "q", 0)

    def slow() -> Iterator[pa.RecordBatch]:
        with ThreadPoolExecutor(1) as other:  # the other attempt, meanwhile
            assert other.submit(target.write, rows.to_reader(), "q", 1).result() == 3
        yield from rows.to_batches()

    reader = pa.RecordBatchReader.from_batches(rows.schema, slow())
    assert target.write(reader, "q", 1) is None
    assert pa.table(ss.delta_table(tmp_path / "sales").open()).num_rows == 6
