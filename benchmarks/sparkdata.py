"""The data of the Spark benchmarks: R of 10M rows × 120 B and micro-batches of 400k rows."""

from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

FILES_PER_BATCH = 2


@dataclass(frozen=True)
class SparkData:
    """Writes R and the micro-batches as Parquet, and reads them back."""

    spark: SparkSession
    folder: Path
    relation_rows: int = 10_000_000
    batch_rows: int = 400_000
    batches: int = 5

    def write(self) -> None:
        payload = [F.xxhash64("id", F.lit(i)).alias(f"a{i}") for i in range(12)]
        self.spark.range(self.relation_rows).select(
            F.col("id").alias("product_id"),
            (F.col("id") + 10**9).alias("surrogate_key"),
            (F.col("id") % 1000).alias("supplier_id"),
            *payload,
        ).write.parquet(str(self.folder / "r"))
        for i in range(self.batches):
            self.spark.range(self.batch_rows, numPartitions=FILES_PER_BATCH).select(
                F.floor(F.rand(i) * self.relation_rows).alias("product_id"),
                (F.rand(100 + i) * 10).cast("int").alias("quantity"),
                F.rand(200 + i).alias("price"),
            ).write.mode("append").parquet(str(self.folder / "s"))

    def relation(self) -> DataFrame:
        return self.spark.read.parquet(str(self.folder / "r"))

    def stream(self) -> DataFrame:
        """Return the micro-batches, two files each: a source with a partition per core."""
        folder = str(self.folder / "s")
        schema = self.spark.read.parquet(folder).schema
        reader = self.spark.readStream.schema(schema)
        return reader.option("maxFilesPerTrigger", FILES_PER_BATCH).parquet(folder)

    def all_batches(self) -> DataFrame:
        return self.spark.read.parquet(str(self.folder / "s"))
