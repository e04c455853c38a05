"""Relations that change while streaming queries run: who reads which snapshot."""

import time
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

import semistream as ss
from semistream.errors import BuildError, ColumnError, SnapshotPrunedError, StaleRelationError
from semistream.relation.pins import PINS, pinned_snapshots
from semistream.testing import nested_loop_join, same_rows
from tests.spark.pipelines import (
    FILES,
    PATIENCE_SECONDS,
    ROWS_PER_FILE,
    Pipeline,
    observed,
    pausing,
)


@pytest.fixture
def relation(products: pa.Table, tmp_path: Path) -> ss.Relation:
    return ss.build_relation(products, tmp_path / "r.rel", key="k", partitions=2, page_size=300)


CHANGES = pa.table({"k": [3, 4, 140, 7], "v": ["new", "new", "first", None]})


def changed(products: pa.Table) -> pa.Table:
    """Return the rows of R after `CHANGES`."""
    rows = products.to_pylist()
    keys = set(CHANGES["k"].to_pylist())
    kept = [row for row in rows if row["k"] not in keys]
    return pa.Table.from_pylist([*kept, *CHANGES.to_pylist()], products.schema)


def start(pipeline: Pipeline, frame: DataFrame) -> StreamingQuery:
    """Start a query that goes on until it is stopped."""
    writer = frame.writeStream.format("parquet").option("path", str(pipeline.folder / "out"))
    return writer.option("checkpointLocation", str(pipeline.folder / "checkpoint")).start()


def wait_for(happened: Callable[[], bool], query: StreamingQuery) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not happened():
        assert query.isActive or query.exception() is None, query.exception()
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_the_executors_compact(
    spark: SparkSession, relation: ss.Relation, products: pa.Table
) -> None:
    upserted = relation.upsert(CHANGES)
    compacted = upserted.compact(spark=spark)
    assert compacted.history()[-1].origin.operation == "compact"
    assert not any(info.delta for info in compacted.manifest.partitions)
    assert compacted.verify()
    stream = pa.table({"k": [*range(160), None]})
    joined = pa.Table.from_batches(ss.join(stream, compacted, on="k", memory="1MB"))
    assert same_rows(joined, nested_loop_join(stream, changed(products), on="k"))
    assert compacted.compact(spark=spark).snapshot == compacted.snapshot, "nothing to do"


def test_the_executors_apply_changes(
    spark: SparkSession, relation: ss.Relation, products: pa.Table
) -> None:
    rows = [(3, "new", False), (4, "new", False), (140, "first", False), (7, None, False)]
    rows += [(9, None, True), (None, "no key", False)]
    frame = spark.createDataFrame(rows, "k long, v string, gone boolean")
    new = relation.upsert(frame.select("gone", "v", "k"), deletes="gone")
    expected = changed(products).filter(pa.compute.field("k") != 9)
    assert new.row_count == len(expected)
    assert new.manifest.null_keys_dropped == 1
    origin = new.history()[-1].origin
    assert (origin.operation, origin.parent) == ("upsert", relation.snapshot)
    assert origin.rows_changed == 3
    stream = pa.table({"k": list(range(150)) * 2})
    joined = pa.Table.from_batches(ss.join(stream, new, memory="3MB"))
    assert same_rows(joined, nested_loop_join(stream, expected, on="k"))
    assert new.verify()


def test_the_executors_refresh(spark: SparkSession, relation: ss.Relation) -> None:
    new = relation.refresh(spark.createDataFrame([(1, "a", 2)], "k long, v string, more int"))
    assert (new.row_count, new.partition_count) == (1, 2)
    assert new.schema.names == ["k", "v", "more"]
    assert new.history()[-1].origin.operation == "refresh"


def test_changes_with_other_columns(spark: SparkSession, relation: ss.Relation) -> None:
    frame = spark.createDataFrame([(1, 2)], "k long, v int")
    with pytest.raises(ColumnError, match="'v' is int32 where the relation has string"):
        relation.upsert(frame)
    with pytest.raises(BuildError, match="foreachBatch"):
        relation.upsert(spark.readStream.format("rate").load())
    assert relation.snapshots() == [relation.snapshot]


