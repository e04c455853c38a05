"""Rows of R that the read plan fetches: only the parts, or the values, that they lie in.

::

    rows ──► their pages ──► views of one part after the other ──► new arrays

Rows must not go back to an earlier page. Memory: the buffer of the read plan; of each row 24 bytes
for its page and place, and what is gathered, which belongs to the output buffer.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from semistream.budget.rowsizes import NESTED_COPIES
from semistream.columns import (
    Encoding,
    concatenate,
    encoding_of,
    join_buffer,
    join_bytes,
    join_fixed,
    nested_from_message,
    numpy_dtype,
    value_sizes,
    width_bytes,
)
from semistream.joins import gather_kernels as kernels
from semistream.joins.fixedcolumns import Block, FixedColumns
from semistream.joins.rows import gather_from_chunks
from semistream.relation.layout import part_names
from semistream.relation.pagetable import CODES
from semistream.relation.parts import Part
from semistream.relation.reader import PageReader
from semistream.relation.readplan import PlannedReads, RowsByPage
from semistream.relation.writer import CODE_BYTES

Ints = NDArray[np.int64]


class PlannedColumn:
    """One column of R, read by the plan."""

    def __init__(self, reader: PageReader, column: str, reads: PlannedReads) -> None:
        """Note where the column's parts are."""
        index = reader.manifest.schema.get_field_index(column)
        self._dtype = reader.manifest.schema.field(index).type
        self._encoding = encoding_of(self._dtype)
        self._names = part_names(index, self._dtype)
        self._reader, self._reads = reader, reads
        # A lone integer key is stored only as its code.
        self._is_code = index not in reader.manifest.stored_fields
        self.is_variable = self._encoding is not Encoding.FIXED
        self.has_texts = self._encoding is Encoding.BYTES

    @property
    def values_part(self) -> Part | None:
        """Where the values of a column of fixed width are; None if they are elsewhere."""
        if self.is_variable or self._is_code:
            return None
        return self._reader.part(self._names["values"])

    def join(self, values: pa.Buffer, rows: RowsByPage) -> pa.Array:
        """Return a column of fixed width whose values have been gathered."""
        return join_buffer(self._dtype, len(rows.rows), values, self._validity(rows))

    def extents(self, rows: RowsByPage) -> tuple[Ints, NDArray[np.int32]]:
        """Return where on their pages the texts of some rows begin, and how long they are."""
        begins, lengths = np.zeros(len(rows.rows), np.int64), np.zeros(len(rows.rows), np.int32)
        for view in self._reads.views(self._names["lengths"], rows.pages):
            which, indexes, in_page = rows.within(view.first, view.last)
            where = (view.data, view.starts, view.first, indexes, in_page)
            kernels.find_extents(*where, begins[which], lengths[which])
        return begins, lengths

    def sizes(self, rows: RowsByPage) -> Ints:
        """Return the size in bytes of a copy of each of some rows' nested values."""
        sizes = np.zeros(len(rows.rows), np.int64)
        for which, messages, page, row in self._messages(rows):
            ends = np.cumsum([len(message) for message in messages.values()])
            every = np.concatenate([value_sizes(message) for message in messages.values()])
            before = np.append(0, ends)[page]  # rows on the pages before each row's
            sizes[which] = NESTED_COPIES * every[before + row]
        return sizes

    def gather(self, rows: RowsByPage) -> pa.Array:
        """Return a column of fixed width, or of nested values."""
        if self._encoding is Encoding.NESTED:
            pieces = [
                gather_from_chunks(self._dtype, messages, page, row)
                for _, messages, page, row in self._messages(rows)
            ]
            return pieces[0] if len(pieces) == 1 else concatenate(pieces)
        if self._is_code:
            codes = self._reads.values(CODES, CODE_BYTES, rows).view(np.int64)
            return join_fixed(pa.int64(), codes, None).cast(self._dtype)
        image = self._reads.values(self._names["values"], width_bytes(self._dtype), rows)
        return join_fixed(self._dtype, image.view(numpy_dtype(self._dtype)), self._validity(rows))

    def gather_texts(self, rows: RowsByPage, begins: Ints, lengths: NDArray[np.int32]) -> pa.Array:
        """Return a column of texts whose extents are known."""
        out = np.empty(int(lengths.sum(dtype=np.int64)), np.uint8)
        at = 0
        for view in self._reads.views(self._names["data"], rows.pages):
            which, indexes, _ = rows.within(view.first, view.last)
            where = (view.data, view.starts, view.first, indexes)
            at = kernels.gather_texts(*where, begins[which], lengths[which], out, at)
        return join_bytes(self._dtype, lengths, out, self._validity(rows))

    def _validity(self, rows: RowsByPage) -> NDArray[np.uint8] | None:
        part = self._reader.part(self._names["validity"])
        if part is None:
            return None
        sizes = part.ends[rows.pages + 1] - part.ends[rows.pages]
        if not sizes.any():
            return None
        out = np.ones(len(rows.rows), np.uint8)
        for view in self._reads.views(part.name, rows.pages):
            which, indexes, in_page = rows.within(view.first, view.last)
            where = (view.data, view.starts, sizes[view.first : view.last], view.first)
            kernels.gather_validity(*where, indexes, in_page, out[which])
        return out

    def _messages(
        self, rows: RowsByPage
    ) -> Iterator[tuple[slice, dict[int, pa.Array], NDArray[np.int32], NDArray[np.int32]]]:
        """Yield nested values by page, and for the rows on these their page and their place."""
        part = self._reader.part(self._names["message"])
        assert part is not None, "every page of a nested column has a message"
        for view in self._reads.views(part.name, rows.pages):
            which, indexes, in_page = rows.within(view.first, view.last)
            messages = {}
            for i, start in enumerate(view.starts.tolist()):
                page = int(rows.pages[view.first + i])
                image = view.data[start : start + part.size_bytes(page, page + 1)]
                messages[i] = nested_from_message(self._dtype, image)
            places = (indexes - view.first).astype(np.int32), in_page.astype(np.int32)
            yield which, messages, *places


