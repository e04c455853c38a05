"""Relations from tables that Spark reads through JDBC, in one session; run by `test_jdbc.py`."""

import json
import os
import sys
from typing import Any

from pyspark.sql import DataFrame, SparkSession

import semistream as ss
from tests.services.session import session

DRIVERS = "org.postgresql:postgresql:42.7.7,org.mariadb.jdbc:mariadb-java-client:3.5.3"
PARTS = 4  # ranges of the key that are read at once


def read(spark: SparkSession, url: str, user: str, **options: Any) -> DataFrame:
    reader = spark.read.format("jdbc").option("url", url).option("user", user)
    return reader.options(password=os.environ["PGPASSWORD"], **options).load()


def change(spark: SparkSession, url: str, user: str, place: str) -> dict[str, Any]:
    """Build from ranges of the key; apply what a query says has changed; take all of it anew."""
    ranges = {"partitionColumn": "k", "lowerBound": 0, "upperBound": 100, "numPartitions": PARTS}
    table = read(spark, url, user, dbtable="products", **ranges)
    plan = table._jdf.queryExecution().toString()
    built = ss.build_relation(table.select("k", "v"), place, key="k", partitions=2)
    changes = read(spark, url, user, query="SELECT k, v, gone FROM changes WHERE updated > 7")
    changes = changes.withColumn("gone", changes["gone"] == 1)
    upserted = built.upsert(changes, deletes="gone")
    refreshed = upserted.refresh(table.select("k", "v"))
    snapshots = [relation.snapshot for relation in (built, upserted, refreshed)]
    return {"parts": table.rdd.getNumPartitions(), "plan": plan, "snapshots": snapshots}


if __name__ == "__main__":
    folder, asked = sys.argv[1], json.loads(sys.argv[2])
    spark = session(folder, given=json.dumps({"spark.jars.packages": DRIVERS}))
    print(json.dumps({kind: change(spark, *about) for kind, about in asked.items()}))
    spark.stop()
