"""The Spark side of ``semistream demo``: the relation, the enriched stream, plain Spark's joins.

`semistream.cli.demo` writes the files, shows the progress and checks the result.
"""

import shutil
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from semistream.relation.build import BuildOptions
from semistream.relation.relation import Relation
from semistream.spark.build import build_from_dataframe
from semistream.spark.enrichment import enrich
from semistream.spark.metrics import fields_of
from semistream.spark.session import local_session
from semistream.spark.surrogates import surrogate_key
from semistream.spark.transforms import add_columns, mark_duplicates, mark_new

# Plain Spark's joins: the hint that selects each, and its name.
PLAIN_JOINS = {
    "broadcast": "broadcast hash join",
    "shuffle_hash": "shuffled hash join",
    "merge": "sort-merge join",
    "batch": "join with each micro-batch broadcast",  # no hint: see `broadcast_batch`
}
CORES = 2
KEY = "product_id"
COLUMNS = ("surrogate_key", "supplier_id")  # of the master, that are added to each sale
FILES_PER_BATCH = 2  # like a topic with a partition per core


@dataclass(frozen=True, slots=True)
class BatchFigures:
    """What Spark reported about one micro-batch."""

    rows: int
    seconds: float
    metrics: dict[str, int]  # the join's counters, by name; empty for plain Spark

    @property
    def rows_per_s(self) -> float:
        """The service rate of the batch."""
        return self.rows / self.seconds


class Run:
    """A streaming query that has been started."""

    def __init__(self, query: StreamingQuery) -> None:
        """Observe this query."""
        self._query = query

    def has_ended(self, wait_s: int) -> bool:
        """Wait for the end of the query for at most `wait_s` seconds; return whether it ended."""
        return bool(self._query.awaitTermination(wait_s))

    def wait(self) -> list[BatchFigures]:
        """Wait for the end of the query, and return the figures of all its micro-batches."""
        self._query.awaitTermination()
        return self.figures()

    def figures(self) -> list[BatchFigures]:
        """Return the figures of the micro-batches so far, without those that had no rows."""
        return [
            BatchFigures(
                rows=progress.numInputRows,
                seconds=progress.durationMs["triggerExecution"] / 1000,
                metrics={
                    name: value or 0
                    for row in progress.observedMetrics.values()
                    for name, value in fields_of(row).items()
                },
            )
            for progress in self._query.recentProgress
            if progress.numInputRows
        ]


class DemoSpark:
    """A local Spark session over the files of the demo, all under `out`."""

    def __init__(self, out: Path) -> None:
        """Start Spark."""
        self._out = out
        # What fails is raised here; Spark's log would say it again, on hundreds of lines.
        self._spark: SparkSession = local_session(
            "semistream-demo", out, cores=CORES, log_level="OFF"
        )

    def stop(self) -> None:
        """Stop Spark and delete its temporary files."""
        try:
            for query in self._spark.streams.active:
                query.stop()
            self._spark.stop()
        finally:
            shutil.rmtree(self._out / "spark-local", ignore_errors=True)

    def build(self, partitions: int) -> Relation:
        """Build the relation from the product master, on Spark's executors."""
        options = BuildOptions(KEY, partitions)
        return build_from_dataframe(self._products(), self._out / "products.rel", options)

    def enrich(self, sales: str, name: str, relation: Relation, budget_bytes: int) -> Run:
        """Start to enrich the sales in a folder; the rows go to the folder `name`."""
        enriched = enrich(
            self._sales(sales),
            relation,
            on=KEY,
            how="left",
            columns=COLUMNS,
            memory=budget_bytes,
        )
        return self._write(enriched, name)

    def number_new_products(self, sales: str, relation: Relation, budget_bytes: int) -> pa.Table:
        """Give products that the master lacks the next warehouse keys; return both, once each.

        They are found among the sales, taken once, numbered, and put into the relation.
        """
        sold = self._spark.read.parquet(str(self._out / sales)).select(KEY)
        new = mark_new(sold, relation, on=KEY, memory=budget_bytes).filter("is_new").drop("is_new")
        once = mark_duplicates(new, on=KEY).filter("NOT is_duplicate").drop("is_duplicate")
        numbered = surrogate_key(once, relation, to=COLUMNS[0], on=KEY, memory=budget_bytes)
        return numbered.toArrow()

    def join_plainly(self, hint: str, sales: str, name: str) -> Run:
        """Start one of `PLAIN_JOINS` over the sales in a folder; the rows go to `name`."""
        products = self._products().select(KEY, *COLUMNS)
        if hint == "batch":
            return self._write_each(self._sales(sales), products, name)
        return self._write(self._sales(sales).join(products.hint(hint), KEY, "left"), name)

    def _products(self) -> DataFrame:
        return self._spark.read.parquet(str(self._out / "products.parquet"))

    def _sales(self, folder: str) -> DataFrame:
        """Return the stream: every `FILES_PER_BATCH` files of the folder are a micro-batch."""
        schema = self._spark.read.parquet(str(self._out / folder)).schema
        reader = self._spark.readStream.schema(schema)
        reader = reader.option("maxFilesPerTrigger", FILES_PER_BATCH)
        return reader.parquet(str(self._out / folder))

    def _write(self, joined: DataFrame, name: str) -> Run:
        writer = _warehouse_rows(joined).writeStream.format("parquet")
        return self._start(writer.option("path", str(self._out / name)), name)

    def _write_each(self, sales: DataFrame, products: DataFrame, name: str) -> Run:
        """Start to join and write one micro-batch after the other, each broadcast."""

        def write(batch: DataFrame, number: int) -> None:
            batch.persist()  # it is used twice
            joined = _warehouse_rows(broadcast_batch(batch, products, KEY))
            joined.write.mode("append").parquet(str(self._out / name))
            batch.unpersist()

        return self._start(sales.writeStream.foreachBatch(write), name)

    def _start(self, writer: DataStreamWriter, name: str) -> Run:
        checkpoint = str(self._out / f"{name}.checkpoint")
        writer = writer.queryName(name).option("checkpointLocation", checkpoint)
        return Run(writer.trigger(availableNow=True).start())


def broadcast_batch(batch: DataFrame, table: DataFrame, key: str) -> DataFrame:
    """Return the left join of a small batch with a large table, as plain Spark does it best.

    Spark cannot broadcast the left side of a left join. So the keys of the batch are broadcast to
    find the rows of the table that they match, and these few are broadcast to the batch: the table
    is read once, and never shuffled. A stream cannot be joined with what was made of it, so this is
    for `foreachBatch`.
    """
    matched = table.join(F.broadcast(batch.select(key)), key, "left_semi")
    return batch.join(F.broadcast(matched), key, "left")


def _warehouse_rows(joined: DataFrame) -> DataFrame:
    """Return the fact rows: the surrogate key in place of the product id, and the total."""
    rows = add_columns(joined, {"product_key": "surrogate_key", "total": "quantity * sale_price"})
    names = ("sale_id", "sold_at", "product_key", "supplier_id", "quantity", "sale_price", "total")
    return rows.select(*names)