class PlannedColumns:
    """The columns of R that a join reads, by the plan."""

    def __init__(self, reader: PageReader, names: Sequence[str], reads: PlannedReads) -> None:
        """Note where the parts of the columns are."""
        self._columns = [PlannedColumn(reader, name, reads) for name in names]
        self._reads, self._row_bounds = reads, reader.row_bounds
        found = [(i, column.values_part) for i, column in enumerate(self._columns)]
        self._fixed = FixedColumns(reader, {i: part for i, part in found if part is not None})

    def locate(self, rows: Ints) -> "PlannedRows":
        """Find out how wide rows of R are; they ascend by page."""
        by_page = RowsByPage(rows, self._row_bounds)
        return PlannedRows(self._columns, by_page, partial(self._fixed.look, self._reads))


class PlannedRows:
    """Rows of R whose columns are fetched by the read plan."""

    def __init__(
        self,
        columns: Sequence[PlannedColumn],
        rows: RowsByPage,
        look: Callable[[RowsByPage], Block | None],
    ) -> None:
        """Find out how wide the rows are."""
        self._columns, self._rows = columns, rows
        self._look = look  # returns the values of columns of fixed width, if they are in place
        # Where the texts of a column begin, and their lengths.
        self._texts: dict[int, tuple[Ints, NDArray[np.int32]]] = {}
        self.sizes: Ints | None = None  # bytes of each row's variable-width values
        for i, column in enumerate(columns):
            if column.is_variable:
                found = self._locate(i, column)
                self.sizes = found if self.sizes is None else self.sizes + found

    def gather(self) -> list[pa.Array]:
        """Copy the rows out of one column after the other, or of several together."""
        block = self._look(self._rows)
        return [self._gather(i, column, block) for i, column in enumerate(self._columns)]

    def _locate(self, i: int, column: PlannedColumn) -> Ints:
        if column.has_texts:
            self._texts[i] = column.extents(self._rows)
            return self._texts[i][1].astype(np.int64)
        return column.sizes(self._rows)

    def _gather(self, i: int, column: PlannedColumn, block: Block | None) -> pa.Array:
        if i in self._texts:
            return column.gather_texts(self._rows, *self._texts.pop(i))
        if block is not None and i in block.starts:
            return column.join(block.values_of(i), self._rows)
        return column.gather(self._rows)
