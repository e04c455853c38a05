"""A streaming query of files through `enrich`, for tests."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

from semistream.spark.metrics import fields_of
from semistream.testing import nested_loop_join
from tests.arriving import arriving

FILES = 3
ROWS_PER_FILE = 120
SCHEMA = "k long, q int, at timestamp"
PATIENCE_SECONDS = 120


def sales(files: range) -> list[pa.Table]:
    """One table per file: duplicates, nulls, keys that the relation lacks; q numbers the rows."""
    tables = []
    for number in files:
        rng = np.random.default_rng(number)
        keys = rng.integers(0, 150, ROWS_PER_FILE)
        q = np.arange(ROWS_PER_FILE) + number * ROWS_PER_FILE
        columns = {
            "k": pa.array(keys, pa.int64(), mask=rng.random(ROWS_PER_FILE) < 0.1),
            "q": pa.array(q, pa.int32()),
            "at": pa.array(q * 1_000_000, pa.timestamp("us", "UTC")),
        }
        tables.append(pa.table(columns))
    return tables


class Pipeline:
    """A folder that files arrive in, and a query from it through `enrich` to another folder."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.spark = spark
        self.folder = folder
        self.arrived: list[pa.Table] = []
        (folder / "in").mkdir()
        self.arrive(range(FILES))

    def arrive(self, files: range) -> None:
        for number, table in zip(files, sales(files), strict=True):
            path = self.folder / "in" / f"{number:03d}.parquet"
            with arriving(path, number) as unfinished:
                pq.write_table(table, unfinished)
            self.arrived.append(table)

    def source(self) -> DataFrame:
        reader = self.spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1)
        return reader.parquet(str(self.folder / "in"))

    def start(self, frame: DataFrame) -> StreamingQuery:
        writer = frame.writeStream.format("parquet").option("path", str(self.folder / "out"))
        writer = writer.option("checkpointLocation", str(self.folder / "checkpoint"))
        return writer.trigger(availableNow=True).start()

    def run(self, frame: DataFrame) -> StreamingQuery:
        query = self.start(frame)
        assert query.awaitTermination(PATIENCE_SECONDS)
        return query

    def written(self) -> pa.Table:
        return self.spark.read.parquet(str(self.folder / "out")).toArrow()

    def expected(self, table: pa.Table, how: str = "left") -> pa.Table:
        return nested_loop_join(pa.concat_tables(self.arrived), table, on="k", how=how)


def observed(query: StreamingQuery, name: str) -> list[dict[str, Any]]:
    """Return the metrics of every micro-batch that had rows."""
    batches = [p for p in query.recentProgress if p.numInputRows]
    return [fields_of(p.observedMetrics[name]) for p in batches]


def pausing(
    row: int, reached: Path, go_on: Path
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return a step for `mapInArrow` that waits at a row: it says so by a file, and for a file."""

    def pause(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import time

        for batch in batches:
            if row in batch["q"].to_pylist():
                reached.touch()
                while not go_on.exists():
                    time.sleep(0.05)
            yield batch

    return pause


def total(metrics: list[dict[str, Any]], counter: str) -> int:
    return sum(int(m[counter]) for m in metrics)
