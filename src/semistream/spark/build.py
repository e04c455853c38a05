"""Building a relation from a DataFrame: the executors sort and write, the driver only publishes.

Spark routes the rows to their partitions and sorts each by key code, spilling to disk if needed; a
task writes its rows, holding one extent at a time. No row comes to the driver: each task returns
one line, the manifest's entry of its partition. File names contain the task's attempt, so a retried
or speculative task cannot overwrite the files of another.

In order of frequency Spark first reads the key columns of the sample and, twice, of the source: to
count its rows, and those of each key that occurs in the sample often enough. Only the keys that
may be hot come to the driver, at most as many as R may have hot rows, and the hot ones are sent to
the executors with each task, 16 bytes per key. A task holds the hot rows of its partition until its
end.
"""

import json
import os
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyspark import TaskContext
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import StructType

from semistream.errors import BuildError, SemistreamError
from semistream.relation.build import (
    BuildOptions,
    check_sample,
    count_sample,
    empty_partition,
    open_sample,
    write_sorted,
)
from semistream.relation.draft import Draft
from semistream.relation.failures import explained
from semistream.relation.hot import LEAST_SEEN, Candidates, HotKeys, most_hot_rows
from semistream.relation.layout import Manifest, PartitionInfo
from semistream.relation.relation import Relation
from semistream.relation.writer import most_rows_of_page
from semistream.spark.failures import ERROR_COLUMN, raised_as_ours, text_of, unless_error
from semistream.spark.keys import (
    code_expression,
    column,
    has_key_expression,
    partition_expression,
)
from semistream.spark.types import arrow_schema, check_collation
from semistream.spark.workers import check_workers

_CODE_COLUMN = "__semistream_code"
_SEEN_COLUMN = "__semistream_seen"
_ROWS_COLUMN = "__semistream_rows"
_ANSWER = f"partition string, null_keys long, {ERROR_COLUMN} string"  # of a task


def build_from_dataframe(
    source: DataFrame, location: str | os.PathLike[str], options: BuildOptions
) -> Relation:
    """Build a snapshot from a batch DataFrame. See `semistream.build_relation`."""
    if source.isStreaming:
        raise BuildError(
            "a relation is built from a batch DataFrame; got a streaming one. Write the stream "
            "to a table first and build from that"
        )
    partitions, sample = options.partitions, options.sample
    draft = options.start(location, arrow_schema(source.schema))
    coder, key = draft.manifest.coder, draft.manifest.key
    partition = partition_expression(coder, key, partitions)
    # Rows without a key are sent to partition 0 only to be counted there.
    code = F.when(has_key_expression(key), code_expression(coder, key))
    check_collation(source.schema, key)
    check_workers(source.sparkSession)
    numbered = [column(n).alias(f"c{i}") for i, n in enumerate(source.columns)]
    rows = (
        source.repartitionById(partitions, partition)
        .select(*numbered, code.alias(_CODE_COLUMN))
        .sortWithinPartitions(_CODE_COLUMN)
    )
    seen = None if sample is None else _count_sample(source, sample, draft.manifest)
    with draft:  # first: where nothing can be written, no job need run
        hot = options.hot or HotKeys.none()
        if seen is not None:
            hot = _choose_hot(source, seen, draft.manifest)
        answers = rows.mapInArrow(_WritePartition(draft, hot), _ANSWER)
        with raised_as_ours():
            collected = answers.filter(unless_error(F.lit(True))).collect()
        infos = {i.index: i for i in (_read_answer(a.partition) for a in collected if a.partition)}
        return draft.publish(
            [infos.get(p, empty_partition(p)) for p in range(partitions)],
            sum(a.null_keys for a in collected),
        )


def _count_sample(source: DataFrame, sample: Any, manifest: Manifest) -> DataFrame:
    """Return the codes that occur often enough in the sample, with their counts."""
    if isinstance(sample, DataFrame):
        return _count_frame(sample, manifest)
    counted = count_sample(manifest, open_sample(manifest, sample))
    table = pa.table({_CODE_COLUMN: counted.codes, _SEEN_COLUMN: counted.seen})
    return source.sparkSession.createDataFrame(table)


