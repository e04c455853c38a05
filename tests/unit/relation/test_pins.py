"""Pins of a micro-batch whose snapshot is damaged: another run reads the one that is current."""

from pathlib import Path

import pyarrow as pa

import semistream as ss
from semistream.relation.pins import mark_damaged, pin_snapshot, pinned_snapshots


def build(place: Path, mark: str) -> ss.Relation:
    return ss.build_relation(pa.table({"k": [1], "v": [mark]}), place, key="k", partitions=1)


def test_only_another_run_reads_another_snapshot(tmp_path: Path) -> None:
    old = build(tmp_path / "r", "old")
    store = old.store
    assert pin_snapshot(store, "q", 7, "first") == old.snapshot
    new = build(tmp_path / "r", "new")
    assert pin_snapshot(store, "q", 7, "second") == old.snapshot, "a replay reads the same"
    mark_damaged(store, "q", 7, "second")
    assert pin_snapshot(store, "q", 7, "second") == old.snapshot, "one run reads one snapshot"
    assert pin_snapshot(store, "q", 7, "third") == new.snapshot
    newest = build(tmp_path / "r", "newest")
    assert pin_snapshot(store, "q", 7, "third") == new.snapshot, "the mark is gone"
    assert pin_snapshot(store, "q", 8, "third") == newest.snapshot
    assert set(pinned_snapshots(store, 0.0)) == {new.snapshot, newest.snapshot}
