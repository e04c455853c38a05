"""What a prune removes, and what it keeps: snapshots young, in use, or just opened."""

import os
import threading
import time
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pytest

import semistream as ss
from semistream.errors import OptionError, SnapshotPrunedError
from semistream.relation.disk import Disk
from semistream.relation.draft import Draft
from semistream.relation.leases import LEASE_S, Lease
from semistream.relation.storage import LocalStore
from tests.unit.snapshots import (
    DAY_S,
    TABLE,
    build,
    is_there,
    lease_files,
    make_older,
    manifest,
    write_lease,
)

pytestmark = pytest.mark.usefixtures("keeper")


# The grace period


def test_what_was_just_replaced_is_kept(pair: tuple[ss.Relation, ss.Relation]) -> None:
    """Though it is old: a process may have opened it just before it was replaced."""
    old, new = pair
    make_older(manifest(old), 10 * DAY_S)
    pruned = new.prune()
    assert pruned.removed == []
    assert "the grace period is 3600 s" in pruned.kept[old.snapshot]
    assert f"snapshot {new.snapshot} replaced it" in pruned.kept[old.snapshot]
    assert is_there(old)


@pytest.mark.parametrize("grace", [3600.0, timedelta(hours=1), 7000])
def test_the_grace_period_ends(
    pair: tuple[ss.Relation, ss.Relation], grace: float | timedelta
) -> None:
    old, new = pair
    make_older(manifest(old), 7100)
    make_older(manifest(new), 7100)
    assert new.prune(grace=timedelta(hours=2)).removed == []
    assert new.prune(grace=grace).removed == [old.snapshot]
    assert not is_there(old)


def test_a_snapshot_newer_than_the_current_one_has_its_grace_period_too(
    pair: tuple[ss.Relation, ss.Relation],
) -> None:
    """CURRENT was set back by hand, or lost a race: both are kept for a while."""
    old, new = pair
    make_older(manifest(new), DAY_S)
    current = Path(old.location) / "CURRENT"
    current.write_text(old.snapshot)
    assert "CURRENT was replaced" in old.prune().kept[new.snapshot]
    make_older(current, DAY_S)
    assert old.prune().removed == [new.snapshot]


@pytest.mark.parametrize("grace", [-1, timedelta(seconds=-1)])
def test_a_negative_grace_period(location: Path, grace: float | timedelta) -> None:
    with pytest.raises(OptionError, match="grace must be at least 0"):
        build(location).prune(grace=grace)


