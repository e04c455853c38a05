"""Rows at rest: columns of waiting tuples or of cached rows, addressed by slot.

There is a fixed number of slots. For each column a store of its own keeps the values of all
slots, in the encodings of `semistream.columns`. Fields of fixed width, among them what a hash table
keeps of each tuple, lie together in one record per slot, so that a tuple costs one cache miss
instead of one for each column; a column is then a view with strides.

=============  ==============================================================================
`FixedStore`   a field of the records
`CodeStore`    nothing: a lone integer key is its code
`BytesStore`   an arena that rows are appended to; what has left is squeezed out when it is full
`NestedStore`  the Arrow arrays as they came; each is dropped when its last row has left
=============  ==============================================================================

Memory: allocated once, at construction, except for `NestedStore`, which holds at most its share.
Slots and, for variable widths, bytes are both limits; `room` says how many rows still fit, and
`add_sizes` the size in bytes of a copy of each value, so that output can be cut before it is made.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from semistream.budget.rowsizes import (
    ARENA_SLACK,
    NESTED_COPIES,
    RECORD_HEADER_BYTES,
    Widths,
    arena_base_bytes,
    variable_columns,
)
from semistream.columns import (
    Encoding,
    concatenate,
    encoding_of,
    join_buffer,
    join_bytes,
    join_fixed,
    split_bytes,
    split_fixed,
    take_rows,
    value_sizes,
)
from semistream.joins import row_kernels as kernels
from semistream.joins.kernels import NO_SLOT
from semistream.joins.nulltracker import NullTracker
from semistream.joins.recordfields import RecordFields

Slots: TypeAlias = NDArray[np.int64] | NDArray[np.int32]
_NO_LIMIT = 1 << 62


class ColumnStore(Protocol):
    """The values of one column, for all slots."""

    def room(self, column: pa.Array) -> int:
        """Return how many of the first rows of a column fit now."""
        ...

    def put(self, slots: Slots, column: pa.Array) -> None:
        """Store values at free slots."""
        ...

    def drop(self, slots: Slots) -> None:
        """Forget the values at these slots."""
        ...

    def add_sizes(self, slots: Slots, sizes: NDArray[np.int64]) -> None:
        """Add the bytes of the values at these slots, where they differ in size."""
        ...

    def average_bytes(self, count: int) -> float:
        """Return the average size of the values of `count` slots, all that hold one."""
        ...

    def gather(self, slots: Slots) -> pa.Array:
        """Return the values at these slots, in this order."""
        ...

    def saved(self) -> list[NDArray[Any]]:
        """Return what is stored beside the records, without a copy."""
        ...

    def restore(self, arrays: Iterator[NDArray[Any]]) -> None:
        """Take what `saved` returned of a store of the same size, and copy it."""
        ...


def make_store(field: pa.Field, capacity: int, value_bytes: float, widest: int = 0) -> ColumnStore:
    """Return the store for a column of varying width."""
    dtype, encoding = field.type, encoding_of(field.type)
    if encoding is Encoding.BYTES:
        value_bytes += RECORD_HEADER_BYTES
    arena_bytes = int(capacity * value_bytes * ARENA_SLACK) + arena_base_bytes(widest)
    if encoding is Encoding.BYTES:
        return BytesStore(field, capacity, arena_bytes)
    return NestedStore(dtype, capacity, arena_bytes)


class _NotSaved:
    """A store without arrays to save: it has none, or rows with it are not saved at all."""

    def saved(self) -> list[NDArray[Any]]:
        return []

    def restore(self, arrays: Iterator[NDArray[Any]]) -> None:
        pass


class _OneSize:
    """A store whose values have one size: slots are its only limit."""

    def room(self, column: pa.Array) -> int:
        return len(column)

    def drop(self, slots: Slots) -> None:
        pass  # a slot is overwritten when it is used again

    def add_sizes(self, slots: Slots, sizes: NDArray[np.int64]) -> None:
        pass

    def average_bytes(self, count: int) -> float:
        return 0.0


class FixedStore(_OneSize):
    """A column of fixed width: a field of the records."""

    def __init__(self, field: pa.Field, values: NDArray[Any]) -> None:
        """Keep values in an array of one element per slot."""
        self._dtype = field.type
        self._values = values
        self._nulls = NullTracker(field, len(values))

    def put(self, slots: Slots | slice, column: pa.Array) -> None:
        """Store values at free slots."""
        values, validity = split_fixed(column)
        self._values[slots] = values
        self._nulls.put(slots, validity)

    def gather(self, slots: Slots) -> pa.Array:
        """Return the values at these slots."""
        return join_fixed(self._dtype, self._values[slots], self._nulls.gather(slots))

    def join(self, slots: Slots, values: pa.Buffer) -> pa.Array:
        """Return the same, given the values."""
        return join_buffer(self._dtype, len(slots), values, self._nulls.gather(slots))

    def saved(self) -> list[NDArray[Any]]:
        """Return which values are null; the values are in the records."""
        return self._nulls.saved()

    def restore(self, arrays: Iterator[NDArray[Any]]) -> None:
        """Take which values are null."""
        self._nulls.restore(arrays)


class CodeStore(_OneSize, _NotSaved):
    """The stream's key where it is a lone integer: it is the code, which the table keeps anyway."""

    def __init__(self, dtype: pa.DataType, codes: NDArray[np.int64]) -> None:
        """Read from the table's codes, by slot."""
        self._dtype = dtype
        self._codes = codes

    def put(self, slots: Slots, column: pa.Array) -> None:
        """Nothing to do: the table stores the codes."""

    def gather(self, slots: Slots) -> pa.Array:
        """Return the keys at these slots."""
        return join_fixed(pa.int64(), self._codes[slots], None).cast(self._dtype)


