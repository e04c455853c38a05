"""`enrich` on streams: every row exactly once, through restarts, with its telemetry."""

import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.streaming import StreamingQuery

import semistream as ss
from semistream.spark.metrics import metric_names
from semistream.testing import nested_loop_join, same_rows
from tests.spark.pipelines import (
    FILES,
    PATIENCE_SECONDS,
    ROWS_PER_FILE,
    Pipeline,
    observed,
    pausing,
    total,
)

MEMORY_BYTES = 600_000


@pytest.fixture(scope="module")
def relation(products: pa.Table, tmp_path_factory: pytest.TempPathFactory) -> ss.Relation:
    folder = tmp_path_factory.mktemp("products") / "products.rel"
    return ss.build_relation(products, folder, key="k", partitions=2, page_size=256)


def wait_for(condition: Callable[[], bool], query: StreamingQuery) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        assert query.isActive, query.exception()
        assert time.monotonic() < deadline, "nothing happened"
        time.sleep(0.05)


@pytest.mark.parametrize(("how", "algorithm"), [("left", "meshjoin"), ("anti", "resident")])
def test_a_stream_is_joined_as_a_batch_is(
    pipeline: Pipeline, relation: ss.Relation, products: pa.Table, how: str, algorithm: str
) -> None:
    memory = MEMORY_BYTES if algorithm == "meshjoin" else 10 * MEMORY_BYTES
    query = pipeline.run(
        ss.enrich(pipeline.source(), relation, how=how, algorithm=algorithm, memory=memory)
    )
    expected = pipeline.expected(products, how)
    assert same_rows(pipeline.written(), expected)

    metrics = observed(query, "semistream:products")
    stream = pa.concat_tables(pipeline.arrived)
    missed = pipeline.expected(products, "anti").num_rows
    assert len(metrics) == FILES
    assert all(tuple(m) == metric_names() for m in metrics)
    assert {m["algorithms"] for m in metrics} == {algorithm}
    assert {(m["routing"], m["snapshot"]) for m in metrics} == {("shuffle", relation.snapshot)}
    assert all(m["join_us"] > 0 and m["predicted_us"] is None for m in metrics)
    assert [m["stream_rows"] for m in metrics] == [ROWS_PER_FILE] * FILES
    assert total(metrics, "output_rows") == expected.num_rows
    assert total(metrics, "missed_rows") == missed > 0
    assert total(metrics, "null_key_rows") == stream["k"].null_count > 0
    assert total(metrics, "matched_pairs") == pipeline.expected(products, "inner").num_rows
    assert all(0 < m["memory_bytes_peak"] <= memory for m in metrics)
    assert all(m["pages_scanned"] > 0 and m["bytes_read"] > 0 for m in metrics)


def test_a_restart_goes_on_where_the_query_ended(
    pipeline: Pipeline, relation: ss.Relation, products: pa.Table
) -> None:
    first = pipeline.run(ss.enrich(pipeline.source(), relation))
    assert total(observed(first, "semistream:products"), "stream_rows") == FILES * ROWS_PER_FILE
    pipeline.arrive(range(FILES, FILES + 1))
    second = pipeline.run(ss.enrich(pipeline.source(), relation))
    assert total(observed(second, "semistream:products"), "stream_rows") == ROWS_PER_FILE
    assert same_rows(pipeline.written(), pipeline.expected(products))


