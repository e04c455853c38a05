"""What the disk buffer reads: what matches, in the requests that cost least on the device."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import semistream as ss
from semistream.budget.split import Split
from semistream.joins.diskbuffer import DiskBuffer
from semistream.joins.indexjoin import IndexJoin
from semistream.joins.registry import ALGORITHMS
from semistream.joins.stopwatch import Stopwatch
from semistream.joins.streamjoin import JoinTask
from semistream.relation import build, writer
from semistream.relation.device import EmulatedDevice, Reading
from semistream.relation.disk import LocalPageFile
from semistream.relation.layout import part_names
from semistream.relation.pagetable import CODES
from semistream.relation.reader import PageReader
from semistream.spec import resolve
from semistream.testing import nested_loop_join, same_rows

ROWS = 20_000
COLUMNS = ["number", "text", "list", "some"]
DEVICES = ["hdd-2007", "ssd", "object-store"]


@pytest.fixture(scope="module")
def table() -> pa.Table:
    n = np.arange(ROWS)
    return pa.table(
        {
            "k": n,
            "number": n * 7,
            "text": [f"{i} " + "x" * (i % 90) for i in range(ROWS)],
            "list": [[i] * (i % 5) for i in range(ROWS)],
            # Nulls in the last quarter alone: the extents before store no validity.
            "some": pa.array([None if 4 * i > 3 * ROWS and i % 3 == 0 else i for i in range(ROWS)]),
        }
    )


@pytest.fixture(scope="module")
def relation(table: pa.Table, tmp_path_factory: pytest.TempPathFactory) -> ss.Relation:
    folder = tmp_path_factory.mktemp("relation")
    with pytest.MonkeyPatch.context() as patch:  # several extents in each partition
        patch.setattr(writer, "EXTENT_BYTES", 300_000)
        patch.setattr(build, "_WRITE_ROWS", 1_000)
        return ss.build_relation(table, folder, key="k", partitions=2, page_size="8KiB")


def test_validity_is_stored_for_some_pages_only(relation: ss.Relation) -> None:
    reader = relation.reader(["some"])
    sizes = [reader.part_bytes("4.validity", p, p + 1) for p in range(reader.page_count)]
    assert 0 in sizes
    assert max(sizes) > 0


@dataclass
class Counted:
    """A disk buffer over all of R, and the device it reads from."""

    reader: PageReader
    device: EmulatedDevice
    disk: DiskBuffer

    @classmethod
    def on(cls, relation: ss.Relation, device: EmulatedDevice, columns: list[str]) -> "Counted":
        reader = relation.read_by(Reading(device)).reader(columns)
        disk = DiskBuffer(reader, columns, reader.page_count, False, Stopwatch())
        return cls(reader, device, disk)

    def work(self) -> tuple[int, int]:
        """Return the requests and bytes so far."""
        return self.device.requests, self.device.bytes_read

    def planned(self, name: str, pages: list[int]) -> tuple[int, int]:
        """Return the requests and bytes that cost least: a gap is read if that costs less."""
        part = self.reader.part(name)
        pages = [p for p in pages if part is not None and part.size_bytes(p, p + 1)]
        if part is None or not pages:
            return 0, 0
        requests, size = 1, part.size_bytes(pages[0], pages[0] + 1)
        for a, b in pairwise(pages):
            begins = int(part.offsets[a]) + part.size_bytes(a, a + 1)
            gap = int(part.offsets[b]) - begins
            lies_together = self.reader.end_in_file(
                np.array([a, b]), 0
            ) == 2 and gap == part.size_bytes(a + 1, b)
            seek_s, request_s, bytes_per_s = self.device.costs
            is_read = lies_together and gap / bytes_per_s <= seek_s + request_s
            requests += not is_read
            size += part.size_bytes(b, b + 1) + gap * is_read
        return requests, size


def sparse(reader: PageReader, every: int) -> list[int]:
    """Return one page of many."""
    return list(range(1, reader.page_count, every))


@pytest.mark.parametrize("column", COLUMNS)
@pytest.mark.parametrize("every", [1, 5, 40])
@pytest.mark.parametrize("device", DEVICES)
def test_columns_are_read_as_the_device_costs(
    relation: ss.Relation, table: pa.Table, device: str, column: str, every: int
) -> None:
    # 8 times smaller than the real one, as the pages are.
    counted = Counted.on(relation, EmulatedDevice.named(device).shrunk(8), [column])
    reader, disk = counted.reader, counted.disk
    disk.load(0, reader.page_count)
    before = counted.work()
    pages = sparse(reader, every)
    rows = np.concatenate([reader.row_bounds[pages], reader.row_bounds[np.array(pages) + 1] - 1])
    values = disk.locate(rows).gather()[0]
    assert values.to_pylist() == table[column].take(disk.codes[rows]).to_pylist()
    index = reader.manifest.schema.get_field_index(column)
    names = part_names(index, reader.manifest.schema.field(index).type).values()
    plans = [counted.planned(name, pages) for name in names]
    found = np.subtract(counted.work(), before)
    assert found.tolist() == np.sum(plans, axis=0).tolist()
    assert disk.bytes_read == counted.device.bytes_read


def test_devices_differ_as_their_costs_do(relation: ss.Relation) -> None:
    """An SSD skips what a seeking disk and an object store read as well."""
    work = {}
    for name in DEVICES:
        counted = Counted.on(relation, EmulatedDevice.named(name).shrunk(8), ["number"])
        disk, reader = counted.disk, counted.reader
        disk.load(0, reader.page_count, np.array(sparse(reader, 40)))
        disk.locate(reader.row_bounds[sparse(reader, 40)]).gather()
        work[name] = counted.work()
    (hdd, hdd_bytes), (ssd, ssd_bytes), (store, store_bytes) = (work[name] for name in DEVICES)
    assert max(hdd, store) < 0.7 * ssd
    assert ssd_bytes < min(hdd_bytes, store_bytes) / 4


def test_local_files_answer_all_requests_in_one_call(
    table: pa.Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One native call for a column, with a request for each page far from the others."""
    calls: list[int] = []
    read_all = LocalPageFile.read_all

    def counting(file: LocalPageFile, requests: Any, out: Any) -> bool:
        calls.append(requests.shape[1])
        return read_all(file, requests, out)

    monkeypatch.setattr(LocalPageFile, "read_all", counting)
    relation = ss.build_relation(table, tmp_path, key="k", partitions=1, page_size="8KiB")
    reader = relation.reader(["number"])
    disk = DiskBuffer(reader, ["number"], reader.page_count, False, Stopwatch())
    disk.load(0, reader.page_count)
    pages = sparse(reader, 40)
    rows = reader.row_bounds[pages]
    values = disk.locate(rows).gather()[0]
    assert values.to_pylist() == (7 * disk.codes[rows]).tolist()
    assert calls == [len(pages)]
    # What was requested has been compared with its checksum, and nothing else.
    part = reader.part("1.values")
    assert part is not None
    assert np.flatnonzero(part.checked).tolist() == pages


