"""Warm state: what the tasks of one micro-batch have learned, the tasks of the next begin with.

That is the front stage's hot rows, their counts, and keys that R does not have
(`semistream.joins.keptfront`), and what `auto` chose and knows of the stream. It lies in files of
the host (`semistream.spark.warmfiles`), because Spark hands a partition to any of its workers.
Losing it costs time and no row, so no row depends on it: a micro-batch that is replayed gives the
same rows, whatever is warm then.

It follows R: the first micro-batch that joins a newer snapshot begins with the rows that did not
change (`semistream.relation.differences`). If R was written anew, or more of it changed than is
cheap to compare, that micro-batch begins cold.

Only streaming queries have warm state. With nested columns only `auto` does.

Memory: a task holds the front stage, and the file that replaces the one before; each place has a
file. `semistream.spark.routing` takes all of it from the join's memory.
"""

import atexit
import logging
import pickle
import threading
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakSet

import numpy as np
import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark import TaskContext
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.listener import StreamingQueryListener

from semistream.advice.history import HISTORY, History
from semistream.errors import SemistreamError
from semistream.joins.keptfront import CacheShape, KeptFront, Saved
from semistream.relation.differences import changed_codes, comparing_bytes
from semistream.relation.relation import Relation
from semistream.spark import warmfiles
from semistream.spark.parallelism import parallelism
from semistream.spark.warmfiles import LOG, WarmFile, WarmFolder

_MOST_NOTES_BYTES = 64 << 10
# A file is replaced when it is this old, or this part of the front stage is new.
_MOST_AGE = 4
_FEW_ADMISSIONS = 0.02
_QUERY, _BATCH = "sql.streaming.queryId", "streaming.sql.batchId"
_listening: WeakSet[SparkSession] = WeakSet()
_joins: set[str] = set()  # of this driver


@dataclass(frozen=True, slots=True)
class Warmth:
    """What the tasks of a join need to know to find their files."""

    size_bytes: int  # of the front stage; 0 for none
    tasks: int  # that run at once; those that are not routed share this many places
    local_dirs: tuple[str, ...]  # of Spark
    join: str = field(default_factory=lambda: uuid.uuid4().hex[:12])

    def begin(self, relation: Relation, partition: int | None, joined: int | None) -> "WarmTask":
        """Return what is warm for a task of a partition; nothing outside of streaming queries.

        `joined` is the partition whose rows it reads; None for all.
        """
        context = TaskContext.get()
        query = context.getLocalProperty(_QUERY) if context is not None else None
        if context is None or not query:
            return WarmTask()
        place = f"local{context.partitionId() % self.tasks}" if partition is None else partition
        folder = WarmFolder(query, self.join, self.local_dirs)
        batch = int(context.getLocalProperty(_BATCH) or 0)
        about = (relation, str(place), joined)
        return WarmTask.load(folder, *about, batch=batch, size_bytes=self.size_bytes)


class WarmTask:
    """What one task begins with, and leaves behind."""

    def __init__(
        self,
        history: History = HISTORY,
        front: KeptFront | None = None,
        file: tuple[WarmFolder, str, int] | None = None,
        age: int = _MOST_AGE,
    ) -> None:
        """Begin with this; without a file, leave nothing behind."""
        self.history = history
        self.front = front
        self._file = file  # what to write: folder, place, version
        self._age = age  # of the file that was loaded, in micro-batches

    @classmethod
    def load(
        cls,
        folder: WarmFolder,
        relation: Relation,
        place: str,
        joined: int | None = None,
        *,
        batch: int,
        size_bytes: int,
    ) -> "WarmTask":
        """Begin with the newest file of a place, if there is one that can be used."""
        found = folder.load(f"{relation.snapshot}-{place}")
        saved, age = None, _MOST_AGE
        if found is not None:
            saved, age = _saved(found, relation.snapshot), batch - found.version
        elif (older := folder.load_older(relation.snapshot, place)) is not None:
            found = older[1]
            saved = _taken_up(_saved(found, older[0]), relation, joined, 3 * size_bytes)
        front = KeptFront(size_bytes, saved) if size_bytes else None
        history = History() if found is None or not found.notes else pickle.loads(found.notes)
        return cls(history, front, (folder, f"{relation.snapshot}-{place}", batch), age)

    @property
    def peak_bytes(self) -> int:
        """The most memory that is used, the files of other tasks aside."""
        return 0 if self.front is None else 3 * self.front.size_bytes

    def keep(self, admissions: int) -> None:
        """Write what the next micro-batch is to begin with; all rows have been joined.

        A file that is young is kept as it is if only few rows have entered the front stage since.
        """
        if self._file is None:
            return
        folder, place, batch = self._file
        saved = None
        if self.front is not None:
            self.front.end_stream()
            is_young = self._age < _MOST_AGE
            if is_young and admissions < _FEW_ADMISSIONS * self.front.occupied:
                return
            saved = self.front.saved
        shape, arrays = ("", ()) if saved is None else (saved.shape.text, saved.arrays)
        folder.store(place, batch, WarmFile(shape, arrays, _notes(self.history), batch))


