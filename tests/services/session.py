"""The Spark session of driver programs that are run as scripts, and the environment of these."""

import os
from pathlib import Path

from pyspark.sql import SparkSession

from tests.spark.services import environment

ROOT = Path(__file__).parents[2]


def driver_environment() -> dict[str, str]:
    """Return an environment in which a script finds the modules of the tests."""
    given = os.environ.get("PYTHONPATH")
    return environment(PYTHONPATH=f"{ROOT}{os.pathsep}{given}" if given else str(ROOT))


def session(jars: str, folder: str, **more: str) -> SparkSession:
    """Return a session with some jars, which leaves its files in a folder of the test's."""
    settings = {
        "spark.jars": jars,
        "spark.driver.host": "127.0.0.1",
        "spark.driver.memory": "1g",
        "spark.local.dir": f"{folder}/local",
        "spark.log.level": "ERROR",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.warehouse.dir": f"{folder}/warehouse",
        "spark.ui.enabled": "false",
        **more,
    }
    builder = SparkSession.Builder().master("local[2]").appName("services")
    for key, value in settings.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()
