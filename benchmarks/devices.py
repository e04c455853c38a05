"""The algorithms on an emulated disk, and what each way of reading gains.

*Emulated*: the bytes come from the page cache, the time from a model of a 7200 rpm disk (8 ms seek,
80 MB/s) and from the CPU, one core. A service rate is that of the second half of the stream, up to
its last batch: the caches are warm, and the drain at the end, which a stream that goes on does not
have, is not counted. Every answer is checked.

*Real*: the same joins on this machine's disk, R dropped from the page cache before each run.
"""

import argparse
import os
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter, process_time

import pyarrow as pa

import semistream as ss
from benchmarks.data import (
    BATCH_ROWS,
    fingerprint,
    paper_workload,
    shuffled_relation,
    stream_table,
)
from benchmarks.engine import COLUMNS, answer_to
from benchmarks.report import Report
from semistream.embedded import prepare
from semistream.joins.registry import ALGORITHMS, BOUNDS
from semistream.relation.device import EmulatedDevice, Reading

DEVICE = "hdd-2007"
SHARE = 0.05
FEW = 2_000  # tuples for the joins that read a page for each
SLOW = ("inlj", "cinlj")
TARGETS = (("cmeshjoin", "meshjoin", 4), ("hybridjoin", "meshjoin", 1), ("meshjoin", "inlj", 10))


