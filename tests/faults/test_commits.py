"""Committed snapshots stay: errors during and after the switch, and contents of CURRENT."""

import json
import os
import resource
import subprocess
import sys
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import semistream as ss
from semistream.errors import (
    BuildError,
    CommitError,
    CorruptRelationError,
    RelationNotFoundError,
    SemistreamError,
)
from semistream.relation.draft import Draft
from semistream.relation.layout import CURRENT
from semistream.relation.spoolfiles import SpoolFiles
from semistream.relation.storage import LocalStore
from semistream.testing import nested_loop_join, same_rows

ROOT = Path(__file__).parents[2]
OLD = pa.table({"id": [1, 2, 3], "text": ["a", "b", "c"]})
NEW = pa.table({"id": [1, 4], "text": ["new", "four"]})


@pytest.fixture
def location(tmp_path: Path) -> Path:
    return tmp_path / "r.rel"


@pytest.fixture
def old(location: Path) -> ss.Relation:
    return ss.build_relation(OLD, location, key="id", partitions=2)


def build_new(location: Path) -> ss.Relation:
    return ss.build_relation(NEW, location, key="id", partitions=2)


def check_is(location: Path, table: pa.Table, snapshot: str | None = None) -> None:
    relation = ss.Relation.open(location, snapshot)
    stream = pa.table({"id": [1, 2, 3, 4, 5]})
    batches = ss.join(stream.to_batches(), relation, algorithm="meshjoin")
    assert same_rows(pa.Table.from_batches(batches), nested_loop_join(stream, table, on="id"))


def fail_at_current(patch: pytest.MonkeyPatch, error: BaseException, *, after: bool) -> None:
    """Let the replacement of CURRENT fail, before it took effect or after."""
    replace: Callable[[LocalStore, str, bytes], None] = LocalStore.replace

    def failing(store: LocalStore, name: str, content: bytes) -> None:
        if name != CURRENT or after:
            replace(store, name, content)
        if name == CURRENT:
            raise error

    patch.setattr(LocalStore, "replace", failing)


