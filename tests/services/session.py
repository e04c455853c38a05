"""The Spark session of the driver programs here."""

from pyspark.sql import SparkSession


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
