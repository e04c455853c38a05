"""Rows without a match wait for their key: never lost, never twice, through restarts; oracles."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

import semistream as ss
from semistream.errors import OptionError
from semistream.testing import nested_loop_join, same_rows
from tests.spark.frames import conf, from_arrow
from tests.spark.pipelines import FILES, PATIENCE_SECONDS, SCHEMA, Pipeline

PROVIDER = "spark.sql.streaming.stateStore.providerClass"
_STATE = "org.apache.spark.sql.execution.streaming.state"
USUAL_PROVIDER = f"{_STATE}.HDFSBackedStateStoreProvider"
CHANGELOG = "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled"
ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
KNOWN = 100  # keys of the relation at first


@pytest.fixture
def rocksdb(spark: SparkSession) -> Iterator[None]:
    spark.conf.set(CHANGELOG, "true")
    with conf(spark, PROVIDER, ROCKSDB):
        yield
    spark.conf.unset(CHANGELOG)


def start(pipeline: Pipeline, frame: DataFrame) -> StreamingQuery:
    writer = frame.writeStream.format("parquet").option("path", str(pipeline.folder / "out"))
    writer = writer.option("checkpointLocation", str(pipeline.folder / "checkpoint"))
    return writer.trigger(processingTime="100 milliseconds").start()


def wait_for(condition: Callable[[], bool], query: StreamingQuery) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        assert query.isActive, query.exception()
        assert time.monotonic() < deadline, f"nothing happened: {query.lastProgress}"
        time.sleep(0.1)


def held_rows(query: StreamingQuery) -> int | None:
    progress = query.lastProgress
    row = None if progress is None else progress.observedMetrics.get("semistream:products:held")
    return None if row is None else row["held_rows"]


def products(keys: int, mark: str) -> pa.Table:
    return pa.table({"k": range(keys), "v": [f"{mark}{i}" for i in range(keys)]})


def source(pipeline: Pipeline) -> DataFrame:
    """All files that have arrived, in one micro-batch."""
    return pipeline.spark.readStream.schema(SCHEMA).parquet(str(pipeline.folder / "in"))


def joined(stream: pa.Table, table: pa.Table, how: str, what: str) -> pa.Table:
    rows = nested_loop_join(stream, table, on="k", how=how)
    assert rows.num_rows, "each outcome must occur"
    return rows.append_column("what", pa.array([what] * rows.num_rows))


def unmatched(stream: pa.Table, table: pa.Table) -> tuple[pa.Table, pa.Table]:
    """Return the rows that may have a match later, and those that have no key."""
    missed = nested_loop_join(stream, table, on="k", how="anti")
    return missed.filter(missed["k"].is_valid()), missed.filter(missed["k"].is_null())


@pytest.mark.usefixtures("rocksdb")
def test_held_rows_are_joined_late_or_leave_with_nulls_through_restarts(
    pipeline: Pipeline, tmp_path: Path
) -> None:
    first, second = products(KNOWN, "a"), products(KNOWN + 30, "b")
    # Two rows of one key that comes late: a held row that becomes two.
    second = pa.concat_tables([second, pa.table({"k": [129], "v": ["again"]})])
    place = tmp_path / "products.rel"
    ss.build_relation(first, place, key="k", partitions=2)

    def run(grace: str | float) -> StreamingQuery:
        options = {"on_missing": "hold", "grace": grace, "outcome": "what", "memory": "4MB"}
        return start(pipeline, ss.enrich(source(pipeline), str(place), **options))

    def check(query: StreamingQuery, held: int, expected: list[pa.Table]) -> None:
        rows = sum(part.num_rows for part in expected)
        wait_for(lambda: held_rows(query) == held and pipeline.written().num_rows >= rows, query)
        assert same_rows(pipeline.written(), pa.concat_tables(expected))

    early = pa.concat_tables(pipeline.arrived)
    waiting, without_key = unmatched(early, first)
    parts = [
        joined(early, first, "inner", "matched"),
        joined(without_key, first, "left", "missing"),
    ]
    query = run("1h")
    check(query, waiting.num_rows, parts)  # other rows do not wait
    query.stop()

    # More rows come, with hardly any grace; those from before have theirs.
    ss.Relation.open(place).refresh(second)
    pipeline.arrive(range(FILES, FILES + 2))
    rest, _ = unmatched(waiting, second)
    later = pa.concat_tables(pipeline.arrived[FILES:])
    expired, without_key = unmatched(later, second)
    parts += [
        joined(waiting, second, "inner", "late"),
        joined(later, second, "inner", "matched"),
        joined(without_key, second, "left", "missing"),
        joined(expired, second, "left", "expired"),
    ]
    query = run(0.001)
    check(query, rest.num_rows, parts)
    metrics = [p.observedMetrics["semistream:products:held"] for p in query.recentProgress]
    counts = [sum(m[name] or 0 for m in metrics) for name in ("late_rows", "expired_rows")]
    assert counts == [parts[2].num_rows, expired.num_rows]

    # What left is gone for good: the next refresh brings the keys of the others, and no other row.
    third = products(KNOWN + 50, "c")
    ss.Relation.open(place).refresh(third)
    check(query, 0, [*parts, joined(rest, third, "inner", "late")])
    query.stop()


@pytest.mark.usefixtures("rocksdb")
def test_a_micro_batch_that_fails_lets_no_held_row_go_twice(
    pipeline: Pipeline, tmp_path: Path
) -> None:
    """The sink fails after late rows were written once; the micro-batch is run again."""
    first, second = products(KNOWN, "old"), products(160, "new")
    place, repaired = tmp_path / "products.rel", tmp_path / "repaired"
    ss.build_relation(first, place, key="k", partitions=2)

    def crash(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield batch
            late = any(v is not None and v.startswith("new") for v in batch["v"].to_pylist())
            if late and not repaired.exists():
                raise RuntimeError("a crash in the middle")

    def frame() -> DataFrame:
        held = ss.enrich(source(pipeline), str(place), on_missing="hold", grace="1h")
        return held.mapInArrow(crash, held.schema)

    query = start(pipeline, frame())
    wait_for(lambda: bool(held_rows(query)), query)
    ss.Relation.open(place).refresh(second)
    with pytest.raises(Exception, match="a crash in the middle"):
        query.awaitTermination(PATIENCE_SECONDS)
    repaired.touch()
    query = start(pipeline, frame())
    wait_for(lambda: held_rows(query) == 0, query)
    query.stop()
    stream = pa.concat_tables(pipeline.arrived)
    missed = nested_loop_join(stream, first, on="k", how="anti")
    late = nested_loop_join(missed, second, on="k", how="left")
    at_once = nested_loop_join(stream, first, on="k", how="inner")
    assert same_rows(pipeline.written(), pa.concat_tables([at_once, late]))


def test_the_outcome_of_each_row_for_a_side_output(
    spark: SparkSession, pipeline: Pipeline, tmp_path: Path
) -> None:
    """Rows without a match go to another folder, in the same pass, by foreachBatch."""
    table = pa.table({"k": range(KNOWN), "v": [None if i % 3 else "x" for i in range(KNOWN)]})
    relation = ss.build_relation(table, tmp_path / "r", key="k", partitions=2)

    def write(batch: DataFrame, number: int) -> None:
        batch.persist()
        for what in ("matched", "missing"):
            rows = batch.where(f"what = '{what}'").drop("what")
            rows.write.mode("overwrite").parquet(f"{tmp_path}/{what}/n={number}")
        batch.unpersist()

    joined = ss.enrich(pipeline.source(), relation, outcome="what")
    writer = joined.writeStream.foreachBatch(write).trigger(availableNow=True)
    writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint"))
    assert writer.start().awaitTermination(PATIENCE_SECONDS)
    for what, how in (("matched", "inner"), ("missing", "anti")):
        written = spark.read.parquet(f"{tmp_path}/{what}").drop("n").toArrow()
        columns = written.column_names if how == "inner" else written.column_names[:-1]
        assert same_rows(written.select(columns), pipeline.expected(table, how))


def test_what_is_wrong_is_said_at_once(
    spark: SparkSession, pipeline: Pipeline, tmp_path: Path
) -> None:
    relation = ss.build_relation(products(9, "x"), tmp_path / "r", key="k", partitions=2)
    source, batch = pipeline.source(), from_arrow(spark, pipeline.arrived[0])
    wrong = [
        (batch, {"on_missing": "hold", "grace": 1}, "for streams"),
        (source, {"on_missing": "hold"}, "grace='10min'"),
        (source, {"on_missing": "hold", "grace": 1, "how": "inner"}, "'left', not 'inner'"),
        (source, {"on_missing": "hold", "grace": 1}, r"RocksDB for that: spark.conf.set"),
        (source, {"on_missing": "wait"}, "'hold' or left out"),
        (source, {"grace": 1}, "pass on_missing='hold'"),
        (source, {"outcome": "o", "how": "anti"}, "the same outcome"),
        (source, {"outcome": "o", "columns": ["k"]}, "leave 'k' out: the stream has"),
        (source, {"outcome": "o", "columns": ["K"]}, "leave 'k' out: the stream has"),
    ]
    for stream, options, message in wrong:
        # Pipelines of other tests may have set another one in this session.
        with conf(spark, PROVIDER, USUAL_PROVIDER), pytest.raises(OptionError, match=message):
            ss.enrich(stream, relation, **options)  # type: ignore[arg-type]
