"""``semistream demo``: the whole story on one machine, in a few minutes.

A product master is built into a relation. A bursty, skewed sales stream, two Parquet files per
micro-batch, is enriched by a Structured Streaming query within a small share of the master's size
and written to a Parquet warehouse. Then every row of the warehouse is checked against DuckDB's
join of the same files, and the same micro-batches run through plain Spark's joins.
"""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from time import monotonic
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.streaming.query import StreamingQuery
from rich.console import Console
from rich.live import Live
from rich.table import Table

from semistream.cli.demo_chart import draw_chart
from semistream.cli.java import java_problem
from semistream.errors import OptionError, SemistreamError
from semistream.relation.build import build_relation
from semistream.relation.relation import Relation
from semistream.spark import enrich
from semistream.spark.session import local_session
from semistream.units import format_bytes, parse_bytes
from semistream.workload.retail import PRODUCTS, Retail

PLAIN_JOINS = {
    "broadcast": "broadcast hash join",
    "shuffle_hash": "shuffled hash join",
    "merge": "sort-merge join",
}
_TRIAL_BATCHES = 2
_FILES_PER_BATCH = 2  # like a topic with a partition per core


@dataclass(frozen=True, slots=True)
class DemoOptions:
    """What can be chosen on the command line."""

    rows: int
    sales: int
    batches: int
    memory: str
    skew: float
    partitions: int
    seed: int
    out: Path


@dataclass(frozen=True, slots=True)
class BatchFigures:
    """What Spark reported about one micro-batch."""

    rows: int
    seconds: float
    metrics: dict[str, int]

    @property
    def rows_per_s(self) -> float:
        """The service rate of the batch."""
        return self.rows / self.seconds


class DemoError(SemistreamError):
    """The demo found a wrong row, which it never should."""


def run_demo(options: DemoOptions) -> int:
    """Run the demo; returns the exit code."""
    problem = java_problem()
    if problem:
        raise OptionError(problem)
    if min(options.rows, options.sales, options.batches, options.partitions) < 1:
        raise OptionError("--rows, --sales, --batches and --partitions must be at least 1")
    if options.batches <= _TRIAL_BATCHES:
        raise OptionError(f"--batches must be more than {_TRIAL_BATCHES} to measure a steady rate")
    console = Console()
    out = options.out.resolve()
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    console.rule("[bold]semistream demo")
    with _step(console, "starting Spark"):
        spark = local_session("semistream-demo", out)
    try:
        _Demo(options, console, out, spark).run()
    finally:
        spark.stop()
        shutil.rmtree(out / "spark-local", ignore_errors=True)
    return 0


@contextmanager
def _step(console: Console, what: str) -> Iterator[None]:
    """Show that something is going on, then how long it took."""
    started = monotonic()
    with console.status(f"{what} …"):
        yield
    console.print(f"[green]✓[/] {what} [dim]({monotonic() - started:.1f} s)[/]")


