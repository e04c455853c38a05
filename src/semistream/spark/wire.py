"""The one schema that a task returns to Spark: joined rows, then telemetry or an error."""

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import ArrayType, LongType, StringType, StructField

from semistream.errors import SemistreamError
from semistream.spark.failures import ERROR_COLUMN, text_of
from semistream.spark.metrics import TELEMETRY_COLUMN
from semistream.spark.types import wire_type

INNER_COLUMNS = (TELEMETRY_COLUMN, ERROR_COLUMN)  # the last two of what a task returns
INNER_FIELDS = (
    StructField(TELEMETRY_COLUMN, ArrayType(LongType())),
    StructField(ERROR_COLUMN, StringType()),
)
_TELEMETRY_TYPE = pa.list_(pa.int64())


class Wire:
    """Converts joined rows and telemetry to the one schema that a task returns to Spark."""

    def __init__(self, stream: pa.Schema, added: list[pa.Field]) -> None:
        """Prepare for the columns of a stream, and those that were added to it."""
        wired = [field.with_type(wire_type(field)) for field in added]
        # The columns that Spark needs in another type: index and type.
        self._casts = {
            len(stream) + i: wire.type
            for i, (field, wire) in enumerate(zip(added, wired, strict=True))
            if field.type != wire.type
        }
        fields = [field.with_nullable(True) for field in (*stream, *wired)]
        inner = (pa.field(TELEMETRY_COLUMN, _TELEMETRY_TYPE), pa.field(ERROR_COLUMN, pa.string()))
        self._schema = pa.schema([*fields, *inner])

    def rows(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return joined rows."""
        columns = self.cast(batch)
        empty = [pa.nulls(batch.num_rows, field.type) for field in list(self._schema)[-2:]]
        return pa.RecordBatch.from_arrays([*columns, *empty], schema=self._schema)

    def cast(self, batch: pa.RecordBatch) -> list[pa.Array]:
        """Return the columns of joined rows in the types that Spark has."""
        columns: list[pa.Array] = batch.columns
        for i, dtype in self._casts.items():
            # Spark's timestamps have microseconds: what is below is cut off.
            options = pc.CastOptions(target_type=dtype, allow_time_truncate=True)
            columns[i] = columns[i].cast(options=options)
        return columns

    def telemetry(self, counters: list[int]) -> pa.RecordBatch:
        """Return a row that has nothing but counters."""
        return self._row(TELEMETRY_COLUMN, counters)

    def error(self, error: SemistreamError) -> pa.RecordBatch:
        """Return a row that has nothing but the text of an error."""
        return self._row(ERROR_COLUMN, text_of(error))

    def _row(self, name: str, value: object) -> pa.RecordBatch:
        """Return a row that is empty but for one of the inner columns."""
        values = {field.name: None for field in list(self._schema)[-2:]} | {name: value}
        arrays = [pa.nulls(1, field.type) for field in list(self._schema)[:-2]]
        arrays += [pa.array([values[f.name]], f.type) for f in list(self._schema)[-2:]]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)
