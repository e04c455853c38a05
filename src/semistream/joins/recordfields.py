"""Columns of fixed width that lie in records, one for each slot: several gathered in one call.

A record is fetched once for all of them, and few calls are made for each column. Memory: what was
gathered is one new block, which belongs to the output buffer and which all columns share.
"""

from collections.abc import Iterable, Mapping
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

    def gather(self, slots: NDArray[Any], columns: Iterable[int]) -> dict[int, pa.Buffer]:
        """Return the values at some slots by column, where several of the columns are fields."""
        columns = [i for i in columns if i in self._where]
        if len(columns) < 2:  # one is copied as fast by NumPy
            return {}
        offsets, widths = np.array([self._where[i] for i in columns], np.int64).T.copy()
        sizes = -(-len(slots) * widths // _ALIGN) * _ALIGN
        starts = np.cumsum(sizes) - sizes
        out = np.empty(int(sizes.sum()), np.uint8)
        about = (self._record_bytes, np.ascontiguousarray(slots), offsets, widths, starts, out)
        gather_fields(self._records, *about)
        block = pa.py_buffer(out)
        return {i: block.slice(s) for i, s in zip(columns, starts.tolist(), strict=True)}