class _Demo:
    """The steps, in order; each leaves its files under `out`."""

    def __init__(
        self, options: DemoOptions, console: Console, out: Path, spark: SparkSession
    ) -> None:
        self._options = options
        self._console = console
        self._out = out
        self._spark = spark
        self._retail = Retail(
            options.rows, options.sales, options.batches, options.skew, options.seed
        )

    def run(self) -> None:
        """Build, stream, prove, compare."""
        self._generate()
        relation = self._build()
        budget = _budget(self._options.memory, relation)
        self._console.print(
            f"  budget [bold]{format_bytes(budget)}[/] for a master of "
            f"[bold]{format_bytes(relation.size_bytes)}[/]: "
            f"{relation.size_bytes / budget:.0f} times larger"
        )
        ours = self._stream(relation, budget)
        with _step(self._console, "checking every row of the warehouse against DuckDB's join"):
            checked = self._prove()
        self._console.print(f"  {checked:,} rows: none lost, none twice, none wrong")
        plain = self._compare()
        self._report(relation, budget, ours, plain)

    def _generate(self) -> None:
        what = f"writing {self._options.rows:,} products and {self._options.sales:,} sales"
        with _step(self._console, f"{what} as Parquet"):
            with pq.ParquetWriter(self._out / "products.parquet", PRODUCTS) as writer:
                for batch in self._retail.product_batches():
                    writer.write_batch(batch)
            (self._out / "sales").mkdir()
            (self._out / "trial").mkdir()
            for i, batch in enumerate(self._retail.sales_batches()):
                half = batch.num_rows // _FILES_PER_BATCH
                for part, rows in enumerate((batch[:half], batch[half:])):
                    file = self._out / "sales" / f"batch-{i:04d}-{part}.parquet"
                    pq.write_table(pa.table(rows), file)
                    if i < _TRIAL_BATCHES:
                        (self._out / "trial" / file.name).hardlink_to(file)

    def _build(self) -> Relation:
        with _step(self._console, "building the relation on Spark's executors"):
            return build_relation(
                self._products(),
                self._out / "products.rel",
                key="product_id",
                partitions=self._options.partitions,
            )

    def _products(self) -> DataFrame:
        return self._spark.read.parquet(str(self._out / "products.parquet"))

    def _sales(self, folder: str = "sales") -> DataFrame:
        """Return the stream: every two files of the folder are a micro-batch."""
        schema = self._spark.read.parquet(str(self._out / folder)).schema
        reader = self._spark.readStream.schema(schema)
        reader = reader.option("maxFilesPerTrigger", _FILES_PER_BATCH)
        return reader.parquet(str(self._out / folder))

    def _stream(self, relation: Relation, budget: int) -> list[BatchFigures]:
        with _step(self._console, f"warming up on {_TRIAL_BATCHES} batches, as plain Spark will"):
            self._enrich("trial", "warm-up", relation, budget).awaitTermination()
        self._console.print("[green]▶[/] enriching the stream")
        return self._watch(self._enrich("sales", "warehouse", relation, budget), budget)

    def _enrich(self, sales: str, name: str, relation: Relation, budget: int) -> StreamingQuery:
        enriched = enrich(
            self._sales(sales),
            relation,
            on="product_id",
            how="left",
            columns=["surrogate_key", "supplier_id"],
            memory=budget,
        )
        return self._write(_warehouse_rows(enriched), name)

    def _write(self, rows: DataFrame, name: str) -> StreamingQuery:
        return (
            rows.writeStream.format("parquet")
            .queryName(name)
            .option("path", str(self._out / name))
            .option("checkpointLocation", str(self._out / f"{name}.checkpoint"))
            .trigger(availableNow=True)
            .start()
        )

    def _watch(self, query: StreamingQuery, budget: int) -> list[BatchFigures]:
        """Show each micro-batch as it ends."""
        table = _live_table()
        shown = 0
        with Live(table, console=self._console, refresh_per_second=4):
            running = True
            while running:
                running = not query.awaitTermination(1)
                figures = _figures(query)
                for i, batch in enumerate(figures[shown:], shown):
                    table.add_row(*_live_row(i, batch, budget))
                shown = len(figures)
        return _figures(query)

    def _prove(self) -> int:
        """Compare the warehouse with an independent join; raise unless they are the same."""
        with duckdb.connect() as db:
            db.execute("SET TimeZone = 'UTC'")
            db.execute(
                f"""
                CREATE VIEW expected AS
                SELECT s.sale_id, s.sold_at, p.surrogate_key AS product_key, p.supplier_id,
                       s.quantity, s.sale_price, s.quantity * s.sale_price AS total
                FROM read_parquet('{self._out}/sales/*.parquet') s
                LEFT JOIN read_parquet('{self._out}/products.parquet') p USING (product_id)
                """
            )
            db.execute(
                "CREATE VIEW actual AS SELECT sale_id, sold_at, product_key, supplier_id, "
                f"quantity, sale_price, total FROM read_parquet('{self._out}/warehouse/*.parquet')"
            )
            counts: Any = db.execute(
                """
                SELECT (SELECT count(*) FROM expected),
                       (SELECT count(*) FROM (FROM expected EXCEPT ALL FROM actual)),
                       (SELECT count(*) FROM (FROM actual EXCEPT ALL FROM expected))
                """
            ).fetchone()
        rows, lost, wrong = counts
        if lost or wrong:
            raise DemoError(f"of {rows:,} rows {lost:,} are lost and {wrong:,} are wrong")
        return int(rows)

    def _compare(self) -> dict[str, list[BatchFigures]]:
        """Run the micro-batches through each plain join, all of them through the best."""
        trials = {}
        for hint, title in PLAIN_JOINS.items():
            with _step(self._console, f"trying plain Spark's {title} on {_TRIAL_BATCHES} batches"):
                trials[hint] = self._plain(hint, "trial", f"plain-{hint}")
        best = min(trials, key=lambda hint: trials[hint][-1].seconds)
        with _step(self._console, f"running all batches through the best, {PLAIN_JOINS[best]}"):
            trials[best] = self._plain(best, "sales", "plain")
        return trials

    def _plain(self, hint: str, sales: str, name: str) -> list[BatchFigures]:
        products = self._products().select("product_id", "surrogate_key", "supplier_id")
        joined = self._sales(sales).join(products.hint(hint), "product_id", "left")
        query = self._write(_warehouse_rows(joined), name)
        query.awaitTermination()
        return _figures(query)

    def _report(
        self,
        relation: Relation,
        budget: int,
        ours: list[BatchFigures],
        plain: dict[str, list[BatchFigures]],
    ) -> None:
        best = max(plain, key=lambda hint: len(plain[hint]))
        peak = max(batch.metrics["memory_bytes_peak"] for batch in ours)
        our_rate, plain_rate = _steady_rate(ours), _steady_rate(plain[best])
        chart = draw_chart(
            self._out / "demo.png",
            ours=ours,
            plain=plain[best],
            plain_title=PLAIN_JOINS[best],
            budget_bytes=budget,
            peak_bytes=peak,
            relation_bytes=relation.size_bytes,
        )
        self._console.rule()
        table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
        table.add_row("service rate", f"[bold]{our_rate:,.0f} rows/s[/], end to end on Spark")
        table.add_row("plain Spark", f"{plain_rate:,.0f} rows/s, {PLAIN_JOINS[best]}")
        table.add_row("ratio", f"[bold green]{our_rate / plain_rate:.1f} ×[/] plain Spark's best")
        table.add_row(
            "peak memory",
            f"{format_bytes(peak)} reserved of a budget of {format_bytes(budget)}",
        )
        table.add_row("warehouse", str(self._out / "warehouse"))
        table.add_row("chart", str(chart))
        self._console.print(table)
        self._console.print(
            "[dim]Rates are medians over micro-batches after the first, measured in this run on "
            "this machine. Worker processes take about 200 MB each besides the budget.[/]"
        )