def _saved(file: WarmFile, snapshot: str) -> Saved | None:
    return Saved(snapshot, CacheShape.parse(file.shape), file.arrays) if file.arrays else None


def _taken_up(
    saved: Saved | None, relation: Relation, joined: int | None, most_bytes: int
) -> Saved | None:
    """Return what of an older snapshot can be kept for this one, within some memory."""
    if saved is None:
        return None
    partitions = range(relation.partition_count) if joined is None else [joined]
    try:
        old = Relation.open(relation.location, saved.snapshot).read_by(relation.reading)
        if sum(comparing_bytes(old, relation, p) for p in partitions) > most_bytes:
            return None
        changed = [changed_codes(old, relation, p) for p in partitions]
    except SemistreamError as error:  # it was pruned
        LOG.info("the micro-batch begins cold: %s", error)
        return None
    codes = [found for found in changed if found is not None]
    if len(codes) < len(changed):
        return None
    return saved.taken_up(relation.snapshot, np.concatenate(codes))


def _notes(history: History) -> bytes:
    """Return what `auto` knows; without its choices if these are too large."""
    notes = pickle.dumps(history)
    if len(notes) > _MOST_NOTES_BYTES:
        lengths = History()
        lengths.row_counts = history.row_counts
        notes = pickle.dumps(lengths)
    return notes


def remove_when_stopped(session: SparkSession, warmth: Warmth) -> None:
    """Let the files of a query go when it stops, and what earlier ones have left go now.

    A Connect client does not listen: its host is not that of the files. Those go with the server.
    """
    warmfiles.remove_abandoned(warmth.local_dirs)
    _joins.add(warmth.join)
    is_connect = type(session).__module__.startswith("pyspark.sql.connect")
    if session not in _listening and not is_connect:
        _listening.add(session)
        session.streams.addListener(_Listener(session, warmth.local_dirs))


@atexit.register
def _remove_all() -> None:
    """Remove the files of queries that run when the driver exits."""
    for join in _joins:
        warmfiles.remove(suffix=f".{join}")


class _Listener(StreamingQueryListener):
    """Removes the files of a query that has stopped, on all hosts as far as they can be reached."""

    def __init__(self, session: SparkSession, local_dirs: tuple[str, ...]) -> None:
        self._session = session
        self._local_dirs = local_dirs

    def onQueryStarted(self, event: Any) -> None:  # noqa: N802
        """Nothing to do."""

    def onQueryProgress(self, event: Any) -> None:  # noqa: N802
        """Nothing to do."""

    def onQueryIdle(self, event: Any) -> None:  # noqa: N802
        """Nothing to do."""

    def onQueryTerminated(self, event: Any) -> None:  # noqa: N802
        """Remove the query's files."""
        warmfiles.remove(f"{event.id}.", local_dirs=self._local_dirs)
        if not (self._session.conf.get("spark.master", "") or "").startswith("local"):
            where = (self._session, str(event.id), self._local_dirs)
            threading.Thread(target=_remove_on_executors, args=where, daemon=True).start()


def _remove_on_executors(session: SparkSession, query: str, local_dirs: tuple[str, ...]) -> None:
    """Remove a query's files by a few small tasks, which Spark spreads over the executors."""

    def remove(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        warmfiles.remove(f"{query}.", local_dirs=local_dirs)
        yield from batches

    try:
        tasks = 2 * parallelism(session)
        session.range(0, tasks, 1, tasks).mapInArrow(remove, "id long").collect()
    except (
        PySparkException,
        Py4JError,
    ) as error:  # the session ends as well, and the executors with it
        logging.getLogger("semistream.warm").info("warm files stay until they are old: %s", error)
