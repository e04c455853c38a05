"""A workload as a Spark source: a generated stream at a given rate, to try a pipeline with.

An offset is a row number, and the time when the query first began. Rows are reproducible by row
number, so a micro-batch that is run again reads the same rows, and a query that is restarted from
its checkpoint continues with the next row::

    offset log      {"row": 0, …}      {"row": 50000, …}      {"row": 98304, …}
                         └── partitions ──┘└──── partitions ─────┘
    a partition     rows first to first + count, made where they are read

With a rate, the rows available are those that have arrived since the beginning, which a restart
does not change: rows that arrived while the query was down are available at once. No micro-batch
has more than `rowsPerBatch` of them, except under Trigger.Once, which has one micro-batch for all.
Without a rate all rows are available from the start, `rowsPerBatch` at a time.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
)
from pyspark.sql.streaming.datasource import (
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructField, StructType

from semistream.errors import OptionError
from semistream.spark.source_options import SourceOptions, parse_options
from semistream.spark.types import arrow_schema, spark_type
from semistream.workload.base import CHUNK_ROWS, Workload

FORMAT = "semistream-workload"


# A position in the stream as Spark's checkpoint stores it: "row", and "began_ms" since 1970.
Offset = dict[str, int]


class WorkloadSource(DataSource):
    """The source that ``format("semistream-workload")`` names."""

    default_partitions = 2

    @classmethod
    def name(cls) -> str:
        """Return the name for `format`."""
        return FORMAT

    def schema(self) -> StructType:
        """Return the columns of the stream, or of the relation."""
        options = self._options()
        workload = options.workload
        fields = workload.relation_schema if options.is_relation else workload.stream_schema
        return StructType([StructField(f.name, spark_type(f)) for f in fields])

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return a reader of the relation, or of a number of stream rows, as a batch."""
        options = self._options()
        if options.is_relation:
            return RelationReader(options.workload, schema)
        return RowsReader(options, schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        """Return a reader of the stream."""
        options = self._options()
        if options.is_relation:
            raise OptionError(
                "a relation is no stream, but the option table is 'relation'; use spark.read, or "
                "leave table out"
            )
        return StreamReader(options, schema)

    def _options(self) -> SourceOptions:
        return parse_options(self.options, self.default_partitions)


@dataclass(frozen=True)
class Rows(InputPartition):
    """A range of the stream's rows, for one task."""

    first: int
    count: int


class RelationReader(DataSourceReader):
    """Reads the relation, in one task: its rows are generated one after the other."""

    def __init__(self, workload: Workload, schema: StructType) -> None:
        """Read all of R."""
        self._workload = workload
        self._schema = schema

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield R."""
        del partition
        wire = arrow_schema(self._schema)
        for batch in self._workload.relation_batches():
            yield batch.cast(wire)


class RowsReader(DataSourceReader):
    """Reads the first rows of the stream as a table."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        """Read as many rows as the options say."""
        if options.rows is None:
            raise OptionError(
                "the stream has no end; set the number of rows, as in .option('rows', 1000000), or "
                "use readStream"
            )
        self._workload = options.workload
        self._schema = schema
        self._partitions = split(0, options.rows, options.partitions)

    def partitions(self) -> list[Rows]:
        """Return a range for each task."""
        return self._partitions or [Rows(0, 0)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one range."""
        return read_rows(self._workload, self._schema, partition)


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads the stream as rows arrive. One per query, on the driver."""

    def __init__(
        self,
        options: SourceOptions,
        schema: StructType,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Begin now, unless a checkpoint says that the query began before."""
        self._options = options
        self._schema = schema  # as Spark has it
        self._clock = clock  # seconds since 1970
        self._began_ms = int(clock() * 1000)  # not used if there is a checkpoint
        self._stands_still_at: float | None = None  # Trigger.AvailableNow: no arrivals after this
        self._arrived: Offset | None = None  # end of the arrived rows at the last micro-batch

    def initialOffset(self) -> Offset:  # noqa: N802
        """Return the start of a query without a checkpoint."""
        return {"row": 0, "began_ms": self._began_ms}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """Return the most rows of one micro-batch."""
        return ReadMaxRows(self._options.rows_per_batch)

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:  # noqa: N802
        """Return the end of the next micro-batch: `start`, if no row has arrived since."""
        first = start["row"]
        arrived = self._rows_arrived(start)
        if isinstance(limit, ReadMaxRows):
            most = first + limit.max_rows
            end = most if arrived is None else min(arrived, most)
        elif arrived is None:
            raise _endless("a micro-batch of all rows")
        else:
            end = arrived
        self._arrived = None if arrived is None else {**start, "row": max(first, arrived)}
        return {**start, "row": max(first, end)}

    def reportLatestOffset(self) -> Offset | None:  # noqa: N802
        """Return the end of the arrived rows at the last micro-batch; it shows the backlog."""
        return self._arrived

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Ignore rows that arrive after now."""
        if self._options.rows is None and self._options.arrivals is None:
            raise _endless("Trigger.AvailableNow")
        self._stands_still_at = self._clock()

    def partitions(self, start: Offset, end: Offset) -> list[Rows]:
        """Return a range for each task."""
        return split(start["row"], end["row"], self._options.partitions)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one range."""
        return read_rows(self._options.workload, self._schema, partition)

    def _rows_arrived(self, start: Offset) -> int | None:
        """Return the number of rows since the query began; None if the stream has no end."""
        rows, arrivals = self._options.rows, self._options.arrivals
        if arrivals is None:
            return rows
        now = self._clock() if self._stands_still_at is None else self._stands_still_at
        arrived = arrivals.arrived_by(now - start["began_ms"] / 1000)
        return arrived if rows is None else min(arrived, rows)


def split(first: int, end: int, partitions: int) -> list[Rows]:
    """Cut a range into at most `partitions` ranges of nearly equal size.

    >>> split(10, 15, 2)
    [Rows(first=10, count=2), Rows(first=12, count=3)]
    """
    count = min(partitions, end - first)
    cuts = [first + (end - first) * i // count for i in range(count + 1)] if count else []
    return [Rows(a, b - a) for a, b in pairwise(cuts)]


def read_rows(
    workload: Workload, schema: StructType, partition: InputPartition
) -> Iterator[pa.RecordBatch]:
    """Yield a range of rows, a chunk at a time, in Spark's types."""
    assert isinstance(partition, Rows), partition
    wire = arrow_schema(schema)
    end = partition.first + partition.count
    for first in range(partition.first, end, CHUNK_ROWS):
        yield workload.stream_rows(first, min(CHUNK_ROWS, end - first)).cast(wire)


def _endless(what: str) -> OptionError:
    return OptionError(
        f"{what} needs an end; give the workload source rows, as in .option('rows', 1000000), or "
        "a rate"
    )
