"""The size of stored rows: columns of waiting tuples or of cached rows, in records and arenas.

`joins/rows.py` stores them; here is only their memory.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from semistream.columns import Encoding, encoding_of, numpy_dtype, total_bytes, value_sizes

# A record of an arena: slot, length, bytes.
RECORD_HEADER_BYTES = 8
# An arena has room for more than its average rows: a share, and a little in any case.
ARENA_SLACK = 1.25
ARENA_BASE_BYTES = 4096
# Rows of nested values that lie in several arrays are copied piece by piece, put together, and put
# into order: three copies exist for a moment.
NESTED_COPIES = 3


@dataclass(frozen=True, slots=True)
class Widths:
    """The size in bytes of the values of some columns: on average, and the widest of a sample."""

    average: tuple[float, ...]
    widest: tuple[int, ...]

    @classmethod
    def of(cls, rows: pa.RecordBatch) -> "Widths":
        """Measure a sample of rows; a value counts at least one byte."""
        average = tuple(average_value_bytes(column) for column in rows.columns)
        return cls(average, tuple(_widest(column) for column in rows.columns))

    @classmethod
    def equal(cls, value_bytes: Sequence[float]) -> "Widths":
        """Return the widths of columns whose values are all of one size."""
        return cls(tuple(value_bytes), tuple(int(size) for size in value_bytes))

    def at_least(self, value_bytes: Sequence[float]) -> "Widths":
        """Return these widths, or others where they are larger on average."""
        return Widths(tuple(map(max, self.average, value_bytes)), self.widest)

    def widest_row_bytes(self, schema: pa.Schema) -> int:
        """Return the greatest size of a row's variable-width values."""
        return sum(self.widest[i] for i in variable_columns(schema))


def variable_columns(schema: pa.Schema) -> list[int]:
    """Return the places of the columns whose values differ in size."""
    return [i for i, f in enumerate(schema) if encoding_of(f.type) is not Encoding.FIXED]


def _widest(column: pa.Array) -> int:
    if encoding_of(column.type) is Encoding.FIXED or not len(column):
        return 1
    return int(value_sizes(column).max())


def record_dtype(
    schema: pa.Schema, implied: int | None = None, header: Mapping[str, npt.DTypeLike] | None = None
) -> np.dtype[np.void]:
    """Return the layout of a slot's record: the header's fields, and the columns of fixed width.

    Columns are named by their place in the schema. Wide fields come first, so little is padded.
    """
    fields: dict[str, npt.DTypeLike] = dict(header or {})
    for i, field in enumerate(schema):
        if i != implied and encoding_of(field.type) is Encoding.FIXED:
            fields[str(i)] = numpy_dtype(field.type)
    ordered = sorted(fields.items(), key=lambda item: -np.dtype(item[1]).itemsize)
    return np.dtype(ordered, align=True)


def row_bytes(
    schema: pa.Schema,
    value_bytes: Sequence[float],
    implied: int | None = None,
    header: Mapping[str, npt.DTypeLike] | None = None,
) -> float:
    """Return the size of a slot: its record, and its part of the column stores.

    A field that is not nullable must really have no nulls; it saves the validity byte.
    """
    size = float(record_dtype(schema, implied, header).itemsize)
    for i, (field, value) in enumerate(zip(schema, value_bytes, strict=True)):
        encoding = encoding_of(field.type)
        if encoding is Encoding.FIXED:
            size += field.nullable and i != implied
        elif encoding is Encoding.BYTES:
            size += 8 + field.nullable + ARENA_SLACK * (value + RECORD_HEADER_BYTES)
        else:
            size += 12 + ARENA_SLACK * value
    return size


def base_bytes(schema: pa.Schema, widest: Sequence[int] | None = None) -> int:
    """Return the fixed overhead of the column stores: room for one widest value in each arena."""
    widths = [0] * len(schema) if widest is None else widest
    return sum(arena_base_bytes(widths[i]) for i in variable_columns(schema))


def arena_base_bytes(widest: int) -> int:
    """Return the fixed overhead of an arena that must hold one value of this width."""
    return max(ARENA_BASE_BYTES, widest + RECORD_HEADER_BYTES)


def average_value_bytes(column: pa.Array) -> float:
    """Return the average size of a value in a sample, at least one byte."""
    return max(1.0, total_bytes([column]) / max(1, len(column)))
