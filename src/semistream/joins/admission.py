"""Admission: stream tuples pass the front stage, and those that it does not resolve may wait.

::

    arrived ──► FRONT STAGE ──► resolved: output at once
                     └────────► the others ──► window, as far as there is room
"""

from collections.abc import Generator, Iterator

import numpy as np
import pyarrow as pa

from semistream.columns import total_bytes
from semistream.errors import BudgetError
from semistream.joins.emission import Emission
from semistream.joins.frontstage import POLICY
from semistream.joins.protocols import FrontStage, Waiting
from semistream.joins.stopwatch import Stopwatch
from semistream.joins.stream import Arrived, StreamBuffer, Tuples
from semistream.units import format_bytes


class Admission:
    """Lets the tuples of a stream past a front stage, if there is one, and into a window."""

    def __init__(
        self,
        stream: StreamBuffer,
        front: FrontStage | None,
        emission: Emission,
        stopwatch: Stopwatch,
    ) -> None:
        """Begin with nothing admitted."""
        self._stream = stream
        self._front = front
        self._emission = emission
        self._stopwatch = stopwatch

    def admit(self, window: Waiting, most: int) -> Generator[pa.RecordBatch, None, int]:
        """Let up to `most` tuples into the window, past the front stage; return how many entered.

        Tuples that wait already must not wait for ever while the front stage resolves all that
        arrive: after a number of arrivals (`FrontPolicy.patience`) the back stage goes on.
        """
        stream, admitted = self._stream, 0
        arrivals_left = POLICY.patience * max(most, window.capacity)
        while admitted < most and stream.pull():
            if not stream.has_waiting:
                if arrivals_left <= 0 and window.count:
                    break
                arrived = stream.arrived_rows
                yield from self.resolve()
                arrivals_left -= arrived - stream.arrived_rows
            if stream.has_waiting:
                entered = self._insert(window, most - admitted)
                if entered == 0:
                    break
                admitted += entered
            if stream.must_collect:
                yield from self._emission.unmatchable(stream)
        return admitted

    def resolve(self) -> Iterator[pa.RecordBatch]:
        """Let the front stage resolve what it can of the tuples that arrived; the rest may enter.

        A piece at a time, so that it can learn from the first tuples of a large batch what will
        help the last.
        """
        front, stream, rows = self._front, self._stream, self._emission.buffer.rows
        if front is None or front.is_bypassed:
            stream.let_wait(stream.take_arrived(None if front is None else rows))
            return
        with self._stopwatch.phase("look_up"):
            piece = stream.take_arrived(max(1, rows // front.pairs_per_tuple))
            waits = np.zeros(len(piece), np.bool_)
            tuples = Arrived(piece)
            for probes, found in front.matches(piece.codes, waits):
                yield from self._emission.matches(found, probes, front, tuples, "hit")
            yield from self._emission.misses(np.flatnonzero(~waits), tuples)
            stream.let_wait(piece.only(waits))

    def _insert(self, window: Waiting, most: int) -> int:
        """Let waiting tuples into the window, as many as fit; return how many that are."""
        with self._stopwatch.phase("append"):
            rows = self._stream.waiting_rows(most)
            room = window.room(rows)
            if room:
                self._enter(window, rows[:room], self._stream.take_waiting(room))
            elif window.count == 0:
                raise _too_wide(rows, window.capacity)
        return room

    def _enter(self, window: Waiting, rows: pa.RecordBatch, tuples: Tuples) -> None:
        window.insert(rows, tuples.codes)


def _too_wide(rows: pa.RecordBatch, slots: int) -> BudgetError:
    size = total_bytes(rows[:1].columns)
    return BudgetError(
        f"a stream row of {format_bytes(size)} does not fit into the window, which has "
        f"{slots} slots sized for the rows seen first. Raise memory, or leave "
        "the wide column out of the stream and join it back later"
    )
