"""A build that does not come to its end leaves the relation as it was."""

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

import semistream as ss
from semistream.errors import RelationNotFoundError
from semistream.relation import build
from semistream.testing import same_rows
from tests.faults.dying_build import STAGES

ROOT = Path(__file__).parents[2]
OLD = pa.table({"id": [1, 2, 3], "text": ["a", "b", "c"]})


def run(location: Path, stage: str, temporary: Path | None = None) -> "subprocess.CompletedProcess":
    return subprocess.run(
        [sys.executable, "-m", "tests.faults.dying_build", location, stage],
        cwd=ROOT,
        env=os.environ | ({"TMPDIR": str(temporary)} if temporary else {}),
        capture_output=True,
        text=True,
        check=False,
    )


def check_is_old(location: Path, old: ss.Relation) -> None:
    """The old snapshot is current and has all its rows."""
    relation = ss.Relation.open(location)
    assert relation == old
    batches = ss.join(OLD.select(["id"]).to_batches(), relation, algorithm="meshjoin")
    assert same_rows(pa.Table.from_batches(batches), OLD)


@pytest.fixture
def location(tmp_path: Path) -> Path:
    return tmp_path / "r.rel"


@pytest.fixture
def old(location: Path) -> ss.Relation:
    return ss.build_relation(OLD, location, key="id", partitions=2)


@pytest.mark.parametrize("stage", STAGES)
def test_killed(
    location: Path,
    old: ss.Relation,
    stage: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    died = run(location, stage, temporary=tmp_path)
    assert died.returncode == -signal.SIGKILL, died.stderr
    check_is_old(location, old)
    assert len(list((location / "snapshots").iterdir())) == 2
    assert len(spooled(tmp_path)) == (stage == "spooling")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    new = ss.build_relation(OLD[:1], location, key="id")
    assert ss.Relation.open(location) == new
    kept = sorted(path.name for path in (location / "snapshots").iterdir())
    assert kept == [old.snapshot, new.snapshot], "the next build removes what the killed one left"
    assert spooled(tmp_path) == []
    assert not (location / "leases").exists()


def spooled(folder: Path) -> list[Path]:
    return list(folder.glob("semistream-build-*"))


def test_killed_before_there_was_a_relation(location: Path) -> None:
    died = run(location, "current")
    assert died.returncode == -signal.SIGKILL, died.stderr
    with pytest.raises(RelationNotFoundError):
        ss.Relation.open(location)
    new = ss.build_relation(OLD, location, key="id")
    assert [path.name for path in (location / "snapshots").iterdir()] == [new.snapshot]


def test_a_build_that_runs_is_not_left_over(location: Path, old: ss.Relation) -> None:
    """Nor are its temporary files, nor a snapshot that is newer because someone went back."""
    seen = []

    def other_build(_: int) -> None:
        if not seen:
            seen.append(ss.build_relation(OLD[:1], location, key="id", partitions=1))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(build, "SPOOL_BYTES", 1)
        new = ss.build_relation(OLD, location, key="id", progress=other_build)
    assert seen
    assert new.snapshots() == sorted([old.snapshot, seen[0].snapshot, new.snapshot])
    (location / "CURRENT").write_text(old.snapshot)
    last = ss.build_relation(OLD, location, key="id")
    assert last.snapshots()[:-1] == sorted([old.snapshot, seen[0].snapshot, new.snapshot])


def test_what_died_is_no_snapshot(location: Path, old: ss.Relation) -> None:
    """It is not listed, and when old snapshots are deleted it does not count as one to keep."""
    run(location, "writing")
    assert old.snapshots() == [old.snapshot]
    ss.build_relation(OLD[:1], location, key="id").prune(keep=2, grace=0)
    assert ss.Relation.open(location, old.snapshot) == old


def broken(error: BaseException) -> pa.RecordBatchReader:
    def batches() -> Iterator[pa.RecordBatch]:
        yield from OLD.to_batches(max_chunksize=1)
        raise error

    return pa.RecordBatchReader.from_batches(OLD.schema, batches())


@pytest.mark.parametrize("error", [RuntimeError("broken"), KeyboardInterrupt("broken")], ids=repr)
def test_the_source_breaks(location: Path, old: ss.Relation, error: BaseException) -> None:
    with pytest.raises(type(error), match="broken"):
        ss.build_relation(broken(error), location, key="id")
    check_is_old(location, old)
    assert old.snapshots() == [old.snapshot]


def test_the_source_breaks_while_rows_are_spooled(
    location: Path, old: ss.Relation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spool = tmp_path / "spool"
    spool.mkdir()
    monkeypatch.setattr(build, "SPOOL_BYTES", 1)
    monkeypatch.setattr(tempfile, "tempdir", str(spool))
    seen = []
    with pytest.raises(RuntimeError, match="broken"):
        ss.build_relation(
            broken(RuntimeError("broken")),
            location,
            key="id",
            progress=lambda _: seen.append(len(list(spool.iterdir()))),
        )
    assert seen == [1, 1, 1]
    assert list(spool.iterdir()) == []
    check_is_old(location, old)


def test_the_source_breaks_before_there_was_a_relation(location: Path) -> None:
    with pytest.raises(RuntimeError, match="broken"):
        ss.build_relation(broken(RuntimeError("broken")), location, key="id")
    assert [path for path in location.rglob("*") if path.is_file()] == []


def test_progress_breaks(location: Path, old: ss.Relation) -> None:
    def stop(rows: int) -> None:
        raise RuntimeError("enough")

    with pytest.raises(RuntimeError, match="enough"):
        ss.build_relation(OLD, location, key="id", progress=stop)
    check_is_old(location, old)


@pytest.mark.parametrize("most_bytes", [3_000, 100_000])
def test_disk_full(location: Path, old: ss.Relation, most_bytes: int) -> None:
    died = run(location, str(most_bytes))
    assert died.returncode == 1
    assert "BuildError" in died.stderr
    assert "File too large" in died.stderr
    assert "an earlier snapshot is unchanged. What to do: free some space" in died.stderr
    assert [path.name for path in (location / "snapshots").iterdir()] == [old.snapshot]
    assert sorted(path.name for path in location.iterdir()) == ["CURRENT", "snapshots"]
    check_is_old(location, old)
