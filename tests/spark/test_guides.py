"""Every block of Python and shell in the README and the guides runs, in the order of the page.

A page's blocks share a folder and, for Python, their names. A block in ``python``, ``sh`` or
``console`` (lines that begin with ``$``) that cannot run here has ``<!-- not run: why -->`` in the
line before it; `NOT_RUN` has all of these, so that none is added by accident.
"""

import os
import re
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from pyspark.sql import SparkSession

import semistream as ss

ROOT = Path(__file__).parents[2]
PAGES = (ROOT / "README.md", *sorted((ROOT / "docs" / "guides").glob("*.md")))
NOT_RUN = {
    "README.md": [
        "tests/install installs it in clean environments",
        "they take minutes, and run each other's tests",
    ],
    "cluster.md": ["needs YARN", "needs Kubernetes"],
    "install.md": [
        "tests/install installs it in clean environments",
        "needs venv-pack and a cluster",
    ],
    "join-options.md": [],
    "online-aggregates.md": [],
    "operating.md": [
        "needs an object store",
        "writes to the home folder; tests/unit/cli/test_completion.py runs what it prints",
    ],
    "pipelines.md": [
        "each starts a Spark of its own; tests/spark/test_pipeline.py runs the command",
    ],
    "places.md": [
        "needs a cluster",
        "needs an object store; tests/services/test_s3.py has one",
        "needs Google Cloud Storage",
        "needs Azure",
        "needs Hadoop",
    ],
    "refresh.md": [],
    "running.md": ["they take minutes"],
    "sources.md": [
        "needs Delta's package; tests/services/test_delta.py has it",
        "needs a catalog; tests/unit/test_tables.py has one",
        "needs Kafka; tests/services/test_kafka.py has one",
    ],
    "spark.md": [],
    "workloads.md": [
        "needs Kafka or tpchgen-cli, or has no end; tests/services and tests/unit/workload have "
        "these",
        "needs a file of the archive",
    ],
}
KINDS = {"python", "sh", "console", "text", "toml", "yaml"}
_BLOCK = re.compile(
    r"(?:^<!-- not run: (?P<why>.*?) -->\n)?^```(?P<kind>\w*)\n(?P<text>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)
# Names of folders that Spark reads or writes: the JVM does not move to the test's folder.
_RELATIVE = re.compile(r'"(sales|changes|enriched|missing|checkpoint)"')
PATIENCE_SECONDS = 300


@dataclass(frozen=True)
class Block:
    """A block of code of a page."""

    kind: str
    text: str
    line: int
    why_not_run: str | None


def blocks(page: Path) -> Iterator[Block]:
    text = page.read_text()
    for found in _BLOCK.finditer(text):
        line = text.count("\n", 0, found.start("text")) + 1
        yield Block(found["kind"], found["text"], line, found["why"])


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_blocks_say_what_they_are_and_why_they_are_not_run(page: Path) -> None:
    assert {block.kind for block in blocks(page)} <= KINDS
    assert page.read_text().count("\n```") == 2 * len(list(blocks(page)))
    assert [b.why_not_run for b in blocks(page) if b.why_not_run] == NOT_RUN[page.name]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_blocks_run(
    page: Path, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    _prepare(page, spark, tmp_path)
    names: dict[str, Any] = {"ss": ss, "spark": spark, "__name__": "guide"}
    for block in blocks(page):
        if block.why_not_run is None and block.kind == "python":
            if "query.lastProgress" in block.text and "query" not in names:
                names["query"] = _query(spark)
            code = "\n" * (block.line - 1) + _RELATIVE.sub(rf'"{tmp_path}/\1"', block.text)
            exec(compile(code, str(page), "exec"), names)
        elif block.why_not_run is None and block.kind in ("sh", "console"):
            _run_shell(block, tmp_path)
    if page.name == "README.md":
        assert spark.read.parquet(str(tmp_path / "enriched")).count() == 50_000


def _prepare(page: Path, spark: SparkSession, folder: Path) -> None:
    """Put the files and tables there that a page takes for granted; the README makes its own."""
    if page.name in ("README.md", "pipelines.md"):
        return
    columns = ("id as product_id", "id + 7 as surrogate_key", "id % 9 as supplier_id")
    products = spark.range(2_000).selectExpr(*columns)
    products.createOrReplaceTempView("products")
    products.coalesce(1).write.parquet(str(folder / "products.parquet"))
    sales = spark.range(3_000).selectExpr("id as product_id", "rand() as price")
    sales.coalesce(1).write.parquet(str(folder / "sales"))
    if page.name == "refresh.md":
        marks = ("id % 2 = 0 as is_deleted", "timestamp_seconds(id) as at")
        changes = spark.range(9).selectExpr(*columns, *marks)
        changes.coalesce(1).write.parquet(str(folder / "changes"))
    if page.name == "sources.md":
        _put_tables(products.toArrow(), folder)


def _put_tables(products: pa.Table, folder: Path) -> None:
    """Put products into a database, with the time of their last change, and into a lake."""
    with closing(sqlite3.connect(folder / "shop.db")) as shop, shop:
        names = "product_id INTEGER PRIMARY KEY, surrogate_key INTEGER, supplier_id INTEGER"
        shop.execute(f"CREATE TABLE products ({names}, updated_at TEXT)")
        rows = [(*row.values(), "2026-11-17 01:00:00") for row in products.to_pylist()]
        shop.executemany("INSERT INTO products VALUES (?, ?, ?, ?)", rows)
    (folder / "lake").mkdir()
    feed = {"delta.enableChangeDataFeed": "true"}
    write_deltalake(folder / "lake" / "products", products, configuration=feed)


def _query(spark: SparkSession) -> Any:
    sales = str(Path("sales").absolute())
    stream = spark.readStream.schema("product_id long, price double").parquet(sales)
    joined = ss.enrich(stream, "products.rel", memory="8MB")
    query = joined.writeStream.format("noop").trigger(availableNow=True).start()
    query.awaitTermination(PATIENCE_SECONDS)
    return query


def _run_shell(block: Block, folder: Path) -> None:
    commands = block.text
    if block.kind == "console":
        commands = "\n".join(re.findall(r"^\$ (.*)$", block.text, re.MULTILINE))
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-euc", commands],
        cwd=folder,
        env={**os.environ, "PATH": path, "SEMISTREAM_CACHE": str(folder / "cache")},
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )
    assert done.returncode == 0, f"line {block.line}: {done.stderr[-2000:]}"
