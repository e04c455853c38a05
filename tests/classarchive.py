"""Spark's classes in an archive, from which the tests' JVMs load them: they start twice as fast.

Loading and verifying classes is half of the nine seconds of processor time that a driver takes to
its first query, and a run of all tests starts dozens of them. The archive is made once for a
virtual environment, by a JVM that loads what a small query needs, while the first tests run. A JVM
that starts before it is there, or that has other classes, does without it.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pyspark
from pyspark.sql import SparkSession

ARCHIVE = Path(sys.prefix) / f"spark-{pyspark.__version__}.jsa"
# Without its log a JVM does not say that it cannot use the archive.
OPTIONS = f"-XX:SharedArchiveFile={ARCHIVE} -Xlog:disable"


def begin() -> "subprocess.Popen[bytes] | None":
    """Start a process that makes the archive, unless it is there."""
    if ARCHIVE.exists():
        return None
    command = [sys.executable, "-m", "tests.classarchive"]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    # In a group of its own, so that the JVM can be ended as well.
    return subprocess.Popen(command, cwd=Path(__file__).parents[1], start_new_session=True, **quiet)


def main() -> None:
    """Run a small query in a JVM that archives the classes it has loaded when it ends."""
    made = Path(tempfile.mkdtemp()) / ARCHIVE.name  # the run's own folder, which is removed
    os.environ["JAVA_TOOL_OPTIONS"] = f"-XX:ArchiveClassesAtExit={made}"
    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.Builder().master("local[2]").config("spark.ui.enabled", "false")
    spark = builder.config("spark.driver.host", "127.0.0.1").getOrCreate()
    rows = spark.range(100).repartition(2).selectExpr("id", "cast(id as string) as text")
    rows.mapInArrow(lambda batches: batches, rows.schema).groupBy("text").count().collect()
    gateway = spark.sparkContext._gateway
    spark.stop()
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait()
    unfinished = ARCHIVE.with_suffix(".tmp")  # on the same disk
    shutil.move(made, unfinished)
    unfinished.replace(ARCHIVE)


if __name__ == "__main__":
    main()
