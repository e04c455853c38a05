"""The read plan: which requests are made for some pages or rows, on which device."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import semistream as ss
from semistream.errors import CorruptRelationError
from semistream.relation import parts
from semistream.relation.device import EmulatedDevice, Reading
from semistream.relation.pagetable import CODES
from semistream.relation.reader import PageReader
from semistream.relation.readplan import PlannedReads, RowsByPage

ROWS = 20_000
PAGE_BYTES = 4_096


@pytest.fixture(scope="module")
def relation(tmp_path_factory: pytest.TempPathFactory) -> ss.Relation:
    """R with two partitions and pages of about 256 rows."""
    table = pa.table({"k": np.arange(ROWS), "v": np.arange(ROWS) * 3})
    folder = tmp_path_factory.mktemp("readplan") / "r.rel"
    return ss.build_relation(table, folder, key="k", partitions=2, page_size=PAGE_BYTES)


def codes_of(reader: PageReader, pages: list[int]) -> list[list[int]]:
    """Return the codes of some pages, read whole."""
    found = []
    for page in pages:
        out = np.empty(reader.part_bytes(CODES, page, page + 1) // 8, np.int64)
        reader.read_codes(page, page + 1, out)
        found.append(out.tolist())
    return found


def seen(reader: PageReader, reads: PlannedReads, pages: list[int]) -> list[list[int]]:
    """Return the codes of some pages as they come into view."""
    found = []
    for view in reads.views(CODES, np.array(pages)):
        for page, start in zip(pages[view.first : view.last], view.starts.tolist(), strict=True):
            size = reader.part_bytes(CODES, page, page + 1)
            found.append(view.data[start : start + size].view(np.int64).tolist())
    return found


@pytest.mark.parametrize("step", [1, 2, 7, 30])
@pytest.mark.parametrize("buffer_bytes", [PAGE_BYTES, 5 * PAGE_BYTES, 1 << 20])
def test_views_show_what_a_read_of_each_page_shows(
    relation: ss.Relation, step: int, buffer_bytes: int
) -> None:
    """Whatever the buffer holds and however far pages are apart, over both partitions."""
    reader = relation.reader(["v"])
    pages = list(range(0, reader.page_count, step))
    assert seen(reader, PlannedReads(reader, buffer_bytes), pages) == codes_of(reader, pages)


@pytest.mark.parametrize("every", [1, 3, 500, 4_000])
def test_values_are_those_of_the_rows(relation: ss.Relation, every: int) -> None:
    """Dense rows come by parts, sparse ones by requests of their own, once they were checked."""
    reader = relation.reader(["v"])
    rows = np.arange(0, ROWS, every)
    name = f"{relation.schema.get_field_index('v')}.values"
    expected = []
    for page in range(reader.page_count):
        out = np.empty(reader.part_bytes(name, page, page + 1), np.uint8)
        reader.read_part(name, page, page + 1, out)
        expected += out.view(np.int64).tolist()
    parts._checked.clear()
    for _ in range(2):  # the second time without checksums
        fresh = relation.reader(["v"])
        found = PlannedReads(fresh, 1 << 16).values(name, 8, RowsByPage(rows, fresh.row_bounds))
        assert found.view(np.int64).tolist() == [expected[row] for row in rows]


def test_rows_that_are_few_cost_few_bytes(relation: ss.Relation) -> None:
    """After the first touch only the values themselves are read."""
    name = f"{relation.schema.get_field_index('v')}.values"
    rows = np.array([0, 9_000])  # of the first partition
    reads = None
    for _ in range(2):
        reader = relation.reader(["v"])
        reads = PlannedReads(reader, 1 << 16)
        reads.values(name, 8, RowsByPage(rows, reader.row_bounds))
    assert reads is not None
    assert reads.bytes_read == 8 * len(rows)


def test_the_device_decides_which_gaps_are_read(relation: ss.Relation) -> None:
    """Every tenth page: a request each where that is cheap, one for all where it is not."""
    counted = {}
    for name in ("hdd-2007", "ssd", "object-store"):
        device = EmulatedDevice.named(name)
        reader = relation.read_by(Reading(device)).reader(["v"])
        first = reader.partition_page_bounds()[0]
        pages = list(range(int(first[0]), int(first[1]), 10))
        device.bytes_read = device.requests = 0
        seen(reader, PlannedReads(reader, 1 << 20), pages)
        counted[name] = (device.requests, device.bytes_read)
    assert counted["object-store"][0] == counted["hdd-2007"][0] == 1
    assert counted["ssd"][1] <= counted["hdd-2007"][1]
    gap = Reading(EmulatedDevice.named("ssd")).most_gap_bytes(is_local=True)
    assert gap == 50_000  # 0.1 ms at 500 MB/s


def test_a_damaged_part_is_reported_at_the_first_touch(tmp_path: Path) -> None:
    """A flipped bit in a page that is read for a single row."""
    table = pa.table({"k": np.arange(5_000), "v": np.arange(5_000)})
    relation = ss.build_relation(table, tmp_path / "r.rel", key="k", partitions=1)
    data = next((tmp_path / "r.rel").rglob("*.data"))
    content = bytearray(data.read_bytes())
    content[100] ^= 1
    data.chmod(0o644)
    data.write_bytes(bytes(content))
    stream = pa.table({"k": [0, 1]})
    with pytest.raises(CorruptRelationError, match="page 0 of partition 0 is damaged"):
        list(ss.join(stream, relation, on="k", algorithm="lookup", memory="1MB"))


def test_a_damaged_part_is_found_beside_parts_that_were_checked_before(tmp_path: Path) -> None:
    """The second page is damaged; the first one was read, and compared, before."""
    table = pa.table({"k": np.arange(5_000), "v": np.arange(5_000)})
    relation = ss.build_relation(table, tmp_path / "r.rel", key="k", partitions=1, page_size=4_096)
    reader = relation.reader(["v"])
    codes = next((tmp_path / "r.rel").rglob("*.codes"))
    content = bytearray(codes.read_bytes())
    content[reader.part_bytes(CODES, 0, 1) + 8] ^= 1
    codes.chmod(0o644)
    codes.write_bytes(bytes(content))
    seen(reader, PlannedReads(reader, 1 << 16), [0])
    with pytest.raises(CorruptRelationError, match="page 1 of partition 0 is damaged"):
        seen(reader, PlannedReads(reader, 1 << 16), [0, 1])


def test_values_that_were_never_checked_are_read_with_their_page(tmp_path: Path) -> None:
    """A single value has no checksum of its own."""
    table = pa.table({"k": np.arange(200_000), "v": np.arange(200_000)})
    relation = ss.build_relation(table, tmp_path / "r.rel", key="k", partitions=1, page_size=4_096)
    reader = relation.reader(["v"])
    name = f"{relation.schema.get_field_index('v')}.values"
    data = next((tmp_path / "r.rel").rglob("*.data"))
    part = reader.part(name)
    assert part is not None
    content = bytearray(data.read_bytes())
    content[int(part.offsets[-1]) + 8] ^= 1
    data.chmod(0o644)
    data.write_bytes(bytes(content))
    rows = RowsByPage(np.array([0, reader.row_count - 1]), reader.row_bounds)
    with pytest.raises(CorruptRelationError, match="is damaged"):
        PlannedReads(reader, 1 << 16).values(name, 8, rows)


def test_a_file_that_ends_too_early_is_reported(tmp_path: Path) -> None:
    """Not read as zeros, and no crash of the process."""
    table = pa.table({"k": np.arange(5_000), "v": np.arange(5_000)})
    relation = ss.build_relation(table, tmp_path / "r.rel", key="k", partitions=1)
    data = next((tmp_path / "r.rel").rglob("*.data"))
    data.chmod(0o644)
    data.write_bytes(data.read_bytes()[:1_000])
    with pytest.raises(CorruptRelationError, match="cut off"):
        list(ss.join(pa.table({"k": [4_999]}), relation, on="k", algorithm="lookup", memory="1MB"))
