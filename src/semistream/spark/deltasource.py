"""A Delta table as a Spark stream: first all of its rows, then what is appended to it.

An offset is a version of the table::

    offset log      {"version": -1}     {"version": 7}          {"version": 9}
                         └── all of version 7 ──┘└── appended by 8, 9 ──┘

A micro-batch that is run again reads the same versions, so the same rows; they must not have been
vacuumed meanwhile.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructField, StructType

from semistream.spark.types import arrow_schema, spark_type
from semistream.tables import (
    Appended,
    appended_to_delta,
    delta_schema,
    delta_version,
    read_appended,
)

FORMAT = "semistream-delta"
_FILES_PER_TASK = 4

Offset = dict[str, int]


class DeltaSource(DataSource):
    """The source that ``format("semistream-delta")`` names; its option is ``location``."""

    @classmethod
    def name(cls) -> str:
        """Return the name for `format`."""
        return FORMAT

    def schema(self) -> StructType:
        """Return the columns of the table."""
        fields = delta_schema(*self._about())
        return StructType([StructField(f.name, spark_type(f)) for f in fields])

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        """Return a reader of the stream."""
        return DeltaReader(*self._about(), schema)

    def _about(self) -> tuple[str, dict[str, str]]:
        given = dict(self.options)
        return given.pop("location"), given


@dataclass(frozen=True)
class Files(InputPartition):
    """Some files of the table, for one task."""

    part: Appended


class DeltaReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads the table version by version. One per query, on the driver; `read` in the tasks."""

    def __init__(self, location: str, options: dict[str, str], schema: StructType) -> None:
        """Begin with all of the table, unless a checkpoint says how far the query is."""
        self._location = location
        self._options = options  # of the storage
        self._schema = schema  # as Spark has it
        self._last: int | None = None  # Trigger.AvailableNow: no version after this

    def initialOffset(self) -> Offset:  # noqa: N802
        """Return the start of a query without a checkpoint."""
        return {"version": -1}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """Return that a micro-batch takes all there is."""
        return ReadAllAvailable()

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:  # noqa: N802
        """Return the newest version."""
        del limit
        newest = delta_version(self._location, self._options) if self._last is None else self._last
        return {"version": max(start["version"], newest)}

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Ignore what is appended after now."""
        self._last = delta_version(self._location, self._options)

    def partitions(self, start: Offset, end: Offset) -> list[Files]:
        """Return some files for each task."""
        found = appended_to_delta(self._location, start["version"], end["version"], self._options)
        return [
            Files(Appended(part.version, part.files[i : i + _FILES_PER_TASK]))
            for part in found
            for i in range(0, len(part.files), _FILES_PER_TASK)
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of some files, in Spark's types."""
        assert isinstance(partition, Files), partition
        wire = arrow_schema(self._schema)
        for batch in read_appended(self._location, partition.part, self._options):
            yield batch.select(wire.names).cast(wire)
