"""Structured Streaming: enrich against plain Spark's joins, a key-value store, and the floor.

A job is a size of R (120 B a row), the rows of a micro-batch, the columns added and the skew of the
keys; the budget is 5 % of R, the sink is Spark's no-op. Every answer over all micro-batches is
checked against a join of Spark's own before its times count. The figure is the median over
the micro-batches after the third; plain joins, which take seconds, run fewer micro-batches. The JVM
becomes faster for minutes, so the floor runs once before anything is timed; ours and the floors are
timed before the plain joins, and in reverse order after them.

Without options the jobs of the README's table are run; ``--all`` runs every combination, which
takes hours. ``--keep`` keeps R for the next run. With ``--page-cache`` the whole job, JVM and
workers, is in a control group that leaves so much memory for the page cache, so that R is really
too big for it; its limit is set anew, and caches are dropped, before each contestant.
"""

import argparse
import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from statistics import median

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

import semistream as ss
from benchmarks.controlgroup import NOT_POSSIBLE, ControlGroup, control_group, is_possible
from benchmarks.report import Report
from benchmarks.sparkdata import ALL, KEY, TWO, SparkData
from benchmarks.sparkjoins import (
    AUTO,
    BARE_FLOOR,
    BY_BATCH,
    FLOOR,
    MEMORY_SHARE,
    ROCKSDB,
    RocksJoin,
    check,
    contestants_of,
    fingerprint,
    steady_seconds,
)
from semistream.spark.session import local_session
from semistream.units import parse_bytes

SKIPPED = 3  # micro-batches
BATCHES = 18
PLAIN_BATCHES = 5  # of joins that read all of R
_ROCKSDB_ROWS = 10_000_000  # of R up to which a store is filled


@dataclass(frozen=True)
class Job:
    """What is joined."""

    relation_rows: int
    batch_rows: int
    columns: int
    exponent: float
    row_columns: int = len(ALL)  # of R: 14 columns of 8 bytes, or fewer

    def __str__(self) -> str:
        """Name it in a table."""
        skew = f"Zipf {self.exponent:g}" if self.exponent else "uniform"
        width = 8 * (self.row_columns + 1)
        return (
            f"R {self.relation_rows / 1e6:g}M × {width} B, {self.batch_rows:,} rows, "
            f"{self.columns} columns, {skew}"
        )


EVERY = [
    Job(relation, rows, columns, exponent)
    for relation, rows, columns, exponent in product(
        (10_000_000, 50_000_000), (10_000, 100_000, 400_000), (len(TWO), len(ALL)), (0.0, 1.0)
    )
] + [Job(200_000_000, 10_000, 2, 0.0, row_columns=2)]
USUAL = [
    Job(10_000_000, 10_000, 2, 0.0),
    Job(10_000_000, 400_000, 14, 0.0),
    *(Job(50_000_000, rows, 2, skew) for rows in (10_000, 400_000) for skew in (0.0, 1.0)),
    Job(20_000_000, 400_000, 2, 1.0, row_columns=2),
]


