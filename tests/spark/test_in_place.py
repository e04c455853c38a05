"""`enrich` with a table that stays in a database: tasks read it, each in its own transaction."""

import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.sql import SparkSession

import semistream as ss
from semistream.testing import nested_loop_join, same_rows
from tests.spark.pipelines import FILES, ROWS_PER_FILE, Pipeline, observed

ROWS = pa.table({"k": range(100), "v": [f"v{i}" for i in range(100)]})


@pytest.fixture
def url(tmp_path: Path) -> str:
    with closing(sqlite3.connect(tmp_path / "shop.db")) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("CREATE TABLE products (k INTEGER PRIMARY KEY, v TEXT)")
        rows = zip(*(c.to_pylist() for c in ROWS.columns), strict=True)
        connection.executemany("INSERT INTO products VALUES (?, ?)", list(rows))
        connection.commit()
    return f"sqlite:///{tmp_path}/shop.db"


@pytest.mark.parametrize("routing", ["auto", "shuffle", "local"])
@pytest.mark.parametrize("algorithm", ["auto", "hybridjoin"])
def test_a_batch(spark: SparkSession, url: str, routing: str, algorithm: str) -> None:
    relation = ss.Relation.sql(url, "products", key="k", page_size="1KB")
    sales = pa.table({"k": [None if i % 9 == 0 else i % 150 for i in range(400)], "q": range(400)})
    options = {"memory": "40MB", "routing": routing, "algorithm": algorithm}
    found = ss.enrich(spark.createDataFrame(sales).repartition(2), relation, **options)
    assert same_rows(found.toArrow(), nested_loop_join(sales, ROWS, on="k"))


def test_a_streaming_query_sees_changes_of_the_table(pipeline: Pipeline, url: str) -> None:
    relation = ss.Relation.sql(url, "products", key="k")
    joined = ss.enrich(pipeline.source(), relation, memory="40MB")
    pipeline.run(joined)
    assert same_rows(pipeline.written(), pipeline.expected(ROWS))
    with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as connection:
        connection.execute("UPDATE products SET v = 'new'")
        connection.execute("DELETE FROM products WHERE k < 50")
        connection.commit()
    before = pipeline.written().num_rows
    pipeline.arrive(range(3, 4))
    pipeline.run(joined)
    late = {
        v
        for q, v in zip(*(pipeline.written()[n].to_pylist() for n in ("q", "v")), strict=True)
        if q >= 360
    }
    assert pipeline.written().num_rows == before + 120
    assert late == {None, "new"}


@pytest.mark.parametrize("algorithm", ["auto", "chybridjoin"])
def test_a_running_query_keeps_no_rows_of_before(
    pipeline: Pipeline, url: str, algorithm: str
) -> None:
    """Its front stage stays warm between micro-batches, but not with rows that may have changed."""
    relation = ss.Relation.sql(url, "products", key="k")
    options = {"memory": "100MB", "algorithm": algorithm, "name": "join"}
    joined = ss.enrich(pipeline.source(), relation, **options)
    writer = joined.writeStream.format("parquet").option("path", str(pipeline.folder / "out"))
    query = writer.option("checkpointLocation", str(pipeline.folder / "checkpoint")).start()
    query.processAllAvailable()
    before = pipeline.expected(ROWS)
    with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as connection:
        connection.execute("UPDATE products SET v = 'new'")
        connection.execute("DELETE FROM products WHERE k < 50")
        connection.execute("INSERT INTO products SELECT k + 50, 'more' FROM products")
        connection.commit()
    pipeline.arrived = []
    pipeline.arrive(range(FILES, FILES + 1))
    query.processAllAvailable()
    query.stop()
    now = pa.table({"k": range(50, 150), "v": ["new"] * 50 + ["more"] * 50})
    written = pipeline.written()
    is_late = pc.greater_equal(written["q"], FILES * ROWS_PER_FILE)
    assert same_rows(written.filter(pc.invert(is_late)), before)
    assert same_rows(written.filter(is_late), pipeline.expected(now))
    seen = observed(query, "join")
    assert len({metrics["snapshot"] for metrics in seen}) == len(seen) == FILES + 1
    assert all(metrics["snapshot"] > relation.snapshot for metrics in seen)


def test_rows_that_are_read_in_place_are_not_stale(pipeline: Pipeline, url: str) -> None:
    relation = ss.Relation.sql(url, "products", key="k")
    long_ago = replace(relation.manifest, created_at="2020-01-01T00:00:00+00:00")
    opened = replace(relation, manifest=long_ago)
    options = {"max_staleness": "1h", "on_stale": "stop", "name": "join"}
    query = pipeline.run(ss.enrich(pipeline.source(), opened, memory="40MB", **options))
    assert same_rows(pipeline.written(), pipeline.expected(ROWS))
    assert all(0 <= metrics["relation_age_s"] < 60 for metrics in observed(query, "join"))
