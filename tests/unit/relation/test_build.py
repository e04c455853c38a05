"""A rebuild: it keeps the partitions, and says what it replaces."""

import logging
from pathlib import Path

import pyarrow as pa
import pytest

import semistream as ss
from semistream.relation.build import DEFAULT_PARTITIONS, BuildOptions, build_snapshot
from tests.unit.snapshots import TABLE, manifest


def rebuild(location: Path, partitions: int | None = None) -> ss.Relation:
    return ss.build_relation(TABLE, location, key="id", partitions=partitions)


def test_a_rebuild_keeps_the_partitions(location: Path) -> None:
    assert rebuild(location).partition_count == DEFAULT_PARTITIONS
    assert rebuild(location, 3).partition_count == 3
    assert rebuild(location).partition_count == 3
    assert rebuild(location, 2).partition_count == 2


def test_a_damaged_relation_can_be_rebuilt(location: Path) -> None:
    manifest(rebuild(location, 3)).write_text("{}")
    assert rebuild(location).partition_count == DEFAULT_PARTITIONS


def test_a_rebuild_says_what_it_replaces(location: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "semistream"):
        old = rebuild(location, 2)
        assert "replaces" not in caplog.text
        new = rebuild(location)
    assert f"snapshot {new.snapshot} is current and replaces {old.snapshot}" in caplog.text
    size = sum(path.stat().st_size for path in manifest(old).parent.iterdir())
    assert f"1 old snapshot ({size / 1000:.1f} KB)" in caplog.text
    assert "prune()" in caplog.text


def test_progress_of_both_passes(location: Path) -> None:
    read: list[int] = []
    written: list[int] = []
    source = pa.Table.from_batches(TABLE.to_batches(max_chunksize=5))
    build_snapshot(source, location, BuildOptions("id", 2), read.append, written.append)
    assert read == [5, 10, 15, 20]
    assert written == [10, 20]