def test_the_clock_of_the_file_system_counts(
    pair: tuple[ss.Relation, ss.Relation], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not that of the host that prunes, which may be wrong."""
    old, new = pair
    monkeypatch.setattr(time, "time", lambda: 4e9)
    assert new.prune().removed == []
    assert old.snapshot in new.prune().kept


# A prune and a reader that come at the same time


def test_a_snapshot_pruned_under_a_join(pair: tuple[ss.Relation, ss.Relation]) -> None:
    """Its lease was lost, since the machine slept for a day: the join says what happened."""
    old, new = pair
    reader = old.reader(["text"])
    make_older(lease_files(old)[0], DAY_S)
    assert new.prune(grace=0).removed == [old.snapshot]
    with pytest.raises(
        SnapshotPrunedError, match=f"{old.snapshot} .*was pruned.*Open the relation"
    ):
        reader.announce("codes", 0, reader.page_count)
    with pytest.raises(SnapshotPrunedError, match="start over"):
        ss.join([pa.record_batch({"id": [1]})], old, algorithm="meshjoin")
    assert not (Path(old.location) / "leases" / old.snapshot).exists()


def test_a_reader_that_comes_while_a_prune_looks(
    pair: tuple[ss.Relation, ss.Relation], monkeypatch: pytest.MonkeyPatch
) -> None:
    """After it has seen that there is none: it looks again before it removes anything."""
    old, new = pair
    write = Lease.write
    arrived: list[Path] = []

    def write_and_let_in(lease: Lease) -> None:
        write(lease)
        if lease.kind == "prune":
            arrived.append(write_lease(old, "read"))

    monkeypatch.setattr(Lease, "write", write_and_let_in)
    assert "other-host" in new.prune(grace=0).kept[old.snapshot]
    assert is_there(old)
    assert lease_files(old) == arrived, "the prune has withdrawn its own"


def test_a_snapshot_that_becomes_current_while_a_prune_looks(
    pair: tuple[ss.Relation, ss.Relation], monkeypatch: pytest.MonkeyPatch
) -> None:
    old, new = pair
    write = Lease.write

    def write_and_switch(lease: Lease) -> None:
        write(lease)
        (Path(old.location) / "CURRENT").write_text(old.snapshot)

    monkeypatch.setattr(Lease, "write", write_and_switch)
    assert new.prune(grace=0).kept[old.snapshot] == "it has just become current"
    assert ss.Relation.open(old.location) == old


def test_two_prunes_at_once(
    pair: tuple[ss.Relation, ss.Relation], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One comes in when the other has removed the first file, and removes all the others."""
    old, new = pair
    unlink = Disk.unlink

    def unlink_and_prune(path: str) -> None:
        unlink(path)
        if path == str(manifest(old)):
            monkeypatch.setattr(Disk, "unlink", staticmethod(unlink))
            inner.append(new.prune(grace=0).removed)

    inner: list[list[str]] = []
    monkeypatch.setattr(Disk, "unlink", staticmethod(unlink_and_prune))
    assert new.prune(grace=0).removed == [old.snapshot]
    assert inner == [[old.snapshot]]
    assert sorted(p.name for p in Path(new.location).iterdir()) == ["CURRENT", "snapshots"]


def test_a_build_that_ends_while_a_prune_looks(
    pair: tuple[ss.Relation, ss.Relation], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is current then is not in the list of snapshots yet."""
    old, new = pair
    names = LocalStore.names
    built = []

    def names_and_build(store: LocalStore, name: str) -> list[str]:
        found = names(store, name)
        if name == "snapshots" and not built:
            built.append("begun")
            built.append(build(Path(new.location)).snapshot)
        return found

    monkeypatch.setattr(LocalStore, "names", names_and_build)
    pruned = new.prune()
    assert pruned.removed == []
    assert pruned.kept.keys() == {old.snapshot, new.snapshot}
    assert ss.Relation.open(new.location).snapshot == built[1]


def test_a_reader_that_comes_when_the_files_are_gone(
    pair: tuple[ss.Relation, ss.Relation], monkeypatch: pytest.MonkeyPatch
) -> None:
    old, new = pair
    rmdir = Disk.rmdir

    def rmdir_after_lease(path: str) -> None:
        if path.endswith(f"leases/{old.snapshot}"):
            write_lease(old, "read")
        rmdir(path)

    monkeypatch.setattr(Disk, "rmdir", staticmethod(rmdir_after_lease))
    assert new.prune(grace=0).removed == [old.snapshot]


def test_a_reader_waits_for_a_prune_that_withdraws(
    pair: tuple[ss.Relation, ss.Relation],
) -> None:
    old, _ = pair
    path = write_lease(old, "prune")
    timer = threading.Timer(0.3, path.unlink)
    timer.start()
    reader = old.reader([])
    assert not path.exists()
    reader.close()


def test_a_reader_waits_for_a_prune_that_goes_on(pair: tuple[ss.Relation, ss.Relation]) -> None:
    old, _ = pair
    write_lease(old, "prune")
    timer = threading.Timer(0.3, manifest(old).unlink)
    timer.start()
    with pytest.raises(SnapshotPrunedError):
        old.reader([])
    timer.join()
    assert [path.suffix for path in lease_files(old)] == [".prune"]


def test_a_reader_does_not_wait_for_a_prune_that_died(
    pair: tuple[ss.Relation, ss.Relation],
) -> None:
    old, _ = pair
    make_older(write_lease(old, "prune"), LEASE_S + 1)
    old.reader([]).close()
    assert [path.suffix for path in lease_files(old)] == [".read"]


# Builds


def test_a_running_build_is_not_disturbed(location: Path) -> None:
    current = build(location)

    def prune(_: int) -> None:
        seen.append(current.prune(grace=0))

    seen: list[object] = []
    new = ss.build_relation(TABLE, location, key="id", progress=prune)
    assert f"being built by process {os.getpid()}" in seen[0].kept[new.snapshot]  # type: ignore
    assert ss.Relation.open(location) == new
    assert not (location / "leases").exists()


def test_a_build_waits_for_a_prune_before_its_snapshot_becomes_current(location: Path) -> None:
    """Its lease expired while the machine slept, and a prune is about to remove the draft."""
    current = build(location)

    def start_prune(_: int) -> None:
        (draft,) = {p.name for p in (location / "snapshots").iterdir()} - {current.snapshot}
        path = location / "leases" / draft / "0123.prune"
        path.write_text("{}")
        threading.Timer(0.3, path.unlink).start()
        leases_of_prune.append(path)

    leases_of_prune: list[Path] = []
    new = ss.build_relation(TABLE, location, key="id", progress=start_prune)
    assert not leases_of_prune[0].exists()
    assert ss.Relation.open(location) == new


def test_what_a_dead_build_left_is_removed_after_the_grace_period(location: Path) -> None:
    current = build(location)
    draft = Draft.start(location, TABLE.schema, ("id",), 300)
    folder = location / "snapshots" / draft.manifest.snapshot
    folder.mkdir()
    (folder / "part-00000-0.data").write_text("unfinished")
    assert "unfinished build" in current.prune().kept[folder.name]
    make_older(folder / "part-00000-0.data", DAY_S)
    assert current.prune().removed == [folder.name]
    assert not folder.exists()
    assert current.snapshots() == [current.snapshot]


def test_a_draft_that_sleeps_longer_than_the_grace_period_is_kept(location: Path) -> None:
    """Its lease counts: a Spark job may sort for hours before the first file is written."""
    current = build(location)
    with Draft.start(location, TABLE.schema, ("id",), 300) as draft:
        assert draft.manifest.snapshot in current.prune(grace=0).kept
    assert draft.manifest.snapshot in current.prune(grace=0).removed
    assert current.prune(grace=0).kept == {}


def test_a_prune_that_was_killed_is_taken_up_by_the_next(
    pair: tuple[ss.Relation, ss.Relation], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The manifest goes first, so what is left is not taken for a snapshot."""
    old, new = pair
    unlink = Disk.unlink
    removed = []

    def killed(path: str) -> None:
        if "/snapshots/" in path:
            removed.append(path)
            if len(removed) == 2:
                raise KeyboardInterrupt
        unlink(path)

    monkeypatch.setattr(Disk, "unlink", staticmethod(killed))
    with pytest.raises(KeyboardInterrupt):
        new.prune(grace=0)
    monkeypatch.undo()
    assert removed[0] == str(manifest(old))
    assert new.snapshots() == [new.snapshot]
    assert new.prune(grace=0).removed == [old.snapshot]


def test_prune_sweeps_what_died_beside_the_snapshots(
    pair: tuple[ss.Relation, ss.Relation],
) -> None:
    old, new = pair
    root = Path(old.location)
    new.prune(grace=0)
    (root / ".CURRENT-0123").write_text(old.snapshot)
    orphan = write_lease(old, "read")
    new.prune(grace=0)
    assert (root / ".CURRENT-0123").exists(), "its build may be running"
    make_older(root / ".CURRENT-0123", DAY_S)
    make_older(orphan, DAY_S)
    new.prune(grace=0)
    assert sorted(path.name for path in root.iterdir()) == ["CURRENT", "snapshots"]
