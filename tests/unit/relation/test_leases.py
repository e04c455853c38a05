"""Leases: what joins and processes hold, and for how long."""

import gc
import multiprocessing
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

import semistream as ss
from semistream.errors import SnapshotPrunedError
from semistream.relation import leases, storage
from semistream.relation.disk import Disk
from semistream.relation.leases import LEASE_S, LINGER_S, RENEW_S, Holder, Lease
from semistream.relation.storage import LocalStore
from tests.unit.snapshots import (
    DAY_S,
    build,
    lease_files,
    make_older,
    write_lease,
)

ROOT = Path(__file__).parents[3]


pytestmark = pytest.mark.usefixtures("keeper")


def paused_join(relation: ss.Relation) -> Iterator[pa.RecordBatch]:
    batches = [pa.record_batch({"id": [1]}) for _ in range(3)]
    stream = (b for batch in batches for b in (batch, batch[:0]))
    return ss.join(stream, relation, memory="1MB", algorithm="meshjoin")


def test_what_a_join_reads_is_kept(pair: tuple[ss.Relation, ss.Relation]) -> None:
    old, new = pair
    join = paused_join(old)
    next(join)
    pruned = new.prune(grace=0)
    assert pruned.removed == []
    assert f"being read by process {os.getpid()} on" in pruned.kept[old.snapshot]
    assert sum(b.num_rows for b in join) == 2
    assert new.prune(grace=0).removed == [old.snapshot]


def test_readers_of_a_process_share_a_lease(pair: tuple[ss.Relation, ss.Relation]) -> None:
    old, new = pair
    readers = [old.reader(["text"]), old.reader([], 1), old.reader([], 0), new.reader([])]
    assert len(lease_files(old)) == 2
    for reader in readers:
        reader.close()
        reader.close()
    assert len(lease_files(old)) == 2, "they stay for the next micro-batch"
    assert new.prune(grace=0).removed == [old.snapshot]
    assert lease_files(old) == []


def test_a_lease_is_removed_some_time_after_its_last_reader(
    location: Path, keeper: leases._Keeper
) -> None:
    relation = build(location)
    reader = relation.reader([])
    now = time.monotonic()
    keeper.beat(now + 10 * LINGER_S)
    assert len(lease_files(relation)) == 1
    reader.close()
    keeper.beat(now + 11 * LINGER_S)
    assert len(lease_files(relation)) == 1
    keeper.beat(now + 12 * LINGER_S)
    assert not (location / "leases").exists()


def test_a_lease_that_is_used_again_stays(location: Path, keeper: leases._Keeper) -> None:
    relation = build(location)
    relation.reader([]).close()
    now = time.monotonic()
    keeper.beat(now)
    reader = relation.reader([])
    keeper.beat(now + LINGER_S)
    reader.close()
    keeper.beat(now + LINGER_S + 1)
    assert len(lease_files(relation)) == 1


def test_a_lease_is_renewed(location: Path, keeper: leases._Keeper) -> None:
    relation = build(location)
    hold = relation.hold()
    (path,) = lease_files(relation)
    make_older(path, LEASE_S - 1)
    before = path.stat().st_mtime
    now = time.monotonic()
    keeper.beat(now + RENEW_S / 2)
    assert path.stat().st_mtime == before
    keeper.beat(now + RENEW_S)
    assert path.stat().st_mtime > before + LEASE_S / 2
    hold.release()


