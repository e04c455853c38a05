"""`semistream run --dry-run`: what a pipeline would do, and nothing of it done."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import semistream as ss
from semistream.spark.pipeline.dryrun import dry_run
from semistream.spark.prediction import explain_query

KEY = "s3cr3t-key"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    products = pa.table({"id": range(50), "name": [f"p{i}" for i in range(50)]})
    stores = pa.table({"store": range(5), "city": [f"c{i}" for i in range(5)]})
    ss.build_relation(products, tmp_path / "products.rel", key="id", partitions=2)
    ss.build_relation(stores, tmp_path / "stores.rel", key="store", partitions=2)
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "0.json").write_text('{"product": "7", "store": 1, "price": 2.5}\n')
    return tmp_path


def a_pipeline(folder: Path, steps: list[dict[str, Any]]) -> ss.Pipeline:
    return ss.Pipeline(
        name="sales",
        storage="storage",
        source={"format": "files", "path": "in", "options": {"latestFirst": "${env:SHOP_KEY}"}},
        parse={"format": "json", "schema": "product string, store long, price double"},
        steps=steps,
        sink={"format": "parquet", "path": "out"},
        memory="8MB",
        dead_letters={"limit": "5%"},
    ).placed(folder)


def shown(folder: Path, spark: SparkSession, *steps: dict[str, Any]) -> str:
    """Return what a dry run says; nothing may be started."""
    before = sorted(folder.iterdir())
    text = dry_run(a_pipeline(folder, list(steps)), spark=spark)
    assert not spark.streams.active
    assert sorted(folder.iterdir()) == before  # neither storage nor sink
    return text


def test_parts_memory_columns_and_plan_are_shown(
    folder: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHOP_KEY", "true")
    text = shown(
        folder,
        spark,
        {"enrich": {"relation": "products.rel", "on": {"product": "id"}}},
        {"mark_duplicates": {"on": ["product"]}},
    )
    assert "source        format files, path in\n" in text
    assert "step 1        enrich\n" in text
    assert "memory        8MB\n" in text
    assert "dead letters  format parquet, path storage/dead-letters, at most 5%" in text
    explained = explain_query(ss.Relation.open(folder / "products.rel"), memory="8MB", cores=2)
    assert f"step 1, enrich with products.rel\n{explained}\n" in text
    assert "  name  string\n" in text
    assert "then, on each micro-batch: mark_duplicates" in text
    assert "MapInArrow" in text.partition("Spark's plan")[2]
    assert "__semistream" not in text.partition("columns\n")[2].partition("Spark's plan")[0]


def test_a_star_is_explained(
    folder: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHOP_KEY", "true")
    relations = {"products.rel": {"on": {"product": "id"}}, "stores.rel": "store"}
    text = shown(
        folder,
        spark,
        {"where": "price > 0"},
        {"enrich_star": {"relations": relations}},
    )
    star = text.partition("step 2, enrich_star\n")[2].partition("\n\n")[0]
    assert star.startswith("pass 1: rows stay in their tasks")
    assert "products: " in star
    assert "stores: " in star


def test_no_secret_is_shown(
    folder: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHOP_KEY", KEY)
    text = shown(folder, spark, {"add_columns": {"note": f"'{KEY}'"}})
    assert KEY not in text
    assert "***" in text
