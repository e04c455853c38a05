"""One Spark session for all tests in this folder."""

import os
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark import SparkContext
from pyspark.sql import SparkSession

from tests.spark.pipelines import Pipeline
from tests.spark.services import JVM_FOR_SHORT_LIVES, PATIENCE_SECONDS


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    folder = tmp_path_factory.mktemp("spark")
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    settings = {
        "spark.driver.extraJavaOptions": JVM_FOR_SHORT_LIVES,
        "spark.driver.host": "127.0.0.1",
        "spark.driver.memory": "1g",
        "spark.local.dir": str(folder / "local"),
        "spark.log.level": "ERROR",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }
    builder = SparkSession.Builder().master("local[2]").appName("semistream-tests")
    for key, value in settings.items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    yield session
    session.stop()
    _stop_jvm()


def _stop_jvm() -> None:
    """Wait until the JVM has ended, which removes its temporary files only then."""
    gateway, SparkContext._gateway = SparkContext._gateway, None
    assert gateway is not None
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait(PATIENCE_SECONDS)


@pytest.fixture
def pipeline(spark: SparkSession, tmp_path: Path) -> Pipeline:
    return Pipeline(spark, tmp_path)


@pytest.fixture(scope="module")
def products() -> pa.Table:
    return pa.table({"k": [i % 100 for i in range(160)], "v": [f"v{i}" for i in range(160)]})
