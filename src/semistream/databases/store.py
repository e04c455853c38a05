"""A table in a database, seen as the files of a snapshot.

`PageReader` reads a page table, a file of key codes and a file of columns. Here the page table is
made from the directory, and the other two do not exist: their offsets are those of parts that lie
back to back, and a read of them becomes a query (`pages.py`). So the reader, and all joins above
it, are the same for a table in a database as for a relation's own files.
"""

import weakref
from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa
from isal.isal_zlib import crc32
from numpy.typing import NDArray

from semistream.databases.coder import HASH_BITS
from semistream.databases.pages import Table, TablePages
from semistream.relation.disk import Entry
from semistream.relation.layout import MANIFEST
from semistream.relation.pagetable import CODES
from semistream.relation.storage import Output, PageFile, Store

FILES = "part-00000-table"
Ints = NDArray[np.int64]


class TableStore(Store):
    """The files that a table would have."""

    is_queried = True

    def __init__(
        self,
        root: str,
        table: Table,
        connect: Callable[[], TablePages],
        buffer_bytes: int,
    ) -> None:
        """Note the table; `connect` returns what reads its pages."""
        self.root = root
        self.buffer_bytes = buffer_bytes
        self._table = table
        self._connect = connect
        self._page_table: bytes | None = None
        # Files hold the connection: it is closed with the last of them.
        self._pages: weakref.ref[TablePages] | None = None

    def __eq__(self, other: object) -> bool:
        """Whether it is the same table."""
        return isinstance(other, TableStore) and other.root == self.root

    def __hash__(self) -> int:
        """Return a hash of what is compared."""
        return hash(self.root)

    def entry(self, name: str) -> Entry | None:
        """Return the entry of the page table; the manifest counts as there, too."""
        if name.endswith(".pages"):
            return Entry(name, len(self.read(name)), 0.0, False)
        return Entry(name, 0, 0.0, False) if name.endswith(MANIFEST) else None

    def entries(self, name: str) -> list[Entry]:
        """Return nothing: there are no folders."""
        return []

    def read(self, name: str) -> bytes:
        """Return the page table."""
        if not name.endswith(".pages"):
            raise FileNotFoundError(2, "No such file or directory", self.path(name))
        if self._page_table is None:
            self._page_table = page_table(self._table)
        return self._page_table

    def open_pages(self, name: str) -> PageFile:
        """Open the codes or the columns."""
        pages = None if self._pages is None else self._pages()
        if pages is None:
            pages = self._connect()
            self._pages = weakref.ref(pages)
        parts = [CODES] if name.endswith(f".{CODES}") else self._table.parts()
        return TableFile(pages, self._table, parts)

    def make_folder(self, name: str) -> None:
        """Nothing to do: nothing is written."""

    def sync_folder(self, name: str) -> None:
        """Nothing to do: nothing is written."""

    def create(self, name: str) -> Output:
        """Nothing can be written."""
        raise PermissionError(1, "a table in a database is only read", self.path(name))

    def replace(self, name: str, content: bytes) -> None:
        """Nothing can be written."""
        self.create(name)

    def write_note(self, name: str, content: bytes) -> None:
        """Nothing to do: readers need no lease, the database keeps what a transaction sees."""

    def remove_file(self, name: str) -> None:
        """Nothing to do: there is none."""

    def remove_empty_folder(self, name: str) -> None:
        """Nothing to do: there is none."""

    def remove(self, name: str, first: str = "") -> None:
        """Nothing to do: there is none."""


class TableFile:
    """Parts of a table's pages, at the offsets of a file that has them back to back."""

    def __init__(self, pages: TablePages, table: Table, parts: Sequence[str]) -> None:
        """Compute where each part of each page begins."""
        self._pages: TablePages | None = pages
        self._parts = parts
        self._bounds = part_bounds(table, parts)

    def read_into(self, offset: int, out: memoryview) -> int:
        """Fill `out` with whole pages of one part."""
        self._read(np.array([[offset], [len(out)], [0]]), np.frombuffer(out, np.uint8))
        return len(out)

    def read_all(self, requests: Ints, out: NDArray[np.uint8]) -> bool:
        """Read (offset, size, place in `out`) requests for whole pages of one part."""
        self._read(requests, out)
        return True

    def map_cached(self, offsets: Ints, end: int) -> None:
        """Return nothing: there is no file to map."""

    def count_cached(self, offsets: Ints) -> int:
        """None: the database is asked for each row."""
        return 0

    def _read(self, requests: Ints, out: NDArray[np.uint8]) -> None:
        assert self._pages is not None, "the file was closed"
        some = requests[:, requests[1] > 0]
        if not some.shape[1]:
            return
        (part,) = set(
            (np.searchsorted([b[0] for b in self._bounds], some[0], "right") - 1).tolist()
        )
        bounds = self._bounds[part]
        firsts = np.searchsorted(bounds, some[0], "right") - 1
        lasts = np.searchsorted(bounds, some[0] + some[1])
        outs = [out[place : place + size] for _, size, place in some.T.tolist()]
        runs = list(zip(firsts.tolist(), lasts.tolist(), strict=True))
        self._pages.read(self._parts[part], runs, outs)

    def announce(self, offset: int, size: int) -> None:
        """Nothing to do: a query is sent when its rows are needed."""

    def forget(self, offset: int, size: int) -> None:
        """Nothing to do: the database has its own cache."""

    def close(self) -> None:
        """Let go of the connection; the last file that does so closes it."""
        self._pages = None


def part_bounds(table: Table, parts: Sequence[str]) -> list[Ints]:
    """Return, for each part, where each page of it begins in the file, and where the last ends."""
    bounds = []
    at = 0
    for name in parts:
        ends = at + np.concatenate([[0], np.cumsum(table.part_sizes(name))])
        bounds.append(ends)
        at = int(ends[-1])
    return bounds


def page_table(table: Table) -> bytes:
    """Return the page table as a file that `semistream.relation.pagetable` reads."""
    directory, parts = table.directory, table.parts()
    no_checksums = pa.array(np.zeros(directory.page_count, np.uint32))
    columns = {
        "rows": pa.array(directory.room_rows),
        "first_code": pa.array(first_codes(directory.page_count)),
        f"{CODES}.checksum": no_checksums,
    }
    for name, bounds in zip(parts, part_bounds(table, parts), strict=True):
        columns[f"{name}.offset"] = pa.array(bounds[:-1])
        columns[f"{name}.size"] = pa.array(np.diff(bounds))
        columns[f"{name}.checksum"] = no_checksums
    written = pa.table(columns)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, written.schema) as file:
        file.write_table(written)
    return bytes(sink.getvalue().to_pybytes())


def first_codes(page_count: int) -> Ints:
    """Return the least code of each page."""
    return np.arange(page_count, dtype=np.int64) << HASH_BITS


def checksum(table: Table) -> int:
    """Return the checksum of the page table."""
    return crc32(page_table(table))
