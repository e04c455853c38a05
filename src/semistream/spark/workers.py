"""Spark's Python workers: which Python they run, and whether semistream can be imported there.

A driver that is started with ``venv/bin/python job.py`` runs the Python of the virtual environment,
but its workers run the first ``python3`` on the path, unless ``PYSPARK_PYTHON`` says otherwise. The
import would fail deep inside a task. `configure_spark` sets it, and `check_workers` finds out with
one small job before the first join or build of an application.
"""

import json
import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any, TypeVar

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.version import __version__ as pyspark_version

from semistream.errors import OptionError, WorkerError, did_you_mean
from semistream.extras import needs_extra
from semistream.version import __version__

_PYTHON = "spark.pyspark.python"
# Where kernels and cost factors are stored, if the driver was told: for the executors as well.
_VARIABLES = ("NUMBA_CACHE_DIR", "SEMISTREAM_CACHE")
_ADDED = "spark.jars.packages"
# Coordinates of what `uses` names. Delta has versions of its own; 4.4.0 is built for Spark 4.0, 4.1
# and 4.2, and 4.2 is tested.
_PACKAGES = {
    "kafka": "org.apache.spark:spark-sql-kafka-0-10_2.13:{spark}",
    "avro": "org.apache.spark:spark-avro_2.13:{spark}",
    "delta": "io.delta:delta-spark_{minor}_2.13:4.4.0",
}
# Tables of Pandas and Spark become each other through Arrow, as rows of a join do anyway.
_ARROW = "spark.sql.execution.arrow.pyspark.enabled"
_DELTA = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
}
_Builder = TypeVar("_Builder", bound=Any)  # classic or Connect
# What Spark says if a worker does not start: the program, its output, or another version of Python.
_NO_START = re.compile(
    r"Cannot run program .*|(?<=Error from python worker:\n).*|Python in worker has [^,\n]*"
)
_checked: set[str] = set()  # the ids of the applications whose workers can run semistream


def configure_spark(
    builder: _Builder, *, python: str | None = None, uses: Sequence[str] = ()
) -> _Builder:
    """Return the builder of a session whose Python workers can run semistream.

    The workers run `python`; without it what ``spark.pyspark.python`` or ``PYSPARK_PYTHON`` name
    already; without these the interpreter that runs this driver, which is right if the executors
    are on this machine, or have the same environment at the same path. ``NUMBA_CACHE_DIR`` and
    ``SEMISTREAM_CACHE`` are passed to the executors if they are set. Pandas tables go through Arrow
    (``spark.sql.execution.arrow.pyspark.enabled``) unless that is set already. `uses` names what
    the session needs a package for: ``kafka``, ``avro``, ``delta``; Spark fetches those of its own
    version, unless ``spark.jars`` or ``spark.jars.packages`` name them already. Call it before the
    session is made. The server of a Spark Connect session has its own settings; nothing is changed
    then.

    ::

        spark = ss.configure_spark(SparkSession.builder.appName("sales")).getOrCreate()
    """
    given = getattr(builder, "_options", {})
    if "spark.remote" in given or "SPARK_REMOTE" in os.environ:
        return builder
    python = python or given.get(_PYTHON) or os.environ.get("PYSPARK_PYTHON") or sys.executable
    # A driver that was not started by spark-submit reads the variable, spark-submit the setting.
    os.environ["PYSPARK_PYTHON"] = python
    builder = builder.config(_PYTHON, python).config(_ARROW, given.get(_ARROW, "true"))
    for name in _VARIABLES:
        if name in os.environ:
            builder = builder.config(f"spark.executorEnv.{name}", os.environ[name])
    return _with_packages(builder, given, uses)


def _with_packages(builder: _Builder, given: Mapping[str, str], uses: Sequence[str]) -> _Builder:
    """Return the builder with the packages that are not named yet."""
    unknown = [name for name in uses if name not in _PACKAGES]
    if unknown:
        raise OptionError(
            f"uses must name {', '.join(_PACKAGES)}; got {unknown[0]!r}."
            f"{did_you_mean(unknown[0], _PACKAGES)}"
        )
    named = f"{given.get('spark.jars', '')},{given.get(_ADDED, '')}"
    minor = ".".join(pyspark_version.split(".")[:2])
    missing = [
        _PACKAGES[name].format(spark=pyspark_version, minor=minor)
        for name in uses
        if _PACKAGES[name].split(":")[1].partition("_")[0] not in named
    ]
    if missing:
        before = [given[_ADDED]] if given.get(_ADDED) else []
        builder = builder.config(_ADDED, ",".join([*before, *missing]))
    if "delta" in uses:
        for key, value in _DELTA.items():
            builder = builder.config(key, given.get(key, value))
    return builder


def check_workers(session: SparkSession) -> None:
    """Raise `WorkerError` unless a Python worker can import this version of semistream.

    Runs one task, once for each application of Spark; later calls cost nothing.
    """
    with needs_extra("spark", "a join or a build on Spark"):
        import_module("pandas")  # Spark refuses to run mapInArrow without it
    application = session.conf.get("spark.app.id", "") or ""
    if application in _checked:
        return
    problem = _problem(session)
    if problem is not None:
        raise WorkerError(
            f"Spark's Python workers cannot run semistream: {problem}. On one machine, make the "
            "session with semistream.configure_spark(SparkSession.builder), or set PYSPARK_PYTHON="
            f"{sys.executable} before it starts. On a cluster, install semistream {__version__} "
            "for the workers' Python (cluster libraries), or ship an environment with --archives "
            "and set PYSPARK_PYTHON to the python in it"
        )
    _checked.add(application)


def _problem(session: SparkSession) -> str | None:
    """Return what is wrong with the workers, or None."""
    probe = F.udf(_probe(), "string", useArrow=False)
    try:
        row = session.range(0, 1, 1, 1).select(probe("id").alias("answer")).first()
    except (PySparkException, Py4JJavaError) as error:
        return _reason(str(error))
    assert row is not None, "a range of one has a row"
    answer = json.loads(row.answer)
    if answer["problem"] is not None:
        return f"{answer['problem']} in {answer['python']}"
    if answer["version"] != __version__:
        return f"{answer['python']} has semistream {answer['version']}, the driver {__version__}"
    return None


def _probe() -> Callable[[int], str]:
    """Return a function that says in JSON what a worker can import.

    It is defined here, inside, so that Spark sends its code: a worker could not import it.
    """

    def probe(_: int) -> str:
        import json
        import sys
        from importlib import import_module

        version = problem = None
        try:
            for name in ("pyarrow", "pandas"):  # Spark itself needs them
                import_module(name)
            version = import_module("semistream").__version__
        except ImportError as error:
            problem = str(error)
        return json.dumps({"python": sys.executable, "version": version, "problem": problem})

    return probe


def _reason(text: str) -> str:
    """Return the line of Spark's message that says why a worker could not even start."""
    found = _NO_START.search(text)
    return (found[0] if found else text.rstrip().rpartition("\n")[2]).strip(" .")
