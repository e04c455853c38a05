"""``make soak MINUTES=30``: does anything grow that should not, in a query that runs for long?

A query joins a bursty stream whose hot keys drift, while its relation is upserted, compacted and
pruned. Every few seconds its processes are looked at: memory of the driver (Python and JVM) and of
the Python workers, shared memory, open files, disk, and the backlog. At the end each series is
drawn, and judged by a slope test: the first quarter is left out as warm-up, the slope is the median
of the slopes between all pairs of points (Theil and Sen), and a series is flat if it would grow by
less than a tenth of its median, or than its noise, over the rest of the run.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import psutil
import pyarrow as pa

import semistream as ss
from semistream.spark.warmfiles import SHARED_MEMORY

MB = 1e6
# What is sampled: name, unit, and how much growth is noise.
SERIES = (
    ("driver (Python)", "MB", 10.0),
    ("driver (JVM)", "MB", 100.0),
    ("Python workers", "MB", 30.0),
    ("shared memory", "MB", 5.0),
    ("open files", "files", 10.0),
    ("disk", "MB", 5.0),
    ("backlog", "rows", 0.0),
)
_WARM_UP = 0.25
_GROWTH = 0.1
_UPSERT_S = 5.0
_PATIENCE_S = 300.0


@dataclass(frozen=True)
class Verdict:
    """What became of one series."""

    name: str
    unit: str
    median: float
    growth: float  # over the run without the warm-up, by the slope
    is_flat: bool

    def __str__(self) -> str:
        """Say it in a line."""
        said = "flat" if self.is_flat else "GROWS"
        return f"{self.name}: {self.median:,.1f} {self.unit}, {self.growth:+,.1f}: {said}"


def slope(times: Sequence[float], values: Sequence[float]) -> float:
    """Return the median slope between all pairs of points.

    >>> slope([0, 1, 2, 3], [5, 7, 9, 99])
    2.0
    """
    t, v = np.asarray(times, float), np.asarray(values, float)
    i, j = np.triu_indices(len(t), 1)
    return float(np.median((v[j] - v[i]) / (t[j] - t[i]))) if len(i) else 0.0


def judge(
    name: str, unit: str, noise: float, times: Sequence[float], values: Sequence[float]
) -> Verdict:
    """Return whether a series is flat once it is warm."""
    first = int(len(times) * _WARM_UP)
    if np.isnan(values[first:]).any():
        raise ValueError(f"{name} was not measured")
    times, values = times[first:], values[first:]
    middle = float(np.median(values))
    growth = slope(times, values) * (times[-1] - times[0])
    return Verdict(name, unit, middle, growth, growth <= max(_GROWTH * middle, noise))


class Watched:
    """The processes and folders of the query."""

    def __init__(self, folder: Path, pid: int, url: str) -> None:
        self._folder, self._url = folder, url
        self._driver = psutil.Process(pid)

    def sample(self) -> list[float]:
        """Return one value for each of `SERIES`."""
        below = self._driver.children(recursive=True)
        jvm = [p for p in below if p.name() == "java"]
        workers = [p for p in below if p not in jvm]
        memory = [sum(map(_rss, group)) / MB for group in ([self._driver], jvm, workers)]
        files = sum(map(_open_files, [self._driver, *jvm, *workers]))
        shared = Path(SHARED_MEMORY) / f"semistream-{os.getuid()}"
        disk = _size(self._folder) / MB
        return [*memory, _size(shared) / MB, files, disk, self._backlog()]

    def _backlog(self) -> float:
        with urllib.request.urlopen(self._url, timeout=30) as answer:
            lines = answer.read().decode().splitlines()
        found = [line for line in lines if line.startswith("semistream_backlog_rows{")]
        return float(found[0].rpartition(" ")[2]) if found else float("nan")


def _rss(process: psutil.Process) -> float:
    """Return the memory of a process; pages that it shares with others count in part."""
    with suppress(psutil.Error):
        return float(process.memory_full_info().pss)
    return 0.0


def _open_files(process: psutil.Process) -> int:
    with suppress(psutil.Error):
        return int(process.num_fds())
    return 0


def _size(folder: Path) -> float:
    total = 0
    for path in folder.rglob("*"):
        with suppress(OSError):
            total += path.stat().st_size if path.is_file() else 0
    return float(total)


def change_relation(place: Path, rows: int, done: threading.Event) -> None:
    """Upsert some rows again and again; compact and prune now and then."""
    relation, rng, number = ss.Relation.open(place), np.random.default_rng(1), 0
    names = [name for name in relation.schema.names if name != "k"]
    while not done.wait(_UPSERT_S):
        number += 1
        keys = np.unique(rng.integers(1, rows, rows // 1_000))
        columns = {name: _values(relation.schema.field(name).type, len(keys)) for name in names}
        relation = relation.upsert(pa.table({"k": keys, **columns}).select(relation.schema.names))
        if number % 6 == 0:
            relation = relation.compact()
            relation.prune(keep=1, grace=30)


def _values(dtype: pa.DataType, count: int) -> pa.Array:
    return (
        pa.array([1] * count).cast(dtype) if pa.types.is_integer(dtype) else pa.nulls(count, dtype)
    )


def draw(out: Path, times: Sequence[float], samples: Sequence[Sequence[float]], said: str) -> None:
    """Draw all series, with their verdicts."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(4, 2, figsize=(11, 10), sharex=True, layout="constrained")
    minutes = np.asarray(times) / 60
    for axis, (name, unit, noise), values in zip(
        axes.flat, SERIES, zip(*samples, strict=True), strict=False
    ):
        verdict = judge(name, unit, noise, times, values)
        axis.plot(minutes, values, lw=1, color="tab:blue" if verdict.is_flat else "tab:red")
        axis.axvspan(0, minutes[-1] * _WARM_UP, color="0.92")
        axis.set_ylim(bottom=0)
        axis.set_title(str(verdict), fontsize=9)
        axis.set_ylabel(unit)
    axes.flat[-1].axis("off")
    axes.flat[-2].set_xlabel("minutes")
    figure.suptitle(said, fontsize=11)
    figure.savefig(out, dpi=100)


