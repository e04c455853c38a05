"""Run as a program: faults at random moments, for some minutes; after each the sink is checked.

``python -m tests.faults.chaos --minutes 10 --seed 7``. A round is a query that reads a folder of
files to its end, whatever happens to it: its driver is killed and started again, Python workers and
executors are killed, tasks run twice, and meanwhile the relation is changed, compacted and pruned.
Then a few faults of disks and files (`tests.faults.query_faults`). The seed decides everything but
the speed of the machine.

The oracle is a plain dictionary for each version of the relation: the rows of a micro-batch must
all be those of one version, every stream row must be there once, and versions must not go back.
"""

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq

import semistream as ss
from tests.arriving import arriving
from tests.faults import query_faults
from tests.faults.chaos_driver import RUNNING

KEYS, ROWS = 5_000, 2_000
LOCAL = "local[2,4]"  # a task may fail three times
CLUSTER = "local-cluster[2,1,512]"  # executors are processes, slow tasks run a second time
DRIVER = Path(__file__).parent / "chaos_driver.py"
PATIENCE_S = 300
GRACE_S = 5  # of a prune: more than a task takes from choosing a snapshot to pinning it
Version = dict[int, str]  # what the relation has, by key


@dataclass
class Round:
    """One query, and what is done to it."""

    folder: Path
    rng: random.Random
    files: int
    master: str = LOCAL
    versions: list[Version] = field(default_factory=list)  # of the relation, in order
    did: Counter[str] = field(default_factory=Counter)  # the faults, for the report
    done: threading.Event = field(default_factory=threading.Event)

    def prepare(self) -> None:
        """Write the stream, and the first version of the relation."""
        (self.folder / "in").mkdir(parents=True)
        (self.folder / "attempts").mkdir()
        for number in range(self.files):
            keys = np.random.default_rng([self.rng.randrange(1 << 30), number])
            k = keys.integers(0, KEYS + 500, ROWS)
            path = self.folder / "in" / f"{number:03d}.parquet"
            with arriving(path, number) as unfinished:
                pq.write_table(pa.table({"k": k, "q": np.arange(ROWS) + number * ROWS}), unfinished)
        first = dict.fromkeys(range(KEYS), "v0")
        place = self.folder / "r"
        ss.build_relation(_table(first), place, key="k", partitions=2, page_size=4096)
        self.versions.append(first)

    def run(self, kills: int, worker_kills: int) -> None:
        """Run the query to its end; the relation changes meanwhile."""
        keeper = threading.Thread(target=self._change_relation)
        keeper.start()
        try:
            while True:
                process = self._start()
                if kills:
                    kills -= 1
                    self._kill_driver(process)
                elif worker_kills:
                    killed = self._kill_workers(process, worker_kills)
                    worker_kills = 0
                    if self._ended(process, killed):
                        return
                elif self._ended(process, 0):
                    return
        finally:
            self.done.set()
            keeper.join()
            self._count_attempts()

    def _count_attempts(self) -> None:
        attempts = [path.stem for path in (self.folder / "attempts").iterdir()]
        tasks = {name.rpartition("-")[0] for name in attempts}
        self.did["task run again"] = len(attempts) - len(tasks)

    def _start(self) -> subprocess.Popen[bytes]:
        (self.folder / "started").unlink(missing_ok=True)
        with (self.folder / "log").open("ab") as log:
            return subprocess.Popen(
                [sys.executable, str(DRIVER), str(self.folder), self.master],
                stdout=log,
                stderr=subprocess.STDOUT,
                env=query_faults.environment(),
                start_new_session=True,
            )

    def _ended(self, process: subprocess.Popen[bytes], killed: int) -> bool:
        """Wait for the driver; it may end with an error only if too many workers were killed."""
        code = process.wait(PATIENCE_S)
        _kill_group(process.pid)
        if code and not killed:
            raise AssertionError(f"the driver ended with {code}:\n{self._log()}")
        return code == 0

    def _log(self) -> str:
        return (self.folder / "log").read_text(errors="replace")[-3_000:]

    def _wait_until_started(self, process: subprocess.Popen[bytes]) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not (self.folder / "started").exists() and process.poll() is None:
            assert time.monotonic() < deadline, self._log()
            time.sleep(0.05)

    def _wait_for_a_micro_batch(self, process: subprocess.Popen[bytes]) -> None:
        before, deadline = self._ended_batches(), time.monotonic() + PATIENCE_S
        while self._ended_batches() == before and process.poll() is None:
            assert time.monotonic() < deadline, self._log()
            time.sleep(0.05)

    def _ended_batches(self) -> int:
        return len(list((self.folder / "checkpoint" / "commits").glob("[0-9]*")))

    def _kill_driver(self, process: subprocess.Popen[bytes]) -> None:
        """SIGKILL to the driver and all that it has started, at a random moment."""
        when = self.rng.choice(["starting", "first", "first", "later", "later"])
        if when != "starting":
            self._wait_until_started(process)
        if when == "later":  # so that there is progress, however slow the machine is
            self._wait_for_a_micro_batch(process)
        time.sleep(self.rng.uniform(0.2, 5.0))
        self.did["driver killed" if process.poll() is None else "driver had ended"] += 1
        _kill_group(process.pid)
        process.wait()

    def _kill_workers(self, process: subprocess.Popen[bytes], count: int) -> int:
        """SIGKILL to Python workers, or to their executors, while tasks run; return how many."""
        self._wait_until_started(process)
        what = "executor killed" if self.master == CLUSTER else "Python worker killed"
        killed, deadline = 0, time.monotonic() + PATIENCE_S
        while killed < count and process.poll() is None and time.monotonic() < deadline:
            time.sleep(self.rng.uniform(0.3, 1.0))
            notes = sorted((self.folder / "attempts").glob(f"*.{RUNNING}"))
            for note in self.rng.sample(notes, len(notes)):
                if self._kill_worker(note, process.pid):
                    killed += 1
                    break
        self.did[what] += killed
        return killed

    def _kill_worker(self, note: Path, driver_pid: int) -> bool:
        """SIGKILL to the process of a task, or to its executor; return whether it still ran."""
        try:
            worker = psutil.Process(int(note.read_text() or "0"))
            above = worker.parents()
        except (FileNotFoundError, psutil.NoSuchProcess):
            return False  # it has just ended, or is from an earlier run
        if driver_pid not in {each.pid for each in above}:
            return False  # another process has the number by now
        if self.master == CLUSTER:
            executors = [each for each in above if _is_executor(each)]
            if not executors:
                return False
            worker = executors[0]
        with suppress(psutil.NoSuchProcess):
            worker.kill()
        return note.exists()

    def _change_relation(self) -> None:
        """Change the relation again and again, compact it, and prune what nobody reads."""
        rng, number = random.Random(self.rng.random()), 0
        relation = ss.Relation.open(self.folder / "r")
        while not self.done.wait(rng.uniform(0.2, 1.0)):
            number += 1
            keys = range(number % 7, KEYS, 7)
            changed = pa.table({"k": list(keys), "v": [f"v{number}"] * len(keys)})
            self.versions.append(self.versions[-1] | dict.fromkeys(keys, f"v{number}"))
            relation = relation.upsert(changed)
            what = rng.choice(["nothing", "compact", "refresh", "prune", "prune"])
            if what == "compact":
                relation = relation.compact()
            elif what == "refresh":
                relation = relation.refresh(_table(self.versions[-1]))
            elif what == "prune":
                self.did["snapshot pruned"] += len(relation.prune(keep=1, grace=GRACE_S).removed)
            self.did[what] += what in ("compact", "refresh")
        self.did["upsert"] += number

    def check(self) -> None:
        """Compare the sink with the oracle."""
        out = pq.read_table(self._written()).select(["k", "q", "v"]).sort_by("q")
        assert out["q"].to_pylist() == list(range(self.files * ROWS)), "rows are lost or doubled"
        oldest = 0
        for number in range(self.files):
            rows = out.slice(number * ROWS, ROWS).to_pylist()
            fitting = (
                i
                for i in range(oldest, len(self.versions))
                if all(self.versions[i].get(row["k"]) == row["v"] for row in rows)
            )
            oldest = next(fitting, -1)
            assert oldest >= 0, f"file {number} was joined with no one version of the relation"
        stream = pq.read_table(self.folder / "in").sort_by("q")
        assert out["k"].to_pylist() == stream["k"].to_pylist(), "rows are changed"

    def _written(self) -> list[Path]:
        """Return the files that the sink has committed: its log names them, not the folder."""
        return committed(self.folder / "out")


