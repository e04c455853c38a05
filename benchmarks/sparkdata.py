"""The data of the Spark benchmarks: R, and the files of a stream, two for each micro-batch."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from semistream.workload.zipf import zipf_ranks

FILES_PER_BATCH = 2
KEY = "product_id"
TWO = ["surrogate_key", "supplier_id"]
ALL = [*TWO, *(f"a{i}" for i in range(12))]


@dataclass(frozen=True)
class SparkData:
    """Writes R and the micro-batches as Parquet, and reads them back."""

    spark: SparkSession
    folder: Path
    relation_rows: int = 10_000_000
    batch_rows: int = 400_000
    batches: int = 5
    exponent: float = 0.0  # of the stream's keys: 0 is uniform
    columns: int = len(ALL)  # of R besides its key, 8 bytes each

    def write(self) -> None:
        """Write all."""
        self.write_relation()
        self.write_stream()

    def write_relation(self) -> None:
        """Write R, unless it is there."""
        if self.relation_folder.exists():
            return
        payload = [F.xxhash64("id", F.lit(i)).alias(f"a{i}") for i in range(self.columns - 2)]
        self.spark.range(self.relation_rows).select(
            F.col("id").alias(KEY),
            (F.col("id") + 10**9).alias("surrogate_key"),
            (F.col("id") % 1000).alias("supplier_id"),
            *payload,
        ).write.parquet(str(self.relation_folder))

    def write_stream(self) -> None:
        """Write the files of the stream. Frequent keys are spread over R."""
        self._stream.mkdir(parents=True)
        rng = np.random.default_rng(self.batch_rows)
        for i in range(self.batches * FILES_PER_BATCH):
            rows = self.batch_rows // FILES_PER_BATCH
            ranks = zipf_ranks(rng, rows, self.relation_rows, self.exponent) - 1
            keys = ranks * _SPREAD % self.relation_rows
            table = pa.table(
                {
                    KEY: keys,
                    "quantity": rng.integers(0, 10, rows, np.int32),
                    "price": rng.random(rows),
                }
            )
            pq.write_table(table, self._stream / f"{i:05}.parquet")

    def relation(self) -> DataFrame:
        """Return R."""
        return self.spark.read.parquet(str(self.relation_folder))

    def stream(self) -> DataFrame:
        """Return the micro-batches, two files each: a source with a partition per core."""
        reader = self.spark.readStream.schema(self.all_batches().schema)
        reader = reader.option("maxFilesPerTrigger", FILES_PER_BATCH)
        return reader.parquet(str(self._stream))

    def all_batches(self) -> DataFrame:
        """Return the rows of all micro-batches."""
        return self.spark.read.parquet(str(self._stream))

    @property
    def relation_folder(self) -> Path:
        """Where R is written."""
        return self.folder / f"r{self.relation_rows}x{self.columns}"

    @property
    def _stream(self) -> Path:
        return self.folder / f"s{self.relation_rows}-{self.batch_rows}-{self.exponent:g}"


_SPREAD = 7_368_787  # a prime that no size of R here is a multiple of: a permutation of the keys
