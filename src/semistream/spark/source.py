"""A workload as a Spark source: a stream to try things with, which comes at the pace you say.

An offset is a row number, and when the query first began. The rows of a workload are the same
whenever they are asked for, so a micro-batch that is run again reads what it read before, and a
query that is restarted from its checkpoint goes on with the next row::

    offset log      {"row": 0, …}      {"row": 50000, …}      {"row": 98304, …}
                         └── partitions ──┘└──── partitions ─────┘
    a partition     rows first to first + count, made where they are read

With a rate, as many rows are there as have arrived since the beginning, which a restart does not
change: what arrived while the query was down is there at once. No micro-batch takes more than
`rowsPerBatch` of them, but under Trigger.Once, which has one micro-batch for all. Without a rate
all rows lie ready, `rowsPerBatch` at a time.
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


# A place in the stream as it stands in Spark's checkpoint: "row", and "began_ms" since 1970.
Offset = dict[str, int]


class WorkloadSource(DataSource):
    """The source that ``format("semistream-workload")`` names."""

    default_partitions = 2

    @classmethod
    def name(cls) -> str:
        """Return what `format` calls it."""
        return FORMAT

    def schema(self) -> StructType:
        """Return the columns of the stream, or of the relation."""
        options = self._options()
        workload = options.workload
        fields = workload.relation_schema if options.is_relation else workload.stream_schema
        return StructType([StructField(f.name, spark_type(f)) for f in fields])

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return what reads a number of rows, or the relation, at once."""
        options = self._options()
        if options.is_relation:
            return RelationReader(options.workload, schema)
        return RowsReader(options, schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        """Return what reads the stream as it comes."""
        options = self._options()
        if options.is_relation:
            raise OptionError("a relation is no stream; use spark.read, or leave table out")
        return StreamReader(options, schema)

    def _options(self) -> SourceOptions:
        return parse_options(self.options, self.default_partitions)


@dataclass(frozen=True)
class Rows(InputPartition):
    """A range of the stream's rows, for one task."""

    first: int
    count: int


class RelationReader(DataSourceReader):
    """Reads the relation, in one task: its rows are made one after the other."""

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
                "the stream has no end; say how much to read, as in .option('rows', 1000000), or "
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
    """Reads the stream as it comes. Lives on the driver for as long as the query runs."""

    def __init__(
        self,
        options: SourceOptions,
        schema: StructType,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Begin now, unless a checkpoint says that the query began before."""
        self._options = options
        self._schema = schema
        self._clock = clock
        self._began_ms = int(clock() * 1000)
        self._stands_still_at: float | None = None
        self._there: Offset | None = None

    def initialOffset(self) -> Offset:  # noqa: N802
        """Return where a query without a checkpoint begins."""
        return {"row": 0, "began_ms": self._began_ms}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """Return how much one micro-batch may take."""
        return ReadMaxRows(self._options.rows_per_batch)

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:  # noqa: N802
        """Return where the next micro-batch ends: at `start`, if nothing has come since."""
        first = start["row"]
        there = self._rows_there(start)
        if isinstance(limit, ReadMaxRows):
            most = first + limit.max_rows
            end = most if there is None else min(there, most)
        elif there is None:
            raise _endless("a micro-batch of all rows")
        else:
            end = there
        self._there = None if there is None else {**start, "row": max(first, there)}
        return {**start, "row": max(first, end)}

    def reportLatestOffset(self) -> Offset | None:  # noqa: N802
        """Return how far the stream had come at the last micro-batch: the backlog shows in that."""
        return self._there

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Let no more rows come than are there now."""
        if self._options.rows is None and self._options.arrivals is None:
            raise _endless("Trigger.AvailableNow")
        self._stands_still_at = self._clock()

    def partitions(self, start: Offset, end: Offset) -> list[Rows]:
        """Return a range for each task."""
        return split(start["row"], end["row"], self._options.partitions)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one range."""
        return read_rows(self._options.workload, self._schema, partition)

    def _rows_there(self, start: Offset) -> int | None:
        """Return how many rows have come since the query began; None if they have no end."""
        rows, arrivals = self._options.rows, self._options.arrivals
        if arrivals is None:
            return rows
        now = self._clock() if self._stands_still_at is None else self._stands_still_at
        arrived = arrivals.arrived_by(now - start["began_ms"] / 1000)
        return arrived if rows is None else min(arrived, rows)


def split(first: int, end: int, partitions: int) -> list[Rows]:
    """Cut a range into at most that many ranges of nearly equal size.

    >>> split(10, 15, 2)
    [Rows(first=10, count=2), Rows(first=12, count=3)]
    """
    count = min(partitions, end - first)
    cuts = [first + (end - first) * i // count for i in range(count + 1)] if count else []
    return [Rows(a, b - a) for a, b in pairwise(cuts)]


def read_rows(
    workload: Workload, schema: StructType, partition: InputPartition
) -> Iterator[pa.RecordBatch]:
    """Yield a range of rows, a chunk at a time, in the types in which Spark takes them."""
    assert isinstance(partition, Rows), partition
    wire = arrow_schema(schema)
    end = partition.first + partition.count
    for first in range(partition.first, end, CHUNK_ROWS):
        yield workload.stream_rows(first, min(CHUNK_ROWS, end - first)).cast(wire)


def _endless(who: str) -> OptionError:
    return OptionError(
        f"{who} needs an end; give the workload source rows, as in .option('rows', 1000000), or a "
        "rate"
    )
