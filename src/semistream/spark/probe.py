"""What the Python workers of Spark are: run as a program by ``semistream doctor``.

Arguments: the master, and a path that the workers should see, or nothing. Prints one line of JSON.
The session is made as the README shows, by `configure_spark`, so a wrong ``PYSPARK_PYTHON`` is
found. Tasks must also run where `semistream` is not installed on the workers: they import nothing
of it unless they report that.
"""

import json
import os
import sys
from collections.abc import Callable, Iterator

import pyarrow as pa
import pyspark
from pyspark.sql import SparkSession

from semistream.spark.workers import configure_spark

PACKAGES = ("semistream", "numpy", "numba", "pyarrow", "pandas")
_TASKS = 4  # to reach several executors, if there are


def _reporter(path: str) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return the function of a task, which needs nothing but the standard library and Arrow."""
    packages = PACKAGES

    def report(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import importlib
        import json
        import socket
        import sys
        from pathlib import Path

        import pyarrow

        versions = {}
        for package in packages:
            try:
                versions[package] = str(importlib.import_module(package).__version__)
            except ImportError:
                versions[package] = ""
        found = {
            "host": socket.gethostname(),
            "python": sys.executable,
            "python_version": ".".join(map(str, sys.version_info[:3])),
            "packages": versions,
            "sees_path": Path(path).exists() if path else None,
        }
        for _ in batches:
            pass
        yield pyarrow.record_batch({"found": [json.dumps(found)]})

    return report


def main(master: str, path: str) -> None:
    """Run a task on each of a few workers, and print what they are."""
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1" if master.startswith("local") else "")
    if not os.environ["SPARK_LOCAL_IP"]:
        del os.environ["SPARK_LOCAL_IP"]
    builder = SparkSession.Builder().master(master).appName("semistream doctor")
    for key in ("spark.ui.enabled", "spark.ui.showConsoleProgress"):
        builder = builder.config(key, "false")
    builder = configure_spark(builder.config("spark.log.level", "ERROR"))
    spark = builder.getOrCreate()
    rows = spark.range(0, _TASKS, 1, _TASKS).mapInArrow(_reporter(path), "found string").collect()
    workers = {row.found: json.loads(row.found) for row in rows}
    spark.stop()
    print(json.dumps({"spark": pyspark.__version__, "workers": list(workers.values())}))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else "")
