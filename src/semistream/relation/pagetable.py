"""The page table while it is loaded: a bound on its memory, and reading only the needed columns.

The page table of a partition is an Arrow file with a row for each page, and columns for every part
of every column of R. A join needs the parts of a few columns. A large local file is compared with
its checksum a piece at a time, once per process; then the columns are copied out of a mapping of
it, one after the other.
"""

import mmap
from collections import OrderedDict
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
from isal.isal_zlib import crc32
from numpy.typing import NDArray

from semistream.relation.layout import Manifest, PartitionInfo, part_names, snapshot_path
from semistream.relation.storage import PageFile, Store

CODES = "codes"
# Of a page, in the page table: rows, first code, file; its codes' offset, checksum and flag.
_PAGE_BYTES = 8 + 8 + 4 + 8 + 4 + 1
_PART_BYTES = 8 + 4 + 1  # offset, checksum, and whether it was checked
_END_BYTES = 8  # where it ends, if rows differ in size
_STORED_PART_BYTES = 8 + 8 + 4  # offset, size and checksum in the file
# A page table up to this size is read as a whole; of a larger local one only the needed columns.
_WHOLE_BYTES = 1 << 20
# Large page tables that this process has compared with their checksums; files never change.
_compared: OrderedDict[tuple[str, int], None] = OrderedDict()
_MOST_COMPARED = 4096


def page_table_bound(
    store: Store, manifest: Manifest, partitions: Sequence[int], columns: Sequence[str]
) -> int:
    """Return the most memory, in bytes, of a `PageReader`, before it is made.

    Up to 1 MB that is read and freed again is not counted.
    """
    infos = [segment for p in partitions for segment in manifest.partitions[p].segments]
    if not infos:
        return 0
    names = present_parts(store, manifest, infos, parts_of(manifest, columns))
    every_part = len(parts_of(manifest, manifest.schema.names))
    pages = sum(info.page_count for info in infos)
    largest = max(info.page_count for info in infos)
    stored = largest * (_PAGE_BYTES + every_part * _STORED_PART_BYTES) - _WHOLE_BYTES
    read = 0 if store.is_local else max(0, stored)
    hot_files = [store.entry(file_path(manifest, i, "hot")) for i in infos if i.hot_pages]
    hot = [entry.size_bytes for entry in hot_files if entry is not None]  # else the reader reports
    parts = sum(_PART_BYTES if is_fixed(name) else _PART_BYTES + _END_BYTES for name in names)
    dead = dead_bytes([manifest.partitions[p] for p in partitions])
    table = (pages + 1) * (_PAGE_BYTES + parts)
    return table + read + 2 * sum(hot) + dead + store.buffer_bytes


def dead_bytes(infos: Sequence[PartitionInfo]) -> int:
    """Return the size of the bitmap of dead rows of some partitions; 0 if none is dead."""
    if not any(info.delta is not None and info.delta.dead_rows for info in infos):
        return 0
    return sum(info.stored_rows for info in infos) // 8 + 1


def present_parts(
    store: Store, manifest: Manifest, infos: Sequence[PartitionInfo], names: Sequence[str]
) -> list[str]:
    """Return the parts without those that no page has: the validity of columns without nulls.

    Only of local page tables, which can be looked into at no cost; of others, all parts.
    """
    optional = [name for name in names if name.endswith(".validity")]
    if not store.is_local or not optional:
        return list(names)
    absent = set(optional)
    for info in infos:
        path = file_path(manifest, info, "pages")
        try:
            absent &= _absent_parts(store, path, info.page_table_checksum, tuple(optional))
        except (OSError, pa.ArrowException, KeyError, ValueError, IndexError):
            return list(names)  # the reader will report what is wrong with it
    return [name for name in names if name not in absent]


@lru_cache(maxsize=_MOST_COMPARED)
def _absent_parts(store: Store, path: str, checksum: int, names: tuple[str, ...]) -> frozenset[str]:
    """Return those of some parts that no page of a file has. Remembered: files never change."""
    found = read_columns(store, path, checksum, [f"{name}.size" for name in names])
    return frozenset(name for name in names if not found[f"{name}.size"].any())


def is_fixed(name: str) -> bool:
    """Return whether each row has as many bytes of a part, so that sizes need not be stored."""
    return name.endswith((".values", ".lengths"))


