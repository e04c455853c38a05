"""A Spark driver that builds a relation from a version of a Delta table, and applies its changes."""

import sys

from pyspark.sql import functions as F  # noqa: N812

import semistream as ss
from tests.services.session import session


def main(jars: str, folder: str) -> None:
    catalog = "org.apache.spark.sql.delta.catalog.DeltaCatalog"
    extension = "io.delta.sql.DeltaSparkSessionExtension"
    more = {"spark.sql.extensions": extension, "spark.sql.catalog.spark_catalog": catalog}
    spark = session(jars, folder, **more)
    where = f"{folder}/table"
    spark.sql(
        f"CREATE TABLE delta.`{where}` (k BIGINT, v STRING) USING delta "
        "TBLPROPERTIES (delta.enableChangeDataFeed = true)"
    )  # version 0
    rows = spark.range(100).select(F.col("id").alias("k"), F.concat(F.lit("v"), "id").alias("v"))
    rows.write.format("delta").mode("append").save(where)  # version 1
    spark.sql(f"DELETE FROM delta.`{where}` WHERE k % 10 = 0")
    spark.sql(f"UPDATE delta.`{where}` SET v = 'changed' WHERE k % 10 = 1")
    reader = spark.read.format("delta")
    # By Spark's own reader, on its executors; then the changes by the package deltalake.
    relation = ss.build_relation(
        reader.option("versionAsOf", 1).load(where), f"{folder}/r.rel", key="k", partitions=2
    )
    print(relation.row_count)
    relation = relation.upsert(ss.delta_changes(where, key="k", since=1), deletes="_deleted")
    print(relation.row_count)
    reader.load(where).write.parquet(f"{folder}/expected")
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
