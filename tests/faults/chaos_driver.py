"""Run as a program: a query from a folder of files through `enrich` to a folder, until all is read.

Arguments: the folder, and the master. It may be killed at any moment and started again.
"""

import os
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import SparkSession

import semistream as ss
from tests.spark.services import JVM_FOR_SHORT_LIVES

SCHEMA = "k long, q long"
PAUSE_S = 0.3  # of each task, so that there is a middle to be killed in
STRAGGLE_S = 8.0  # where slow tasks are started a second time: more than a usual task takes
RUNNING = "running"


@dataclass(frozen=True)
class Slowly:
    """Lets rows pass, with a pause; notes each attempt of a task in a folder.

    A note is named after the task and its attempt, and has the number of the process in it; while
    the attempt runs its name ends with ``running``.
    """

    attempts: Path
    straggle_s: float  # how much longer the first attempt of one task in two takes

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        task = TaskContext.get()
        assert task is not None
        run, attempt = task.getLocalProperty("spark.jobGroup.id"), task.taskAttemptId()
        name = f"{run}-{task.stageId()}-{task.partitionId()}-{attempt}"
        note = self.attempts / f"{name}.{RUNNING}"
        note.write_text(str(os.getpid()))
        is_straggler = task.attemptNumber() == 0 and task.partitionId() % 2 == 1
        for batch in batches:
            half = batch.num_rows // 2
            yield batch.slice(0, half)
            time.sleep(PAUSE_S + is_straggler * self.straggle_s)
            yield batch.slice(half)
        note.rename(self.attempts / name)


def _is_cluster(master: str) -> bool:
    return master.startswith("local-cluster")


def session(folder: Path, master: str) -> SparkSession:
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    settings = {
        "spark.driver.extraJavaOptions": JVM_FOR_SHORT_LIVES,
        "spark.driver.host": "127.0.0.1",
        "spark.driver.memory": "512m",
        "spark.executor.memory": "512m",
        "spark.local.dir": str(folder / "local"),
        "spark.log.level": "OFF",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.ui.enabled": "false",
    }
    if _is_cluster(master):
        # Executors are processes of their own; slow tasks are started a second time.
        environment = {"PYTHONPATH": os.environ.get("PYTHONPATH", "")}
        settings |= {f"spark.executorEnv.{name}": value for name, value in environment.items()}
        settings |= {
            "spark.speculation": "true",
            "spark.speculation.efficiency.enabled": "false",  # by their time alone
            "spark.speculation.interval": "50ms",
            "spark.speculation.multiplier": "1.1",
            "spark.speculation.quantile": "0.1",
            "spark.speculation.minTaskRuntime": "50ms",
        }
    builder = SparkSession.Builder().master(master).appName("chaos")
    builder = ss.configure_spark(builder, python=sys.executable)
    for key, value in settings.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def main(folder: Path, master: str) -> None:
    spark = session(folder, master)
    reader = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1)
    sales = reader.parquet(str(folder / "in")).repartition(2)
    joined = ss.enrich(sales, str(folder / "r"), on="k", memory="8MB")
    slowly = Slowly(folder / "attempts", STRAGGLE_S if _is_cluster(master) else 0.0)
    writer = joined.mapInArrow(slowly, joined.schema).writeStream.format("parquet")
    writer = writer.option("path", str(folder / "out"))
    writer = writer.option("checkpointLocation", str(folder / "checkpoint"))
    query = writer.trigger(availableNow=True).start()
    (folder / "started").touch()
    query.awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