@dataclass(frozen=True)
class Run:
    """What one join took on a device's clock."""

    rate: float
    device: EmulatedDevice


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true")
    quick = parser.parse_args().quick
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    relation_rows, stream_rows = (350_000, 2_400_000) if quick else (3_500_000, 24_000_000)
    workload = paper_workload(relation_rows)
    with tempfile.TemporaryDirectory(prefix="semistream-bench-") as folder:
        table = shuffled_relation(workload)
        relation = ss.build_relation(table, Path(folder) / "r.rel", key="k", partitions=1)
        stream = stream_table(workload, stream_rows)
        by_frequency = ss.build_relation(
            table,
            Path(folder) / "f.rel",
            key="k",
            partitions=1,
            order="frequency",
            sample=stream[: stream.num_rows // 10].select(["k"]),
        )
        _algorithms(relation, by_frequency, table, stream)
        _readings(relation, table, stream[: stream.num_rows // 4])
        _real(relation, table, stream[: stream.num_rows // 4])


def _algorithms(
    relation: ss.Relation, by_frequency: ss.Relation, table: pa.Table, stream: pa.Table
) -> None:
    runs = {a: _run(relation, a, table, stream) for a in ALGORITHMS if a not in BOUNDS}
    for algorithm in ("hybridjoin", "xhybridjoin", "chybridjoin"):
        name = f"{algorithm}, R ordered by frequency"
        runs[name] = _run(by_frequency, algorithm, table, stream)
    report = Report("devices", _setting(table, stream))
    base = runs["meshjoin"].rate
    for name, run in runs.items():
        report.add(name, rows_per_s=round(run.rate), x_meshjoin=run.rate / base)
    report.show(
        f"Emulated {DEVICE}, one core, Zipf 1, {SHARE:.0%} of R: service rate, warm",
        ["algorithm", "tuples/s", "× meshjoin", "seeks", "MB read"],
        [
            [
                name,
                f"{run.rate:,.0f}",
                f"{run.rate / base:.2f}",
                f"{run.device.seeks:,}",
                f"{run.device.bytes_read / 1e6:,.0f}",
            ]
            for name, run in runs.items()
        ],
    )
    report.show(
        "To be reached on the emulated disk",
        ["figure", "at least", "reached"],
        [[f"{a} × {b}", f"{x:g}", f"{runs[a].rate / runs[b].rate:.2f}"] for a, b, x in TARGETS],
    )


def _readings(relation: ss.Relation, table: pa.Table, stream: pa.Table) -> None:
    """Show what keys first, late columns and reading ahead gain, on the emulated disk."""
    report = Report("readings", _setting(table, stream))
    rows = []
    for algorithm in ("meshjoin", "cmeshjoin", "chybridjoin"):
        base = None
        for name, columns, ahead, whole in (
            ("whole pages, as in the papers", COLUMNS, False, True),
            ("keys first, all 14 columns late", [f"c{i}" for i in range(14)], False, False),
            ("keys first, two columns late", COLUMNS, False, False),
            ("the same, reading ahead", COLUMNS, True, False),
        ):
            run = _run(relation, algorithm, table, stream, columns, ahead, whole)
            base = base or run.rate
            report.add(name, algorithm=algorithm, rows_per_s=round(run.rate))
            gain = f"{run.rate / base:.2f}"
            rows.append([algorithm, name, f"{run.rate:,.0f}", gain, f"{run.device.seeks:,}"])
    report.show(
        f"Ways of reading, emulated {DEVICE}, Zipf 1, {SHARE:.0%} of R",
        ["algorithm", "reading", "tuples/s", "× whole pages", "seeks"],
        rows,
    )


def _real(relation: ss.Relation, table: pa.Table, stream: pa.Table) -> None:
    """Show the same on the real device, with a page cache that holds nothing of R at first."""
    setting = _setting(table, stream, "this machine's disk, page cache dropped")
    report = Report("readings", setting)
    answer = answer_to(table, stream)
    rows = []
    for algorithm in ("meshjoin", "chybridjoin"):
        for name, ahead, whole in (
            ("whole pages, as in the papers", False, True),
            ("keys first, two columns late", False, False),
            ("the same, reading ahead", True, False),
        ):
            handle = relation.read_by(Reading(read_ahead=ahead, whole_pages=whole))
            best = 0.0
            for _ in range(3):
                _drop_from_page_cache(relation)
                started = perf_counter()
                out = list(_join(handle, algorithm, stream.to_batches(BATCH_ROWS), COLUMNS))
                seconds = perf_counter() - started
                assert fingerprint(out) == answer
                best = max(best, stream.num_rows / seconds)
            report.add(name, algorithm=algorithm, rows_per_s=round(best))
            rows.append([algorithm, name, f"{best:,.0f}"])
    report.show(
        "Ways of reading, this machine's disk, R dropped from the page cache before each run",
        ["algorithm", "reading", "tuples/s"],
        rows,
    )


def _run(
    relation: ss.Relation,
    algorithm: str,
    table: pa.Table,
    stream: pa.Table,
    columns: list[str] = COLUMNS,
    read_ahead: bool = False,
    whole_pages: bool = False,
) -> Run:
    """Join on the emulated disk; return the service rate of the second half."""
    stream = stream[:FEW] if algorithm in SLOW else stream
    device = EmulatedDevice.named(DEVICE, process_time)
    handle = relation.read_by(Reading(device, read_ahead, whole_pages))
    source = _Watched(stream.to_batches(max_chunksize=1 + len(stream) // 200), device)
    out = list(_join(handle, algorithm, source, columns))
    if fingerprint(out) != answer_to(table, stream, columns):
        raise AssertionError(f"{algorithm} gave a wrong answer")
    return Run(source.rate, device)


class _Watched:
    """A source that notes when its second half was requested."""

    def __init__(self, batches: list[pa.RecordBatch], device: EmulatedDevice) -> None:
        self._batches = batches
        self._device = device
        self._half_s = self._end_s = 0.0

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        for i, batch in enumerate(self._batches):
            if i == len(self._batches) // 2:
                self._half_s = self._device.now_s
            yield batch
        self._end_s = self._device.now_s

    @property
    def rate(self) -> float:
        rows = sum(b.num_rows for b in self._batches[len(self._batches) // 2 :])
        return float(rows / (self._end_s - self._half_s))


def _join(
    relation: ss.Relation, algorithm: str, batches: Iterable[pa.RecordBatch], columns: list[str]
) -> Iterator[pa.RecordBatch]:
    operator, batches = prepare(
        batches,
        relation,
        how="inner",
        columns=columns,
        memory=int(relation.size_bytes * SHARE),
        algorithm=algorithm,
    )
    assert operator is not None
    return operator.join(batches)


def _drop_from_page_cache(relation: ss.Relation) -> None:
    for path in Path(relation.location).rglob("part-*"):
        descriptor = os.open(path, os.O_RDONLY)
        os.fsync(descriptor)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(descriptor)


def _setting(
    table: pa.Table, stream: pa.Table, device: str = f"{DEVICE} (emulated)"
) -> dict[str, object]:
    rows = {"relation_rows": table.num_rows, "stream_rows": stream.num_rows}
    return {**rows, "device": device}


if __name__ == "__main__":
    main()
