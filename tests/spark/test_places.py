"""A folder that the driver has and the tasks do not see, as a local path on a cluster."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

import semistream as ss
from semistream.errors import RelationNotFoundError

TABLE = pa.table({"k": list(range(50)), "v": ["x"] * 50})
MESSAGE = r"r\.rel' is not on this machine .*every executor needs to see"


def test_enrich_with_a_folder_that_tasks_do_not_see(spark: SparkSession, tmp_path: Path) -> None:
    relation = ss.build_relation(TABLE, tmp_path / "r.rel", key="k", partitions=1)
    joined = ss.enrich(spark.range(9).selectExpr("id as k"), relation, algorithm="meshjoin")
    Path(relation.location).rename(tmp_path / "only-on-the-driver.rel")
    with pytest.raises(PySparkException, match=f"RelationNotFoundError: .*{MESSAGE}"):
        joined.collect()


def test_build_into_a_folder_that_tasks_do_not_see(spark: SparkSession, tmp_path: Path) -> None:
    location = str(tmp_path / "r.rel")

    def without_folder(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        shutil.rmtree(location, ignore_errors=True)
        yield from batches

    source = spark.range(9).mapInArrow(without_folder, "id long")
    with pytest.raises(RelationNotFoundError, match=MESSAGE):
        ss.build_relation(source, location, key="id", partitions=1)