def test_a_crash_in_a_micro_batch_loses_and_doubles_nothing(
    pipeline: Pipeline, relation: ss.Relation, products: pa.Table, tmp_path: Path
) -> None:
    """The second batch fails after the join, once some of its rows have been written."""
    repaired = tmp_path / "repaired"
    poison = ROWS_PER_FILE + 17

    def crash(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield batch
            if poison in batch["q"].to_pylist() and not repaired.exists():
                raise RuntimeError("a crash in the middle")

    enriched = ss.enrich(pipeline.source(), relation)
    query = pipeline.start(enriched.mapInArrow(crash, enriched.schema))
    with pytest.raises(PySparkException, match="a crash in the middle"):
        query.awaitTermination(PATIENCE_SECONDS)
    assert set(pipeline.written()["q"].to_pylist()) == set(range(ROWS_PER_FILE))
    repaired.touch()
    pipeline.run(enriched.mapInArrow(crash, enriched.schema))
    assert same_rows(pipeline.written(), pipeline.expected(products))


def test_a_stop_in_a_micro_batch_loses_and_doubles_nothing(
    pipeline: Pipeline, relation: ss.Relation, products: pa.Table, tmp_path: Path
) -> None:
    reached, go_on = tmp_path / "reached", tmp_path / "go_on"
    middle = ROWS_PER_FILE + 17

    pause = pausing(middle, reached, go_on)
    enriched = ss.enrich(pipeline.source(), relation)
    query = pipeline.start(enriched.mapInArrow(pause, enriched.schema))
    wait_for(reached.exists, query)
    query.stop()
    assert not query.isActive
    go_on.touch()
    assert set(pipeline.written()["q"].to_pylist()) == set(range(ROWS_PER_FILE))
    pipeline.run(enriched.mapInArrow(pause, enriched.schema))
    assert same_rows(pipeline.written(), pipeline.expected(products))


def test_a_rebuild_with_other_partitions_needs_a_restart(
    pipeline: Pipeline, products: pa.Table, tmp_path: Path
) -> None:
    path = str(tmp_path / "r")
    ss.build_relation(products, path, key="k", partitions=2)
    enriched = ss.enrich(pipeline.source(), path)
    changed = products.set_column(1, "v", [["new"] * len(products)])
    ss.build_relation(changed, path, key="k", partitions=3)
    with pytest.raises(PySparkException, match=r"number of partitions.*Start the query again"):
        pipeline.run(enriched)
    pipeline.run(ss.enrich(pipeline.source(), path))
    assert same_rows(pipeline.written(), pipeline.expected(changed))


def test_two_relations_report_under_their_own_names(
    pipeline: Pipeline, relation: ss.Relation, products: pa.Table, tmp_path: Path
) -> None:
    numbers = pa.table({"q": pa.array(range(0, 300, 2), pa.int64()), "even": [True] * 150})
    evens = ss.build_relation(numbers, tmp_path / "evens.rel", key="q", partitions=3)
    frame = ss.enrich(ss.enrich(pipeline.source(), relation, name="first"), evens)
    query = pipeline.run(frame)
    once = pipeline.expected(products)
    twice = nested_loop_join(once, numbers, on="q")
    assert same_rows(pipeline.written(), twice)
    assert total(observed(query, "first"), "output_rows") == once.num_rows
    second = observed(query, "semistream:evens")
    assert total(second, "stream_rows") == total(second, "output_rows") == twice.num_rows


def test_inside_foreach_batch(
    pipeline: Pipeline, relation: ss.Relation, products: pa.Table, tmp_path: Path
) -> None:
    seen: list[int] = []

    def write(batch: DataFrame, number: int) -> None:
        seen.append(number)
        ss.enrich(batch, relation).write.mode("overwrite").parquet(f"{tmp_path}/out/n={number}")

    writer = pipeline.source().writeStream.foreachBatch(write)
    writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint"))
    assert writer.trigger(availableNow=True).start().awaitTermination(PATIENCE_SECONDS)
    assert seen == list(range(FILES))
    assert same_rows(pipeline.written().drop_columns(["n"]), pipeline.expected(products))


def test_a_watermark_passes_through_the_join(
    pipeline: Pipeline, relation: ss.Relation, products: pa.Table
) -> None:
    """Spark appends a window once the watermark has passed it, if it finds the watermark."""
    marked = pipeline.source().withWatermark("at", "10 seconds")
    enriched = ss.enrich(marked, relation)
    windows = enriched.groupBy(F.window("at", "1 minute")).agg(
        F.count("*").alias("rows"), F.count("v").alias("found")
    )
    pipeline.run(windows.selectExpr("unix_timestamp(window.start) as start", "rows", "found"))
    expected: dict[int, Counter[str]] = {}
    for row in pipeline.expected(products).to_pylist():
        window = expected.setdefault(int(row["at"].timestamp()) // 60 * 60, Counter())
        window.update(rows=1, found=row["v"] is not None)
    last = (FILES * ROWS_PER_FILE - 1) - 10
    closed: dict[Any, Any] = {s: dict(c) for s, c in expected.items() if s + 60 <= last}
    written = pipeline.written().to_pylist()
    assert {r["start"]: {"rows": r["rows"], "found": r["found"]} for r in written} == closed
    assert len(written) == len(closed) > 3
