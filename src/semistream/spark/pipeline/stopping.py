"""An orderly stop: the micro-batch that runs ends, the next one does not begin.

::

    running ── stop() ──► the micro-batch ends ──► Spark notes that it has ──► query.stop()

A micro-batch that begins after the stop was asked for waits until the query is being stopped, and
fails then: if it returned, Spark might note that it has ended before it sees the stop, and its rows
would be lost. It has written nothing, and the next start repeats it.
"""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql.streaming.query import StreamingQuery

_SIGNALS = (signal.SIGTERM,)
_POLL_S = 0.1
_NOTED_S = 10.0  # the longest that Spark takes to note the end of a micro-batch


class StoppedError(Exception):
    """A micro-batch that came after the stop; Spark is not to note that it has ended."""


class Gate:
    """What micro-batches pass one by one, until a stop is asked for."""

    def __init__(self) -> None:
        """Begin open, with no micro-batch inside."""
        self.last: int | None = None  # the last micro-batch that has ended
        self._asked = threading.Event()  # a stop was asked for
        self._stopped = threading.Event()  # the query is being stopped
        self._is_idle = threading.Event()  # no micro-batch is inside
        self._is_idle.set()

    @property
    def is_closed(self) -> bool:
        """Whether a stop was asked for."""
        return self._asked.is_set()

    def close(self) -> None:
        """Ask for a stop; may be called from a signal handler."""
        self._asked.set()

    @contextmanager
    def inside(self, number: int) -> Iterator[bool]:
        """Let a micro-batch pass; gives False to one that came too late, when it may leave."""
        if self.is_closed:
            self._stopped.wait()
            yield False
            return
        self._is_idle.clear()
        try:
            yield True
            self.last = number
        finally:
            self._is_idle.set()

    def stop(self, query: StreamingQuery) -> None:
        """Stop the query once the micro-batch that runs has ended and Spark has noted that."""
        while query.isActive and not self._is_idle.wait(_POLL_S):
            pass
        waited_s = 0.0
        while query.isActive and waited_s < _NOTED_S and not self._is_noted(query):
            self._is_idle.wait(0)
            threading.Event().wait(_POLL_S)
            waited_s += _POLL_S
        self._stopped.set()
        query.stop()

    def _is_noted(self, query: StreamingQuery) -> bool:
        if self.last is None:
            return True
        progress: Any = query.lastProgress
        return progress is not None and progress.batchId >= self.last


def wait_for(query: StreamingQuery, gate: Gate) -> None:
    """Return when the query has ended; on SIGTERM, end it in order. Raises what ended it."""
    is_main = threading.current_thread() is threading.main_thread()

    def ask(number: int, frame: FrameType | None) -> None:
        gate.close()

    before = {s: signal.signal(s, ask) for s in _SIGNALS} if is_main else {}
    try:
        while not query.awaitTermination(_POLL_S):  # type: ignore[arg-type]
            if gate.is_closed:
                gate.stop(query)
    except PySparkException:
        if not gate.is_closed:
            raise
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)
