"""The engine on one core: our joins within a budget against peers that hold all of R in memory,
and against stores that look every key up.

Every contestant gets the same stream in the same batches and must hand over materialised columns:
the stream's three and two or all 14 of R's. Its answer is checked before its time counts. All
contestants take turns, round after round, so that a slow spell of the machine does not fall on one
of them; the best of each one's rounds counts.
"""

import argparse
import os
import sqlite3
import tempfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from time import perf_counter

import duckdb
import numpy as np
import polars as pl
import pyarrow as pa
from rocksdict import Options, Rdict, WriteBatch

import semistream as ss
from benchmarks.data import (
    BATCH_ROWS,
    Fingerprint,
    fingerprint,
    paper_workload,
    shuffled_relation,
    stream_table,
)
from benchmarks.report import Report
from semistream.joins.registry import ALGORITHMS, BOUNDS

COLUMNS = ["c0", "c1"]
ALL_COLUMNS = [f"c{i}" for i in range(14)]
ROUNDS = 3
# What runs within which share of R's size: with two columns, and with all.
WITHIN = {
    0.05: ["auto", *(a for a in ALGORITHMS if a not in ("resident", "inlj", "cinlj"))],
    0.01: ["auto", "meshjoin", "cmeshjoin", "hybridjoin", "chybridjoin", "binlj", "cbinlj"],
}
_ALL = ["auto", "hybridjoin", "chybridjoin", "cmeshjoin", "rmeshjoin"]
WITHIN_ALL = dict.fromkeys(WITHIN, _ALL)
POLARS = "polars, all of R in memory"
ROCKSDB = "rocksdb multi-get"
Join = Callable[[], Iterable[pa.RecordBatch]]


@dataclass(frozen=True)
class Contestant:
    stream: pa.Table
    join: Join
    answer: Fingerprint
    rounds: int = ROUNDS


@dataclass(frozen=True)
class Target:
    """What must be reached: the best of some contestants against a peer."""

    what: str
    exponent: float
    names: tuple[str, ...]
    peer: str
    factor: float
    columns: int = len(COLUMNS)


def _name(algorithm: str, share: float) -> str:
    return f"{algorithm}, {share:.0%} of R"


def _within(share: float, within: dict[float, list[str]] = WITHIN) -> tuple[str, ...]:
    return tuple(_name(a, share) for a in within[share] if a not in BOUNDS)


def _targets(what: str, exponent: float, share: float, factor: float, columns: int) -> list[Target]:
    """Return a figure for `auto` and for the best of ours."""
    within = WITHIN if columns == len(COLUMNS) else WITHIN_ALL
    what = f"{columns} columns, {what}, {share:.0%}"
    about = (POLARS, factor, columns)
    return [
        Target(f"auto, {what}", exponent, (_name("auto", share),), *about),
        Target(f"best of ours, {what}", exponent, _within(share, within), *about),
    ]


TARGETS = (
    *_targets("Zipf 1", 1.0, 0.05, 1.2, 2),
    *_targets("uniform", 0.0, 0.05, 1.0, 2),
    *_targets("Zipf 1", 1.0, 0.01, 0.6, 2),
    *_targets("Zipf 1", 1.0, 0.05, 1.0, 14),
    *_targets("Zipf 1", 1.0, 0.01, 0.5, 14),
    Target("best of ours, Zipf 1, 1 %", 1.0, _within(0.01), ROCKSDB, 10.0),
)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true")
    quick = parser.parse_args().quick
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    relation_rows, stream_rows = (350_000, 600_000) if quick else (3_500_000, 6_000_000)
    with tempfile.TemporaryDirectory(prefix="semistream-bench-") as folder:
        table = shuffled_relation(paper_workload(relation_rows))
        relation = ss.build_relation(table, Path(folder) / "r.rel", key="k", partitions=1)
        stores = _Stores(table, Path(folder))
        rates = {
            (e, len(COLUMNS)): _compare(stream_rows, table, relation, stores, e) for e in (0.0, 1.0)
        }
        rates[1.0, len(ALL_COLUMNS)] = _compare_all_columns(stream_rows, table, relation, 1.0)
    Report("engine", {}).show(
        "To be reached" + (" (a tenth of the data: not the figures that count)" if quick else ""),
        ["figure", "at least", "reached"],
        [
            [f"{t.what}, × {t.peer.split(',')[0]}", f"{t.factor:g}", f"{_reached(t, rates):.2f}"]
            for t in TARGETS
        ],
    )


def _reached(target: Target, rates: dict[tuple[float, int], dict[str, float]]) -> float:
    found = rates[target.exponent, target.columns]
    return max(found[name] for name in target.names) / found[target.peer]


