"""Warm state between micro-batches: kept in files of the host, worth time and no row."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery

import semistream as ss
from semistream.relation.leases import Holder
from semistream.spark import warmfiles
from semistream.spark.warmfiles import WarmFile, WarmFolder
from semistream.testing import nested_loop_join, same_rows
from tests.spark.pipelines import PATIENCE_SECONDS, observed

R_ROWS = 3_000
BATCH_ROWS = 400
SHM = Path("/dev/shm")


@pytest.fixture
def base(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder instead of shared memory, of which this process's parent is an owner."""
    place = tmp_path / "shm"
    place.mkdir()
    monkeypatch.setattr(warmfiles, "SHARED_MEMORY", str(place))
    return place / f"semistream-{os.getuid()}"


def warm_file(number: int) -> WarmFile:
    arrays = [np.arange(number), np.zeros((3, 8), np.int64), np.zeros(0, np.uint8)]
    return WarmFile("shape", arrays, b"notes")


# Files ------------------------------------------------------------------------------------------


def test_the_newest_version_is_loaded_and_the_one_before_removed(base: Path) -> None:
    folder = WarmFolder("query", "join", ())
    assert folder.load("s1-0") is None
    for version in (3, 4):
        folder.store("s1-0", version, warm_file(version))
    found = folder.load("s1-0")
    assert found is not None
    assert (found.shape, found.notes) == ("shape", b"notes")
    for array, stored in zip(found.arrays, warm_file(4).arrays, strict=True):
        assert array.dtype == stored.dtype
        assert np.array_equal(array, stored)
    assert [p.name for p in base.glob("*/*.warm")] == ["s1-0-000000000004.warm"]
    assert folder.load("s1-1") is None
    warmfiles.remove("query.")
    assert not base.exists()


def test_files_of_another_snapshot_and_of_places_that_moved_are_removed(base: Path) -> None:
    folder = WarmFolder("query", "join", ())
    folder.store("s1-0", 1, warm_file(1))
    folder.store("s1-1", 1, warm_file(1))
    folder.store("s2-0", 2, warm_file(1))
    assert {p.name[:4] for p in base.glob("*/*.warm")} == {"s1-1", "s2-0"}
    folder.store("s2-0", 10, warm_file(1))
    assert {p.name[:4] for p in base.glob("*/*.warm")} == {"s2-0"}


