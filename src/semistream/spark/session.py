"""A local Spark session for the demo and the benchmarks: quiet, with its files in one folder."""

import logging
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pyspark.sql import SparkSession

from semistream.spark.workers import configure_spark

_AGAIN_S = 0.05


def local_session(
    name: str, work_dir: Path, *, cores: int = 2, memory: str = "4g", log_level: str = "ERROR"
) -> SparkSession:
    """Start Spark in this process, quiet, with its files below `work_dir`."""
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    builder = SparkSession.Builder().appName(name).master(f"local[{cores}]")
    builder = configure_spark(builder, python=sys.executable)
    settings = {
        "spark.driver.memory": memory,
        "spark.driver.host": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": cores,
        "spark.sql.warehouse.dir": work_dir / "spark-warehouse",
        "spark.local.dir": work_dir / "spark-local",
        "spark.sql.streaming.metricsEnabled": "false",
        "spark.log.level": log_level,
        "spark.driver.extraJavaOptions": f"-Dderby.system.home={work_dir} {_quiet(work_dir)}",
    }
    for key, value in settings.items():
        builder = builder.config(key, str(value))
    return builder.getOrCreate()


@contextmanager
def ended_by_interrupt() -> Iterator[None]:
    """Let Ctrl-C raise nothing but `KeyboardInterrupt` from the block, and print nothing.

    Spark's own way is to cancel all jobs, and then many of its parts report that at length. Python
    ignores what a finalizer raises, and py4j has many of them: then the block is interrupted again.
    """
    is_interrupted = False
    hook = sys.unraisablehook

    def try_again(ignored: "sys.UnraisableHookArgs") -> None:
        if not issubclass(ignored.exc_type, KeyboardInterrupt):
            hook(ignored)
            return
        # Later: an exception here would be ignored as well.
        main = threading.main_thread().ident
        again = threading.Timer(_AGAIN_S, signal.pthread_kill, [main, signal.SIGINT])
        again.daemon = True
        again.start()

    def interrupt(number: int, frame: object) -> None:
        nonlocal is_interrupted
        is_interrupted = True
        logging.disable(logging.CRITICAL)  # py4j logs that its call was interrupted
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGINT, interrupt)
    sys.unraisablehook = try_again
    try:
        yield
    except BaseException:
        if is_interrupted:  # whatever came of it
            raise KeyboardInterrupt from None
        raise
    finally:
        sys.unraisablehook = hook
        signal.signal(signal.SIGINT, before)


@contextmanager
def interrupted_later() -> Iterator[None]:
    """Let Ctrl-C end the block only when it is done.

    PySpark does not stop a JVM that it has just started, if it is interrupted then.
    """
    is_interrupted = False

    def note(number: int, frame: object) -> None:
        nonlocal is_interrupted
        is_interrupted = True

    before = signal.signal(signal.SIGINT, note)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
    if is_interrupted:
        signal.raise_signal(signal.SIGINT)


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