def _choose_hot(source: DataFrame, seen: DataFrame, manifest: Manifest) -> HotKeys:
    """Return the hot keys, counted by Spark."""
    codes = _codes(source, manifest)
    row_count = codes.count()
    most_rows = most_rows_of_page(manifest)
    candidates = (
        codes.join(seen, _CODE_COLUMN)
        .groupBy(_CODE_COLUMN, _SEEN_COLUMN)
        .agg(F.count("*").alias(_ROWS_COLUMN))
        .where(column(_ROWS_COLUMN) <= most_rows)
        .orderBy(column(_SEEN_COLUMN).desc(), _CODE_COLUMN)
        .limit(most_hot_rows(row_count))
        .toArrow()
    )
    return Candidates(*(c.to_numpy() for c in candidates.columns)).choose(row_count, most_rows)


def _count_frame(sample: DataFrame, manifest: Manifest) -> DataFrame:
    """Return the same for a sample that is a DataFrame, to be counted by Spark."""
    if sample.isStreaming:
        raise BuildError(
            "the sample of the stream must be a batch DataFrame; got a streaming one. Write some "
            "rows of the stream to a table first and pass that"
        )
    check_sample(manifest, sample.columns, lambda name: _arrow_type(sample, name))
    check_collation(sample.schema, manifest.key)
    counted = _codes(sample, manifest).groupBy(_CODE_COLUMN).agg(F.count("*").alias(_SEEN_COLUMN))
    return counted.where(column(_SEEN_COLUMN) >= LEAST_SEEN)


def _arrow_type(frame: DataFrame, name: str) -> pa.DataType:
    return arrow_schema(StructType([frame.schema[name]])).field(0).type


def _codes(frame: DataFrame, manifest: Manifest) -> DataFrame:
    """Return the key codes of a frame's rows that have a key."""
    code = code_expression(manifest.coder, manifest.key)
    return frame.where(has_key_expression(manifest.key)).select(code.alias(_CODE_COLUMN))


class _WritePartition:
    """The function of a Python worker: writes one partition from sorted rows."""

    def __init__(self, draft: Draft, hot: HotKeys) -> None:
        self._location = draft.location  # of the relation, as the executors see it
        self._manifest = draft.manifest
        self._hot = hot  # the hot keys of all partitions

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        assert context is not None, "a task runs inside Spark"
        rows = _SortedRows(batches, self._manifest.schema)
        index, attempt = context.partitionId(), f"{context.taskAttemptId()}"
        answer = problem = None
        try:
            with explained(f"writing partition {index} of the relation at {self._location!r}"):
                draft = Draft.resume(self._location, self._manifest)
                info = write_sorted(draft, index, iter(rows), attempt, self._hot)
            answer = json.dumps(asdict(info)) if info.row_count else None
        except SemistreamError as error:
            problem = text_of(error)
        yield pa.record_batch(
            {
                "partition": pa.array([answer], pa.string()),
                "null_keys": pa.array([rows.null_keys], pa.int64()),
                ERROR_COLUMN: pa.array([problem], pa.string()),
            }
        )


class _SortedRows:
    """Rows with their codes in a separate array; rows without a key are counted and dropped."""

    def __init__(self, batches: Iterator[pa.RecordBatch], schema: pa.Schema) -> None:
        self._batches = batches  # sorted by code, which is the last column
        self._schema = schema  # of the relation
        self.null_keys = 0  # rows without a key so far

    def __iter__(self) -> Iterator[tuple[NDArray[np.int64], pa.RecordBatch]]:
        for batch in self._batches:
            codes = batch.column(batch.num_columns - 1)
            # Spark may use other types: another time zone, large_string for string.
            columns = [
                c.cast(f.type) for c, f in zip(batch.columns[:-1], self._schema, strict=True)
            ]
            rows = pa.RecordBatch.from_arrays(columns, schema=self._schema)
            # Nulls sort first: all rows after the last of them have a key.
            nulls = codes.null_count
            self.null_keys += nulls
            yield codes[nulls:].to_numpy(zero_copy_only=False), rows[nulls:]


def _read_answer(text: str) -> PartitionInfo:
    return PartitionInfo.from_body(json.loads(text))