class BytesStore:
    """A column of strings or binaries: an arena of records, and where in it each slot's lies.

    A record begins with its slot and its length, so that the arena can be squeezed from front to
    back without knowing the order of arrival: a record whose slot points elsewhere has left.
    """

    def __init__(self, field: pa.Field, capacity: int, arena_bytes: int) -> None:
        """Allocate the slots and the arena."""
        self._dtype = field.type
        self._starts = np.full(capacity, NO_SLOT, np.int64)  # by slot: its record in the arena
        self._nulls = NullTracker(field, capacity)
        self._arena = np.zeros(arena_bytes, np.uint8)  # records, back to back
        self._cursor = 0  # where the next record goes
        self._live_bytes = 0  # of records that have not left

    def room(self, column: pa.Array) -> int:
        """Return how many of the first rows fit into what the arena has free."""
        ends = np.cumsum(split_bytes(column)[0] + np.int64(RECORD_HEADER_BYTES))
        return int(np.searchsorted(ends, len(self._arena) - self._live_bytes, "right"))

    def put(self, slots: Slots, column: pa.Array) -> None:
        """Append the rows to the arena, squeezing out what has left if they do not fit."""
        lengths, data, validity = split_bytes(column)
        needed = len(data) + RECORD_HEADER_BYTES * len(slots)
        if self._cursor + needed > len(self._arena):
            self._cursor = kernels.squeeze_records(self._arena, self._cursor, self._starts)
        where = (self._arena, self._cursor, self._starts)
        self._cursor = kernels.append_records(slots, lengths, data, *where)
        self._nulls.put(slots, validity)
        self._live_bytes += needed

    def drop(self, slots: Slots) -> None:
        """Count the bytes as free; they are squeezed out later."""
        self._live_bytes -= kernels.drop_records(self._arena, self._starts, slots)

    def add_sizes(self, slots: Slots, sizes: NDArray[np.int64]) -> None:
        """Add the lengths of the values at these slots."""
        kernels.add_record_lengths(self._arena, self._starts, slots, sizes)

    def average_bytes(self, count: int) -> float:
        """Return the average length of the values."""
        return self._live_bytes / count - RECORD_HEADER_BYTES

    def gather(self, slots: Slots) -> pa.Array:
        """Return the values at these slots."""
        lengths, data = kernels.gather_records(self._arena, self._starts, slots)
        return join_bytes(self._dtype, lengths, data, self._nulls.gather(slots))

    def saved(self) -> list[NDArray[Any]]:
        """Return where the records are, the used part of the arena, and which are null."""
        live = np.array([self._live_bytes])
        return [self._starts, self._arena[: self._cursor], live, *self._nulls.saved()]

    def restore(self, arrays: Iterator[NDArray[Any]]) -> None:
        """Take what was saved."""
        self._starts[:] = next(arrays)
        used = next(arrays)
        self._cursor = len(used)
        self._arena[: len(used)] = used
        self._live_bytes = int(next(arrays)[0])
        self._nulls.restore(arrays)