def _compare(
    stream_rows: int,
    table: pa.Table,
    relation: ss.Relation,
    stores: "_Stores",
    exponent: float,
) -> dict[str, float]:
    stream = stream_table(paper_workload(table.num_rows, exponent), stream_rows)
    answer = answer_to(table, stream)
    # A store looks up a tenth of the stream, and an index a hundredth, one page at a time: the
    # others would wait for them.
    sample, few = stream[: len(stream) // 10], stream[: len(stream) // 100]
    skew = "uniform" if exponent == 0 else f"Zipf {exponent:g}"
    report = Report(
        "engine",
        {"relation_rows": table.num_rows, "stream_rows": stream.num_rows, "exponent": exponent},
    )
    contestants = {}
    for share, algorithms in WITHIN.items():
        budget = int(relation.size_bytes * share)
        for algorithm in algorithms:
            join = partial(_ours, stream, relation, algorithm, budget)
            contestants[_name(algorithm, share)] = Contestant(stream, join, answer)
    resident = partial(_ours, stream, relation, "resident", 10**9)
    inlj = partial(_ours, few, relation, "inlj", int(relation.size_bytes * 0.05))
    contestants |= {
        _name("inlj", 0.05): Contestant(few, inlj, answer_to(table, few), 2),
        "resident, all of R": Contestant(stream, resident, answer),
        POLARS: Contestant(stream, _polars(stream, table), answer),
        "duckdb, all of R in memory": Contestant(stream, _duckdb(stream, table), answer),
        ROCKSDB: Contestant(sample, lambda: stores.rocksdb(sample), answer_to(table, sample), 2),
        "sqlite index": Contestant(
            sample, lambda: stores.sqlite(sample), answer_to(table, sample), 2
        ),
    }
    rates = _best_rates(contestants)
    polars, rocksdb = rates[POLARS], rates[ROCKSDB]
    for name, rate in rates.items():
        report.add(name, rows_per_s=round(rate), x_polars=rate / polars, x_rocksdb=rate / rocksdb)
    report.show(
        f"Engine, one core, {skew} keys, R {table.num_rows:,} × 120 B, S 20 B",
        ["contestant", "tuples/s", "× polars", "× rocksdb"],
        [[n, f"{r:,.0f}", f"{r / polars:.2f}", f"{r / rocksdb:.1f}"] for n, r in rates.items()],
    )
    return rates


def _compare_all_columns(
    stream_rows: int, table: pa.Table, relation: ss.Relation, exponent: float
) -> dict[str, float]:
    """Return the rates of joins that add all columns."""
    stream = stream_table(paper_workload(table.num_rows, exponent), stream_rows)
    answer = answer_to(table, stream, ALL_COLUMNS)
    contestants = {POLARS: Contestant(stream, _polars(stream, table, ALL_COLUMNS), answer)}
    for share, algorithms in WITHIN_ALL.items():
        budget = int(relation.size_bytes * share)
        for algorithm in algorithms:
            join = partial(_ours, stream, relation, algorithm, budget, ALL_COLUMNS)
            contestants[_name(algorithm, share)] = Contestant(stream, join, answer)
    rates = _best_rates(contestants)
    about = {"relation_rows": table.num_rows, "exponent": exponent, "columns": len(ALL_COLUMNS)}
    report = Report("engine", {**about, "stream_rows": stream.num_rows})
    for name, rate in rates.items():
        report.add(name, rows_per_s=round(rate), x_polars=rate / rates[POLARS])
    report.show(
        f"All 14 columns, one core, Zipf {exponent:g}, R {table.num_rows:,} × 120 B",
        ["contestant", "tuples/s", "× polars"],
        [[n, f"{r:,.0f}", f"{r / rates[POLARS]:.2f}"] for n, r in rates.items()],
    )
    return rates


def answer_to(table: pa.Table, stream: pa.Table, columns: list[str] = COLUMNS) -> Fingerprint:
    """Return the fingerprint of the right answer, by direct addressing: keys are 0 … n - 1."""
    rows = np.empty(table.num_rows, np.int64)
    rows[table["k"].to_numpy()] = np.arange(table.num_rows)
    wanted = rows[stream["k"].to_numpy()]
    added = {name: table[name].to_numpy()[wanted] for name in columns}
    joined = {**{name: stream[name].to_numpy() for name in stream.column_names}, **added}
    return fingerprint([pa.record_batch(joined)])


def _best_rates(contestants: dict[str, Contestant]) -> dict[str, float]:
    """Return each one's best service rate over its rounds, every one of them checked."""
    best = dict.fromkeys(contestants, 0.0)
    for turn in range(ROUNDS):
        for name, contestant in contestants.items():
            if turn >= contestant.rounds:
                continue
            started = perf_counter()
            batches = list(contestant.join())
            seconds = perf_counter() - started
            if fingerprint(batches) != contestant.answer:
                raise AssertionError(f"{name} gave a wrong answer")
            best[name] = max(best[name], contestant.stream.num_rows / seconds)
    return best


def _ours(
    stream: pa.Table,
    relation: ss.Relation,
    algorithm: str,
    budget: int,
    columns: list[str] = COLUMNS,
) -> Iterator[pa.RecordBatch]:
    batches = stream.to_batches(max_chunksize=BATCH_ROWS)
    return ss.join(
        batches, relation, on="k", how="inner", columns=columns, memory=budget, algorithm=algorithm
    )


def _polars(stream: pa.Table, table: pa.Table, columns: list[str] = COLUMNS) -> Join:
    left = pl.DataFrame(stream)
    right = pl.DataFrame(table.select(["k", *columns]))
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
