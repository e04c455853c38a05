"""Micro-batches: a few rows against a large R, all there at once, one task, 2 columns.

Each micro-batch opens R's page table anew, as a Spark task does, and its answer is checked. R is in
the page cache. What is read from an object store is counted on an emulated one.
"""

import argparse
import os
import statistics
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from time import perf_counter

import numpy as np
import pyarrow as pa

import semistream as ss
from benchmarks.microbatches import build, check, micro_batch
from benchmarks.report import Report
from semistream.advice.auto import make_join
from semistream.joins.protocols import Operator
from semistream.relation.device import EmulatedDevice, Reading
from semistream.spec import resolve

ROWS = (5_000, 200_000)
ALGORITHMS = ("auto", "lookup", "hybridjoin", "rmeshjoin")
MOST_MS = {5_000: 20.0, 200_000: 90.0}  # of `auto`, with R of 25M rows
_SHARE = 0.05
_ROUNDS = 15
_WARM_UP = 6


def main() -> None:
    """Run both sizes of R."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.microbatch", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a tenth of the data, to try it out")
    quick = parser.parse_args().quick
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    sizes = (250_000, 2_500_000) if quick else (2_500_000, 25_000_000)
    report = Report("microbatch", {})
    with tempfile.TemporaryDirectory(prefix="semistream-bench-") as folder:
        relations = [build(Path(folder) / f"{rows}.rel", rows) for rows in sizes]
        medians = {r.row_count: _times(r, report) for r in relations}
        stores = [_store_reads(relations[-1], name, report) for name in ("auto", "hybridjoin")]
    small, large = sizes
    rows = [
        [f"{n:,} tuples, R {r:,}", name, f"{medians[r][name, n]:.1f}"]
        for n in ROWS
        for r in sizes
        for name in ALGORITHMS
    ]
    report.show("Milliseconds of a micro-batch, median", ["job", "algorithm", "ms"], rows)
    header = ["tuples", f"R {large:,}: ms", "at most", f"× R {small:,}", "at most"]
    table = []
    for n in ROWS:
        ms = medians[large]["auto", n]
        ratio = ms / medians[small]["auto", n]
        table.append([f"{n:,}", f"{ms:.1f}", f"{MOST_MS[n]:g}", f"{ratio:.2f}", "2"])
    report.show("To be reached, auto", header, table)
    title = f"{ROWS[0]:,} tuples from an emulated object store, R {large:,} rows"
    report.show(title, ["algorithm", "MB read", "requests", "emulated s"], stores)


def operator_for(
    relation: ss.Relation, batch: pa.RecordBatch, name: str, rows: int, share: float = _SHARE
) -> Operator:
    """Return a join of a micro-batch, as a task would make it."""
    spec = resolve(relation, batch.schema, on="k", how="inner", columns=["c0", "c1"])
    budget = int(share * relation.size_bytes)
    known = rows if name == "auto" else None
    return make_join(name, relation, spec, budget, stream_rows=known)


def timed(make: Callable[[], Operator], batches: list[pa.RecordBatch]) -> float:
    """Return the milliseconds of a micro-batch from the first row in to the last row out."""
    started = perf_counter()
    joined = list(make().join(batches))
    milliseconds = 1e3 * (perf_counter() - started)
    check(joined, sum(batch.num_rows for batch in batches))
    return milliseconds


def _times(relation: ss.Relation, report: Report) -> dict[tuple[str, int], float]:
    """Return the median time of each algorithm and size; all take turns."""
    rng = np.random.default_rng(7)
    found: dict[tuple[str, int], list[float]] = {}
    # All parts are compared with their checksums before anything is timed, and are in the cache.
    warm = micro_batch(rng, relation.row_count, 4 * relation.row_count // 100)
    for _ in range(_WARM_UP):
        timed(partial(operator_for, relation, warm[0], "hybridjoin", 0), warm)
    for turn in range(_ROUNDS):
        for rows in ROWS:
            batches = micro_batch(rng, relation.row_count, rows)
            for name in ALGORITHMS:
                make = partial(operator_for, relation, batches[0], name, rows)
                ms = timed(make, batches)
                if turn >= 2:
                    found.setdefault((name, rows), []).append(ms)
    medians = {key: statistics.median(times) for key, times in found.items()}
    for (name, rows), ms in medians.items():
        report.add(name, relation_rows=relation.row_count, stream_rows=rows, median_ms=ms)
    return medians


def _store_reads(relation: ss.Relation, name: str, report: Report) -> list[str]:
    device = EmulatedDevice.named("object-store")
    batches = micro_batch(np.random.default_rng(9), relation.row_count, ROWS[0])
    far = relation.read_by(Reading(device))
    check(list(operator_for(far, batches[0], name, ROWS[0]).join(batches)), ROWS[0])
    read = {"mb": device.bytes_read / 1e6, "requests": device.requests, "s": device.waited_s}
    report.add(f"{name}, emulated object store", stream_rows=ROWS[0], **read)
    return [name, f"{read['mb']:.0f}", f"{read['requests']:,}", f"{read['s']:.1f}"]


if __name__ == "__main__":
    main()
