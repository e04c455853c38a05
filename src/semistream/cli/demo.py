"""``semistream demo``: build, enrich, check and compare on one machine, in a few minutes.

A product master is built into a relation. A bursty, skewed sales stream, two Parquet files per
micro-batch, is enriched by a Structured Streaming query within a small share of the master's size
and written to a Parquet warehouse. Then every row of the warehouse is checked against DuckDB's
join of the same files, and the same micro-batches run through plain Spark's joins.
"""

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from time import monotonic
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
from rich.console import Console
from rich.live import Live
from rich.table import Table

from semistream.advice.auto import AUTO
from semistream.advice.feasible import task_budget
from semistream.cli.demo_chart import draw_chart
from semistream.cli.java import java_problem
from semistream.errors import OptionError, SemistreamError
from semistream.relation.build import BuildOptions, build_snapshot
from semistream.relation.relation import Relation
from semistream.spark.demo import (
    COLUMNS,
    CORES,
    FILES_PER_BATCH,
    KEY,
    PLAIN_JOINS,
    BatchFigures,
    DemoSpark,
    Run,
)
from semistream.spark.session import ended_by_interrupt, interrupted_later
from semistream.spec import resolve
from semistream.units import format_bytes, parse_budget
from semistream.workload.retail import PRODUCTS, SALES, Retail

_TRIAL_BATCHES = 2  # of the warm-up, and of each of plain Spark's joins
_FEW_ROWS = 10_000  # of the master, to check the budget with before all of it is written
_MARK = ".semistream-demo"  # says that a folder may be emptied


@dataclass(frozen=True, slots=True)
class DemoOptions:
    """The options of the command line; `cli.main` describes them."""

    rows: int
    sales: int
    batches: int
    memory: str
    skew: float
    partitions: int
    seed: int
    out: Path


class DemoError(SemistreamError):
    """A step went wrong that should not have. Remedy: report it, this is a bug."""


def run_demo(options: DemoOptions) -> int:
    """Run the demo; returns the exit code."""
    problem = java_problem()
    if problem:
        raise OptionError(problem)
    console = Console()
    spark = None
    with _kernels_compiled_meanwhile() as wait_for_kernels, ended_by_interrupt():
        _check(options)
        out = _empty_folder(options.out.resolve())
        console.rule("[bold]semistream demo")
        try:
            with interrupted_later(), _step(console, "starting Spark"):
                spark = DemoSpark(out)
            _Demo(options, console, out, spark, wait_for_kernels).run()
        finally:
            if spark is not None:
                spark.stop()
    return 0


@contextmanager
def _kernels_compiled_meanwhile() -> Iterator[Callable[[], None]]:
    """Compile the kernels in another process; yield what waits until they are.

    After an installation that takes half a minute, which is spent while the tables are written.
    """
    with subprocess.Popen(
        [sys.executable, "-m", "semistream.advice.kernels"],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,  # Ctrl-C is for the demo, which then ends it
        text=True,
    ) as compiling:

        def wait() -> None:
            said, _ = compiling.communicate()
            if compiling.returncode:
                raise DemoError(f"the kernels cannot be compiled:\n{said}")

        try:
            yield wait
        finally:
            compiling.kill()


def _check(options: DemoOptions) -> None:
    """Raise what is wrong with the options, before anything is written or started."""
    if min(options.rows, options.sales, options.batches, options.partitions) < 1:
        raise OptionError("--rows, --sales, --batches and --partitions must be at least 1")
    if options.batches <= _TRIAL_BATCHES:
        raise OptionError(
            f"--batches must be more than {_TRIAL_BATCHES} to measure a steady rate; "
            f"got {options.batches}"
        )
    _check_memory(options)


