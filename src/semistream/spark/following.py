"""Which snapshot a task joins: in a streaming query, the one that its micro-batch has pinned.

A relation that was opened at a named snapshot is joined at that one. Any other is joined, in a
streaming query, at the snapshot that was current when the micro-batch began
(`semistream.relation.pins`); in a batch query at the one that it was planned with.

A user without the right to write to the relation cannot pin. Then the query keeps to the snapshot
that it was planned with, as long as that exists.

A table in a database has no snapshots. Each task reads it as it is when the task begins, so it
joins a snapshot of its own: what is warm from earlier rows does not fit it.
"""

import errno
import logging
from collections import OrderedDict
from contextlib import suppress

from pyspark import TaskContext
from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812

from semistream.databases.relation import TableRelation
from semistream.errors import ColumnError, RelationNotFoundError, SnapshotPrunedError
from semistream.relation.failures import check_is_seen, explained
from semistream.relation.layout import CURRENT
from semistream.relation.pins import PINS, mark_damaged, pin_snapshot
from semistream.relation.relation import Relation
from semistream.spec import JoinSpec, read_columns

_QUERY, _BATCH = "sql.streaming.queryId", "streaming.sql.batchId"  # local properties of a task
_RUN = "spark.jobGroup.id"  # of a streaming query: that of its run
_FORBIDDEN = (errno.EACCES, errno.EPERM, errno.EROFS)
_LOG = logging.getLogger(__name__)
_MOST_OPEN = 8
SNAPSHOT_METRICS = ("relation_age_s", "snapshot")
SNAPSHOT_VALUES = 4  # the numbers that these are made of
_opened: OrderedDict[tuple[str, str], Relation] = OrderedDict()  # manifests that were read last


def followed(planned: Relation, spec: JoinSpec) -> Relation:
    """Return the relation at the snapshot that this task is to join."""
    if isinstance(planned, TableRelation):
        return planned.seen_now()
    context = TaskContext.get()
    if planned.is_fixed or context is None:
        return planned
    query, batch = (context.getLocalProperty(name) for name in (_QUERY, _BATCH))
    if not query or not batch:
        return planned
    snapshot = _pin(planned, query, int(batch), context.getLocalProperty(_RUN) or "")
    if snapshot == planned.snapshot:
        return planned
    current = _open(planned, snapshot)
    _check_same(planned, current, spec)
    return current


def _pin(planned: Relation, query: str, batch: int, run: str) -> str:
    """Pin the snapshot of a micro-batch; that of the plan if this process may not write."""
    check_is_seen(planned.store, CURRENT)
    with explained(f"pinning the snapshot of {planned.location!r} for a micro-batch"):
        try:
            return pin_snapshot(planned.store, query, batch, run)
        except OSError as error:
            if error.errno not in _FORBIDDEN:
                raise
            _LOG.warning("%s: the snapshot stays that of the start: %s", planned.location, error)
            return planned.snapshot


def read_another_later(planned: Relation, query: str, batch: int) -> None:
    """Let a micro-batch that failed read the snapshot that is current when the query starts again.

    Called on the driver, when nothing of the micro-batch is read any more.
    """
    if not isinstance(planned, TableRelation) and not planned.is_fixed:
        with suppress(OSError):  # without the right to write there is no pin either
            mark_damaged(planned.store, query, batch, "")


def report_damage(planned: Relation) -> None:
    """Let the query read another snapshot when it is started again: this one is damaged."""
    context = TaskContext.get()
    if isinstance(planned, TableRelation) or planned.is_fixed or context is None:
        return
    query, batch, run = (context.getLocalProperty(name) for name in (_QUERY, _BATCH, _RUN))
    if query and batch:
        with suppress(OSError):  # without the right to write there is no pin either
            mark_damaged(planned.store, query, int(batch), run or "")


def _open(planned: Relation, snapshot: str) -> Relation:
    key = (planned.location, snapshot)
    found = _opened.pop(key, None)
    if found is None:
        try:
            found = Relation.open(planned.location, snapshot).read_by(planned.reading)
        except RelationNotFoundError as error:
            raise SnapshotPrunedError(
                f"this micro-batch first read snapshot {snapshot} of {planned.location!r}, which "
                "was pruned since. To let it read the current one, which may give other rows, "
                f"delete the folder {planned.store.path(PINS)!r} and start the query again"
            ) from error
    _opened[key] = found
    while len(_opened) > _MOST_OPEN:
        _opened.popitem(last=False)
    return found


def _check_same(planned: Relation, current: Relation, spec: JoinSpec) -> None:
    """Raise if the plan of the query does not fit the snapshot: it was built for another schema."""
    problems = []
    if current.partition_count != planned.partition_count or current.key != planned.key:
        problems.append("it has another key or number of partitions")
    for name in dict.fromkeys((*planned.key, *read_columns(planned, spec))):
        before = planned.schema.field(name).type
        if name not in current.schema.names:
            problems.append(f"it has no column {name!r}")
        elif current.schema.field(name).type != before:
            problems.append(f"{name!r} is {current.schema.field(name).type}, no longer {before}")
    if problems:
        raise ColumnError(
            f"snapshot {current.snapshot} of {planned.location!r} does not fit this query, which "
            f"was planned with {planned.snapshot}: {'; '.join(problems)}. Start the query again"
        )


def snapshot_values(relation: Relation) -> list[int]:
    """Return what telemetry says of the snapshot that was joined, as numbers.

    Its age in seconds, and its id in three parts: day, time and the random part.
    """
    when, random = relation.snapshot.split("-")
    day, time = when.split("T")
    return [int(relation.age.total_seconds()), int(day), int(time), int(random, 16)]


def snapshot_metrics(values: Column, first: int) -> list[Column]:
    """Return `SNAPSHOT_METRICS` of the values of a task, which begin at a place of them."""
    day, time, random = (values[first + 1 + i] for i in range(3))
    snapshot = F.concat(
        day.cast("string"),
        F.lit("T"),
        F.lpad(time.cast("string"), 12, "0"),
        F.lit("-"),
        F.lpad(F.lower(F.hex(random)), 8, "0"),
    )
    return [values[first], snapshot]
