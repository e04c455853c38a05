"""Run as a program: faults of disks and files in a running query; prints what came of each as JSON.

A fault lets a query fail with a clear error, repairs what is broken, and starts the query again
from its checkpoint; or the query must go on all the same. Then the sink is compared with DuckDB's
join. The program has mounts of its own, so that a small disk, or shared memory that is full, is
nobody else's.
"""

import json
import os
import random
import shutil
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery

import semistream as ss
from tests.faults.chaos_driver import session

ROWS, FILES = 20_000, 5
PATIENCE_S = 300
SHARED_MEMORY = "/dev/shm"
SKIPPED = "skipped: "  # how the answer of a fault begins that cannot be had here


class Query:
    """A folder that files arrive in, a relation, and a query through it to a sink."""

    def __init__(self, spark: SparkSession, folder: Path, rng: random.Random) -> None:
        self.spark, self.folder, self.rng = spark, folder, rng
        (folder / "in").mkdir(parents=True)
        (folder / "out").mkdir()
        random_keys = np.random.default_rng(rng.randrange(1 << 30))
        self.table = pa.table({"k": range(3_000), "v": [f"{i:040d}" for i in range(3_000)]})
        keys = pa.array(random_keys.integers(0, 3_300, ROWS))
        self.stream = pa.table({"k": keys, "q": range(ROWS)})
        self.arrived = 0  # files
        self.build()

    def build(self) -> ss.Relation:
        return ss.build_relation(self.table, self.folder / "r", key="k", partitions=2)

    def arrive(self) -> None:
        """Let the next file arrive, whole at once."""
        part = self.stream.slice(self.arrived * ROWS // FILES, ROWS // FILES)
        written = self.folder / f"{self.arrived}.parquet"
        pq.write_table(part, written)
        written.rename(self.folder / "in" / written.name)
        self.arrived += 1

    def start(self, **options: str) -> StreamingQuery:
        reader = self.spark.readStream.schema("k long, q long").option("maxFilesPerTrigger", 1)
        stream = reader.parquet(str(self.folder / "in"))
        joined = ss.enrich(stream, str(self.folder / "r"), on="k", **options)  # type: ignore[arg-type]
        writer = joined.writeStream.format("parquet").option("path", str(self.folder / "out"))
        return writer.option("checkpointLocation", str(self.folder / "checkpoint")).start()

    def run(self) -> str:
        """Let all files arrive, and run it until they are read; return the error, or nothing."""
        while self.arrived < FILES:
            self.arrive()
        query = self.start()
        try:
            query.processAllAvailable()
        except PySparkException as error:
            return str(error)
        finally:
            query.stop()
        return ""

    def check(self) -> None:
        stream, table = self.stream, self.table  # noqa: F841
        written = self.spark.read.parquet(str(self.folder / "out")).toArrow()  # noqa: F841
        columns = "SELECT k, q, v FROM"
        expected = f'{columns} stream LEFT JOIN "table" USING (k)'
        for a, b in ((expected, f"{columns} written"), (f"{columns} written", expected)):
            differing = duckdb.sql(f"SELECT * FROM (({a}) EXCEPT ALL ({b}))").fetchall()
            assert not differing, f"the sink is wrong: {len(differing)} rows, {differing[:3]}"


def a_damaged_page(query: Query) -> str:
    """A bit of a page of R is wrong: the query stops, `verify` names the page, a build repairs."""
    files = [
        p for p in (query.folder / "r").rglob("*") if p.is_file() and p.stat().st_size > 60_000
    ]
    damaged = query.rng.choice(sorted(files))
    content = bytearray(damaged.read_bytes())
    content[query.rng.randrange(len(content) // 4, len(content) // 2)] ^= 16
    damaged.write_bytes(content)
    error = query.run()
    assert "CorruptRelationError" in error, f"the query did not stop for it: {error!r}"
    problems = [str(each) for each in ss.Relation.open(query.folder / "r").verify().problems]
    assert any(damaged.name in each for each in problems), f"verify says {problems}"
    query.build()
    after = query.run()
    assert not after, f"it did not go on: {after}"
    query.check()
    return f"stopped with “{error.partition(chr(10))[0]}”, then exact"


def a_full_disk(query: Query) -> str:
    """The disk of the sink is full in the middle; later it has room again."""
    sink = str(query.folder / "out")
    _mount(sink, "size=120k")
    error = query.run()
    assert "No space left" in error, f"the query did not stop for it: {error!r}"
    _mount(sink, "remount,size=64m")
    after = query.run()
    assert not after, f"it did not go on: {after}"
    query.check()
    return f"stopped with “{error.partition(chr(10))[0]}”, then exact"


def a_warm_folder_that_cannot_be_written(query: Query) -> str:
    """Shared memory is full, then read-only, while the query keeps its warm files there."""
    _mount(SHARED_MEMORY, "size=8m")
    running = query.start(algorithm="lookup", routing="shuffle", memory="4MB")
    kept = []  # the warm files after each micro-batch
    try:
        for prepare in (_leave, _leave, _fill, _forbid, _empty):
            prepare()
            query.arrive()
            running.processAllAvailable()
            kept.append({path.name for path in Path(SHARED_MEMORY).glob("*/*/*.warm")})
    finally:
        running.stop()
    first, second, full, forbidden, last = kept
    assert first, "no warm file was kept"
    assert first != second, "warm files are not replaced"
    assert second == full == forbidden, f"written where nothing can be: {kept}"
    assert last != forbidden, "it does not go on when there is room"
    query.check()
    return "the query went on, exact"


def _leave() -> None:
    pass


def _fill() -> None:
    with suppress(OSError), Path(SHARED_MEMORY, "filler").open("wb", buffering=0) as file:
        while True:
            file.write(bytes(4096))


def _forbid() -> None:
    _mount(SHARED_MEMORY, "remount,ro")


def _empty() -> None:
    _mount(SHARED_MEMORY, "remount,rw")
    Path(SHARED_MEMORY, "filler").unlink()


def _mount(place: str, options: str) -> None:
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", place], check=True)


FAULTS: list[Callable[[Query], str]] = [
    a_damaged_page,
    a_full_disk,
    a_warm_folder_that_cannot_be_written,
]
NEED_MOUNTS = FAULTS[1:]


def main(folder: Path, seed: int, has_mounts: bool) -> None:
    spark = session(folder, "local[2]")
    rng, found = random.Random(seed), {}
    for fault in FAULTS:
        said = f"{SKIPPED}this user may not mount one"
        if has_mounts or fault not in NEED_MOUNTS:
            said = fault(Query(spark, folder / fault.__name__, rng))
        found[fault.__name__] = said
    spark.stop()
    print(json.dumps(found))


def environment() -> dict[str, str]:
    """Return an environment in which programs, and their executors, import what this one has."""
    root, known = Path(__file__).parents[2], os.environ.get("PYTHONPATH")
    places = [str(root / "src"), str(root), *([known] if known else [])]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(places)}


def run_all(folder: Path, seed: int) -> dict[str, str]:
    """Run all faults in a process of their own; return what to say of each, or raise."""
    own = _own_mounts()
    program = [sys.executable, "-m", "tests.faults.query_faults"]
    done = subprocess.run(
        [*own, *program, str(folder), str(seed), *(["mounts"] if own else [])],
        capture_output=True,
        text=True,
        env=environment(),
        timeout=2 * PATIENCE_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3_000:]
    found: dict[str, str] = json.loads(done.stdout.splitlines()[-1])
    return found


def _own_mounts() -> list[str]:
    """Return what gives a program mounts of its own; nothing where that is not allowed."""
    command = ["unshare", *(["--user", "--map-root-user"] if os.geteuid() else []), "--mount"]
    if shutil.which("unshare") is None or shutil.which("mount") is None:
        return []
    mount = ["mount", "-t", "tmpfs", "tmpfs", SHARED_MEMORY]
    tried = subprocess.run([*command, *mount], capture_output=True, check=False)
    return [] if tried.returncode else command


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), "mounts" in sys.argv)
