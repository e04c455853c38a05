"""The README's picture: the time of a micro-batch against the size of R, ours and plain Spark's.

`python -m benchmarks picture` measures and draws; `--draw` draws the last run again. Every answer
is checked against Spark's own before its time counts. Plain Spark is the best of its joins, at each
size of R.
"""

import argparse
import json
import tempfile
from pathlib import Path
from statistics import median
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

import semistream as ss
from benchmarks.report import RESULTS, Report
from benchmarks.sparkdata import KEY, TWO, SparkData
from benchmarks.sparkjoins import AUTO as OURS
from benchmarks.sparkjoins import check, contestants_of, fingerprint, steady_seconds
from semistream.spark.session import local_session

PICTURE = Path(__file__).parents[1] / "docs" / "images" / "microbatch.png"
SIZES = (300_000, 1_000_000, 3_000_000, 10_000_000, 30_000_000)  # rows of R
BATCH_ROWS = 100_000
MEMORY = 64_000_000
PLAIN = (
    "plain: shuffled hash join",
    "plain: sort-merge join",
    "plain: broadcast hash join",
    "plain: batch broadcast, inner",
)
_NAME = "picture"
_QUICK = 10  # times smaller


def main() -> None:
    """Measure, unless only to draw, and draw."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.picture", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a tenth of the data")
    parser.add_argument("--draw", action="store_true", help="draw the last run that is recorded")
    parser.add_argument("--out", type=Path, default=PICTURE)
    arguments = parser.parse_args()
    if not arguments.draw:
        times = _QUICK if arguments.quick else 1
        measure([rows // times for rows in SIZES], BATCH_ROWS // times, MEMORY // times)
    draw(last_run(RESULTS), arguments.out)
    print(f"drawn: {arguments.out}")


def measure(sizes: list[int], batch_rows: int, memory: int) -> None:
    """Time every join at every size of R."""
    report = Report(
        _NAME, {"batch_rows": batch_rows, "budget_bytes": memory, "columns_added": len(TWO)}
    )
    table = []
    # One folder for all: this process holds a lease on each relation until it ends.
    with tempfile.TemporaryDirectory(prefix="semistream-bench-") as folder:
        for rows in sizes:
            work = Path(folder) / str(rows)
            work.mkdir()
            for name, seconds in _times(work, rows, batch_rows, memory).items():
                report.add(name, relation_rows=rows, seconds=seconds)
                table.append([f"{rows:,}", name, f"{seconds:.2f}"])
    report.show("Seconds per micro-batch", ["rows of R", "join", "s"], table)


def _times(folder: Path, rows: int, batch_rows: int, memory: int) -> dict[str, float]:
    spark = local_session("semistream-picture", folder, memory="6g")
    try:
        data = SparkData(spark, folder, rows, batch_rows)
        data.write()
        relation = ss.build_relation(data.relation(), folder / "r.rel", key=KEY, partitions=4)
        joins = contestants_of(data, relation, TWO, memory)
        answer = fingerprint(joins["plain: sort-merge join"](data.all_batches()))
        found = {}
        for name in (OURS, *PLAIN):
            try:
                check(name, fingerprint(joins[name](data.all_batches())), answer)
                _, *steady = steady_seconds(data.stream(), joins[name], False)
                found[name] = median(steady)
            except (PySparkException, Py4JJavaError) as error:  # a broadcast that is too large
                print(f"{name}, R {rows:,}: {str(error).strip().splitlines()[0][:100]}")
        return found
    finally:
        spark.stop()


def last_run(results: Path) -> list[dict[str, Any]]:
    """Return the lines of the last run that is recorded."""
    lines = [json.loads(line) for line in results.read_text().splitlines()]
    lines = [line for line in lines if line["benchmark"] == _NAME]
    if not lines:
        raise SystemExit(f"{results} has no run to draw; leave --draw out")
    return [line for line in lines if line["run_at"] == lines[-1]["run_at"]]


def best_of(lines: list[dict[str, Any]], contestants: tuple[str, ...]) -> dict[int, float]:
    """Return the least time of some contestants, by the rows of R."""
    best: dict[int, float] = {}
    for line in lines:
        if line["contestant"] in contestants:
            size = line["relation_rows"]
            best[size] = min(line["seconds"], best.get(size, line["seconds"]))
    return dict(sorted(best.items()))


def draw(lines: list[dict[str, Any]], path: Path) -> None:
    """Draw both curves, both axes logarithmic."""
    from matplotlib.figure import Figure

    ours, plain = best_of(lines, (OURS,)), best_of(lines, PLAIN)
    figure = Figure(figsize=(7, 3.6), layout="constrained")
    axes = figure.subplots()
    memory = lines[0]["budget_bytes"] / 1e6
    axes.plot(list(plain), list(plain.values()), "o-", color="0.45", label="plain Spark, its best")
    label = f"semistream, {memory:.0f} MB in all"
    axes.plot(list(ours), list(ours.values()), "o-", color="tab:blue", label=label)
    axes.set(xscale="log", yscale="log", xlabel="rows of the master table", ylabel="seconds")
    axes.xaxis.set_major_formatter(lambda rows, _: f"{rows / 1e6:g}M")
    axes.yaxis.set_major_formatter(lambda seconds, _: f"{seconds:g}")
    axes.yaxis.set_minor_formatter(lambda seconds, _: f"{seconds:g}")
    axes.set_title(
        f"A micro-batch of {lines[0]['batch_rows']:,} rows; {lines[0]['machine']}", fontsize=10
    )
    axes.grid(which="both", alpha=0.2)
    axes.legend(frameon=False)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)


if __name__ == "__main__":
    main()