def soak(folder: Path, minutes: float, rate: int, rows: int, every_s: float) -> list[list[float]]:
    """Run the query and sample it; return the times and the values."""
    with (folder / "log").open("wb") as log:
        command = [
            sys.executable,
            "-m",
            "benchmarks.soak_driver",
            str(folder),
            str(rate),
            str(rows),
        ]
        driver = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
    done, keeper, samples = threading.Event(), None, []
    try:
        deadline = time.monotonic() + _PATIENCE_S
        while not (folder / "port").exists():
            assert driver.poll() is None, (folder / "log").read_text()[-3000:]
            assert time.monotonic() < deadline, "the query did not start"
            time.sleep(0.2)
        about = (folder / "r.rel", rows, done)
        keeper = threading.Thread(target=change_relation, args=about, daemon=True)
        keeper.start()
        url = f"http://127.0.0.1:{(folder / 'port').read_text()}/metrics"
        watched, started = Watched(folder, driver.pid, url), time.monotonic()
        while time.monotonic() - started < 60 * minutes:
            assert driver.poll() is None, (folder / "log").read_text()[-3000:]
            assert keeper.is_alive(), "the relation is no longer changed"
            samples.append([time.monotonic() - started, *watched.sample()])
            time.sleep(every_s)
    finally:
        done.set()
        if keeper is not None:
            keeper.join()
        with suppress(ProcessLookupError):
            os.killpg(driver.pid, signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            driver.wait(20)
        with suppress(ProcessLookupError):
            os.killpg(driver.pid, signal.SIGKILL)
    return samples


def main() -> int:
    """Soak, draw, judge."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--rate", type=int, default=5_000, help="rows per second, on average")
    parser.add_argument("--rows", type=int, default=1_000_000, help="of the relation")
    parser.add_argument("--every", type=float, default=5.0, help="seconds between samples")
    parser.add_argument("--out", type=Path, default=Path("soak-out"))
    asked = parser.parse_args()
    asked.out.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="soak-") as folder:
        found = soak(Path(folder), asked.minutes, asked.rate, asked.rows, asked.every)
    times, samples = [each[0] for each in found], [each[1:] for each in found]
    said = (
        f"{asked.minutes:g} minutes, {asked.rate:,} rows/s in bursts, hot keys drift, R of "
        f"{asked.rows:,} rows upserted every {_UPSERT_S:g} s"
    )
    verdicts = [
        judge(*about, times, values)
        for about, values in zip(SERIES, zip(*samples, strict=True), strict=True)
    ]
    lines = [json.dumps({"second": t, **dict(zip((s[0] for s in SERIES), v, strict=True))})
             for t, v in zip(times, samples, strict=True)]  # fmt: skip
    (asked.out / "soak.jsonl").write_text("\n".join(lines) + "\n")
    draw(asked.out / "soak.png", times, samples, said)
    print(said, *verdicts, sep="\n")
    return 0 if all(verdict.is_flat for verdict in verdicts) else 1


if __name__ == "__main__":
    sys.exit(main())
