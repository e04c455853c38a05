"""Rows that a join sets aside: those that have a reason already, and those that it cannot hold.

::

    rows ──┬── no reason ──► join ──────────────────────────► joined rows
           └── a reason, or too wide ──► a temporary file ──► at the end, with nulls

A column of the stream holds the reason why a row cannot be parsed or joined. Such rows pass the
join by, whatever its kind. A row that is wider than the memory allows gets a reason here, instead
of ending the query.

Memory: none that grows. Rows that are set aside wait in a file without a name; one batch of them is
read back at a time.
"""

import tempfile
from collections.abc import Iterator
from typing import IO

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from semistream.arrowtypes import is_text
from semistream.columns import Encoding, encoding_of, plain_type, value_sizes, width_bytes
from semistream.errors import ColumnError, OptionError, did_you_mean
from semistream.spec import JoinSpec
from semistream.units import format_bytes

# The part of a join's memory that one row may take: it is in the window, in the output, and in
# what is made of it on the way.
_WIDEST_PART = 1 / 8


def check_reason(spec: JoinSpec, reason: str | None, ordered: object) -> None:
    """Raise unless the column of the reasons is there and can be filled."""
    if reason is None:
        return
    names = spec.stream_schema.names
    if reason not in names:
        raise ColumnError(
            f"the stream has no column {reason!r} for reasons; it has {', '.join(names)}."
            f"{did_you_mean(reason, names)}"
        )
    if not is_text(spec.stream_schema.field(reason).type):
        raise ColumnError(f"the column {reason!r} of reasons must be of type string; cast it")
    if ordered is not None:
        raise OptionError(
            "rows with a reason leave last, so reason and ordered cannot be used together"
        )


class SetAside:
    """The rows that one task of a join sets aside."""

    def __init__(self, spec: JoinSpec, reason: str | None, join_bytes: int) -> None:
        """Begin with none; `reason` is the column of the reasons; without it none is set aside."""
        self._spec = spec
        # Where the column of the reasons is.
        self._at = None if reason is None else spec.stream_schema.get_field_index(reason)
        self._most_bytes = int(join_bytes * _WIDEST_PART)  # of one row
        self._file: IO[bytes] | None = None  # the rows, once there are some
        self._writer: pa.ipc.RecordBatchStreamWriter | None = None  # to that file

    def sound(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the rows that can be joined; keep the others."""
        if self._at is None:
            yield from batches
            return
        for batch in batches:
            batch = self._with_wide_rows(batch, self._at)
            reasons = batch.column(self._at)
            if reasons.null_count == len(reasons):
                yield batch
                continue
            is_sound = reasons.is_null()
            self._keep(batch.filter(pc.invert(is_sound)))
            yield batch.filter(is_sound)

    def rows(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows that were kept, with nulls for the relation's columns."""
        if self._file is None or self._writer is None:
            return
        self._writer.close()
        self._file.seek(0)
        with self._file, pa.ipc.open_stream(self._file) as reader:
            for batch in reader:
                yield self._spec.assemble(batch.columns, None, batch.num_rows)

    def _keep(self, batch: pa.RecordBatch) -> None:
        if self._writer is None:
            self._file = tempfile.TemporaryFile()  # noqa: SIM115 - closed when it has been read
            self._writer = pa.ipc.new_stream(self._file, batch.schema)
        self._writer.write_batch(batch)

    def _with_wide_rows(self, batch: pa.RecordBatch, at: int) -> pa.RecordBatch:
        """Return a batch in which rows that are too wide have a reason."""
        if batch.get_total_buffer_size() <= self._most_bytes:
            return batch
        sizes = np.zeros(batch.num_rows, np.int64)
        for array in batch.columns:
            dtype = plain_type(array.type)
            is_fixed = encoding_of(dtype) is Encoding.FIXED
            sizes += width_bytes(dtype) if is_fixed else value_sizes(array)
        is_wide = pa.array(sizes > self._most_bytes)
        if not is_wide.true_count:
            return batch
        said = pa.scalar(
            f"the row is wider than {format_bytes(self._most_bytes)}, an eighth of the memory of a "
            "task's join",
            pa.string(),
        )
        reasons = batch.column(at)
        filled = pc.if_else(pc.and_(is_wide, reasons.is_null()), said, reasons)
        return batch.set_column(at, batch.schema.field(at), filled)
