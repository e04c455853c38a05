"""The read plan: which requests are made for some pages or rows, on which device."""

import os
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import semistream as ss
from semistream.budget.pagesizes import MOST_PLANNED_BYTES
from semistream.embedded import prepare
from semistream.errors import CorruptRelationError
from semistream.relation import parts
from semistream.relation.device import EmulatedDevice, Reading
from semistream.relation.disk import Disk
from semistream.relation.mapped import MappedFile
from semistream.relation.pagetable import CODES
from semistream.relation.read_kernels import UNIT_BYTES
from semistream.relation.reader import PageReader
from semistream.relation.readplan import PlannedReads, RowsByPage
from semistream.relation.writer import CODE_BYTES
from tests.resident import mapped_bytes, resident_bytes

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


# Mapped files ------------------------------------------------------------------------------------

LARGE_ROWS = 6_000_000  # 48 MB of codes and 48 MB of values
MAPPED_BYTES = 2 * UNIT_BYTES


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> ss.Relation:
    """R whose files are much larger than what may be mapped at a time."""
    table = pa.table({"k": np.arange(LARGE_ROWS), "v": np.arange(LARGE_ROWS) * 3})
    folder = tmp_path_factory.mktemp("mapped") / "r.rel"
    return ss.build_relation(table, folder, key="k", partitions=1)


@pytest.fixture
def cheap_mapping(monkeypatch: pytest.MonkeyPatch) -> None:
    """How files are cached is not found out: in large pages."""
    monkeypatch.setattr(MappedFile, "small_share", lambda *_: 0.0)


def name_of(relation: ss.Relation, column: str) -> str:
    return f"{relation.schema.get_field_index(column)}.values"


