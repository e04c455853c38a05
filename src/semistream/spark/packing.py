"""Packing: rows as blobs of Arrow, so that many of them are one row for Spark.

The operator that holds rows (`semistream.spark.waiting`) gets each row from Spark as a Pandas
object, and keeps it as a row of Spark's state. That is slow, and Pandas has not all of Arrow's
types. So a task packs joined rows into blobs of some thousand, and rows without a match into blobs
by *bucket*: the partition of R that their key would be in. Behind the operator blobs become rows
again.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import BinaryType, IntegerType, StructField

from semistream.errors import SemistreamError
from semistream.relation.relation import Relation
from semistream.spark.failures import ERROR_COLUMN, text_of
from semistream.spark.metrics import TELEMETRY_COLUMN
from semistream.spark.wire import Wire

BUCKET, KIND, ROWS = "bucket", "kind", "rows"
PACKED_FIELDS = (
    StructField(BUCKET, IntegerType()),
    StructField(KIND, IntegerType()),
    StructField(ROWS, BinaryType()),
)
FOUND_COLUMN = "__semistream_found"  # a key column of R: null in rows without a match
OUTCOME_COLUMN = "__semistream_outcome"  # what became of a row


class Kind(IntEnum):
    """What a blob has."""

    DIRECT = 0  # joined rows, and rows that can never have a match
    MISSED = 1  # rows of the stream that may have a match later
    LATE = 2  # joined rows that were held
    EXPIRED = 3  # rows with nulls that were held for the whole grace period


OUTCOMES = ("matched", "missing", "late", "expired")  # of a row, in the column for it


def to_blob(batch: pa.RecordBatch) -> bytes:
    """Return rows as bytes, with their schema."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return bytes(sink.getvalue())


def from_blob(blob: bytes) -> pa.RecordBatch:
    """Return the rows of a blob."""
    with pa.ipc.open_stream(blob) as reader:
        return reader.read_next_batch()


@dataclass(frozen=True, slots=True)
class Packing:
    """How a task packs its rows: which of them may have a match later, and their buckets."""

    relation: Relation
    stream_columns: int
    key: tuple[int, ...]  # the positions of the key columns
    reason: str | None = None  # the column that says why a row is set aside; it is not held then

    def pack(self, batch: pa.RecordBatch, bucket: int) -> Iterator[tuple[int, Kind, bytes]]:
        """Yield the blobs of some joined rows; those that are not held go to any bucket."""
        missed = pc.is_null(batch.column(FOUND_COLUMN)).to_numpy(zero_copy_only=False)
        codes, has_key = self.relation.coder.codes([batch.column(i) for i in self.key])
        is_held = missed & has_key
        if self.reason is not None:
            is_held &= pc.is_null(batch.column(self.reason)).to_numpy(zero_copy_only=False)
        if not is_held.all():
            yield bucket, Kind.DIRECT, to_blob(batch.filter(pa.array(~is_held)))
        if not is_held.any():
            return
        stream = batch.select(range(self.stream_columns))
        buckets = np.where(is_held, codes % self.relation.partition_count, -1)
        for one in np.unique(buckets[is_held]).tolist():
            yield int(one), Kind.MISSED, to_blob(stream.filter(pa.array(buckets == one)))


class PackedWire:
    """Converts packed rows and telemetry to the one schema that a task returns to Spark."""

    _SCHEMA = pa.schema(
        [
            (BUCKET, pa.int32()),
            (KIND, pa.int32()),
            (ROWS, pa.binary()),
            (TELEMETRY_COLUMN, pa.list_(pa.int64())),
            (ERROR_COLUMN, pa.string()),
        ]
    )

    def __init__(self, packing: Packing, bucket: int, inner: Wire) -> None:
        """Prepare for a task whose rows that are not held go to a bucket."""
        self._packing, self._bucket, self._inner = packing, bucket, inner

    def rows(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return joined rows, in types that Spark has, as blobs."""
        joined = pa.RecordBatch.from_arrays(self._inner.cast(batch), batch.schema.names)
        packed = list(self._packing.pack(joined, self._bucket))
        columns = list(zip(*packed, strict=True)) if packed else [(), (), ()]
        arrays = [pa.array(list(c), f.type) for c, f in zip(columns, self._SCHEMA, strict=False)]
        arrays += [pa.nulls(len(packed), field.type) for field in list(self._SCHEMA)[-2:]]
        return pa.RecordBatch.from_arrays(arrays, schema=self._SCHEMA)

    def telemetry(self, counters: list[int]) -> pa.RecordBatch:
        """Return a row that has nothing but counters."""
        return self._row(TELEMETRY_COLUMN, counters)

    def error(self, error: SemistreamError) -> pa.RecordBatch:
        """Return a row that has nothing but the text of an error."""
        return self._row(ERROR_COLUMN, text_of(error))

    def _row(self, name: str, value: object) -> pa.RecordBatch:
        return pa.RecordBatch.from_pylist([{name: value}], schema=self._SCHEMA)


@dataclass(frozen=True, slots=True)
class Unpacking:
    """The function of a Python worker: blobs become rows, with what became of each at the end."""

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the rows of all blobs."""
        for batch in batches:
            for kind, blob in zip(batch.column(KIND), batch.column(ROWS), strict=True):
                rows = from_blob(blob.as_buffer())
                is_late = kind.as_py() in (Kind.LATE, Kind.EXPIRED)
                yield rows.append_column(
                    OUTCOME_COLUMN, _outcome(rows.column(FOUND_COLUMN), is_late)
                )


def _outcome(found: pa.Array, was_held: bool) -> pa.Array:
    """Return what became of each row, by a key column of R."""
    known = (OUTCOMES[2], OUTCOMES[3]) if was_held else (OUTCOMES[0], OUTCOMES[1])
    return pc.if_else(pc.is_valid(found), *known)
