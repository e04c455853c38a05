"""The Spark session of driver programs that are run as scripts, and how these are run."""

import json
import os
from collections.abc import Sequence
from pathlib import Path

from pyspark.sql import SparkSession

import semistream as ss
from tests.services.ivy import CACHE, one_at_a_time
from tests.services.missing import missing
from tests.spark.services import environment, run_driver

ROOT = Path(__file__).parents[2]
# Where Spark keeps the packages that it fetches.
FETCHED = {"spark.jars.ivy": str(CACHE / "spark")}


def driver_environment() -> dict[str, str]:
    """Return an environment in which a script finds the modules of the tests."""
    given = os.environ.get("PYTHONPATH")
    return environment(PYTHONPATH=f"{ROOT}{os.pathsep}{given}" if given else str(ROOT))


def run_with_packages(script: Path, *arguments: str) -> str:
    """Run a driver whose Spark fetches packages, and return what it printed."""
    try:
        return run_driver(str(script), *arguments, env=driver_environment())
    except AssertionError as error:
        if "unresolved dependency" not in str(error):
            raise
        missing("Spark with its packages", str(error))


def quiet_settings(folder: str) -> dict[str, str]:
    """Return the settings of a small session that leaves its files in a folder of the test's."""
    return {
        "spark.driver.host": "127.0.0.1",
        "spark.driver.memory": "1g",
        "spark.local.dir": f"{folder}/local",
        "spark.log.level": "ERROR",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.warehouse.dir": f"{folder}/warehouse",
        "spark.ui.enabled": "false",
    }


def session(folder: str, uses: Sequence[str] = (), given: str = "{}") -> SparkSession:
    """Return a session, made as a user makes one; `given` are more settings, in JSON."""
    builder = SparkSession.Builder().master("local[2]").appName("services")
    for key, value in {**quiet_settings(folder), **FETCHED, **json.loads(given)}.items():
        builder = builder.config(key, value)
    with one_at_a_time():
        return ss.configure_spark(builder, uses=uses).getOrCreate()