def _check_memory(options: DemoOptions) -> None:
    """Raise if the budget is no size, or too little even for some rows of the master."""
    parse_budget(options.memory, 1)
    few = min(options.rows, _FEW_ROWS)
    with tempfile.TemporaryDirectory(prefix="semistream-demo-") as folder:
        rows = pa.Table.from_batches(Retail(few, seed=options.seed).product_batches())
        master = build_snapshot(rows, folder, BuildOptions(KEY, options.partitions))
        spec = resolve(master, SALES, on=KEY, columns=COLUMNS)
        budget = parse_budget(options.memory, master.size_bytes * options.rows // few)
        task_budget(AUTO, master, spec, budget, min(options.partitions, CORES))


def _empty_folder(out: Path) -> Path:
    """Make the folder of the demo, without the files of an earlier demo."""
    try:
        if out.exists() and any(out.iterdir()) and not (out / _MARK).exists():
            raise OptionError(
                f"--out {out} has files in it that are not of a demo; name another folder, or "
                "empty it"
            )
        if out.exists():
            shutil.rmtree(out)
        out.mkdir(parents=True)
        (out / _MARK).touch()
    except OSError as error:
        raise OptionError(
            f"--out {out} cannot be written: {error.strerror}; name another folder"
        ) from error
    return out


@contextmanager
def _step(console: Console, what: str) -> Iterator[None]:
    """Show that a step is running, then how long it took."""
    started = monotonic()
    with console.status(f"{what} …"):
        yield
    console.print(f"[green]✓[/] {what} [dim]({monotonic() - started:.1f} s)[/]")


class _Demo:
    """The steps, in order; each leaves its files under `out`."""

    def __init__(
        self,
        options: DemoOptions,
        console: Console,
        out: Path,
        spark: DemoSpark,
        wait_for_kernels: Callable[[], None],
    ) -> None:
        self._options = options
        self._wait_for_kernels = wait_for_kernels
        self._console = console
        self._out = out
        self._spark = spark
        self._retail = Retail(
            options.rows, options.sales, options.batches, options.skew, options.seed
        )

    def run(self) -> None:
        """Build, stream, prove, compare."""
        self._generate()
        with _step(self._console, "waiting until the kernels are compiled"):
            self._wait_for_kernels()
        relation = self._build()
        budget = parse_budget(self._options.memory, relation.size_bytes)
        self._console.print(
            f"  budget [bold]{format_bytes(budget)}[/] for a master of "
            f"[bold]{format_bytes(relation.size_bytes)}[/]: "
            f"{relation.size_bytes / budget:.0f} times larger"
        )
        ours = self._stream(relation, budget)
        with _step(self._console, "checking every row of the warehouse against DuckDB's join"):
            checked = self._prove()
        self._console.print(f"  {checked:,} rows: none lost, none twice, none wrong")
        with _step(self._console, "giving products that the master lacks their warehouse keys"):
            numbered = self._number_new_products(relation, budget)
        self._console.print(f"  {numbered:,} new products: each has one key, and is in R now")
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
                half = batch.num_rows // FILES_PER_BATCH
                for part, rows in enumerate((batch[:half], batch[half:])):
                    file = self._out / "sales" / f"batch-{i:04d}-{part}.parquet"
                    pq.write_table(pa.table(rows), file)
                    if i < _TRIAL_BATCHES:
                        (self._out / "trial" / file.name).hardlink_to(file)

    def _build(self) -> Relation:
        with _step(self._console, "building the relation on Spark's executors"):
            return self._spark.build(self._options.partitions)

    def _stream(self, relation: Relation, budget: int) -> list[BatchFigures]:
        with _step(self._console, f"warming up on {_TRIAL_BATCHES} batches, as plain Spark will"):
            self._spark.enrich("trial", "warm-up", relation, budget).wait()
        self._console.print("[green]▶[/] enriching the stream")
        return self._watch(self._spark.enrich("sales", "warehouse", relation, budget), budget)

    def _watch(self, run: Run, budget: int) -> list[BatchFigures]:
        """Show each micro-batch as it ends."""
        table = _live_table()
        shown = 0
        with Live(table, console=self._console, refresh_per_second=4):
            running = True
            while running:
                running = not run.has_ended(wait_s=1)
                figures = run.figures()
                for i, batch in enumerate(figures[shown:], shown):
                    table.add_row(*_live_row(i, batch, budget))
                shown = len(figures)
        return run.figures()

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
            raise DemoError(
                f"the warehouse in {self._out / 'warehouse'} differs from DuckDB's join: of "
                f"{rows:,} rows {lost:,} are missing, and {wrong:,} are wrong. This is a bug of "
                "semistream; please report it with the options of this run"
            )
        return int(rows)

    def _number_new_products(self, relation: Relation, budget: int) -> int:
        """Number new products; raise unless each has one key, the next after those that exist."""
        found = self._spark.number_new_products("sales", relation, budget)
        with duckdb.connect() as db:
            db.register("found", found)
            wrong: Any = db.execute(
                f"""
                WITH products AS (FROM read_parquet('{self._out}/products.parquet')),
                new AS (
                    SELECT DISTINCT product_id
                    FROM read_parquet('{self._out}/sales/*.parquet')
                    WHERE product_id IS NOT NULL
                    AND product_id NOT IN (SELECT product_id FROM products)
                ),
                expected AS (
                    SELECT product_id, row_number() OVER (ORDER BY product_id)
                        + (SELECT max(surrogate_key) FROM products) AS surrogate_key
                    FROM new
                ),
                actual AS (SELECT product_id, surrogate_key FROM found WHERE product_id IS NOT NULL)
                SELECT (SELECT count(*) FROM (FROM expected EXCEPT ALL FROM actual))
                     + (SELECT count(*) FROM (FROM actual EXCEPT ALL FROM expected))
                """
            ).fetchone()
        if wrong[0]:
            raise DemoError(
                f"{wrong[0]:,} new products have other keys than DuckDB gives them. This is a bug "
                "of semistream; please report it with the options of this run"
            )
        return int(found.num_rows)

    def _compare(self) -> dict[str, list[BatchFigures]]:
        """Run the micro-batches through each plain join, all of them through the best."""
        trials = {}
        for hint, title in PLAIN_JOINS.items():
            with _step(self._console, f"trying plain Spark's {title} on {_TRIAL_BATCHES} batches"):
                trials[hint] = self._spark.join_plainly(hint, "trial", f"plain-{hint}").wait()
        best = min(trials, key=lambda hint: trials[hint][-1].seconds)
        with _step(self._console, f"running all batches through the best, {PLAIN_JOINS[best]}"):
            trials[best] = self._spark.join_plainly(best, "sales", "plain").wait()
        return trials

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
        tried = f"the best of {len(plain)} joins"
        table.add_row("plain Spark", f"{plain_rate:,.0f} rows/s, {PLAIN_JOINS[best]}: {tried}")
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
            "this machine. Each worker process needs about 200 MB in addition to the budget.[/]"
        )


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