@pytest.mark.parametrize("damage", ["cut", "magic", "version", "empty"])
def test_a_damaged_file_is_not_used(base: Path, damage: str) -> None:
    folder = WarmFolder("query", "join", ())
    folder.store("s1-0", 1, warm_file(100))
    [path] = base.glob("*/*.warm")
    data = path.read_bytes()
    path.write_bytes(
        {
            "cut": data[: len(data) // 2],
            "magic": b"X" + data[1:],
            "version": data.replace(ss.__version__.encode(), b"9" * len(ss.__version__)),
            "empty": b"",
        }[damage]
    )
    assert folder.load("s1-0") is None
    folder.store("s1-0", 2, warm_file(1))
    assert folder.load("s1-0") is not None


def test_folders_are_removed_when_their_owner_is_gone(base: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as owner:
        alive = Holder.of(owner.pid)
        WarmFolder("old", "join", ()).store("s1-0", 1, warm_file(1))
        [own] = base.glob("old.join/owner-*.json")
        own.write_text(json.dumps(asdict(alive)))
        warmfiles.remove_abandoned()
        assert (base / "old.join").exists()
        owner.communicate(b"\n")
    WarmFolder("new", "join", ()).store("s1-0", 1, warm_file(1))
    assert [p.name for p in base.iterdir()] == ["new.join"]


def test_a_folder_that_is_not_used_for_long_is_removed(base: Path) -> None:
    WarmFolder("old", "join", ()).store("s1-0", 1, warm_file(1))
    old = time.time() - 2 * 3600
    os.utime(base / "old.join", (old, old))
    warmfiles.remove_abandoned()
    assert not (base / "old.join").exists()


def test_without_room_in_shared_memory_spark_s_folder_is_used(
    base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    local = tmp_path / "local"
    local.mkdir()
    usage = warmfiles.shutil.disk_usage
    full = usage(tmp_path)._replace(free=10)
    monkeypatch.setattr(
        warmfiles.shutil, "disk_usage", lambda p: full if str(p).startswith(str(base)) else usage(p)
    )
    folder = WarmFolder("query", "join", (str(local),))
    folder.store("s1-0", 1, warm_file(1))
    assert list(local.glob("*/query.join/*.warm"))
    assert folder.load("s1-0") is not None
    warmfiles.remove("query.", local_dirs=(str(local),))
    assert not list(local.iterdir())


def test_a_folder_that_others_can_write_to_is_not_used(base: Path) -> None:
    base.mkdir(mode=0o777)
    base.chmod(0o777)
    assert base not in list(warmfiles._bases((), make=True))


def test_what_cannot_be_written_is_logged(
    base: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(descriptor: int, data: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(warmfiles.os, "write", full)
    WarmFolder("query", "join", ()).store("s1-0", 1, warm_file(1))
    assert "No space left" in caplog.text
    assert not list(base.glob("*/*.warm"))
    assert not list(base.glob("*/tmp*"))


def test_a_saved_cache_survives_the_file(base: Path) -> None:
    arrays = [np.arange(10), np.array([0.5, 0.25]), np.arange(64).reshape(8, 8)]
    WarmFolder("q", "j", ()).store("p", 1, WarmFile("s", arrays, b""))
    found = WarmFolder("q", "j", ()).load("p")
    assert found is not None
    assert all(np.array_equal(a, b) for a, b in zip(arrays, found.arrays, strict=True))


def test_the_file_of_an_older_snapshot_is_found(base: Path) -> None:
    folder = WarmFolder("query", "join", ())
    folder.store("20260102T1-ab-10", 5, warm_file(1))
    folder.store("20260103T1-cd-1", 6, warm_file(2))
    assert folder.load_older("20260104T1-ef", "0") is None
    found = folder.load_older("20260104T1-ef", "1")
    assert found is not None
    assert (found[0], len(found[1].arrays[0])) == ("20260103T1-cd", 2)
    assert folder.load_older("20260103T1-cd", "1") is None
    assert folder.load_older("20260102T1-aa", "1") is None, "a replayed micro-batch begins cold"


# Queries ----------------------------------------------------------------------------------------


class Query:
    """A query over files, one for each micro-batch; keys are skewed, some missing, some null."""

    def __init__(self, spark: SparkSession, folder: Path, routing: str) -> None:
        self.folder = folder
        (folder / "in").mkdir()
        self.products = pa.table(
            {"k": np.arange(R_ROWS) * 3, "v": [f"v{i}" for i in range(R_ROWS)]}
        )
        relation = ss.build_relation(
            self.products, folder / "products.rel", key="k", partitions=2, page_size=2_000
        )
        self.arrived: list[pa.Table] = []
        reader = spark.readStream.schema("k long, q long").option("maxFilesPerTrigger", 1)
        source = reader.parquet(str(folder / "in"))
        options = {"memory": "4MB", "algorithm": "lookup", "name": "sales"}
        joined = ss.enrich(source, relation, on="k", routing=routing, **options)
        writer = joined.writeStream.format("parquet").option("path", str(folder / "out"))
        writer = writer.option("checkpointLocation", str(folder / "checkpoint"))
        self.query: StreamingQuery = writer.trigger(processingTime="0 seconds").start()

    def micro_batch(self) -> dict[str, int]:
        """Let a file arrive, and return the counters of its micro-batch."""
        number = len(self.arrived)
        rng = np.random.default_rng(number)
        keys = (R_ROWS ** rng.random(BATCH_ROWS)).astype(np.int64) - 1
        table = pa.table(
            {
                "k": pa.array(keys, mask=rng.random(BATCH_ROWS) < 0.1),
                "q": np.arange(BATCH_ROWS) + number * BATCH_ROWS,
            }
        )
        temporary = self.folder / f"{number}.parquet"
        pq.write_table(table, temporary)
        temporary.rename(self.folder / "in" / temporary.name)
        self.arrived.append(table)
        deadline = time.monotonic() + PATIENCE_SECONDS
        while len(found := observed(self.query, "sales")) <= number:
            assert time.monotonic() < deadline, self.query.exception()
            assert self.query.isActive, self.query.exception()
            time.sleep(0.05)
        return found[number]

    def files(self) -> list[Path]:
        return list(SHM.glob(f"semistream-{os.getuid()}/{self.query.id}.*/*.warm"))


@pytest.fixture
def start(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[[str], Query]]:
    queries: list[Query] = []

    def started(how: str) -> Query:
        queries.append(Query(spark, tmp_path, how))
        return queries[-1]

    # As if R were too large for the page cache: otherwise nothing is kept for rows that stay.
    monkeypatch.setattr("semistream.memory.host_memory", lambda: (1, 1))
    yield started
    for query in queries:
        query.query.stop()


@pytest.mark.parametrize("routing", ["shuffle", "local"])
def test_files_that_vanish_cost_time_and_no_row(
    spark: SparkSession, start: Callable[[str], Query], routing: str
) -> None:
    query = start(routing)
    first, second = query.micro_batch(), query.micro_batch()
    assert (first["warm_rows"], first["front_hits"]) == (0, 0)
    assert second["warm_rows"] == first["front_admissions"] > 50
    assert second["front_hits"] > 50
    assert second["memory_bytes_peak"] <= 4_000_000
    places = 2 if routing == "shuffle" else 1  # a file is one partition of the source
    assert len(query.files()) == places
    for path in query.files():
        path.unlink()
    third = query.micro_batch()
    assert third["warm_rows"] == 0
    warmfiles.remove(f"{query.query.id}.")  # the folder as well
    assert query.micro_batch()["warm_rows"] == 0
    assert query.micro_batch()["warm_rows"] > 50
    query.query.stop()
    written = spark.read.parquet(str(query.folder / "out")).toArrow()
    sales = pa.concat_tables(query.arrived)
    assert same_rows(written, nested_loop_join(sales, query.products, on="k"))
    deadline = time.monotonic() + PATIENCE_SECONDS
    while query.files():  # the listener is told a moment later
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.mark.parametrize("routing", ["shuffle", "local"])
def test_an_upsert_leaves_the_rest_warm(
    spark: SparkSession, start: Callable[[str], Query], routing: str
) -> None:
    query = start(routing)
    for _ in range(2):
        query.micro_batch()
    hot = pa.table({"k": [0, 3, 1], "v": ["new", "newer", "no longer missing"]})
    newer = ss.Relation.open(query.folder / "products.rel").upsert(hot)
    before = len(query.arrived)
    third = query.micro_batch()
    assert third["snapshot"] == newer.snapshot
    assert third["warm_rows"] > 50
    query.query.stop()
    written = spark.read.parquet(str(query.folder / "out")).toArrow()
    rest = query.products.slice(2)
    after = pa.concat_tables([hot.cast(rest.schema), rest])
    expected = [
        nested_loop_join(pa.concat_tables(sales), products, on="k")
        for sales, products in (
            (query.arrived[:before], query.products),
            (query.arrived[before:], after),
        )
    ]
    assert same_rows(written, pa.concat_tables(expected))
