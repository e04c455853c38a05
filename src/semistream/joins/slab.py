"""A slab: one column of some runs of pages, in memory.

Its parts (values, lengths, validity, messages; `relation/layout.py`) lie one after the other in an
arena that the caller lends: the disk buffer lends one arena to all columns in turn, `resident`
lends each column its own.
"""

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from semistream.budget.pagesizes import aligned_bytes
from semistream.budget.rowsizes import NESTED_COPIES
from semistream.columns import (
    Encoding,
    encoding_of,
    join_bytes,
    join_fixed,
    nested_from_message,
    numpy_dtype,
    value_sizes,
)
from semistream.joins.row_kernels import gather_bytes, starts_of
from semistream.joins.rows import gather_from_chunks
from semistream.relation.layout import part_names
from semistream.relation.reader import PageReader

Runs: TypeAlias = list[tuple[int, int]]  # first and last (exclusive) pages


class Slab:
    """One column of some runs of pages, read into memory that the caller lends."""

    def __init__(self, reader: PageReader, column: str, arena: NDArray[np.uint8]) -> None:
        """Prepare to read a column into `arena`."""
        index = reader.manifest.schema.get_field_index(column)
        self._reader = reader
        self._dtype = reader.manifest.schema.field(index).type
        self.encoding = encoding_of(self._dtype)
        self._names = part_names(index, self._dtype)  # of the parts, in the relation's files
        self._arena = arena  # what is loaded lies here
        self._used = self._bytes_read = 0  # of the arena, and from disk, since the load began
        self._validity: NDArray[np.uint8] | None = None  # by row; None if no row is null
        self._values: NDArray[np.uint8] = arena[:0]  # by row, or the bytes of all texts
        self._lengths: NDArray[np.int32] = np.zeros(0, np.int32)  # of texts, by row
        self._starts: NDArray[np.int64] = np.zeros(0, np.int64)  # of texts, by row
        self._messages: dict[int, pa.Array] = {}  # nested values, by page
        self._page_starts: NDArray[np.int64] = np.zeros(0, np.int64)  # first row of each page
        # A lone integer key is stored only as its code.
        self.is_implied = index not in reader.manifest.stored_fields
        self.is_variable = self.encoding is not Encoding.FIXED and not self.is_implied

    def from_codes(self, codes: NDArray[np.int64]) -> pa.Array:
        """Return a lone integer key, which is stored only as its code."""
        return join_fixed(pa.int64(), codes, None).cast(self._dtype)

    def load(self, runs: Runs) -> int:
        """Read the column of these runs of pages back to back; return the bytes read."""
        self._used = self._bytes_read = 0
        if self.encoding is Encoding.NESTED:
            self._load_messages(runs)
        elif self.encoding is Encoding.FIXED:
            self._values = self._read("values", runs).view(numpy_dtype(self._dtype))
            self._validity = self._read_validity(runs)
        else:
            self._read_lengths(runs)
            self._read_data(runs)
        return self._bytes_read

    def load_lengths(self, runs: Runs) -> int:
        """Read only the lengths of a column of texts; return the bytes read."""
        self._used = self._bytes_read = 0
        self._read_lengths(runs)
        return self._bytes_read

    def load_data(self, runs: Runs) -> int:
        """Read a column of texts without their lengths, over these; return the bytes read."""
        self._used = self._bytes_read = 0
        self._read_data(runs)
        return self._bytes_read

    def _read_lengths(self, runs: Runs) -> None:
        self._lengths = self._read("lengths", runs).view(np.int32)
        self._starts = self._lend(8 * len(self._lengths)).view(np.int64)
        starts_of(self._lengths, self._starts)

    def _read_data(self, runs: Runs) -> None:
        self._values = self._read("data", runs)
        self._validity = self._read_validity(runs)

    def announce(self, first: int, last: int) -> None:
        """Say that the column of these pages will be loaded next."""
        for name in self._names.values():
            self._reader.announce(name, first, last)

    def extents(self, places: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
        """Return where the texts of some rows start, and how long they are."""
        return self._starts[places], self._lengths[places]

    def sizes(self, places: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the size in bytes of a copy of each of some rows' values."""
        if self.encoding is Encoding.BYTES:
            return self._lengths[places].astype(np.int64)
        pages = [value_sizes(message) for message in self._messages.values()]
        sizes: NDArray[np.int64] = NESTED_COPIES * np.concatenate(pages)[places]
        return sizes

    def gather(self, places: NDArray[np.int64]) -> pa.Array:
        """Return rows of what was loaded, as a new array."""
        if self.encoding is Encoding.BYTES:
            return self.gather_texts(*self.extents(places), places)
        if self.encoding is Encoding.NESTED:
            page = np.searchsorted(self._page_starts, places, "right").astype(np.int32) - 1
            row = (places - self._page_starts[page]).astype(np.int32)
            return gather_from_chunks(self._dtype, self._messages, page, row)
        return join_fixed(self._dtype, self._values[places], self._validity_at(places))

    def gather_texts(
        self,
        starts: NDArray[np.int64],
        lengths: NDArray[np.int32],
        places: NDArray[np.int64],
    ) -> pa.Array:
        """Return texts whose extents are known, as a new array."""
        data = gather_bytes(self._values, starts, lengths)
        return join_bytes(self._dtype, lengths, data, self._validity_at(places))

    def _validity_at(self, places: NDArray[np.int64]) -> NDArray[np.uint8] | None:
        return None if self._validity is None else self._validity[places]

    def _lend(self, size: int) -> NDArray[np.uint8]:
        """Return the next free bytes of the arena."""
        start = self._used
        self._used += aligned_bytes(size)
        assert start + size <= len(self._arena), "the disk buffer's arena was sized too small"
        return self._arena[start : start + size]

    def _read(self, part: str, runs: Runs) -> NDArray[np.uint8]:
        name = self._names[part]
        sizes = [self._reader.part_bytes(name, a, b) for a, b in runs]
        out = self._lend(sum(sizes))
        at = 0
        for (a, b), size in zip(runs, sizes, strict=True):
            if size:
                self._bytes_read += self._reader.read_part(name, a, b, out[at : at + size])
            at += size
        return out

    def _read_validity(self, runs: Runs) -> NDArray[np.uint8] | None:
        name = self._names["validity"]
        if not any(self._reader.part_bytes(name, a, b) for a, b in runs):
            return None
        bounds = self._reader.row_bounds
        out = self._lend(int(sum(bounds[b] - bounds[a] for a, b in runs)))
        out[:] = 1  # extents without nulls store no validity
        at = 0
        for page in (page for a, b in runs for page in range(a, b)):
            size = self._reader.part_bytes(name, page, page + 1)
            if size:
                part = out[at : at + size]
                self._bytes_read += self._reader.read_part(name, page, page + 1, part)
            at += int(bounds[page + 1] - bounds[page])
        return out

    def _load_messages(self, runs: Runs) -> None:
        pages = [page for a, b in runs for page in range(a, b)]
        image = self._read("message", runs)
        bounds = self._reader.row_bounds
        self._messages = {}
        starts = []
        at = row = 0
        for i, page in enumerate(pages):
            size = self._reader.part_bytes(self._names["message"], page, page + 1)
            self._messages[i] = nested_from_message(self._dtype, image[at : at + size])
            starts.append(row)
            at += size
            row += int(bounds[page + 1] - bounds[page])
        self._page_starts = np.array(starts, np.int64)


class SlabRows:
    """Rows whose columns are all in memory."""

    def __init__(
        self, slabs: Sequence[Slab], rows: NDArray[np.int64], codes: NDArray[np.int64]
    ) -> None:
        """Note which rows are meant; `codes` are those of all rows."""
        self._slabs = slabs
        self._rows = rows
        self._codes = codes

    @property
    def sizes(self) -> NDArray[np.int64] | None:
        """The size in bytes of each row's variable-width values; None if there are none."""
        found = [slab.sizes(self._rows) for slab in self._slabs if slab.is_variable]
        return sum(found[1:], found[0]) if found else None

    def gather(self) -> list[pa.Array]:
        """Copy the rows out of each column."""
        return [self._gather(slab) for slab in self._slabs]

    def _gather(self, slab: Slab) -> pa.Array:
        return (
            slab.from_codes(self._codes[self._rows]) if slab.is_implied else slab.gather(self._rows)
        )