def test_the_thread_renews_leases_and_ends_with_the_last(
    location: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, seconds in (("_TICK_S", 0.01), ("RENEW_S", 0.0), ("LINGER_S", 0.0)):
        monkeypatch.setattr(leases, name, seconds)
    relation = build(location)
    hold = relation.hold()
    (path,) = lease_files(relation)
    make_older(path, DAY_S)
    _until(lambda: path.exists() and time.time() - path.stat().st_mtime < 100)
    hold.release()
    _until(lambda: not path.exists() and leases._keeper._thread is None)


def _until(condition: "object") -> None:
    deadline = time.monotonic() + 20
    while not condition():  # type: ignore[operator]
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_reader_that_was_never_closed_holds_nothing(
    pair: tuple[ss.Relation, ss.Relation],
) -> None:
    old, new = pair
    old.reader([])
    paused_join(old)
    gc.collect()
    assert new.prune(grace=0).removed == [old.snapshot]


def test_a_forked_process_leaves_the_leases_of_its_parent_alone(location: Path) -> None:
    relation = build(location)
    hold = relation.hold()
    (path,) = lease_files(relation)
    context = multiprocessing.get_context("fork")
    child = context.Process(target=_use_and_leave, args=(relation,))
    child.start()
    child.join()
    assert child.exitcode == 0
    assert lease_files(relation) == [path]
    hold.release()


def _use_and_leave(relation: ss.Relation) -> None:
    relation.reader([]).close()
    assert len(lease_files(relation)) == 2
    leases._keeper.close()


def start_reading(location: Path) -> "subprocess.Popen[str]":
    program = [sys.executable, "-m", "tests.faults.reading_process", str(location), "20"]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    process = subprocess.Popen(program, cwd=ROOT, text=True, **pipes)
    assert process.stdout is not None
    assert process.stdout.readline() == "reading\n"
    return process


def test_info_names_the_other_processes_that_read(pair: tuple[ss.Relation, ss.Relation]) -> None:
    _, new = pair
    reader = new.reader([])
    assert "read by" not in str(new.info()), "the process that asks reads it, too"
    write_lease(new, "read")
    assert "current, read by process 1 on other-host" in str(new.info())
    reader.close()


def test_what_another_process_reads_is_kept(location: Path) -> None:
    old = build(location)
    process = start_reading(location)
    new = build(location)
    pruned = new.prune(grace=0)
    assert f"read by process {process.pid}" in pruned.kept[old.snapshot]
    assert process.communicate("go on\n")[0] == "40\n"
    assert lease_files(new) == [], "a process takes its leases along when it ends"
    assert new.prune(grace=0).removed == [old.snapshot]


def test_a_reader_that_was_killed_holds_nothing(location: Path) -> None:
    old = build(location)
    process = start_reading(location)
    new = build(location)
    assert new.prune(grace=0).removed == []
    process.kill()
    process.communicate()
    assert len(lease_files(new)) == 1
    assert new.prune(grace=0).removed == [old.snapshot]
    assert lease_files(new) == []


def test_a_lease_of_another_machine_holds_until_it_expires(
    pair: tuple[ss.Relation, ss.Relation],
) -> None:
    """Its process ids mean nothing here."""
    old, new = pair
    path = write_lease(old, "read")
    assert new.prune(grace=0).kept[old.snapshot] == "it is being read by process 1 on other-host"
    make_older(path, LEASE_S - 5)
    assert new.prune(grace=0).removed == []
    make_older(path, 10)
    assert new.prune(grace=0).removed == [old.snapshot]
    assert not path.exists()


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"\xff", b'{"pid": 1}'], ids=repr)
def test_a_lease_that_cannot_be_read_holds_until_it_expires(
    pair: tuple[ss.Relation, ss.Relation], content: bytes
) -> None:
    """It may be in the middle of being renewed."""
    old, new = pair
    path = write_lease(old, "read")
    path.write_bytes(content)
    assert "could not be identified" in new.prune(grace=0).kept[old.snapshot]
    make_older(path, LEASE_S + 1)
    assert new.prune(grace=0).removed == [old.snapshot]


def test_a_process_id_that_is_used_again_is_another_process(
    pair: tuple[ss.Relation, ss.Relation],
) -> None:
    old, new = pair
    me = Holder.this_process()
    write_lease(old, "read", machine=me.machine, pid=me.pid, started="7")
    assert new.prune(grace=0).removed == [old.snapshot]


class ReadOnlyDisk(Disk):
    """A file system that is mounted read-only."""

    def open(self, path: str, flags: int, mode: int = 0o777) -> int:
        if flags & os.O_WRONLY:
            raise OSError(30, "Read-only file system", path)
        return os.open(path, flags, mode)

    def mkdir(self, path: str, mode: int = 0o777) -> None:
        raise OSError(30, "Read-only file system", path)


def test_a_relation_that_is_read_only(location: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old = build(location)
    monkeypatch.setattr(storage, "disk", ReadOnlyDisk())
    join = paused_join(old)
    next(join)
    assert not (location / "leases").exists()
    assert sum(b.num_rows for b in join) == 2
    reader = old.reader([], 0)
    monkeypatch.undo()
    build(location).prune(grace=0)
    with pytest.raises(SnapshotPrunedError, match=r"none could be written.*Read-only.*grace"):
        reader.announce("codes", 0, 1)


def test_folders_of_leases_that_come_and_go(location: Path) -> None:
    """Another process may remove the folder, because it is empty, before a lease is in it."""
    relation = build(location)
    store = relation.store
    assert isinstance(store, LocalStore)
    racing = _RemovesFolders()
    lease = Lease(LocalStore(racing, store.root), relation.snapshot, "read")
    lease.write()
    assert racing.removed == 6
    assert len(lease_files(relation)) == 1
    lease.remove()


class _RemovesFolders(Disk):
    """Another process that removes the empty folders, now before a lease, now before its folder."""

    removed = 0

    def open(self, path: str, flags: int, mode: int = 0o777) -> int:
        if path.endswith(".read"):
            self._remove(Path(path).parent)
        return os.open(path, flags, mode)

    def mkdir(self, path: str, mode: int = 0o777) -> None:
        if Path(path).parent.name == "leases":
            self._remove(Path(path).parent)
        os.mkdir(path, mode)  # noqa: PTH102

    def _remove(self, folder: Path) -> None:
        if folder.exists() and self.removed < 6:
            folder.rmdir()
            self.removed += 1