class NestedStore(_NotSaved):
    """A column of lists, structs or maps: Arrow arrays, and which row of which a slot means.

    Small arrays that came one after the other are merged, so that a stream of single rows does
    not become thousands of arrays.
    """

    _MERGE_ROWS = 4096
    _MERGE_BYTES = 1 << 16
    _NO_CHUNK = -1

    def __init__(self, dtype: pa.DataType, capacity: int, arena_bytes: int) -> None:
        """Start with no arrays; together they have at most `arena_bytes`."""
        self._dtype = dtype
        self._chunk_of = np.full(capacity, self._NO_CHUNK, np.int32)  # by slot: its array
        self._row_of = np.zeros(capacity, np.int32)  # by slot: its row in that array
        self._sizes = np.zeros(capacity, np.int32)  # by slot: the size of its value in bytes
        self._chunks: dict[int, pa.Array] = {}  # the arrays by number, in order of arrival
        self._live_rows: dict[int, int] = {}  # of each array, rows that have not left
        self._chunk_bytes: dict[int, int] = {}  # size of each array
        self._next_chunk = 0  # number of the next array
        self._limit_bytes = arena_bytes  # for all arrays together
        self._held_bytes = 0  # of all arrays

    def room(self, column: pa.Array) -> int:
        """Return how many of the first rows fit, by the size of a copy of their own."""
        ends = np.cumsum(value_sizes(column))
        return int(np.searchsorted(ends, self._limit_bytes - self._held_bytes, "right"))

    def put(self, slots: Slots, column: pa.Array) -> None:
        """Keep a compact copy of the array, merged with the one before if both are small."""
        self._sizes[slots] = value_sizes(column)
        self._keep(slots, concatenate([column]))
        while self._merge_last_two():
            pass

    def drop(self, slots: Slots) -> None:
        """Count rows out, and drop arrays that have none left."""
        chunks, counts = np.unique(self._chunk_of[slots], return_counts=True)
        self._chunk_of[slots] = self._NO_CHUNK
        for chunk, count in zip(chunks.tolist(), counts.tolist(), strict=True):
            self._live_rows[chunk] -= count
            if not self._live_rows[chunk]:
                self._forget(chunk)

    def add_sizes(self, slots: Slots, sizes: NDArray[np.int64]) -> None:
        """Add the sizes of copies of the values at these slots."""
        sizes += NESTED_COPIES * self._sizes[slots].astype(np.int64)

    def average_bytes(self, count: int) -> float:
        """Return the average size of the arrays by slot."""
        return self._held_bytes / count

    def gather(self, slots: Slots) -> pa.Array:
        """Return the values at these slots, array by array, then put in order."""
        return gather_from_chunks(
            self._dtype, self._chunks, self._chunk_of[slots], self._row_of[slots]
        )

    def _keep(self, slots: Slots, column: pa.Array) -> None:
        chunk = self._next_chunk
        self._next_chunk += 1
        self._chunks[chunk] = column
        self._live_rows[chunk] = len(column)
        size_bytes = int(self._sizes[slots].sum(dtype=np.int64))
        self._chunk_bytes[chunk] = size_bytes
        self._held_bytes += size_bytes
        self._chunk_of[slots] = chunk
        self._row_of[slots] = np.arange(len(column), dtype=np.int32)

    def _merge_last_two(self) -> bool:
        if len(self._chunks) < 2:
            return False
        before, last = list(self._chunks)[-2:]
        rows = self._live_rows[before], self._live_rows[last]
        size_bytes = self._chunk_bytes[before] + self._chunk_bytes[last]
        is_large = sum(rows) > self._MERGE_ROWS or size_bytes > self._MERGE_BYTES
        if rows[0] > 2 * rows[1] or is_large:
            return False
        slots = np.concatenate([np.flatnonzero(self._chunk_of == c) for c in (before, last)])
        merged = self.gather(slots)
        self._forget(before)
        self._forget(last)
        self._keep(slots, merged)
        return True

    def _forget(self, chunk: int) -> None:
        self._held_bytes -= self._chunk_bytes.pop(chunk)
        del self._chunks[chunk], self._live_rows[chunk]


