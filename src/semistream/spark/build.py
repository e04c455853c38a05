"""Building a relation from a DataFrame: the executors sort and write, the driver only publishes.

Spark routes the rows to their partitions and sorts each by key code, spilling to disk as it must;
a task writes what it is given, holding one extent at a time. The driver never sees a row: each
task answers with one line, what the manifest says about its partition. Files carry the task's
attempt in their names, so a retried or speculative task cannot disturb another.
"""

import json
import os
from collections.abc import Iterator
from dataclasses import asdict

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyspark import TaskContext
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from semistream.errors import BuildError
from semistream.relation.build import Draft, empty_partition, write_sorted
from semistream.relation.layout import PartitionInfo
from semistream.relation.relation import Relation
from semistream.spark.keys import (
    code_expression,
    column,
    has_key_expression,
    partition_expression,
)
from semistream.spark.types import arrow_schema, check_collation

_CODE_COLUMN = "__semistream_code"


def build_from_dataframe(
    source: DataFrame,
    location: str | os.PathLike[str],
    key: tuple[str, ...],
    partitions: int,
    page_bytes: int,
) -> Relation:
    """Build a snapshot from a batch DataFrame; see `semistream.build_relation`."""
    if source.isStreaming:
        raise BuildError(
            "a relation is built from a batch DataFrame; got a streaming one. Write the stream "
            "to a table first and build from that"
        )
    draft = Draft.start(location, arrow_schema(source.schema), key, page_bytes)
    coder = draft.manifest.coder
    partition = partition_expression(coder, key, partitions)
    # Rows without a key go along to partition 0 only to be counted there.
    code = F.when(has_key_expression(key), code_expression(coder, key))
    check_collation(source.schema, key)
    numbered = [column(n).alias(f"c{i}") for i, n in enumerate(source.columns)]
    rows = (
        source.repartitionById(partitions, partition)
        .select(*numbered, code.alias(_CODE_COLUMN))
        .sortWithinPartitions(_CODE_COLUMN)
    )
    with draft:
        answers = rows.mapInArrow(_WritePartition(draft), "partition string, null_keys long")
        collected = answers.collect()
        infos = {i.index: i for i in (_read_answer(a.partition) for a in collected if a.partition)}
        return draft.publish(
            [infos.get(p, empty_partition(p)) for p in range(partitions)],
            sum(a.null_keys for a in collected),
        )


class _WritePartition:
    """What runs in a Python worker: writes one partition from sorted rows."""

    def __init__(self, draft: Draft) -> None:
        self._location = draft.location
        self._manifest = draft.manifest

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        assert context is not None, "a task runs inside Spark"
        draft = Draft.resume(self._location, self._manifest)
        rows = _SortedRows(batches, self._manifest.schema)
        info = write_sorted(draft, context.partitionId(), iter(rows), f"{context.taskAttemptId()}")
        answer = json.dumps(asdict(info)) if info.row_count else None
        yield pa.record_batch(
            {
                "partition": pa.array([answer], pa.string()),
                "null_keys": pa.array([rows.null_keys], pa.int64()),
            }
        )


class _SortedRows:
    """Splits the code column off, and leaves out and counts the rows that have no key."""

    def __init__(self, batches: Iterator[pa.RecordBatch], schema: pa.Schema) -> None:
        self._batches = batches
        self._schema = schema
        self.null_keys = 0

    def __iter__(self) -> Iterator[tuple[NDArray[np.int64], pa.RecordBatch]]:
        for batch in self._batches:
            codes = batch.column(batch.num_columns - 1)
            # Spark may label types otherwise: another time zone, large_string for string.
            columns = [
                c.cast(f.type) for c, f in zip(batch.columns[:-1], self._schema, strict=True)
            ]
            rows = pa.RecordBatch.from_arrays(columns, schema=self._schema)
            # Nulls sort first: whatever follows the last of them has a key.
            nulls = codes.null_count
            self.null_keys += nulls
            yield codes[nulls:].to_numpy(zero_copy_only=False), rows[nulls:]


def _read_answer(text: str) -> PartitionInfo:
    body = json.loads(text)
    return PartitionInfo(**{**body, "squared_loads": tuple(body["squared_loads"])})
