"""Columns of fixed width that are read in one native call: the same rows, checked as before."""

from decimal import Decimal
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import semistream as ss
from semistream.errors import CorruptRelationError
from semistream.joins.diskbuffer import DiskBuffer
from semistream.joins.fixedcolumns import Block, FixedColumns
from semistream.joins.stopwatch import Stopwatch
from semistream.relation.reader import PageReader

ROWS = 5_000


@pytest.fixture(scope="module")
def table() -> pa.Table:
    n = np.arange(ROWS)
    return pa.table(
        {
            "k": n,
            "long": n * 7,
            "int": pa.array(n % 1_000, pa.int32()),
            "short": pa.array(n % 99, pa.int16()),
            "flag": n % 3 == 0,
            "wide": pa.array([Decimal(int(i)) / 4 for i in n], pa.decimal128(38, 2)),
            "text": [f"{i}" for i in n],
            "some": pa.array([None if i % 5 == 0 else i for i in range(ROWS)]),
        }
    )


@pytest.fixture
def native(monkeypatch: pytest.MonkeyPatch) -> list[Block | None]:
    """What the native call has returned."""
    found: list[Block | None] = []
    gather = FixedColumns.gather
    monkeypatch.setattr(
        FixedColumns, "gather", lambda *about: found.append(gather(*about)) or found[-1]
    )
    return found


def gathered(reader: PageReader, columns: list[str], first: int, step: int) -> pa.Table:
    """Return every `step`-th row of half of the pages, from page `first` on."""
    disk = DiskBuffer(reader, columns, reader.page_count, False, Stopwatch())
    disk.load(first, first + reader.page_count // 2)
    rows = np.arange(0, len(disk.codes), step)
    arrays = disk.locate(rows).gather()
    return pa.table({"k": disk.codes[rows], **dict(zip(columns, arrays, strict=True))})


@pytest.mark.parametrize("step", [1, 2, 113])
def test_rows_are_the_same_as_column_by_column(
    table: pa.Table, tmp_path: Path, native: list[Block | None], step: int
) -> None:
    """The first time pages are compared with their checksums; then all is one call."""
    relation = ss.build_relation(table, tmp_path / "r.rel", key="k", partitions=1, page_size="8KiB")
    columns = table.column_names[1:]
    reader = relation.reader(columns)
    for _ in range(2):
        found = gathered(reader, columns, 3, step)
        expected = table.take(found["k"]).select(["k", *columns])
        assert found.to_pylist() == expected.to_pylist()
    assert native[0] is None
    assert native[1] is not None


def test_pages_of_two_files_are_read_column_by_column(
    table: pa.Table, tmp_path: Path, native: list[Block | None]
) -> None:
    relation = ss.build_relation(table, tmp_path / "r.rel", key="k", partitions=2, page_size="8KiB")
    reader = relation.reader(["long", "int"])
    for _ in range(2):
        found = gathered(reader, ["long", "int"], reader.page_count // 4, 1)
        assert found["long"].to_pylist() == [7 * k for k in found["k"].to_pylist()]
    assert native == [None, None]


def test_damage_is_found(table: pa.Table, tmp_path: Path) -> None:
    """By the first read, which does not take the native way."""
    relation = ss.build_relation(table, tmp_path / "r.rel", key="k", partitions=1, page_size="8KiB")
    data = next((tmp_path / "r.rel").rglob("*.data"))
    content = bytearray(data.read_bytes())
    content[: len(content) // 2] = bytes(len(content) // 2)
    data.chmod(0o644)
    data.write_bytes(bytes(content))
    with pytest.raises(CorruptRelationError, match="is damaged"):
        gathered(relation.reader(["long", "int"]), ["long", "int"], 0, 1)