@pytest.mark.usefixtures("cheap_mapping")
def test_single_rows_are_looked_at_in_place(large: ss.Relation) -> None:
    """They are the same rows, and all that was mapped is let go of."""
    reader = large.reader(["v"])
    rows = np.arange(100, LARGE_ROWS, 1_000)
    reads = PlannedReads(reader, 1 << 16, MAPPED_BYTES)
    by_page = RowsByPage(rows, reader.row_bounds)
    assert (reads.values(name_of(large, "v"), 8, by_page).view(np.int64) == rows * 3).all()
    assert mapped_bytes() == 0
    looked_at = 0
    for view in reads.views(CODES, by_page.pages, len(rows)):
        which, indexes, in_page = by_page.within(view.first, view.last)
        starts = view.starts[indexes - view.first] // CODE_BYTES
        codes = view.data[: len(view.data) // 8 * 8].view(np.int64)
        assert (codes[starts + in_page] == rows[which]).all()
        looked_at = mapped_bytes()
        view.window[:2] = 0, len(view.data)  # what was looked at without a kernel
    assert looked_at > 0
    assert mapped_bytes() == 0


@pytest.mark.usefixtures("cheap_mapping")
def test_no_more_is_mapped_than_allowed(large: ss.Relation) -> None:
    """By the peak of the resident size, over a column that is much larger."""
    reader = large.reader(["v"])
    rows = np.arange(100, LARGE_ROWS, 1_000)
    reads = PlannedReads(reader, 1 << 16, MAPPED_BYTES)
    by_page = RowsByPage(rows, reader.row_bounds)
    reads.values(name_of(large, "v"), 8, by_page)  # compares checksums
    before = resident_bytes("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
    found = reads.values(name_of(large, "v"), 8, by_page)
    peak = resident_bytes("VmHWM") - before
    assert (found.view(np.int64) == rows * 3).all()
    assert peak <= MAPPED_BYTES + (1 << 20)


@pytest.mark.parametrize(("step", "small_share"), [(1, 0.0), (20_000, 1.0)])
def test_rows_are_not_looked_at_in_place_where_that_costs_more(
    large: ss.Relation, monkeypatch: pytest.MonkeyPatch, step: int, small_share: float
) -> None:
    """All rows are copied; single ones are requested if the file is cached in small pages."""
    monkeypatch.setattr(MappedFile, "small_share", lambda *_: small_share)
    monkeypatch.setattr(MappedFile, "window", lambda *_: pytest.fail("it was mapped"))
    reader = large.reader(["v"])
    rows = np.arange(0, LARGE_ROWS, step)
    by_page = RowsByPage(rows, reader.row_bounds)
    reads = PlannedReads(reader, 1 << 22, MAPPED_BYTES)
    assert (reads.values(name_of(large, "v"), 8, by_page).view(np.int64) == rows * 3).all()


def test_how_a_file_is_cached_is_found_out_by_trying(large: ss.Relation) -> None:
    """A share, the same for all that ask; nothing stays mapped."""
    path = next(Path(large.location).rglob("*.codes"))
    mapped = MappedFile(Disk().map(str(path)), str(path))
    offsets = np.arange(0, len(mapped.data), 1 << 20)
    share = mapped.small_share(offsets)
    assert share in (0.0, 0.25, 0.5, 0.75, 1.0)
    assert mapped.small_share(offsets[:1]) == share
    assert mapped_bytes() == 0


def test_how_a_file_is_cached_is_tried_once_in_a_while_for_all_readers(
    large: ss.Relation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not again for the next reader of the file, but for another file, and after some time."""
    path, tried = next(Path(large.location).rglob("*.codes")), []
    monkeypatch.setattr(MappedFile, "_is_small", lambda _, start: bool(tried.append(start)))
    offsets, content = np.arange(0, 8 << 20, 2 << 20), Disk().map(str(path))
    for name in ("a", "a", "b"):
        MappedFile(content, str(tmp_path / name)).small_share(offsets)
    assert tried == offsets.tolist() * 2
    monkeypatch.setattr("semistream.relation.mapped._TRIED_AGAIN_NS", 0)
    MappedFile(content, str(tmp_path / "a")).small_share(offsets)
    assert tried == offsets.tolist() * 3


@pytest.mark.usefixtures("cheap_mapping")
def test_pages_are_compared_with_their_checksums_before_they_are_looked_at(tmp_path: Path) -> None:
    """In place as elsewhere, once."""
    table = pa.table({"k": np.arange(1_000_000), "v": np.arange(1_000_000)})
    relation = ss.build_relation(table, tmp_path / "r.rel", key="k", partitions=1)
    codes = next((tmp_path / "r.rel").rglob("*.codes"))
    content = bytearray(codes.read_bytes())
    content[4_000_001] ^= 1
    codes.chmod(0o644)
    codes.write_bytes(bytes(content))
    reader = relation.reader(["v"])
    rows = np.arange(100, 1_000_000, 1_000)
    pages = RowsByPage(rows, reader.row_bounds).pages
    with pytest.raises(CorruptRelationError, match="key codes"):
        list(PlannedReads(reader, 1 << 16, MAPPED_BYTES).views(CODES, pages, len(rows)))


@pytest.mark.usefixtures("cheap_mapping")
def test_a_look_up_join_in_place_keeps_its_budget(
    large: ss.Relation, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Codes and columns are mapped in turns, within its disk buffer."""
    peaks, release = [], PlannedReads.release
    monkeypatch.setattr(
        PlannedReads, "release", lambda reads: (peaks.append(mapped_bytes()), release(reads))
    )
    keys = np.random.default_rng(1).integers(0, LARGE_ROWS, 60_000)
    operator, stream = prepare(
        pa.table({"k": keys}), large, memory="40MB", algorithm="lookup", how="inner"
    )
    assert operator is not None
    joined = pa.Table.from_batches(operator.join(stream))
    assert sorted(joined["k"].to_pylist()) == sorted(keys.tolist())
    assert (joined["v"].to_numpy() == joined["k"].to_numpy() * 3).all()
    assert 0 < max(peaks) <= MAPPED_BYTES
    assert operator.ledger.peaks()["disk buffer"] == 2 * MOST_PLANNED_BYTES + MAPPED_BYTES
    assert mapped_bytes() == 0


@pytest.mark.usefixtures("cheap_mapping")
def test_a_file_that_is_not_cached_is_read(
    large: ss.Relation, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Page faults would wait for the device, one after the other."""
    monkeypatch.setattr(Disk, "count_cached", lambda *_: 0)
    reader = large.reader(["v"])
    rows = np.arange(100, LARGE_ROWS, 1_000)
    by_page = RowsByPage(rows, reader.row_bounds)
    reads = PlannedReads(reader, 1 << 22, MAPPED_BYTES)
    for view in reads.views(CODES, by_page.pages, len(rows)):
        assert not view.window.any()


def test_whether_bytes_are_cached_is_found_out(tmp_path: Path) -> None:
    """By the system, which was told to drop them, and then to read them."""
    path = tmp_path / "file"
    path.write_bytes(bytes(1 << 20))
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_RANDOM)
        offsets = np.array([0, 1 << 19])
        if Disk().count_cached(descriptor, offsets[:1]):
            pytest.skip("the folder of temporary files is in memory")
        os.pread(descriptor, 1, 0)
        assert Disk().count_cached(descriptor, offsets) == 1
    finally:
        os.close(descriptor)


@pytest.mark.usefixtures("cheap_mapping")
def test_a_file_that_was_cut_off_is_not_mapped(tmp_path: Path) -> None:
    """Also if its pages were checked before: the process would end at a byte behind its end."""
    table = pa.table({"k": np.arange(1_000_000), "v": np.arange(1_000_000)})
    relation = ss.build_relation(table, tmp_path / "r.rel", key="k", partitions=1)
    rows = np.append(np.arange(100, 999_000, 1_000), 999_999)

    def look() -> None:
        reader = relation.reader(["v"])
        pages = RowsByPage(rows, reader.row_bounds).pages
        list(PlannedReads(reader, 1 << 16, MAPPED_BYTES).views(CODES, pages, len(rows)))

    look()
    codes = next((tmp_path / "r.rel").rglob("*.codes"))
    content = codes.read_bytes()
    codes.chmod(0o644)
    codes.write_bytes(content[:-5_000])
    with pytest.raises(CorruptRelationError, match="cut off"):
        look()


def test_a_file_that_ends_too_early_is_reported(tmp_path: Path) -> None:
    """Not read as zeros, and no crash of the process."""
    table = pa.table({"k": np.arange(5_000), "v": np.arange(5_000)})
    relation = ss.build_relation(table, tmp_path / "r.rel", key="k", partitions=1)
    data = next((tmp_path / "r.rel").rglob("*.data"))
    data.chmod(0o644)
    data.write_bytes(data.read_bytes()[:1_000])
    with pytest.raises(CorruptRelationError, match="cut off"):
        list(ss.join(pa.table({"k": [4_999]}), relation, on="k", algorithm="lookup", memory="1MB"))


def test_how_much_of_a_relation_is_cached_is_found_out(tmp_path: Path) -> None:
    """By a sample of its pages, in all files."""
    table = pa.table({"k": np.arange(300_000), "v": np.arange(300_000)})
    relation = ss.build_relation(table, tmp_path / "r.rel", key="k", partitions=2)
    rng = np.random.default_rng(1)
    assert relation.reader(["v"]).uncached_share(rng) == 0
    for path in (tmp_path / "r.rel").rglob("*.*"):
        if path.suffix in (".codes", ".data"):
            with path.open("rb") as file:
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    share = relation.reader(["v"]).uncached_share(rng)
    if share == 0:
        pytest.skip("the folder of temporary files is in memory")
    assert share > 0.9
