"""A local Spark session for the demo and the benchmarks: quiet, with its files in one folder."""

import os
import sys
from pathlib import Path

from pyspark.sql import SparkSession


def local_session(name: str, work_dir: Path, *, cores: int = 2, memory: str = "4g") -> SparkSession:
    """Start Spark in this process, quiet, with its files below `work_dir`."""
    # Workers must run this interpreter, not the first "python3" on the path.
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    builder = SparkSession.Builder().appName(name).master(f"local[{cores}]")
    settings = {
        "spark.driver.memory": memory,
        "spark.driver.host": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": cores,
        "spark.sql.warehouse.dir": work_dir / "spark-warehouse",
        "spark.local.dir": work_dir / "spark-local",
        "spark.sql.streaming.metricsEnabled": "false",
        "spark.log.level": "ERROR",
        "spark.driver.extraJavaOptions": f"-Dderby.system.home={work_dir} {_quiet(work_dir)}",
    }
    for key, value in settings.items():
        builder = builder.config(key, str(value))
    return builder.getOrCreate()


def _quiet(work_dir: Path) -> str:
    """Return the option that keeps the JVM from logging its own start."""
    settings = work_dir / "log4j2.properties"
    settings.write_text(
        "rootLogger.level = error\n"
        "rootLogger.appenderRef.stderr.ref = stderr\n"
        "appender.stderr.type = Console\n"
        "appender.stderr.name = stderr\n"
        "appender.stderr.target = SYSTEM_ERR\n"
        "appender.stderr.layout.type = PatternLayout\n"
        "appender.stderr.layout.pattern = %d{HH:mm:ss} %p %c{1}: %m%n%ex\n"
    )
    return f"-Dlog4j2.configurationFile=file:{settings}"