def test_a_running_query_takes_a_new_snapshot_up(
    pipeline: Pipeline, relation: ss.Relation, products: pa.Table
) -> None:
    query = start(pipeline, ss.enrich(pipeline.source(), relation))
    query.processAllAvailable()
    before = pipeline.expected(products)
    new = relation.upsert(CHANGES)
    pipeline.arrived = []
    pipeline.arrive(range(FILES, FILES + 1))
    query.processAllAvailable()
    assert same_rows(
        pipeline.written(), pa.concat_tables([before, pipeline.expected(changed(products))])
    )
    seen = observed(query, "semistream:r")
    assert [metrics["snapshot"] for metrics in seen] == [relation.snapshot] * FILES + [new.snapshot]
    assert all(0 <= metrics["relation_age_s"] < 86_400 for metrics in seen)
    # The query only holds what it may have to repeat. (Its workers hold what they have just read,
    # for a minute.)
    kept = new.prune(grace=0).kept
    assert str(query.id) in kept[relation.snapshot]
    pipeline.arrive(range(FILES + 1, FILES + 3))
    query.processAllAvailable()
    query.stop()
    assert pinned_snapshots(relation.store, time.time()) == {new.snapshot: str(query.id)}
    assert same_rows(
        pipeline.written(), pa.concat_tables([before, pipeline.expected(changed(products))])
    )


def test_a_repeated_micro_batch_reads_what_it_first_read(
    pipeline: Pipeline, relation: ss.Relation, products: pa.Table, tmp_path: Path
) -> None:
    reached, go_on = tmp_path / "reached", tmp_path / "go_on"
    middle = ROWS_PER_FILE + 17

    pause = pausing(middle, reached, go_on)
    enriched = ss.enrich(pipeline.source(), relation)
    query = pipeline.start(enriched.mapInArrow(pause, enriched.schema))
    wait_for(reached.exists, query)  # the second micro-batch has begun
    query.stop()
    go_on.touch()
    relation.upsert(CHANGES)
    again = ss.enrich(pipeline.source(), relation.location)  # as after a restart
    pipeline.run(again.mapInArrow(pause, enriched.schema))
    tables, old, new = pipeline.arrived, products, changed(products)
    expected = [
        nested_loop_join(table, rows, on="k")
        for table, rows in zip(tables, (old, old, new), strict=True)
    ]
    assert same_rows(pipeline.written(), pa.concat_tables(expected))


def test_a_named_snapshot_is_kept(
    pipeline: Pipeline, relation: ss.Relation, products: pa.Table
) -> None:
    relation.upsert(CHANGES)
    old = ss.Relation.open(relation.location, relation.snapshot)
    pipeline.run(ss.enrich(pipeline.source(), old))
    assert same_rows(pipeline.written(), pipeline.expected(products))
    assert not (Path(relation.location) / PINS).exists()


def test_a_snapshot_that_does_not_fit_the_plan(
    pipeline: Pipeline, relation: ss.Relation, products: pa.Table
) -> None:
    enriched = ss.enrich(pipeline.source(), relation)
    relation.refresh(products.rename_columns(["k", "w"]))
    query = pipeline.start(enriched)
    with pytest.raises(PySparkException, match=r"no column 'v'.*Start the query again"):
        query.awaitTermination(PATIENCE_SECONDS)


def test_a_query_with_an_old_relation_stops_if_asked_to(
    pipeline: Pipeline, relation: ss.Relation, products: pa.Table
) -> None:
    time.sleep(0.3)
    enriched = ss.enrich(pipeline.source(), relation, max_staleness=0.2, on_stale="stop")
    with pytest.raises(PySparkException, match=StaleRelationError.__name__):
        pipeline.start(enriched).awaitTermination(PATIENCE_SECONDS)
    pipeline.run(ss.enrich(pipeline.source(), relation, max_staleness=0.2))  # a warning only
    assert same_rows(pipeline.written(), pipeline.expected(products))


def test_a_pinned_snapshot_that_is_gone(
    pipeline: Pipeline, relation: ss.Relation, tmp_path: Path
) -> None:
    """A pin is a promise: if its snapshot is gone, the query says so instead of reading another."""
    query = pipeline.run(ss.enrich(pipeline.source(), relation))
    pin = tmp_path / "r.rel" / PINS / str(query.id)
    assert len(list(pin.iterdir())) == FILES
    for file in pin.iterdir():
        file.write_text("20200101T000000000000-00000000")
    pipeline.arrive(range(FILES, FILES + 1))
    (pin / f"{FILES:012d}").write_text("20200101T000000000000-00000000")
    again = pipeline.start(ss.enrich(pipeline.source(), relation))
    with pytest.raises(PySparkException, match=SnapshotPrunedError.__name__):
        again.awaitTermination(PATIENCE_SECONDS)
