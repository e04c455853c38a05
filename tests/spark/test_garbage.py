"""Collections of garbage in Spark's workers leave out the modules that a join has loaded."""

import gc
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import semistream as ss
from semistream.spark import garbage


def left_out(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Return how many objects collections of this worker leave out."""
    for _ in batches:
        yield pa.record_batch({"objects": pa.array([gc.get_freeze_count()], pa.int64())})


def test_from_the_second_task_on(spark: SparkSession, products: pa.Table, tmp_path: Path) -> None:
    relation = ss.build_relation(products, tmp_path / "r.rel", key="k", partitions=1)
    stream = spark.range(150).repartition(1)
    for _ in range(8):  # more than twice as many tasks as there are workers
        joined = ss.enrich(stream, relation, on={"id": "k"}, how="inner", memory="1MB")
        assert joined.count() == 160
    counts = spark.range(16).repartition(8).mapInArrow(left_out, "objects long").collect()
    assert max(row.objects for row in counts) > 50_000


def test_a_process_that_is_no_worker_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[None] = []
    monkeypatch.setattr(gc, "freeze", lambda: calls.append(None))
    for _ in range(3):
        garbage.leave_modules_out()
    assert not calls
