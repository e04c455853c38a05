"""Columns of fixed width that lie in records, one for each slot: several are gathered in one call.

A record is fetched once for all of them, and few calls are made for each column. Memory: what was
gathered is one new block, which belongs to the output buffer and which all columns share.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from semistream.joins.record_kernels import gather_fields

_ALIGN = 8  # of a column's values in a block


class RecordFields:
    """Which columns are fields of the records, and where in a record they lie."""

    def __init__(self, records: NDArray[np.void], columns: int) -> None:
        """Look for a field by the number of each column."""
        fields: Mapping[str, Any] = records.dtype.fields or {}
        found = {i: fields[str(i)] for i in range(columns) if str(i) in fields}
        # By column: its offset in a record, and its width in bytes.
        self._where = {i: (field[1], field[0].itemsize) for i, field in found.items()}
        self._records: NDArray[Any] = records.view(np.uint8) if found else np.empty(0, np.uint8)
        self._record_bytes = records.itemsize
        self._known: dict[tuple[int, ...], _FieldGroup | None] = {}  # by what is gathered together

    def gather(self, slots: NDArray[Any], columns: Iterable[int]) -> dict[int, pa.Buffer]:
        """Return the values at some slots by column, where several of the columns are fields."""
        group = self._group(tuple(columns))
        if group is None:
            return {}
        starts, size = [], 0
        for width in group.widths.tolist():
            starts.append(size)
            size += -(-len(slots) * width // _ALIGN) * _ALIGN
        out = np.empty(size, np.uint8)
        about = (np.ascontiguousarray(slots), group.offsets, group.widths)
        gather_fields(self._records, self._record_bytes, *about, np.array(starts), out)
        block = pa.py_buffer(out)
        return {i: block.slice(s) for i, s in zip(group.columns, starts, strict=True)}

    def _group(self, columns: tuple[int, ...]) -> "_FieldGroup | None":
        """Return those of the columns that are fields; one alone is copied as fast by NumPy."""
        if columns not in self._known:
            found = [i for i in columns if i in self._where]
            group = None
            if len(found) > 1:
                offsets, widths = np.array([self._where[i] for i in found], np.int64).T.copy()
                group = _FieldGroup(found, offsets, widths)
            self._known[columns] = group
        return self._known[columns]


@dataclass(frozen=True, slots=True)
class _FieldGroup:
    """Fields that are gathered together."""

    columns: list[int]
    offsets: NDArray[np.int64]  # of each in a record
    widths: NDArray[np.int64]  # of each in bytes