def parts_of(manifest: Manifest, columns: Sequence[str]) -> list[str]:
    """Return the parts of some columns, by their names in the page table."""
    schema, stored = manifest.schema, manifest.stored_fields
    indexes = [i for i in map(schema.get_field_index, columns) if i in stored]
    return [n for i in indexes for n in part_names(i, schema.field(i).type).values()]


def file_path(manifest: Manifest, info: PartitionInfo, kind: str) -> str:
    """Return the path of one of a partition's files inside the relation."""
    return snapshot_path(info.home or manifest.snapshot, f"{info.files}.{kind}")


class PageTable:
    """The columns of the page table while it is read: of each part its offsets, ends, checksums."""

    def __init__(self, page_count: int, names: Sequence[str]) -> None:
        """Allocate the columns for all pages."""
        every = [CODES, *names]
        self.offsets = {name: np.empty(page_count, np.int64) for name in every}
        # Sizes while the table is filled; the reader turns them into running totals in place.
        sized = [name for name in names if not is_fixed(name)]
        self.ends = {name: np.zeros(page_count + 1, np.int64) for name in sized}
        self.checksums = {name: np.empty(page_count, np.uint32) for name in every}

    @staticmethod
    def columns(names: Sequence[str]) -> list[str]:
        """Return the columns of the stored page table that are read for some parts."""
        parts = [f"{name}.{what}" for name in names for what in ("offset", "checksum")]
        sizes = [f"{name}.size" for name in names if not is_fixed(name)]
        return ["rows", "first_code", f"{CODES}.checksum", *parts, *sizes]

    def fill(self, pages: slice, found: "StoredColumns") -> None:
        """Copy the columns that were read of one partition."""
        for name, checksums in self.checksums.items():
            checksums[pages] = found[f"{name}.checksum"]
            if name != CODES:
                self.offsets[name][pages] = found[f"{name}.offset"]
            if name in self.ends:
                self.ends[name][pages.start + 1 : pages.stop + 1] = found[f"{name}.size"]
            found.release()


class StoredColumns:
    """Columns of an Arrow file: views of its bytes, in memory or mapped."""

    def __init__(self, content: bytes | mmap.mmap, names: Sequence[str]) -> None:
        """Open the file; nothing is copied."""
        self._content = content
        source = pa.BufferReader(pa.py_buffer(content))
        stored = pa.ipc.open_file(source).schema.names
        options = pa.ipc.IpcReadOptions(included_fields=[stored.index(name) for name in names])
        file = pa.ipc.open_file(source, options=options)
        self._batches = [file.get_batch(i) for i in range(file.num_record_batches)]

    def __getitem__(self, name: str) -> NDArray[Any]:
        """Return a column."""
        columns = [batch.column(name).to_numpy() for batch in self._batches]
        return columns[0] if len(columns) == 1 else np.concatenate(columns)

    def first(self, name: str) -> pa.Scalar:
        """Return the first value of a column."""
        return self._batches[0].column(name)[0]

    def release(self) -> None:
        """Let go of what was mapped to read columns; they can be read again."""
        if isinstance(self._content, mmap.mmap):
            self._content.madvise(mmap.MADV_DONTNEED)


def read_columns(store: Store, path: str, checksum: int, names: Sequence[str]) -> StoredColumns:
    """Return columns of an Arrow file whose bytes have this CRC-32; `ValueError` if they do not."""
    size_bytes = _size_bytes(store, path)
    mapped = None if size_bytes <= _WHOLE_BYTES else store.map(path)
    if mapped is None:
        content = store.read(path)
        _compare(crc32(content), checksum)
        return StoredColumns(content, names)
    if (store.path(path), checksum) not in _compared:
        file = store.open_pages(path)
        try:
            _compare(_crc32(file, size_bytes), checksum)
        finally:
            file.close()
        _compared[store.path(path), checksum] = None
        while len(_compared) > _MOST_COMPARED:
            _compared.popitem(last=False)
    return StoredColumns(mapped, names)


def _size_bytes(store: Store, path: str) -> int:
    entry = store.entry(path)
    if entry is None:
        raise FileNotFoundError(2, "No such file or directory", store.path(path))
    return entry.size_bytes


def _compare(found: int, checksum: int) -> None:
    if found != checksum:
        raise ValueError("its checksum does not match")


def _crc32(file: PageFile, size_bytes: int) -> int:
    piece = memoryview(bytearray(_WHOLE_BYTES))
    found = 0
    for at in range(0, size_bytes, len(piece)):
        count = file.read_into(at, piece[: size_bytes - at])
        found = crc32(piece[:count], found)
    return found
