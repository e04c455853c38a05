"""The engine on one core: MESHJOIN within a budget against peers that hold all of R in memory,
and against stores that look every key up.

Every contestant gets the same stream in the same batches and must hand over materialised columns:
the stream's three and two of R's. Its answer is checked before its time counts. The best of several
rounds counts, for every contestant alike.
"""

import argparse
import os
import sqlite3
import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from time import perf_counter

import duckdb
import numpy as np
import polars as pl
import pyarrow as pa
from rocksdict import Options, Rdict, WriteBatch

import semistream as ss
from benchmarks.paper import BATCH_ROWS, PaperWorkload, fingerprint
from benchmarks.report import Report

COLUMNS = ["c0", "c1"]
SHARES = (0.01, 0.05, 0.10)
Join = Callable[[], Iterable[pa.RecordBatch]]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true")
    quick = parser.parse_args().quick
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    workload = PaperWorkload(350_000, 600_000) if quick else PaperWorkload()
    with tempfile.TemporaryDirectory(prefix="semistream-bench-") as folder:
        table = workload.relation()
        relation = ss.build_relation(table, Path(folder) / "r.rel", key="k", partitions=1)
        stores = _Stores(table, Path(folder))
        for exponent in (0.0, 1.0):
            _compare(workload, table, relation, stores, exponent)