@pytest.mark.parametrize("every", [1, 5, 40])
@pytest.mark.parametrize("device", DEVICES)
def test_codes_of_requested_pages(relation: ss.Relation, device: str, every: int) -> None:
    counted = Counted.on(relation, EmulatedDevice.named(device).shrunk(8), [])
    reader, disk = counted.reader, counted.disk
    disk.load(0, reader.page_count)
    codes, before = disk.codes.copy(), counted.work()
    disk.codes[:] = -1
    pages = sparse(reader, every)
    read = disk.load(0, reader.page_count, np.array(pages))
    assert np.subtract(counted.work(), before).tolist() == list(counted.planned(CODES, pages))
    assert read == np.count_nonzero(disk.is_read)
    assert disk.is_read[pages].all()
    bounds = reader.row_bounds
    for page in np.flatnonzero(disk.is_read).tolist():
        rows = slice(bounds[page], bounds[page + 1])
        assert (disk.codes[rows] == codes[rows]).all()
    size = sum(reader.part_bytes(CODES, p, p + 1) for p in np.flatnonzero(disk.is_read).tolist())
    assert size == counted.work()[1] - before[1]


@pytest.mark.parametrize(("device", "share"), [("ssd", 0.25), ("hdd-2007", 1.0)])
def test_a_load_for_one_page_reads_its_codes(
    relation: ss.Relation, device: str, share: float
) -> None:
    """One tuple waits: an SSD reads the codes of one page of many, and says so."""
    emulated = EmulatedDevice.named(device).shrunk(8)
    read = relation.read_by(Reading(emulated))
    stream = pa.table({"k": [ROWS // 2, ROWS // 2 + 2000]})
    spec = resolve(read, stream.schema, how="semi")
    task = JoinTask(read, spec, 2_000_000, split=Split(pages_per_read=200))
    join = ALGORITHMS["hybridjoin"].make(task)
    assert sum(batch.num_rows for batch in join.join(stream.to_batches())) == 2
    assert isinstance(join, IndexJoin)
    assert 2 <= join.telemetry.pages_scanned <= share * 200
    rows_per_page = ROWS / read.page_count
    assert join.telemetry.bytes_read == emulated.bytes_read
    assert emulated.bytes_read == pytest.approx(
        8 * rows_per_page * join.telemetry.pages_scanned, rel=0.3
    )


INDEXED = ["inlj", "binlj", "hybridjoin", "xhybridjoin", "chybridjoin", "cbinlj"]
NO_GAPS = EmulatedDevice("no overhead", 0.0, 1e9)  # nothing is ever read as well


@settings(max_examples=30)
@given(
    seed=st.integers(0, 10**6),
    algorithm=st.sampled_from(INDEXED),
    duplicates=st.booleans(),
    batch_rows=st.sampled_from([1, 3, 20]),
    order=st.sampled_from(["key", "frequency"]),
)
def test_rows_are_right_though_little_is_read(
    tmp_path_factory: pytest.TempPathFactory,
    seed: int,
    algorithm: str,
    duplicates: bool,
    batch_rows: int,
    order: str,
) -> None:
    """Few tuples wait at a time; stale codes of the load before lie between what is read."""
    rng = np.random.default_rng(seed)
    rows = 400
    keys = rng.integers(0, rows // 4, rows) if duplicates else rng.permutation(rows)
    table = pa.table({"k": keys, "n": np.arange(rows), "text": [f"{i}" for i in range(rows)]})
    stream = pa.table({"k": np.minimum(rng.zipf(1.4, 150), rows), "m": np.arange(150)})
    stream = stream.take(rng.permutation(150))
    folder = tmp_path_factory.mktemp("relation")
    sample = stream.select(["k"]) if order == "frequency" else None
    about = {"partitions": 2, "page_size": 200, "order": order, "sample": sample}
    built = ss.build_relation(table, folder, key="k", **about)  # type: ignore[arg-type]

    def source() -> Iterator[pa.RecordBatch]:
        for batch in stream.to_batches(max_chunksize=batch_rows):
            yield batch
            yield batch[:0]  # the stream pauses: all that waits is served

    read = built.read_by(Reading(NO_GAPS))
    spec = resolve(read, stream.schema, how="left")
    join = ALGORITHMS[algorithm].make(JoinTask(read, spec, 80_000))
    out = pa.Table.from_batches(join.join(source()))
    assert same_rows(out, nested_loop_join(stream, table, on="k"))