def main() -> None:
    """Run the jobs that the arguments name."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.spark", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a small job, to try it out")
    parser.add_argument("--all", action="store_true", help="every combination")
    parser.add_argument("--relation-rows", type=int, help="only jobs with this size of R")
    parser.add_argument("--batch-rows", type=int, help="only jobs with micro-batches of this size")
    parser.add_argument("--ours", action="store_true", help="leave the rivals out")
    parser.add_argument("--only", help="a regular expression for the names of contestants")
    parser.add_argument("--keep", type=Path, help="a folder for R, which is not removed")
    parser.add_argument("--page-cache", type=parse_bytes, help="leave so much of it, such as 1GB")
    arguments = parser.parse_args()
    if arguments.page_cache is not None and not is_possible():
        print(NOT_POSSIBLE)
        return
    jobs = EVERY if arguments.all else USUAL
    if arguments.quick:
        jobs = [Job(500_000, 20_000, 2, 1.0)]
    jobs = [
        job
        for job in jobs
        if arguments.relation_rows in (None, job.relation_rows)
        and arguments.batch_rows in (None, job.batch_rows)
    ]
    only = re.compile(r"^(?!plain|rocksdb)" if arguments.ours else arguments.only or "")
    with (
        tempfile.TemporaryDirectory(prefix="semistream-bench-") as folder,
        _limited(arguments.page_cache) as limit,
    ):
        memory = "8g" if arguments.page_cache is None else "4g"
        spark = local_session("semistream-bench", Path(folder), memory=memory)
        for job in jobs:
            _run(spark, job, arguments.keep or Path(folder), only, limit)
        spark.stop()


@dataclass(frozen=True)
class Limit:
    """How much of R the page cache can hold; None if the machine decides."""

    page_cache_bytes: int | None = None
    group: ControlGroup | None = None

    def __str__(self) -> str:
        """Name it in a table."""
        if self.page_cache_bytes is None:
            return ""
        return f", {self.page_cache_bytes / 1e9:g} GB of page cache"

    def set(self) -> None:
        """Set it for what the processes hold now, and drop all caches."""
        if self.group is not None and self.page_cache_bytes is not None:
            self.group.leave_for_page_cache(self.page_cache_bytes)

    def lift(self) -> None:
        """Lift it for what is not timed: Spark would be killed if it needed more memory."""
        if self.group is not None:
            self.group.unlimit()


@contextmanager
def _limited(page_cache_bytes: int | None) -> Iterator[Limit]:
    if page_cache_bytes is None:
        yield Limit()
        return
    with control_group() as group:
        group.enter()
        yield Limit(page_cache_bytes, group)


def _run(
    spark: SparkSession,
    job: Job,
    kept: Path,
    only: re.Pattern[str],
    limit: Limit,
) -> None:
    """Time every contestant at one job."""
    kept.mkdir(parents=True, exist_ok=True)
    r = SparkData(spark, kept, job.relation_rows, job.batch_rows, columns=job.row_columns)
    r.write_relation()
    relation = _relation(r, kept / f"r{job.relation_rows}x{job.row_columns}.rel")
    with tempfile.TemporaryDirectory(prefix="semistream-bench-") as folder:
        long, short = (
            replace(r, folder=Path(folder) / str(n), batches=n, exponent=job.exponent)
            for n in (BATCHES, PLAIN_BATCHES)
        )
        long.write_stream()
        short.write_stream()
        _compare(job, r, long, short, relation, only, limit)


def _relation(data: SparkData, path: Path) -> ss.Relation:
    if path.exists():
        return ss.Relation.open(path)
    return ss.build_relation(data.relation(), path, key=KEY, partitions=2)


def _compare(
    job: Job,
    r: SparkData,
    long: SparkData,
    short: SparkData,
    relation: ss.Relation,
    only: re.Pattern[str],
    limit: Limit,
) -> None:
    columns = ALL[: job.columns]
    budget = int(relation.size_bytes * MEMORY_SHARE)
    joins = contestants_of(r, relation, columns, budget)
    if job.relation_rows <= _ROCKSDB_ROWS and only.search(ROCKSDB):
        joins[ROCKSDB] = RocksJoin(r, columns, f"rocksdb{job.relation_rows}x{job.columns}")
    always = (AUTO, FLOOR, BARE_FLOOR)  # the others are compared with them
    joins = {name: join for name, join in joins.items() if name in always or only.search(name)}
    about = {"job": f"{job}{limit}", "budget_bytes": budget}
    report = Report("spark", about)
    plain = contestants_of(r, relation, columns, budget)["plain: batch broadcast, inner"]
    answers = {data: fingerprint(plain(data.all_batches())) for data in (long, short)}
    steady_seconds(short.stream(), joins[FLOOR], by_batch=False)  # nothing is timed in a new JVM
    times: dict[str, list[float]] = {}  # the first micro-batch's, then those of steady ones
    rows = []
    rivals = [name for name in joins if name.startswith(("plain", "rocksdb"))]
    ours = [FLOOR, BARE_FLOOR, *(name for name in joins if name.startswith("semistream"))]
    for name in [*ours, *rivals, *reversed(ours)]:
        is_slow, join = name in rivals, joins[name]
        data = short if is_slow else long
        try:
            if not name.startswith("floor") and name not in times:
                check(name, fingerprint(join(data.all_batches())), answers[data])
            limit.set()
            skipped = 1 if is_slow else SKIPPED
            found = steady_seconds(data.stream(), join, name in BY_BATCH, skipped)
            limit.lift()
            times[name] = times[name] + found[1:] if name in times else found
        except (PySparkException, Py4JJavaError) as error:  # a plain join that runs out of memory
            cause = re.search(r"OutOfMemoryError[^\n]*", str(error))
            why = (cause[0] if cause else str(error).strip().splitlines()[0])[:60]
            report.add(name, failed=why)
            rows.append([name, "failed", "", "", why])
    seconds = {name: (first, median(steady)) for name, (first, *steady) in times.items()}
    best = min((s[1] for name, s in seconds.items() if name.startswith("plain")), default=0.0)
    floor = seconds[FLOOR][1]
    for name, (first, steady_s) in seconds.items():
        figures = {"first_s": first, "seconds": steady_s, "x_floor": steady_s / floor}
        report.add(name, **figures, x_plain=best / steady_s)
        x_plain = f"{best / steady_s:.1f}" if best else ""
        rows.append([name, f"{steady_s:.2f}", f"{first:.1f}", f"{steady_s / floor:.2f}", x_plain])
    header = ["contestant", "s per batch", "first", "× floor", "× best plain"]
    report.show(f"Spark, {job}{limit}, budget {budget / 1e6:.0f} MB", header, rows)
    named = min(s[1] for name, s in seconds.items() if name.startswith("semistream"))
    print(
        f"auto: {named / seconds[AUTO][1]:.2f} of the best named algorithm; "
        f"{seconds[AUTO][1] / seconds[BARE_FLOOR][1]:.2f} × the floor without a shuffle; first "
        f"micro-batch {seconds[AUTO][0] - seconds[FLOOR][0]:+.1f} s against the floor's\n"
    )


if __name__ == "__main__":
    main()