def _budget(memory: str, relation: Relation) -> int:
    """Return a budget given as a size, or as a share of the relation such as ``5%``."""
    if not memory.endswith("%"):
        return parse_bytes(memory)
    try:
        share = float(memory[:-1]) / 100
    except ValueError:
        raise OptionError(
            f"--memory must be a size or a share such as 5%; got {memory!r}"
        ) from None
    return max(1, int(relation.size_bytes * share))


def _warehouse_rows(joined: DataFrame) -> DataFrame:
    """Return the fact rows: the surrogate key in place of the product id, and the total."""
    return joined.select(
        "sale_id",
        "sold_at",
        F.col("surrogate_key").alias("product_key"),
        "supplier_id",
        "quantity",
        "sale_price",
        (F.col("quantity") * F.col("sale_price")).alias("total"),
    )


def _figures(query: StreamingQuery) -> list[BatchFigures]:
    """Return the figures of all micro-batches so far that had rows."""
    return [
        BatchFigures(
            rows=progress.numInputRows,
            seconds=progress.durationMs["triggerExecution"] / 1000,
            metrics={
                name: value or 0
                for row in progress.observedMetrics.values()
                for name, value in row.asDict().items()
            },
        )
        for progress in query.recentProgress
        if progress.numInputRows
    ]


def _steady_rate(batches: list[BatchFigures]) -> float:
    """Return the median service rate after the first batch, which also starts the workers."""
    return median(batch.rows_per_s for batch in batches[1:])


def _live_table() -> Table:
    table = Table(box=None, padding=(0, 2, 0, 2))
    for title in ("batch", "sales", "seconds", "rows/s", "matched", "pages read", "budget used"):
        table.add_column(title, justify="right")
    return table


def _live_row(index: int, batch: BatchFigures, budget: int) -> list[str]:
    metrics = batch.metrics
    return [
        str(index),
        f"{batch.rows:,}",
        f"{batch.seconds:.2f}",
        f"{batch.rows_per_s:,.0f}",
        f"{metrics['matched_pairs'] / batch.rows:.2%}",
        f"{metrics['pages_scanned']:,}",
        f"{metrics['memory_bytes_peak'] / budget:.0%}",
    ]