def gather_from_chunks(
    dtype: pa.DataType,
    chunks: dict[int, pa.Array],
    chunk_of: NDArray[np.int32],
    row_of: NDArray[np.int32],
) -> pa.Array:
    """Return rows that are spread over several arrays, in the requested order."""
    if len(chunk_of) == 0:
        return pa.array([], dtype)
    order = np.argsort(chunk_of, kind="stable")
    present, firsts = np.unique(chunk_of[order], return_index=True)
    pieces = [
        take_rows(chunks[chunk], row_of[order[a:b]])
        for chunk, a, b in zip(present.tolist(), firsts, [*firsts[1:], len(order)], strict=True)
    ]
    back = np.empty(len(order), np.int64)
    back[order] = np.arange(len(order))
    return take_rows(concatenate(pieces), back)


class RowStore:
    """All columns of some rows: the waiting stream tuples, or cached rows of R."""

    def __init__(
        self,
        schema: pa.Schema,
        records: NDArray[np.void],
        widths: Widths,
        implied: int | None = None,
        codes: NDArray[np.int64] | None = None,
    ) -> None:
        """Make a store for each column, given the records and the size of values.

        The column `implied`, if any, is not stored: its values are the codes at the slots.
        """
        self._stores: list[ColumnStore] = []
        self._fixed: dict[int, FixedStore] = {}  # those of fixed width, by column
        self._fields = RecordFields(records, len(schema))
        self._bytes = records.view(np.uint8) if records.itemsize else np.zeros(0, np.uint8)
        self._has_variable = bool(variable_columns(schema))
        for i, field in enumerate(schema):
            if i == implied:
                assert codes is not None
                self._stores.append(CodeStore(field.type, codes))
            elif encoding_of(field.type) is Encoding.FIXED:
                self._fixed[i] = FixedStore(field, records[str(i)])
                self._stores.append(self._fixed[i])
            else:
                sizes = (widths.average[i], widths.widest[i])
                self._stores.append(make_store(field, len(records), *sizes))

    def room(self, columns: Sequence[pa.Array]) -> int:
        """Return how many of the first rows every column has room for."""
        pairs = zip(self._stores, columns, strict=True)
        return min((s.room(c) for s, c in pairs), default=_NO_LIMIT)

    def put(self, slots: Slots, columns: Sequence[pa.Array]) -> None:
        """Store rows at free slots."""
        for store, column in zip(self._stores, columns, strict=True):
            store.put(slots, column)

    def drop(self, slots: Slots) -> None:
        """Forget the rows at these slots."""
        for store in self._stores:
            store.drop(slots)

    def sizes(self, slots: Slots) -> NDArray[np.int64] | None:
        """Return the size in bytes of each row's variable-width values; None without any."""
        if not self._has_variable:
            return None
        sizes = np.zeros(len(slots), np.int64)
        for store in self._stores:
            store.add_sizes(slots, sizes)
        return sizes

    def gather(self, slots: Slots, columns: Sequence[int] | None = None) -> list[pa.Array]:
        """Return some columns, or all, of the rows at these slots."""
        indexes = range(len(self._stores)) if columns is None else columns
        values = self._fields.gather(slots, indexes)
        joined = {i: self._fixed[i].join(slots, values[i]) for i in values}
        return [joined[i] if i in joined else self._stores[i].gather(slots) for i in indexes]

    def average_bytes(self, count: int) -> list[float]:
        """Return the average size of the values of each column, where they differ in size."""
        return [store.average_bytes(count) for store in self._stores]

    @property
    def can_be_saved(self) -> bool:
        """Whether all columns can be saved: nested ones can not."""
        return not any(isinstance(store, NestedStore) for store in self._stores)

    def saved(self) -> list[NDArray[Any]]:
        """Return all rows as arrays, without a copy."""
        return [self._bytes, *(array for store in self._stores for array in store.saved())]

    def restore(self, arrays: Iterator[NDArray[Any]]) -> None:
        """Take the rows of a store of the same columns and size; they are copied."""
        self._bytes[:] = next(arrays)
        for store in self._stores:
            store.restore(arrays)


@dataclass(frozen=True, slots=True)
class StoredRows:
    """Some rows of a store."""

    store: RowStore
    slots: Slots

    @property
    def sizes(self) -> NDArray[np.int64] | None:
        """The size in bytes of each row's variable-width values; None if there are none."""
        return self.store.sizes(self.slots)

    def gather(self) -> list[pa.Array]:
        """Return the columns of the rows, as new arrays."""
        return self.store.gather(self.slots)