def _compare(
    workload: PaperWorkload,
    table: pa.Table,
    relation: ss.Relation,
    stores: "_Stores",
    exponent: float,
) -> None:
    stream = workload.stream(exponent)
    # A store looks up a tenth of the stream: the others would wait for it.
    sample = stream[: len(stream) // 10]
    skew = "uniform" if exponent == 0 else f"Zipf {exponent:g}"
    report = Report(
        "engine",
        {"relation_rows": table.num_rows, "stream_rows": stream.num_rows, "exponent": exponent},
    )
    contestants: dict[str, tuple[pa.Table, Join, int]] = {}
    for share in SHARES:
        budget = int(relation.size_bytes * share)
        contestants[f"semistream meshjoin, {share:.0%} of R"] = (
            stream,
            lambda budget=budget: _ours(stream, relation, "meshjoin", budget),  # type: ignore[misc]
            5,
        )
    contestants |= {
        "semistream resident, all of R": (
            stream,
            lambda: _ours(stream, relation, "resident", 10**9),
            5,
        ),
        "polars, all of R in memory": (stream, _polars(stream, table), 5),
        "duckdb, all of R in memory": (stream, _duckdb(stream, table), 5),
        "rocksdb multi-get": (sample, lambda: stores.rocksdb(sample), 2),
        "sqlite index": (sample, lambda: stores.sqlite(sample), 2),
    }
    rates = {}
    for name, (rows, join, rounds) in contestants.items():
        rates[name] = _best_rate(join, rows, _answer(table, rows), rounds)
    polars = rates["polars, all of R in memory"]
    rocksdb = rates["rocksdb multi-get"]
    for name, rate in rates.items():
        report.add(name, rows_per_s=round(rate), x_polars=rate / polars, x_rocksdb=rate / rocksdb)
    report.show(
        f"Engine, one core, {skew} keys, R {table.num_rows:,} × 120 B, S 20 B",
        ["contestant", "tuples/s", "× polars", "× rocksdb"],
        [[n, f"{r:,.0f}", f"{r / polars:.2f}", f"{r / rocksdb:.1f}"] for n, r in rates.items()],
    )


def _answer(table: pa.Table, stream: pa.Table) -> tuple[int, int]:
    """Return the fingerprint of the right answer, by direct addressing: keys are 0 … n - 1."""
    by_key = np.empty(table.num_rows, np.int64)
    by_key[table["k"].to_numpy()] = table["c0"].to_numpy()
    joined = pa.record_batch(
        {"c0": by_key[stream["k"].to_numpy()], "quantity": stream["quantity"].to_numpy()}
    )
    return fingerprint([joined])


def _best_rate(join: Join, stream: pa.Table, answer: tuple[int, int], rounds: int) -> float:
    """Return the best service rate over some rounds, every one of them checked."""
    best = 0.0
    for _ in range(rounds):
        started = perf_counter()
        batches = list(join())
        seconds = perf_counter() - started
        if fingerprint(batches) != answer:
            raise AssertionError("a contestant gave a wrong answer")
        best = max(best, stream.num_rows / seconds)
    return best


def _ours(
    stream: pa.Table, relation: ss.Relation, algorithm: str, budget: int
) -> Iterator[pa.RecordBatch]:
    batches = stream.to_batches(max_chunksize=BATCH_ROWS)
    return ss.join(
        batches, relation, on="k", how="inner", columns=COLUMNS, memory=budget, algorithm=algorithm
    )


def _polars(stream: pa.Table, table: pa.Table) -> Join:
    left = pl.DataFrame(stream)
    right = pl.DataFrame(table.select(["k", *COLUMNS]))
    # All at once, which is what it does best: its hash table is built once for the whole stream.
    return lambda: left.join(right, on="k").to_arrow().to_batches()


def _duckdb(stream: pa.Table, table: pa.Table) -> Join:
    db = duckdb.connect()
    db.execute("SET threads = 1")
    right = table.select(["k", *COLUMNS])
    db.register("r_arrow", right)
    db.execute("CREATE TABLE r AS FROM r_arrow")
    db.register("s", stream)
    return lambda: (
        db.sql("SELECT s.*, c0, c1 FROM s JOIN r USING (k)").to_arrow_table().to_batches()
    )


class _Stores:
    """R in RocksDB and in SQLite, by key."""

    def __init__(self, table: pa.Table, folder: Path) -> None:
        self._rocksdb = Rdict(str(folder / "rocksdb"), Options(raw_mode=True))
        ordered = table.select(["k", *COLUMNS]).sort_by("k")
        keys = ordered["k"].to_numpy().astype(">i8").tobytes()
        values = np.column_stack([ordered[c].to_numpy() for c in COLUMNS]).tobytes()
        width = 8 * len(COLUMNS)
        for first in range(0, table.num_rows, 100_000):
            batch = WriteBatch(raw_mode=True)
            for i in range(first, min(first + 100_000, table.num_rows)):
                batch.put(keys[8 * i : 8 * i + 8], values[width * i : width * i + width])
            self._rocksdb.write(batch)
        self._rocksdb.compact_range(None, None)
        self._sqlite = sqlite3.connect(folder / "r.sqlite")
        self._sqlite.execute("CREATE TABLE r (k INTEGER PRIMARY KEY, c0 INTEGER, c1 INTEGER)")
        rows = zip(*(table[c].to_pylist() for c in ("k", *COLUMNS)), strict=True)
        self._sqlite.executemany("INSERT INTO r VALUES (?, ?, ?)", rows)
        self._sqlite.commit()
        self._sqlite.execute("CREATE TEMP TABLE s (at INTEGER PRIMARY KEY, k INTEGER)")

    def rocksdb(self, stream: pa.Table) -> Iterator[pa.RecordBatch]:
        for batch in stream.to_batches(max_chunksize=BATCH_ROWS):
            image = batch.column("k").to_numpy().astype(">i8").tobytes()
            keys = [image[i : i + 8] for i in range(0, len(image), 8)]
            found = b"".join(self._rocksdb.get(keys))  # type: ignore[arg-type]
            values = np.frombuffer(found, np.int64).reshape(-1, len(COLUMNS))
            yield _with(batch, [np.ascontiguousarray(values[:, i]) for i in range(len(COLUMNS))])

    def sqlite(self, stream: pa.Table) -> Iterator[pa.RecordBatch]:
        for batch in stream.to_batches(max_chunksize=BATCH_ROWS):
            self._sqlite.execute("DELETE FROM s")
            pairs = enumerate(batch.column("k").to_pylist())
            self._sqlite.executemany("INSERT INTO s VALUES (?, ?)", pairs)
            found = self._sqlite.execute(
                "SELECT c0, c1 FROM s JOIN r ON r.k = s.k ORDER BY at"
            ).fetchall()
            columns = np.array(found, np.int64)
            yield _with(batch, [columns[:, i].copy() for i in range(len(COLUMNS))])


def _with(batch: pa.RecordBatch, added: list[np.ndarray]) -> pa.RecordBatch:
    for name, column in zip(COLUMNS, added, strict=True):
        batch = batch.append_column(name, pa.array(column))
    return batch


if __name__ == "__main__":
    main()
