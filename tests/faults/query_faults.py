"""Run as a program: faults of disks and files in a running query; prints what came of each as JSON.

Each lets a query fail with a clear error, repairs what is broken, starts the query again from its
checkpoint, and compares the sink with DuckDB's join.
"""

import json
import os
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

import semistream as ss
from tests.faults.chaos_driver import session

ROWS = 20_000
PATIENCE_S = 300


class Query:
    """A folder of files, a relation, and a query from one through the other to a sink."""

    def __init__(self, spark: SparkSession, folder: Path, rng: random.Random) -> None:
        self.spark, self.folder, self.rng = spark, folder, rng
        (folder / "in").mkdir(parents=True)
        (folder / "out").mkdir()
        random_keys = np.random.default_rng(rng.randrange(1 << 30))
        self.table = pa.table({"k": range(3_000), "v": [f"{i:040d}" for i in range(3_000)]})
        keys = pa.array(random_keys.integers(0, 3_300, ROWS))
        self.stream = pa.table({"k": keys, "q": range(ROWS)})
        for number in range(2):
            half = self.stream.slice(number * ROWS // 2, ROWS // 2)
            pq.write_table(half, folder / "in" / f"{number}.parquet")
        self.build()

    def build(self) -> ss.Relation:
        return ss.build_relation(self.table, self.folder / "r", key="k", partitions=2)

    def run(self) -> str:
        """Run it to its end; return the error, or nothing."""
        reader = self.spark.readStream.schema("k long, q long").option("maxFilesPerTrigger", 1)
        joined = ss.enrich(reader.parquet(str(self.folder / "in")), str(self.folder / "r"), on="k")
        writer = joined.writeStream.format("parquet").option("path", str(self.folder / "out"))
        writer = writer.option("checkpointLocation", str(self.folder / "checkpoint"))
        query = writer.trigger(availableNow=True).start()
        try:
            assert query.awaitTermination(PATIENCE_S), "it takes too long"
        except PySparkException as error:
            return str(error)
        return ""

    def is_exact(self) -> bool:
        stream, table = self.stream, self.table  # noqa: F841
        written = self.spark.read.parquet(str(self.folder / "out")).toArrow()  # noqa: F841
        columns = "SELECT k, q, v FROM"
        expected = f"{columns} stream LEFT JOIN table USING (k)".replace(" table ", ' "table" ')
        for a, b in ((expected, f"{columns} written"), (f"{columns} written", expected)):
            if duckdb.sql(f"SELECT count(*) FROM (({a}) EXCEPT ALL ({b}))").fetchall() != [(0,)]:
                return False
        return True


def a_damaged_page(query: Query) -> dict[str, object]:
    """A bit of a page of R is wrong: the query stops, `verify` names the page, a build repairs."""
    files = [
        p for p in (query.folder / "r").rglob("*") if p.is_file() and p.stat().st_size > 60_000
    ]
    damaged = query.rng.choice(sorted(files))
    content = bytearray(damaged.read_bytes())
    content[query.rng.randrange(len(content) // 4, len(content) // 2)] ^= 16
    damaged.write_bytes(content)
    error = query.run()
    problems = [str(each) for each in ss.Relation.open(query.folder / "r").verify().problems]
    query.build()
    after = query.run()
    return {
        "error": error.partition("\n")[0],
        "named": any(damaged.name in each for each in problems),
        "problems": problems,
        "after": after,
        "exact": not after and query.is_exact(),
    }


def a_full_disk(query: Query) -> dict[str, object]:
    """The disk of the sink is full in the middle; later it has room again."""
    sink = str(query.folder / "out")
    mount = ["mount", "-t", "tmpfs", "-o", "size=200k", "tmpfs", sink]
    made = subprocess.run(mount, capture_output=True, text=True, check=False)
    if made.returncode:
        return {"skipped": f"no small disk can be made here: {made.stderr.strip()}"}
    try:
        error = query.run()
        subprocess.run(["mount", "-o", "remount,size=64m", sink], check=True)
        after = query.run()
        exact = not after and query.is_exact()
        return {"error": error.partition("\n")[0], "after": after, "exact": exact}
    finally:
        subprocess.run(["umount", sink], check=True)


FAULTS: list[Callable[[Query], dict[str, object]]] = [a_damaged_page, a_full_disk]


def main(folder: Path, seed: int) -> None:
    spark = session(folder, "local[2]")
    rng, found = random.Random(seed), {}
    for fault in FAULTS:
        found[fault.__name__] = fault(Query(spark, folder / fault.__name__, rng))
    spark.stop()
    print(json.dumps(found))


def environment() -> dict[str, str]:
    """Return an environment in which programs, and their executors, import what this one has."""
    root, known = Path(__file__).parents[2], os.environ.get("PYTHONPATH")
    places = [str(root / "src"), str(root), *([known] if known else [])]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(places)}


def run_all(folder: Path, seed: int) -> dict[str, str]:
    """Run all faults in a process of their own; return what to say of each, or raise."""
    command = [sys.executable, "-m", "tests.faults.query_faults", str(folder), str(seed)]
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        env=environment(),
        timeout=2 * PATIENCE_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3_000:]
    found = json.loads(done.stdout.splitlines()[-1])
    return {name: _judged(name, result) for name, result in found.items()}


def _judged(name: str, result: dict[str, object]) -> str:
    if "skipped" in result:
        return f"skipped: {result['skipped']}"
    assert result["error"], f"{name}: the query did not stop"
    assert result.get("named", True), f"{name}: verify does not name it: {result['problems']}"
    assert not result["after"], f"{name}: it did not go on: {result['after']}"
    assert result["exact"], f"{name}: the sink is wrong"
    return f"stopped with “{result['error']}”, then exact"


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
