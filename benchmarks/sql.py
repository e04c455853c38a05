"""A table in a database, joined in place, against one query per tuple and against a copy.

Servers of PostgreSQL and MariaDB are started on 127.0.0.1, as by the tests. Every answer is
compared with that of the copy. Keys of the stream are Zipf-distributed.
"""

import argparse
import importlib
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import pyarrow as pa

import semistream as ss
from benchmarks.report import Report
from semistream.testing import same_rows

DATABASES = ("postgresql", "mariadb", "sqlite", "duckdb")
ALGORITHMS = ("auto", "lookup", "hybridjoin", "chybridjoin", "meshjoin")
MEMORY = "32MB"
_QUERIED = 500  # tuples that are queried one by one


def main() -> None:
    """Run all databases, or one."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.sql", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a tenth of the data, to try it out")
    parser.add_argument("--database", choices=DATABASES, help="only this one")
    asked = parser.parse_args()
    rows, tuples = (50_000, 10_000) if asked.quick else (500_000, 100_000)
    report = Report("sql", {"relation_rows": rows, "tuples": tuples, "memory": MEMORY})
    products, sales = _tables(rows, tuples)
    table = []
    with tempfile.TemporaryDirectory(prefix="semistream-bench-") as folder:
        for kind, filled in _databases(Path(folder), asked.database):
            filled.put(products, "products", ["k"])
            for contestant, rate in _rates(filled, sales, Path(folder) / f"{kind}.rel"):
                report.add(contestant, database=kind, tuples_per_s=rate)
                table.append([kind, contestant, f"{rate:,.0f}"])
    report.show("Tuples a second", ["database", "contestant", "tuples/s"], table)


def _tables(rows: int, tuples: int) -> tuple[pa.Table, pa.Table]:
    rng = np.random.default_rng(7)
    keys = rng.permutation(rows).astype(np.int64)
    names = [f"product {k:07}" for k in keys.tolist()]
    products = pa.table({"k": keys, "name": names, "price": keys * 0.25, "stock": keys % 97})
    ranks = np.minimum(rng.zipf(1.2, tuples) - 1, rows - 1)
    return products, pa.table({"k": (ranks * 7919) % rows, "quantity": np.arange(tuples)})


def _databases(folder: Path, only: str | None) -> Iterator[tuple[str, Any]]:
    """Yield each database, or only one, with a server that runs."""
    servers: Any = importlib.import_module("tests.services.databases")
    fill: Any = importlib.import_module("tests.databases.fill")
    os.environ |= {"PGPASSWORD": servers.PASSWORD, "MYSQL_PWD": servers.PASSWORD}
    os.environ.setdefault("JAVA_TOOL_OPTIONS", "")
    for kind in [only] if only else DATABASES:
        (folder / kind).mkdir()
        with ExitStack() as stack:
            if kind in ("sqlite", "duckdb"):
                url = fill.file_url(kind, folder / kind)
            else:
                url = stack.enter_context(getattr(servers, kind)(folder / kind)).url
            yield kind, fill.Filled(url)


def _rates(filled: Any, sales: pa.Table, place: Path) -> Iterator[tuple[str, float]]:
    started = perf_counter()
    copy = ss.build_relation(ss.sql_table(filled.url, "products", key="k"), place, key="k")
    build_s = perf_counter() - started
    expected = pa.Table.from_batches(list(ss.join(sales, copy, memory=MEMORY)))
    yield "copy, auto", _timed(lambda: ss.join(sales, copy, memory=MEMORY), sales, expected)
    yield "copy, rows built a second", copy.row_count / build_s
    started = perf_counter()
    place_read = ss.Relation.sql(filled.url, "products", key="k")
    yield "in place, rows counted a second", copy.row_count / (perf_counter() - started)
    for name in ALGORITHMS:

        def joined(name: str = name) -> Iterator[pa.RecordBatch]:
            return ss.join(sales, place_read, memory=MEMORY, algorithm=name)

        yield f"in place, {name}", _timed(joined, sales, expected)
    yield "one query per tuple", _queried(filled, sales[:_QUERIED])


def _timed(
    joined: Callable[[], Iterator[pa.RecordBatch]], sales: pa.Table, expected: pa.Table
) -> float:
    list(joined())  # warm
    started = perf_counter()
    batches = list(joined())
    seconds = perf_counter() - started
    assert same_rows(pa.Table.from_batches(batches), expected), "the answer is wrong"
    return float(sales.num_rows / seconds)


def _queried(filled: Any, sales: pa.Table) -> float:
    """Return the rate of a plain loop: look one key up, wait, look up the next."""
    mark = {"postgresql": "$1", "mysql": "%s"}.get(filled.kind, "?")
    sql = f"SELECT name, price, stock FROM products WHERE k = {mark}"
    connection = filled._connect()
    try:
        cursor = connection.cursor()
        started = perf_counter()
        for key in sales.column("k").to_pylist():
            cursor.execute(sql, (key,))
            assert cursor.fetchone() is not None
        return float(sales.num_rows / (perf_counter() - started))
    finally:
        connection.close()


if __name__ == "__main__":
    main()
