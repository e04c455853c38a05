"""Columns of fixed width that are gathered together: the same rows, checked as before."""

from decimal import Decimal
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import semistream as ss
from semistream.errors import CorruptRelationError
from semistream.joins.diskbuffer import DiskBuffer
from semistream.joins.fixedcolumns import Block, FixedColumns
from semistream.joins.plannedrows import PlannedColumns
from semistream.joins.stopwatch import Stopwatch
from semistream.relation.mapped import MappedFile
from semistream.relation.read_kernels import UNIT_BYTES
from semistream.relation.reader import PageReader
from semistream.relation.readplan import PlannedReads
from tests.resident import mapped_bytes, resident_bytes

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


# In place ----------------------------------------------------------------------------------------

LARGE_ROWS = 1_500_000  # 12 MB of each column: more than may be mapped at a time
MAPPED_BYTES = 4 * UNIT_BYTES


@pytest.fixture
def in_large_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    """How files are cached is not found out."""
    monkeypatch.setattr(MappedFile, "small_share", lambda *_: 0.0)


def large_relation(folder: Path, partitions: int) -> ss.Relation:
    n = np.arange(LARGE_ROWS)
    columns = {"long": n * 7, "int": (n % 1_000).astype(np.int32), "short": n.astype(np.int16)}
    table = pa.table({"k": n, **columns})
    return ss.build_relation(table, folder / "r.rel", key="k", partitions=partitions)


@pytest.mark.usefixtures("in_large_pages")
@pytest.mark.parametrize("partitions", [1, 3])
def test_rows_are_looked_at_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, partitions: int
) -> None:
    """In one file or several; what is mapped stays within its bounds, and none of it remains."""
    reader = large_relation(tmp_path, partitions).reader(["long", "int", "short"])
    peaks, look_at = [], PlannedReads.look_at_parts
    monkeypatch.setattr(
        PlannedReads,
        "look_at_parts",
        lambda *about: (look_at(*about), peaks.append(mapped_bytes()))[0],
    )
    reads = PlannedReads(reader, 1 << 16, MAPPED_BYTES)
    # Within a page rows come in any order.
    rows = np.arange(0, LARGE_ROWS, 150)
    page = np.searchsorted(reader.row_bounds, rows, "right")
    rows = rows[np.lexsort((-rows, page))]
    monkeypatch.setattr(PlannedReads, "values", lambda *_: pytest.fail("column by column"))
    columns = PlannedColumns(reader, ["long", "int", "short"], reads)
    found = columns.locate(rows)
    long, number, short = (array.to_numpy() for array in found.gather())
    keys = long // 7
    assert (long % 7 == 0).all()
    assert len(set(keys.tolist())) == len(keys)
    assert (number == keys % 1_000).all()
    assert (short == keys.astype(np.int16)).all()
    assert len(peaks) == partitions
    assert max(peaks) <= MAPPED_BYTES
    assert mapped_bytes() == 0
    assert reads.bytes_read > 0


@pytest.mark.usefixtures("in_large_pages")
def test_no_more_is_mapped_than_allowed(tmp_path: Path) -> None:
    """By the peak of the resident size, over columns that are much larger."""
    reader = large_relation(tmp_path, 1).reader(["long", "int", "short"])
    columns = PlannedColumns(
        reader, ["long", "int", "short"], PlannedReads(reader, 1 << 16, MAPPED_BYTES)
    )
    rows = np.arange(0, LARGE_ROWS, 150)
    columns.locate(rows).gather()  # compares checksums
    before = resident_bytes("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
    columns.locate(rows).gather()
    assert resident_bytes("VmHWM") - before <= MAPPED_BYTES + (1 << 20)


@pytest.mark.usefixtures("in_large_pages")
def test_damage_is_found_in_place(tmp_path: Path) -> None:
    """Also in a column that is not the widest."""
    relation = large_relation(tmp_path, 1)
    reader = relation.reader(["long", "int"])
    part = reader.part(f"{relation.schema.get_field_index('int')}.values")
    assert part is not None
    data = next((tmp_path / "r.rel").rglob("*.data"))
    content = bytearray(data.read_bytes())
    content[int(part.offsets[reader.page_count // 2]) + 5] ^= 1
    data.chmod(0o644)
    data.write_bytes(bytes(content))
    columns = PlannedColumns(reader, ["long", "int"], PlannedReads(reader, 1 << 16, MAPPED_BYTES))
    with pytest.raises(CorruptRelationError, match="is damaged"):
        columns.locate(np.arange(0, LARGE_ROWS, 150)).gather()
