"""A micro-batch written by one task, in one commit. Workers import this without pydantic."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Any, Protocol

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from semistream.errors import SemistreamError
from semistream.spark.failures import ERROR_COLUMN, raised_as_ours, text_of, unless_error
from semistream.spark.types import arrow_schema


class Target(Protocol):
    """What one task can write a micro-batch to."""

    def write(self, rows: pa.RecordBatchReader, stream: str, number: int) -> int | None:
        """Write a micro-batch; None if that was done before."""
        ...


def write_by_one_task(rows: DataFrame, target: Target, stream: str, number: int) -> None:
    """Let one task write all rows; its retries find them written."""
    task = _WriteAll(target, arrow_schema(rows.schema), stream, number)
    answers = rows.repartition(1).mapInArrow(task, f"rows long, {ERROR_COLUMN} string")
    with raised_as_ours():
        answers.filter(unless_error(F.lit(True))).collect()


@dataclass(frozen=True)
class _WriteAll:
    """The function of a Python worker: writes all rows of a micro-batch."""

    target: Target
    schema: pa.Schema
    stream: str
    number: int

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        first = next(batches, None)
        every: Any = () if first is None else chain([first], batches)
        # Spark labels timestamps with the session's time zone: use the schema of the batch.
        schema = self.schema if first is None else first.schema
        rows, problem = None, None
        try:
            reader = pa.RecordBatchReader.from_batches(schema, every)
            rows = self.target.write(reader, self.stream, self.number)
        except SemistreamError as error:
            problem = text_of(error)
        yield pa.record_batch(
            {
                "rows": pa.array([rows], pa.int64()),
                ERROR_COLUMN: pa.array([problem], pa.string()),
            }
        )
