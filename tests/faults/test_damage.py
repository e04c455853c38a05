"""Damaged bytes on disk: detected, and reported with their place."""

import gc
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import semistream as ss
from semistream.errors import CorruptRelationError, RelationNotFoundError
from semistream.joins.registry import ALGORITHMS
from semistream.relation.disk import LocalPageFile
from semistream.testing import nested_loop_join, same_rows

ROOT = Path(__file__).parents[2]
ROWS = 400
PARTITIONS = 2
TABLE = pa.table(
    {
        "id": np.arange(ROWS),
        "number": pa.array([None if i % 9 == 0 else i for i in range(ROWS)], pa.int32()),
        "text": [None if i % 5 == 0 else f"text {i}" for i in range(ROWS)],
        "list": [[i] * (i % 3) for i in range(ROWS)],
    }
)
STREAM = pa.table({"id": np.arange(0, ROWS + 40, 3)})


@pytest.fixture
def relation(tmp_path: Path) -> ss.Relation:
    """A relation that this process has not read yet, so that nothing counts as checked."""
    folder = tmp_path / "r.rel"
    return ss.build_relation(TABLE, folder, key="id", partitions=PARTITIONS, page_size=700)


def file_of(relation: ss.Relation, name: str) -> Path:
    return Path(relation.location) / "snapshots" / relation.snapshot / name


def part_of(relation: ss.Relation, kind: str, partition: int = 1) -> Path:
    return file_of(relation, f"{relation.manifest.partitions[partition].files}.{kind}")


def join(relation: ss.Relation, algorithm: str = "meshjoin") -> pa.Table:
    batches = ss.join(STREAM.to_batches(), relation, memory="4MB", algorithm=algorithm)
    return pa.Table.from_batches(batches)


def flip(path: Path, at: int, bit: int = 0) -> None:
    content = bytearray(path.read_bytes())
    content[at] ^= 1 << bit
    path.write_bytes(content)


def page_table(relation: ss.Relation) -> pa.Table:
    with pa.OSFile(str(part_of(relation, "pages"))) as file:
        return pa.ipc.open_file(file).read_all()


def test_undamaged(relation: ss.Relation) -> None:
    assert relation.page_count >= 10
    assert same_rows(join(relation), nested_loop_join(STREAM, TABLE, on="id"))


def report(relation: ss.Relation, algorithm: str) -> str:
    """Return what a join says, after checking that it says which snapshot to rebuild."""
    with pytest.raises(CorruptRelationError) as error:
        join(relation, algorithm)
    assert f"rebuild snapshot {relation.snapshot}" in str(error.value)
    return str(error.value)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("page", [0, 3, -1])
def test_flipped_key_code(relation: ss.Relation, page: int, algorithm: str) -> None:
    rows = page_table(relation)["rows"].to_numpy()
    page %= len(rows)
    flip(part_of(relation, "codes"), 8 * int(rows[:page].sum()) + 5)
    message = report(relation, algorithm)
    assert f"page {page} of partition 1 is damaged: its key codes" in message
    assert str(part_of(relation, "codes")) in message


PARTS = [
    ("1.values", "'number' (values)"),
    ("1.validity", "'number' (validity)"),
    ("2.lengths", "'text' (lengths)"),
    ("2.data", "'text' (data)"),
    ("2.validity", "'text' (validity)"),
    ("3.message", "'list' (message)"),
]


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize(("part", "what"), PARTS)
@pytest.mark.parametrize("page", [0, 3, -1])
def test_flipped_value(
    relation: ss.Relation, page: int, part: str, what: str, algorithm: str
) -> None:
    table = page_table(relation)
    page %= table.num_rows
    flip(part_of(relation, "data"), table[f"{part}.offset"][page].as_py() + 1)
    message = report(relation, algorithm)
    assert f"page {page} of partition 1 is damaged: its column {what}" in message
    assert str(part_of(relation, "data")) in message


def test_columns_that_are_not_read_may_be_damaged(relation: ss.Relation) -> None:
    flip(part_of(relation, "data"), page_table(relation)["2.data.offset"][0].as_py())
    out = ss.join(STREAM.to_batches(), relation, columns=["number"], memory="4MB")
    assert same_rows(
        pa.Table.from_batches(out), nested_loop_join(STREAM, TABLE, on="id", columns=["number"])
    )


