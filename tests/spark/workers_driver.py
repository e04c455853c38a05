"""Run by test_workers.py: sessions with one Python for the workers after the other. Prints JSON.

Arguments: a folder to work in, a Python without semistream, one with another version of it. The
folder of the package is in SOURCES, not in PYTHONPATH, which the workers would inherit.
"""

import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession

sys.path.insert(0, os.environ["SOURCES"])
import semistream as ss
from semistream.errors import SemistreamError


def session(folder: Path) -> Any:
    builder = SparkSession.Builder().master("local[1]").config("spark.ui.enabled", "false")
    return builder.config("spark.sql.warehouse.dir", str(folder / "warehouse"))


def outcome(run: Callable[[], object]) -> str:
    try:
        return str(run())
    except SemistreamError as error:
        return f"{type(error).__name__}: {error}"


def outcomes(spark: SparkSession, relation: ss.Relation, folder: Path) -> dict[str, str]:
    stream = spark.range(10).toDF("k")
    return {
        "enrich": outcome(lambda: ss.enrich(stream, relation).count()),
        "build": outcome(lambda: ss.build_relation(stream, folder / "built", key="k").row_count),
    }


def main(folder: Path, bare: str, other: str) -> None:
    relation = ss.build_relation(pa.table({"k": range(5)}), folder / "r", key="k", partitions=2)
    found: dict[str, Any] = {}
    for name, python in {"bare": bare, "other": other, "missing": "/no/python"}.items():
        os.environ["PYSPARK_PYTHON"] = python
        spark = session(folder).getOrCreate()
        found[name] = outcomes(spark, relation, folder)
        spark.stop()
    del os.environ["PYSPARK_PYTHON"]
    os.environ["SEMISTREAM_CACHE"] = str(folder / "cache")
    builder = session(folder).config("spark.executorEnv.PYTHONPATH", os.environ["SOURCES"])
    spark = ss.configure_spark(builder).getOrCreate()
    found["configured"] = outcomes(spark, relation, folder)
    found["same_builder"] = builder._options == ss.configure_spark(builder)._options
    found["python"] = spark.conf.get("spark.pyspark.python")
    found["cache"] = spark.conf.get("spark.executorEnv.SEMISTREAM_CACHE")
    tracker = spark.sparkContext.statusTracker()
    before = len(tracker.getJobIdsForGroup())
    began = time.perf_counter()
    ss.enrich(spark.range(10).toDF("k"), relation)
    found["later"] = {
        "jobs": len(tracker.getJobIdsForGroup()) - before,
        "seconds": time.perf_counter() - began,
    }
    spark.stop()
    print(json.dumps(found))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], sys.argv[3])
