"""Holding: rows without a match wait in Spark's state until R has their key, or for a grace period.

::

    tasks ── blobs by bucket ──► hold (state) ── blobs ──► rows
                                  ▲     │
                 each micro-batch └─────┘ a new snapshot? join what is held with it

A bucket is a partition of R, and one group of Spark's stateful operator. It keeps blobs of rows
(`semistream.spark.packing`) under the time at which their grace period ends. A timer wakes it in
every micro-batch. If the snapshot is not the one that its rows were last joined with, it joins all
of them with its partition of R. Rows that found a match leave, rows whose time has come leave with
nulls, all others stay. Other rows do not wait.

State, timers and the time of a micro-batch are Spark's, in the checkpoint, and the snapshot of a
micro-batch is pinned. So a micro-batch that is repeated lets the same rows go: none is lost, none
leaves twice.

Memory: that of a task's join. The tasks of this stage start when those of the join have ended.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

from semistream.advice.auto import AUTO, make_join
from semistream.errors import SemistreamError
from semistream.spark.failures import ERROR_COLUMN, text_of
from semistream.spark.following import followed
from semistream.spark.packing import FOUND_COLUMN, KIND, ROWS, Kind, from_blob, to_blob
from semistream.spark.tasks import Step, added_fields
from semistream.spark.wire import Wire

HELD_METRICS = ("held_rows", "newly_held_rows", "late_rows", "expired_rows")
HELD_SCHEMA = f"{KIND} int, {ROWS} binary, {ERROR_COLUMN} string, " + ", ".join(
    f"{name} long" for name in HELD_METRICS
)
_COLUMNS = [KIND, ROWS, ERROR_COLUMN, *HELD_METRICS]
_DUE = "__semistream_due"  # when the grace period of a row ends


@dataclass
class Hold(StatefulProcessor):
    """The stateful operator: one bucket is one group."""

    step: Step  # the join, of which the rows are those without a match
    grace_ms: int

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Name the state."""
        self._handle = handle
        # Blobs, by when their grace period ends and a number.
        self._held = handle.getMapState("held", "due long, number long", f"{ROWS} binary")
        # The snapshot that the rows were last joined with, the next number, and how many rows.
        self._about = handle.getValueState("about", "snapshot string, number long, count long")

    def handleInputRows(  # noqa: N802
        self,
        key: Any,
        rows: Iterator[Any],
        timerValues: Any,  # noqa: N803
    ) -> Iterator[Any]:
        """Pass joined rows on, and hold those without a match."""
        now = timerValues.getCurrentProcessingTimeInMs()
        snapshot, number, count = self._about.get() or ("", 0, 0)
        was_holding, before = count > 0, count
        for frame in rows:
            for kind, blob in zip(frame[KIND], frame[ROWS], strict=True):
                if kind != Kind.MISSED:
                    yield _output(kind, blob)
                    continue
                self._held.updateValue((now + self.grace_ms, number), (blob,))
                number, count = number + 1, count + from_blob(blob).num_rows
        if count > before:
            # These were joined with the snapshot of this micro-batch; those before maybe not.
            snapshot = snapshot if was_holding else self._snapshot()
            self._about.update((snapshot, number, count))
            # If rows were held before, their timer reports the number of all in a moment.
            yield _output(held_rows=0 if was_holding else count, newly_held_rows=count - before)
            if not was_holding:
                self._handle.registerTimer(now + 1)

    def handleExpiredTimer(  # noqa: N802
        self,
        key: Any,
        timerValues: Any,  # noqa: N803
        expiredTimerInfo: Any,  # noqa: N803
    ) -> Iterator[Any]:
        """Let rows go that have a match by now, and those whose time has come."""
        now = timerValues.getCurrentProcessingTimeInMs()
        try:
            yield from self._let_go(int(key[0]), now)
        except SemistreamError as error:
            yield _output(error=text_of(error))

    def _let_go(self, bucket: int, now: int) -> Iterator[Any]:
        before, number, count = self._about.get() or ("", 0, 0)
        snapshot = self._snapshot()
        keys = sorted(self._held.keys())
        if snapshot == before:
            keys = [each for each in keys if each[0] <= now]
        late = expired = 0
        taken: list[int] = []  # rows of the blobs that were joined
        for batch in self._joined(bucket, keys, taken) if keys else ():
            due = batch.column(_DUE).to_numpy()
            is_late = pc.is_valid(batch.column(FOUND_COLUMN)).to_numpy(zero_copy_only=False)
            is_due = ~is_late & (due <= now)
            rows = self._wired(batch)
            late, expired = late + int(is_late.sum()), expired + int(is_due.sum())
            for kind, chosen in ((Kind.LATE, is_late), (Kind.EXPIRED, is_due)):
                if chosen.any():
                    yield _output(kind, to_blob(rows.filter(pa.array(chosen))))
            stays = ~is_late & ~is_due
            count += int(stays.sum())
            number = self._put_back(batch, due, stays, number)
        count -= sum(taken)
        self._about.update((snapshot, number, count))
        yield _output(held_rows=count, late_rows=late, expired_rows=expired)
        if count:
            self._handle.registerTimer(now + 1)

    def _snapshot(self) -> str:
        return followed(self.step.relation, self.step.spec).snapshot

    def _joined(
        self, bucket: int, keys: list[tuple[int, int]], taken: list[int]
    ) -> Iterator[pa.RecordBatch]:
        """Yield rows joined with the snapshot of this micro-batch; misses with nulls."""
        rows = self._taken(keys, taken)
        first = next(rows)
        spec = self.step.spec.with_stream_schema(first.schema)
        relation = followed(self.step.relation, spec)
        join = make_join(AUTO, relation, spec, self.step.route.join_bytes, bucket)
        return iter(join.join(chain([first], rows)))

    def _taken(self, keys: list[tuple[int, int]], taken: list[int]) -> Iterator[pa.RecordBatch]:
        """Take blobs out of the state, one after the other, each row with when it is due."""
        for due, number in keys:
            found = self._held.getValue((due, number))
            assert found is not None, "its key was listed"
            self._held.removeKey((due, number))
            rows = from_blob(bytes(found[0]))
            taken.append(rows.num_rows)
            yield rows.append_column(_DUE, pa.array(np.full(rows.num_rows, due)))

    def _wired(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return joined rows in the types that Spark has, without when they were due."""
        rows = batch.drop_columns([_DUE])
        added = added_fields(self.step.spec)
        stream = pa.schema(list(rows.schema)[: -len(added)])
        return pa.RecordBatch.from_arrays(Wire(stream, added).cast(rows), rows.schema.names)

    def _put_back(self, batch: pa.RecordBatch, due: Any, stays: Any, number: int) -> int:
        """Put rows back into the state, a blob for each time at which some are due."""
        stream = batch.select(range(len(self.step.spec.stream_schema)))
        for one in np.unique(due[stays]).tolist():
            chosen = stream.filter(pa.array(stays & (due == one)))
            self._held.updateValue((int(one), number), (to_blob(chosen),))
            number += 1
        return number


def _output(
    kind: int | None = None, blob: bytes | None = None, error: str | None = None, **counts: int
) -> Any:
    """Return one row of output: a blob, an error, or counts."""
    values = {KIND: kind, ROWS: blob, ERROR_COLUMN: error, **counts}
    return pd.DataFrame([[values.get(name) for name in _COLUMNS]], columns=_COLUMNS, dtype=object)
