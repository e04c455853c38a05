"""`Relation.info`: what a relation consists of."""

import json
from pathlib import Path

import numpy as np
import pyarrow as pa

import semistream as ss
from tests.unit.snapshots import build


def files_bytes(relation: ss.Relation) -> int:
    folder = Path(relation.location) / "snapshots" / relation.snapshot
    return sum(path.stat().st_size for path in folder.iterdir())


def test_what_it_says(tmp_path: Path) -> None:
    rows = 1_000
    table = pa.table(
        {
            "id": [None, *([7] * 9), *range(100, 90 + rows)],
            "text": ["x" * 50] * rows,
        }
    )
    relation = ss.build_relation(table, tmp_path / "r.rel", key="id", partitions=4, page_size="4KB")
    info = relation.info()
    assert (info.row_count, info.null_keys_dropped) == (rows - 1, 1)
    assert info.key == ("id",)
    assert info.columns == {"id": "int64", "text": "string"}
    assert info.most_duplicates == 9
    assert info.format_version == 1
    assert info.size_bytes == relation.size_bytes
    assert info.partition_count == 4
    assert info.page_count == relation.page_count > 8
    counts = [p.row_count for p in relation.manifest.partitions]
    assert info.partition_rows.most == max(counts)
    assert info.partition_rows.mean == np.mean(counts)
    assert info.page_rows.most * (8 + 50) <= 4_000
    assert info.page_rows.mean * info.page_count == info.row_count
    assert info.page_bytes.mean * info.page_count == info.size_bytes


def test_page_skew(tmp_path: Path) -> None:
    """One row is larger than a page should be."""
    table = pa.table({"id": range(100), "text": ["x"] * 99 + ["y" * 50_000]})
    relation = ss.build_relation(table, tmp_path / "r.rel", key="id", partitions=1, page_size="1KB")
    info = relation.info()
    assert info.page_limit_bytes == 1_000
    assert 50_000 < info.page_bytes.most < 52_000
    assert info.page_bytes.skew > 2
    assert info.page_rows.least == 1
    assert f"{info.page_bytes.skew:.2f} × the mean size" in str(info)


def test_snapshots_with_age_and_size(tmp_path: Path) -> None:
    old, new = build(tmp_path / "r.rel"), build(tmp_path / "r.rel")
    unfinished = tmp_path / "r.rel" / "snapshots" / "20240229T120000000000-0123abcd"
    unfinished.mkdir()
    (unfinished / "part-00000-0.data").write_bytes(b"x" * 123)
    info = new.info()
    first, second, third = info.snapshots
    assert (first.is_complete, first.size_bytes) == (False, 123)
    assert first.created_at == "2024-02-29T12:00:00+00:00"
    assert first.age_s > 86_400
    assert (second.snapshot, second.is_current) == (old.snapshot, False)
    assert (third.snapshot, third.is_current) == (new.snapshot, True)
    assert second.size_bytes == files_bytes(old) > old.size_bytes
    assert 0 <= third.age_s <= second.age_s < 600
    text = str(info)
    assert "unfinished" in text
    assert "2 old snapshots" in text
    assert f"semistream prune {new.location}" in text


def test_it_is_json(tmp_path: Path) -> None:
    body = json.loads(json.dumps(build(tmp_path / "r.rel").info().to_dict()))
    assert body["page_bytes"]["skew"] >= 1
    assert body["snapshots"][0]["is_current"] is True


def test_a_relation_without_rows(tmp_path: Path) -> None:
    table = pa.table({"id": pa.array([], pa.int64())})
    info = ss.build_relation(table, tmp_path / "r.rel", key="id", partitions=2).info()
    assert info.page_bytes.most == 0
    assert "0 rows" in str(info)