def _table(version: Version) -> pa.Table:
    return pa.table({"k": list(version), "v": list(version.values())})


def committed(sink: Path) -> list[Path]:
    """Return the files that a sink of Spark has committed."""
    logs = [path for path in (sink / "_spark_metadata").iterdir() if path.stem.isdigit()]
    lines = [line for path in logs for line in path.read_text().splitlines()[1:]]
    return [sink / name for name in sorted({Path(json.loads(line)["path"]).name for line in lines})]


def _kill_group(pid: int) -> None:
    with suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)


def _is_executor(process: psutil.Process) -> bool:
    with suppress(psutil.NoSuchProcess, psutil.ZombieProcess):
        return any("CoarseGrainedExecutorBackend" in word for word in process.cmdline())
    return False


def one_round(
    folder: Path, seed: int, *, files: int, kills: int, workers: int, master: str
) -> Counter[str]:
    """Run a round and check it; return what was done."""
    one = Round(folder, random.Random(seed), files, master)
    one.prepare()
    one.run(kills, workers)
    one.check()
    return +one.did  # without what did not happen


def main() -> int:
    """Run rounds until the time is over."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults.chaos", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--kills", type=int, default=20, help="of the driver, in the first round")
    parser.add_argument("--master", choices=[LOCAL, CLUSTER], help="default: one, then the other")
    asked = parser.parse_args()
    end, rng, kills = time.monotonic() + 60 * asked.minutes, random.Random(asked.seed), asked.kills
    number = 0
    while number == 0 or time.monotonic() < end:
        master, seed = asked.master or (LOCAL, CLUSTER)[number % 2], rng.randrange(1 << 30)
        with tempfile.TemporaryDirectory(prefix="chaos-") as folder:
            about = {"files": 4 + kills, "kills": kills, "workers": 3, "master": master}
            started = time.monotonic()
            did = one_round(Path(folder), seed, **about)
            took = f"round {number} on {master}, {time.monotonic() - started:.0f} s"
            said = ", ".join(f"{count} x {what}" for what, count in did.items())
            print(f"{took}: {said}: exact", flush=True)
        with tempfile.TemporaryDirectory(prefix="chaos-") as folder:
            for name, said in query_faults.run_all(Path(folder), seed).items():
                print(f"{name}: {said}", flush=True)
        number, kills = number + 1, 5
    return 0


if __name__ == "__main__":
    sys.exit(main())
