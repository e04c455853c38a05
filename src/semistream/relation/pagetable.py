"""The page table while it is loaded: a bound on its memory, and reading only the needed columns.

The page table of a partition is an Arrow file with a row for each page, and columns for every part
of every column of R. A join needs the parts of a few columns. Of a large local file only these are
read, after the whole file was compared with its checksum a piece at a time.
"""

import zlib
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from semistream.relation.layout import Manifest, PartitionInfo, part_names, snapshot_path
from semistream.relation.storage import PageFile, Store

CODES = "codes"
# Of a page, in the page table: rows, first code, file; its codes' offset, checksum and flag.
_PAGE_BYTES = 8 + 8 + 4 + 8 + 4 + 1
_PART_BYTES = 8 + 8 + 4 + 1  # offset, end, checksum, and whether it was checked
_STORED_PART_BYTES = 8 + 8 + 4  # offset, size and checksum in the file
# A page table up to this size is read as a whole; of a larger local one only the needed columns.
_WHOLE_BYTES = 1 << 20
# Large page tables that this process has compared with their checksums; files never change.
_compared: OrderedDict[tuple[str, int], None] = OrderedDict()
_MOST_COMPARED = 4096


def page_table_bound(
    store: Store, manifest: Manifest, partitions: Sequence[int], columns: Sequence[str]
) -> int:
    """Return the most memory, in bytes, of a `PageReader`, from file sizes and the manifest alone.

    Up to 1 MB that is read and freed again is not counted.
    """
    infos = [manifest.partitions[p] for p in partitions if manifest.partitions[p].row_count]
    if not infos:
        return 0
    parts = len(parts_of(manifest, columns))
    every_part = len(parts_of(manifest, manifest.schema.names))
    pages = sum(info.page_count for info in infos)
    largest = max(info.page_count for info in infos)
    read = largest * (_PAGE_BYTES + every_part * _STORED_PART_BYTES) - _WHOLE_BYTES
    if store.is_local:
        read = min(read, largest * (_PAGE_BYTES + parts * _STORED_PART_BYTES))
    hot_files = [store.entry(file_path(manifest, i, "hot")) for i in infos if i.hot_pages]
    hot = [entry.size_bytes for entry in hot_files if entry is not None]  # else the reader reports
    kept = (pages + 1) * (_PAGE_BYTES + parts * _PART_BYTES)
    return kept + max(0, read) + 2 * sum(hot)


def parts_of(manifest: Manifest, columns: Sequence[str]) -> list[str]:
    """Return the parts of some columns, by their names in the page table."""
    schema, stored = manifest.schema, manifest.stored_fields
    indexes = [i for i in map(schema.get_field_index, columns) if i in stored]
    return [n for i in indexes for n in part_names(i, schema.field(i).type).values()]


def file_path(manifest: Manifest, info: PartitionInfo, kind: str) -> str:
    """Return the path of one of a partition's files inside the relation."""
    return snapshot_path(manifest.snapshot, f"{info.files}.{kind}")


class PageTable:
    """The columns of the page table while it is read: of each part its offsets, ends, checksums."""

    def __init__(self, page_count: int, names: Sequence[str]) -> None:
        """Allocate the columns for all pages."""
        every = [CODES, *names]
        self.offsets = {name: np.empty(page_count, np.int64) for name in every}
        # Sizes while the table is filled; the reader turns them into running totals in place.
        self.ends = {name: np.zeros(page_count + 1, np.int64) for name in names}
        self.checksums = {name: np.empty(page_count, np.uint32) for name in every}

    def fill(self, pages: slice, found: dict[str, NDArray[Any]]) -> None:
        """Copy the columns that were read of one partition."""
        for name, checksums in self.checksums.items():
            checksums[pages] = found[f"{name}.checksum"]
        for name, sizes in self.ends.items():
            self.offsets[name][pages] = found[f"{name}.offset"]
            sizes[pages.start + 1 : pages.stop + 1] = found[f"{name}.size"]


def read_columns(
    store: Store, path: str, checksum: int, names: list[str]
) -> dict[str, NDArray[Any]]:
    """Return columns of an Arrow file whose bytes have this CRC-32; `ValueError` if they do not."""
    size_bytes = _size_bytes(store, path)
    if size_bytes <= _WHOLE_BYTES or not store.is_local:
        content = store.read(path)
        _compare(zlib.crc32(content), checksum)
        return _columns(pa.BufferReader(content), names)
    if (store.path(path), checksum) not in _compared:
        file = store.open_pages(path)
        try:
            _compare(_crc32(file, size_bytes), checksum)
        finally:
            file.close()
        _compared[store.path(path), checksum] = None
        while len(_compared) > _MOST_COMPARED:
            _compared.popitem(last=False)
    with pa.memory_map(store.path(path)) as mapped:
        return {name: column.copy() for name, column in _columns(mapped, names).items()}


def _size_bytes(store: Store, path: str) -> int:
    entry = store.entry(path)
    if entry is None:
        raise FileNotFoundError(2, "No such file or directory", store.path(path))
    return entry.size_bytes


def _compare(found: int, checksum: int) -> None:
    if found != checksum:
        raise ValueError("its checksum does not match")


def _columns(source: pa.NativeFile, names: list[str]) -> dict[str, NDArray[Any]]:
    stored = pa.ipc.open_file(source).schema.names
    options = pa.ipc.IpcReadOptions(included_fields=[stored.index(name) for name in names])
    file = pa.ipc.open_file(source, options=options)
    # One by one: reading all of them at once reads the other columns as well.
    batches = [file.get_batch(i) for i in range(file.num_record_batches)]
    table = pa.Table.from_batches(batches, batches[0].schema)
    return {name: table[name].to_numpy() for name in names}


def _crc32(file: PageFile, size_bytes: int) -> int:
    piece = memoryview(bytearray(_WHOLE_BYTES))
    found = 0
    for at in range(0, size_bytes, len(piece)):
        count = file.read_into(at, piece[: size_bytes - at])
        found = zlib.crc32(piece[:count], found)
    return found
