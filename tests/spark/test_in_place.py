"""`enrich` with a table that stays in a database: tasks read it, each in its own transaction."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import semistream as ss
from semistream.testing import nested_loop_join, same_rows
from tests.spark.pipelines import Pipeline

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
