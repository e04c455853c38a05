"""Run by test_cluster.py: a driver on a standalone cluster. Prints what it found as JSON.

Arguments: the master's URL, a folder that all workers can reach.
"""

import json
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

import semistream as ss

PARTITIONS = 4
PLAIN = ("k", "q", "v", "tags[0] as tag")  # lists cannot be counted


def counted(frame: DataFrame) -> Counter[tuple[object, ...]]:
    return Counter(tuple(row) for row in frame.collect())


def with_folder() -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return a step that adds a column: the folder of the executor that ran the task."""

    def step(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pathlib import Path

        # An executor's Python workers run in <work dir>/<application>/<executor>.
        folder = str(Path.cwd())
        for batch in batches:
            folders = pa.array([folder] * batch.num_rows, pa.string())
            yield batch.append_column("folder", folders)

    return step


def failing_once() -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return a step that lets a task fail at its end, the first time that it runs."""

    def step(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        yield from batches
        context = TaskContext.get()
        assert context is not None
        if context.partitionId() == 1 and context.attemptNumber() == 0:
            raise RuntimeError("the first attempt fails")

    return step


def main(master: str, folder: Path) -> None:
    settings = {
        "spark.cores.max": "2",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.memory": "512m",
        "spark.executor.cores": "1",
        "spark.executor.memory": "512m",
        "spark.local.dir": str(folder / "local"),
        "spark.locality.wait": "0s",
        "spark.scheduler.maxRegisteredResourcesWaitingTime": "120s",
        "spark.scheduler.minRegisteredResourcesRatio": "1.0",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }
    builder = SparkSession.Builder().master(master).appName("semistream-cluster")
    for key, value in settings.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    products = spark.range(0, 3000, 1, 4).selectExpr(
        "nullif(id % 1000, 0) as k", "id as v", "array(string(id)) as tags"
    )
    sales = spark.range(0, 2000, 1, 4).selectExpr(
        "if(id % 50 = 0, null, id % 1500) as k", "id as q"
    )
    source = products.mapInArrow(failing_once(), products.schema)
    relation = ss.build_relation(source, folder / "products.rel", key="k", partitions=PARTITIONS)
    joined = ss.enrich(sales, relation, memory="8MB").selectExpr(*PLAIN)
    meshed = ss.enrich(sales, relation, memory="800KB", algorithm="meshjoin").selectExpr(*PLAIN)
    retried = meshed.mapInArrow(failing_once(), meshed.schema)
    expected = counted(sales.join(products, "k", "left").selectExpr(*PLAIN))
    schema = "k long, q long, v long, tag string, folder string"
    rows = joined.mapInArrow(with_folder(), schema).collect()
    answer = {
        "relation_rows": relation.row_count,
        "null_keys": relation.manifest.null_keys_dropped,
        "expected_rows": expected.total(),
        "resident_is_right": Counter(tuple(row)[:-1] for row in rows) == expected,
        "retried_meshjoin_is_right": counted(retried) == expected,
        "executors": sorted({row.folder for row in rows}),
    }
    spark.stop()
    print(json.dumps(answer))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
