"""Delta tables through Spark's own reader and writer, in one session; run by `test_delta.py`."""

import json
import sys
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

import semistream as ss
from semistream.errors import OptionError
from tests.services.session import session

# Delta reads its log in fifty tasks unless it is told that the log is small.
SMALL = {"spark.databricks.delta.snapshotPartitions": "1"}
NAMES = ("k", "v")


class Lake:
    """Some Delta tables, and what is done with them."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.spark, self.folder = spark, folder
        self.products, self.sales = str(folder / "products"), str(folder / "sales")

    def write_products(self) -> None:
        """Version 1 has all rows; then some change, some go, one of these comes again."""
        table = f"delta.`{self.products}`"
        feed = "TBLPROPERTIES (delta.enableChangeDataFeed = true)"
        self.spark.sql(f"CREATE TABLE {table} (k LONG, v STRING) USING delta {feed}")
        self.append(self.products, "SELECT id AS k, concat('v', id) AS v FROM range(60)")
        self.spark.sql(f"UPDATE {table} SET v = 'new' WHERE k < 10")
        self.spark.sql(f"DELETE FROM {table} WHERE k IN (3, 20)")
        self.append(self.products, "VALUES (3L, 'again'), (70L, 'first')")

    def append(self, table: str, query: str) -> None:
        rows = self.spark.sql(query)
        rows.toDF(*NAMES).coalesce(1).write.format("delta").mode("append").save(table)

    def version(self, number: int) -> DataFrame:
        reader = self.spark.read.format("delta").option("versionAsOf", number)
        return reader.load(self.products)

    def change_relation(self) -> dict[str, str]:
        """Build from one version, apply the changes since then; take another version as a whole."""
        place = self.folder / "products.rel"
        built = ss.build_relation(self.version(1), place, key="k", partitions=2)
        feed = self.spark.read.format("delta").option("readChangeFeed", True)
        changes = marked(feed.option("startingVersion", 2).load(self.products))
        row = F.struct(*built.schema.names, "_deleted")
        last = changes.groupBy("k").agg(F.max_by(row, "position").alias("last"))
        upserted = built.upsert(last.select("last.*"), deletes="_deleted")
        refreshed = upserted.refresh(self.version(2))
        return {
            "built": built.snapshot,
            "upserted": upserted.snapshot,
            "refreshed": refreshed.snapshot,
        }

    def maintain_relation(self) -> None:
        place = self.folder / "maintained.rel"
        nothing = pa.table({"k": pa.array([], pa.int64()), "v": pa.array([], pa.string())})
        ss.build_relation(nothing, place, key="k", partitions=2)
        feed = self.spark.readStream.format("delta").option("readChangeFeed", True)
        changes = marked(feed.option("startingVersion", 0).load(self.products))
        ss.maintain(
            changes,
            place,
            checkpoint=self.folder / "maintained",
            format="rows",
            deletes="_deleted",
            order="position",
            trigger="available now",
        ).awaitTermination()

    def enrich(self) -> list[tuple[object, ...]]:
        """From one Delta table to another by Spark's source and sink; return what is there."""
        sales = self.spark.readStream.format("delta").load(self.sales)
        joined = ss.enrich(
            sales.withColumnRenamed("v", "s"), self.folder / "maintained.rel", algorithm="meshjoin"
        )
        writer = joined.writeStream.format("delta").trigger(availableNow=True)
        writer = writer.option("checkpointLocation", str(self.folder / "enriched-checkpoint"))
        writer.start(str(self.folder / "enriched")).awaitTermination()
        return self.rows("enriched")

    def run_pipeline(self) -> list[tuple[object, ...]]:
        """The same as a pipeline."""
        pipeline = ss.Pipeline(
            name="delta",
            storage=str(self.folder / "storage"),
            source={"format": "delta", "path": self.sales},
            relations={"products": str(self.folder / "maintained.rel")},
            steps=[{"select": ["k", "v AS s"]}, {"enrich": {"relation": "products", "on": "k"}}],
            sink={"format": "delta", "path": str(self.folder / "piped")},
            trigger="available now",
        )
        ss.run_pipeline(pipeline, spark=self.spark)
        return self.rows("piped")

    def rows(self, table: str) -> list[tuple[object, ...]]:
        found = self.spark.read.format("delta").load(str(self.folder / table))
        return [tuple(row) for row in found.select("k", "s", "v").collect()]

    def delete_by_vectors(self) -> list[str]:
        """Return what is said of a table that the Python package cannot read."""
        table = f"delta.`{self.products}`"
        vectors = "delta.enableDeletionVectors = true"
        self.spark.sql(f"ALTER TABLE {table} SET TBLPROPERTIES ({vectors})")
        self.spark.sql(f"DELETE FROM {table} WHERE k = 5")
        try:
            ss.build_relation(ss.delta_table(self.products), self.folder / "none.rel", key="k")
        except OptionError as error:
            said = str(error)
        newest = self.spark.read.format("delta").load(self.products)
        relation = ss.build_relation(newest, self.folder / "vectors.rel", key="k", partitions=2)
        return [said, relation.location]


def marked(feed: DataFrame) -> DataFrame:
    """Return the rows that a change feed leaves behind, whether they go, and their order."""
    return (
        feed.where("_change_type != 'update_preimage'")
        .withColumn("_deleted", F.expr("_change_type = 'delete'"))
        .withColumn("position", F.expr("2 * _commit_version + if(_deleted, 0, 1)"))
    )


def main(folder: str) -> None:
    lake = Lake(session(folder, ["delta"], json.dumps(SMALL)), Path(folder))
    lake.write_products()
    done: dict[str, object] = {"snapshots": lake.change_relation()}
    lake.maintain_relation()
    lake.append(lake.sales, "SELECT id AS k, concat('s', id) AS v FROM range(0, 80, 2)")
    done["enriched"], done["piped"] = [lake.enrich()], [lake.run_pipeline()]
    lake.append(lake.sales, "SELECT id AS k, concat('s', id) AS v FROM range(1, 80, 2)")
    lake.spark.sql(f"OPTIMIZE delta.`{lake.sales}`")  # rearranges rows, which do not come again
    done["enriched"].append(lake.enrich())
    done["piped"].append(lake.run_pipeline())
    done["vectors"] = lake.delete_by_vectors()
    print(json.dumps(done))
    lake.spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