def test_damage_is_reported_every_time(relation: ss.Relation) -> None:
    flip(part_of(relation, "codes"), 11)
    assert report(relation, "meshjoin") == report(relation, "meshjoin")


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("kept", [0.0, 0.5, 0.999])
@pytest.mark.parametrize("kind", ["codes", "data", "pages"])
def test_truncated_file(relation: ss.Relation, kind: str, kept: float, algorithm: str) -> None:
    path = part_of(relation, kind)
    content = path.read_bytes()
    path.write_bytes(content[: int(len(content) * kept)])
    message = report(relation, algorithm)
    assert str(path) in message
    if kind != "pages":
        assert "of partition 1 is damaged" in message
        assert "cut off" in message


def test_truncation_names_the_page_where_the_file_ends(relation: ss.Relation) -> None:
    rows = page_table(relation)["rows"].to_numpy()
    path = part_of(relation, "codes")
    path.write_bytes(path.read_bytes()[: 8 * int(rows[:3].sum())])
    assert "page 3 of partition 1 is damaged" in report(relation, "meshjoin")


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("kind", ["codes", "data", "pages"])
def test_deleted_file(relation: ss.Relation, kind: str, algorithm: str) -> None:
    path = part_of(relation, kind)
    path.unlink()
    assert str(path) in report(relation, algorithm)
    gc.collect()  # what fails in a finalizer belongs to this test, not to one that comes later


def test_swapped_files(relation: ss.Relation) -> None:
    """Every file is sound, but the codes of one partition lie where the other's belong."""
    first, second = part_of(relation, "codes", 0), part_of(relation, "codes", 1)
    content = first.read_bytes()
    first.write_bytes(second.read_bytes())
    second.write_bytes(content)
    assert "page 0 of partition 0" in report(relation, "meshjoin")


def test_deleted_manifest(relation: ss.Relation) -> None:
    file_of(relation, "manifest.json").unlink()
    with pytest.raises(RelationNotFoundError, match=f"no snapshot '{relation.snapshot}'"):
        ss.Relation.open(relation.location)


def test_deleted_current(relation: ss.Relation) -> None:
    (Path(relation.location) / "CURRENT").unlink()
    with pytest.raises(RelationNotFoundError, match="has no CURRENT file"):
        ss.Relation.open(relation.location)


@pytest.mark.parametrize("field", ["arrow_schema", "key", "partitions", "snapshot"])
@pytest.mark.parametrize("content", [None, 7], ids=str)
def test_manifest_with_a_bad_field(relation: ss.Relation, field: str, content: object) -> None:
    path = file_of(relation, "manifest.json")
    path.write_text(json.dumps(json.loads(path.read_text()) | {field: content}))
    with pytest.raises(CorruptRelationError):
        join(ss.Relation.open(relation.location))


@pytest.mark.parametrize(
    ("name", "step"), [("codes", 11), ("data", 11), ("pages", 9), ("manifest.json", 7)]
)
def test_no_flipped_bit_goes_unnoticed(tmp_path: Path, name: str, step: int) -> None:
    """Wherever the bit is, the join names the damage or is not touched by it."""
    folder = tmp_path / "r.rel"
    table = TABLE[:60].select(["id", "text"])
    pq.write_table(table, tmp_path / "table.parquet")
    relation = ss.build_relation(table, folder, key="id", partitions=1, page_size=200)
    file = file_of(relation, name) if "." in name else part_of(relation, name, 0)
    program = [sys.executable, "-m", "tests.faults.flip_bits", folder, file.relative_to(folder)]
    done = subprocess.run(
        [*program, str(step), tmp_path / "copies", tmp_path / "table.parquet"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"died of signal {-done.returncode} at {done.stderr[-300:]}"
    outcomes = json.loads(done.stdout)
    assert outcomes["noticed"] > 0
    assert set(outcomes) <= {"right", "noticed"}, outcomes


def test_a_file_that_cannot_be_opened_leaves_no_trace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    unraisable: list[object] = []
    monkeypatch.setattr(sys, "unraisablehook", unraisable.append)
    with pytest.raises(FileNotFoundError):
        LocalPageFile(str(tmp_path / "nothing"))
    gc.collect()
    assert unraisable == []