@pytest.mark.parametrize("error", [OSError("timed out"), RuntimeError("lost")], ids=repr)
def test_the_switch_fails_but_took_effect(
    location: Path, old: ss.Relation, error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    fail_at_current(monkeypatch, error, after=True)
    with pytest.raises(CommitError, match="It took effect: the new snapshot is current") as raised:
        build_new(location)
    assert raised.value.took_effect is True
    assert str(error) in str(raised.value)
    check_is(location, NEW)
    check_is(location, OLD, old.snapshot)


def test_the_switch_fails_and_took_no_effect(
    location: Path, old: ss.Relation, monkeypatch: pytest.MonkeyPatch
) -> None:
    fail_at_current(monkeypatch, OSError("timed out"), after=False)
    said = f"did not take effect: the current snapshot is {old.snapshot}.*build again"
    with pytest.raises(CommitError, match=said) as raised:
        build_new(location)
    assert raised.value.took_effect is False
    check_is(location, OLD)
    (new,) = set(old.snapshots()) - {old.snapshot}
    check_is(location, NEW, new)


def test_the_first_switch_fails(location: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fail_at_current(monkeypatch, OSError("timed out"), after=False)
    with pytest.raises(CommitError, match="the current snapshot is none"):
        build_new(location)


def test_interrupted_during_the_switch(
    location: Path, old: ss.Relation, monkeypatch: pytest.MonkeyPatch
) -> None:
    fail_at_current(monkeypatch, KeyboardInterrupt(), after=True)
    with pytest.raises(KeyboardInterrupt) as raised:
        build_new(location)
    assert "It took effect" in raised.value.__notes__[0]
    check_is(location, NEW)


def test_interrupted_after_the_switch(
    location: Path, old: ss.Relation, monkeypatch: pytest.MonkeyPatch
) -> None:
    switch = Draft._switch

    def interrupted(draft: Draft) -> None:
        switch(draft)
        raise KeyboardInterrupt

    monkeypatch.setattr(Draft, "_switch", interrupted)
    with pytest.raises(KeyboardInterrupt):
        build_new(location)
    check_is(location, NEW)


def test_the_spool_cannot_be_cleaned_up(
    location: Path, old: ss.Relation, monkeypatch: pytest.MonkeyPatch
) -> None:
    def close(files: SpoolFiles, quietly: bool) -> None:
        raise PermissionError(13, "Permission denied", "spool")

    monkeypatch.setattr(SpoolFiles, "close", close)
    with pytest.raises(CommitError, match=r"a later step failed.*'spool'") as raised:
        build_new(location)
    assert raised.value.took_effect is True
    check_is(location, NEW)


def test_a_build_whose_draft_was_removed_is_not_published(
    location: Path, old: ss.Relation, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a prune while the machine slept, say; or the executors wrote somewhere else."""

    def find_draft(_: int) -> None:
        (draft,) = {p.name for p in (location / "snapshots").iterdir()} - {old.snapshot}
        drafts.append(location / "snapshots" / draft)

    drafts: list[Path] = []
    write = Draft._check_is_whole

    def check(draft: Draft, manifest: object) -> None:
        next(drafts[0].glob("*.data")).unlink()
        write(draft, manifest)  # type: ignore[arg-type]

    monkeypatch.setattr(Draft, "_check_is_whole", check)
    with pytest.raises(BuildError, match=r"1 of its files"):
        ss.build_relation(NEW, location, key="id", partitions=1, progress=find_draft)
    check_is(location, OLD)
    assert not drafts[0].exists()


# What CURRENT may say


OUTSIDE = [
    "../../other",
    "../snapshots",
    "/etc",
    "..",
    ".",
    "a/b",
    "20240101T000000000000-0000000G",
]


@pytest.mark.parametrize("name", OUTSIDE)
def test_current_may_not_lead_outside(
    location: Path, old: ss.Relation, name: str, tmp_path: Path
) -> None:
    other = ss.build_relation(NEW, tmp_path / "other.rel", key="id")
    target = location / "snapshots" / name
    if "other" in name:
        (tmp_path / "other").mkdir()
        manifest = Path(other.location) / "snapshots" / other.snapshot / "manifest.json"
        (tmp_path / "other" / "manifest.json").write_bytes(manifest.read_bytes())
        assert (location / "snapshots" / "../../other/manifest.json").exists(), target
    (location / "CURRENT").write_text(name)
    with pytest.raises(CorruptRelationError, match="is not the name of a snapshot") as raised:
        ss.Relation.open(location)
    assert old.snapshot in str(raised.value)
    with pytest.raises(RelationNotFoundError, match="has no snapshot"):
        ss.Relation.open(location, name)


def edit_manifest(relation: ss.Relation, edit: Callable[[dict[str, object]], None]) -> None:
    """Change a manifest, and its checksum with it."""
    path = Path(relation.location) / "snapshots" / relation.snapshot / "manifest.json"
    body = json.loads(path.read_text())
    del body["checksum"]
    edit(body)
    path.write_text(json.dumps(body | {"checksum": zlib.crc32(json.dumps(body).encode())}))


def test_a_manifest_may_not_lead_outside(location: Path, old: ss.Relation) -> None:
    edit_manifest(old, lambda body: body.update(snapshot="../../other"))
    with pytest.raises(CorruptRelationError, match="manifest of another snapshot"):
        ss.Relation.open(location)


@pytest.mark.parametrize("files", ["../../x", "/etc/passwd", "part-00000-0/../../x"])
def test_files_of_a_partition_may_not_lie_outside(
    location: Path, old: ss.Relation, files: str
) -> None:
    def edit(body: dict[str, object]) -> None:
        body["partitions"][0]["files"] = files  # type: ignore[index]

    edit_manifest(old, edit)
    with pytest.raises(CorruptRelationError, match="names files that no build makes"):
        ss.Relation.open(location)


# Many partitions, few descriptors


MANY = """
import resource, sys
import pyarrow as pa
import semistream as ss
from semistream.relation import build
resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256))
build.SPOOL_BYTES = 20_000
table = pa.table({"id": list(range(6_000)), "text": [f"row {i}" for i in range(6_000)]})
relation = ss.build_relation(table.to_reader(1_000), sys.argv[1], key="id", partitions=600)
stream = table.select(["id"]).to_batches(max_chunksize=2_000)
for algorithm in ("meshjoin", "hybridjoin", "auto"):
    out = ss.join(stream, relation, memory="16MB", algorithm=algorithm)
    joined = pa.Table.from_batches(out).sort_by("id")
    assert joined.equals(table), algorithm
print("ok")
"""


def test_600_partitions_with_256_descriptors(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", MANY, tmp_path / "r.rel"],
        env=os.environ | {"TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout == "ok\n", done.stderr[-2000:]


def test_too_few_descriptors_are_called_that(location: Path) -> None:
    """Not one can be opened: the message says so, and nothing is called corrupt."""
    relation = ss.build_relation(
        pa.table({"id": np.arange(100)}), location, key="id", partitions=20
    )
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    reader = relation.reader([])
    used = max(int(path.name) for path in Path("/proc/self/fd").iterdir())
    spare = [os.open("/dev/null", os.O_RDONLY) for _ in range(used)]
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))
    try:
        with pytest.raises(SemistreamError) as raised:
            reader.read_codes(0, reader.page_count, np.empty(100, np.int64))
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        for descriptor in spare:
            os.close(descriptor)
    assert not isinstance(raised.value, CorruptRelationError)
    assert "ulimit -n" in str(raised.value)
    assert ".codes" in str(raised.value)
