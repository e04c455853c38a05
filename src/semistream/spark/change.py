"""Upserts and compaction by Spark: the executors write, the driver only publishes.

Spark routes the changes to the tasks of their partitions. A task holds the changes of its
partition, finds the rows that they replace and writes the delta pages
(`semistream.relation.upsert`). No row comes to the driver. Compaction is one task for each
partition that has delta pages.
"""

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass

import numpy as np
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from semistream.columns import plain_batch
from semistream.errors import BuildError, SemistreamError
from semistream.relation.build import key_codes
from semistream.relation.change import (
    DELETED,
    change_columns,
    changes_of,
    compact_origin,
    folded,
    publish_changed,
    to_compact,
)
from semistream.relation.draft import Draft
from semistream.relation.failures import explained
from semistream.relation.layout import Manifest, Origin, PartitionInfo
from semistream.relation.relation import Relation
from semistream.relation.upsert import Changed, apply_changes, fold
from semistream.spark.failures import ERROR_COLUMN, raised_as_ours, text_of, unless_error
from semistream.spark.keys import column, partition_expression
from semistream.spark.types import arrow_schema, check_collation
from semistream.spark.workers import check_workers

_ANSWER = f"changed string, null_keys long, {ERROR_COLUMN} string"  # of a task


def upsert_from_dataframe(current: Relation, changes: DataFrame, deletes: str | None) -> Relation:
    """Apply the changes in a batch DataFrame. See `semistream.Relation.upsert`."""
    if changes.isStreaming:
        raise BuildError(
            "upsert takes a batch DataFrame; got a streaming one. Call it for each micro-batch: "
            "changes.writeStream.foreachBatch(lambda batch, _: relation.upsert(batch))"
        )
    base = current.manifest
    columns = change_columns(base, arrow_schema(changes.schema), deletes)
    check_collation(changes.schema, base.key)
    check_workers(changes.sparkSession)
    marks = F.lit(False) if deletes is None else F.coalesce(column(deletes), F.lit(False))
    numbered = [column(name).alias(f"c{i}") for i, name in enumerate(columns)]
    partitions = len(base.partitions)
    partition = partition_expression(base.coder, base.key, partitions)
    rows = changes.repartitionById(partitions, partition).select(*numbered, marks.alias(DELETED))
    hold = current.hold()
    try:
        origin = Origin("upsert", "DataFrame", base.snapshot)
        with Draft.derive(current.location, base, origin) as draft:
            task = _ChangePartition(draft.location, base, draft.manifest)
            with raised_as_ours():
                answers = rows.mapInArrow(task, _ANSWER)
                collected = answers.filter(unless_error(F.lit(True))).collect()
            changed = [_read_answer(answer.changed) for answer in collected if answer.changed]
            by_index = {change.info.index: change for change in changed}
            every = [
                by_index.get(info.index) or Changed(info.seen_from(base.snapshot))
                for info in base.partitions
            ]
            null_keys = sum(answer.null_keys for answer in collected)
            return publish_changed(draft, base, every, null_keys)
    finally:
        hold.release()


def compact_on_executors(current: Relation, session: SparkSession) -> Relation:
    """Fold all deltas in. See `semistream.Relation.compact`."""
    base = current.manifest
    which = to_compact(base)
    if not which:
        return current
    check_workers(session)
    hold = current.hold()
    try:
        with Draft.derive(current.location, base, compact_origin(base)) as draft:
            tasks = session.range(0, len(which), 1, len(which))
            fold_partition = _FoldPartition(draft.location, base, draft.manifest, tuple(which))
            with raised_as_ours():
                answers = tasks.mapInArrow(fold_partition, _ANSWER)
                collected = answers.filter(unless_error(F.lit(True))).collect()
            infos = [_read_answer(answer.changed).info for answer in collected if answer.changed]
            done = {info.index: info for info in infos}
            return draft.publish(folded(base, done), base.null_keys_dropped)
    finally:
        hold.release()


@dataclass(frozen=True)
class _FoldPartition:
    """The function of a Python worker: writes some partitions anew, as one base each."""

    location: str  # of the relation, as the executors see it
    base: Manifest  # of the snapshot that is compacted
    new: Manifest  # of the new one, without partitions
    which: tuple[int, ...]  # the partitions

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        assert context is not None, "a task runs inside Spark"
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield self._folded(self.which[number], f"{context.taskAttemptId()}")

    def _folded(self, index: int, attempt: str) -> pa.RecordBatch:
        try:
            with explained(f"compacting partition {index} of {self.location!r}"):
                draft = Draft.resume(self.location, self.new)
                info = fold(draft, self.base, index, attempt)
        except SemistreamError as error:
            return _answer(problem=text_of(error))
        return _answer(json.dumps(asdict(Changed(info))))


@dataclass(frozen=True)
class _ChangePartition:
    """The function of a Python worker: applies the changes of one partition."""

    location: str  # of the relation, as the executors see it
    base: Manifest  # of the snapshot that is changed
    new: Manifest  # of the new one, without partitions

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        assert context is not None, "a task runs inside Spark"
        rows = [self._typed(batch) for batch in batches if batch.num_rows]
        index, attempt = context.partitionId(), f"{context.taskAttemptId()}"
        answer = problem = None
        null_keys = 0
        try:
            keyed = [self._with_key(batch) for batch in rows]
            null_keys = sum(map(len, rows)) - sum(map(len, keyed))
            keyed = [batch for batch in keyed if batch.num_rows]
            if keyed:
                with explained(f"changing partition {index} of {self.location!r}"):
                    draft = Draft.resume(self.location, self.new)
                    changes = changes_of(self.base, keyed)
                    changed = apply_changes(draft, self.base, index, changes, attempt)
                answer = json.dumps(asdict(changed))
        except SemistreamError as error:
            problem = text_of(error)
        yield _answer(answer, null_keys, problem)

    def _typed(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the rows in the relation's types: Spark may use other ones that mean the same."""
        schema = self.base.schema.append(pa.field(DELETED, pa.bool_()))
        columns = [
            array.cast(field.type)
            for array, field in zip(plain_batch(batch).columns, schema, strict=True)
        ]
        return pa.RecordBatch.from_arrays(columns, schema=schema)

    def _with_key(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the rows that have a key."""
        has_key = key_codes(self.base, batch)[1]
        return batch if has_key.all() else batch.take(pa.array(np.flatnonzero(has_key)))


def _answer(
    changed: str | None = None, null_keys: int = 0, problem: str | None = None
) -> pa.RecordBatch:
    """Return the row that a task answers with."""
    return pa.record_batch(
        {
            "changed": pa.array([changed], pa.string()),
            "null_keys": pa.array([null_keys], pa.int64()),
            ERROR_COLUMN: pa.array([problem], pa.string()),
        }
    )


def _read_answer(text: str) -> Changed:
    body = json.loads(text)
    return Changed(**{**body, "info": PartitionInfo.from_body(body["info"])})
