"""A pipeline whose rows wait for their key: late rows are joined, others become dead letters."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import duckdb
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery

import semistream as ss
from semistream.spark.pipeline import running
from tests.arriving import arriving
from tests.spark.frames import conf
from tests.spark.services import PATIENCE_SECONDS
from tests.spark.test_waiting import PROVIDER, ROCKSDB


def products(keys: int) -> pa.Table:
    return pa.table({"id": range(keys), "name": [f"p{i}" for i in range(keys)]})


def arrive(folder: Path, number: int, keys: range) -> None:
    """One sale of each key, and one line that is no JSON."""
    folder.mkdir(exist_ok=True)
    lines = [f'{{"product_id": {k}, "file": {number}}}\n' for k in keys]
    with arriving(folder / f"{number}.json", number) as unfinished:
        unfinished.write_text("".join([*lines, "{broken\n"]))


def rows_of(folder: Path, columns: str) -> list[tuple[object, ...]]:
    """Return what micro-batches have written to their folders, and committed."""
    if not list(folder.glob("*/*.parquet")):
        return []
    query = f"SELECT {columns} FROM read_parquet('{folder}/*/*.parquet', union_by_name = true)"
    return sorted(duckdb.sql(query).fetchall())


def wait_for(condition: Callable[[], bool], query: StreamingQuery) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        assert query.isActive, query.exception()
        assert time.monotonic() < deadline, f"nothing happened: {query.lastProgress}"
        time.sleep(0.1)


def test_held_rows_of_a_pipeline_are_joined_late_or_become_dead_letters(
    spark: SparkSession, tmp_path: Path
) -> None:
    place, out = tmp_path / "products.rel", tmp_path / "out"
    letters = tmp_path / "storage" / "dead-letters"
    ss.build_relation(products(50), place, key="id", partitions=2)

    def start(grace: str | float) -> StreamingQuery:
        hold = {"on_missing": "hold", "grace": grace, "after_grace": "dead_letters"}
        on = {"relation": "products.rel", "on": {"product_id": "id"}}
        pipeline = ss.Pipeline(
            name="held",
            storage="storage",
            source={"format": "files", "path": "in"},
            parse={"format": "json", "schema": "product_id long, file int"},
            steps=[{"enrich": {**on, **hold}}],
            sink={"format": "parquet", "path": "out"},
            dead_letters={"limit": "100%"},
            memory="4MB",
            trigger="100 milliseconds",
        ).placed(tmp_path)
        return ss.start_pipeline(pipeline, spark=spark)

    def written() -> list[tuple[object, ...]]:
        return rows_of(out, "product_id, file, name")

    expected = [(k, 0, f"p{k}") for k in range(50)]
    arrive(tmp_path / "in", 0, range(60))
    with conf(spark, PROVIDER, ROCKSDB):
        query = start("1h")
        wait_for(lambda: written() == expected, query)  # the others wait
        ss.Relation.open(place).refresh(products(55))
        expected += [(k, 0, f"p{k}") for k in range(50, 55)]
        wait_for(lambda: written() == expected, query)  # late
        query.stop()
        # Keys that never come, with hardly any grace; those from before have theirs.
        arrive(tmp_path / "in", 1, range(54, 64))
        query = start(0.001)
        expected = sorted([*expected, (54, 1, "p54")])
        wait_for(lambda: written() == expected and len(rows_of(letters, "*")) == 11, query)
        ss.Relation.open(place).refresh(products(58))
        expected = sorted([*expected, *((k, 0, f"p{k}") for k in range(55, 58))])
        wait_for(lambda: written() == expected, query)
        query.stop()
    reasons = [reason for (reason,) in rows_of(letters, "reason")]
    assert reasons.count("products.rel has no row with this key") == 9  # 55 to 63 of file 1
    assert sum("not JSON" in str(reason) for reason in reasons) == 2


def test_a_session_of_its_own_keeps_state_in_rocksdb(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[dict[str, str]] = []

    def configured(builder: Any, uses: object) -> Any:
        made.append(dict(builder._options))
        return Mock()

    monkeypatch.setattr(running, "configure_spark", configured)
    hold = {"relation": "r", "on_missing": "hold", "grace": "1min"}
    for steps, own in (([{"enrich": hold}], {}), ([], {}), ([{"enrich": hold}], {PROVIDER: "x"})):
        source, sink = {"format": "rate"}, {"format": "parquet", "path": "p"}
        about = {"source": source, "sink": sink, "steps": steps, "configuration": own}
        pipeline = ss.Pipeline(name="n", storage="s", **about)
        running.pipeline_session(pipeline, pipeline.secrets())
    assert [each.get(PROVIDER) for each in made] == [ROCKSDB, None, "x"]
