"""The service rate of a join: how many tuples per second it serves once it is warm.

As in `meshjoin.txt` section 4.1 the stream is there whenever it is asked for, the first turns of R
are not counted, and neither is the drain at the end.
"""

from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass, replace
from math import inf

import pyarrow as pa

from semistream.joins.protocols import Operator
from semistream.joins.stopwatch import Stopwatch
from semistream.joins.telemetry import Telemetry


@dataclass(frozen=True, slots=True)
class _Mark:
    """The books of a join at one moment."""

    tuples: int
    now_s: float
    telemetry: Telemetry
    stopwatch: Stopwatch


@dataclass(frozen=True, slots=True)
class ServiceRate:
    """What was measured between two moments."""

    start: _Mark
    end: _Mark

    @property
    def tuples(self) -> int:
        """How many tuples were taken from the stream."""
        return self.end.tuples - self.start.tuples

    @property
    def rate(self) -> float:
        """μ: tuples per second."""
        return self.tuples / (self.end.now_s - self.start.now_s)

    @property
    def own_rate(self) -> float:
        """The same with the time left out that was spent outside of the join."""
        seconds = self.end.now_s - self.start.now_s - self.seconds("outside")
        return max(1, self.tuples) / seconds

    @property
    def hit_ratio(self) -> float:
        """The share of the tuples that a front stage has settled."""
        return self.counted("front_hits") / self.tuples

    def counted(self, name: str) -> int:
        """Return by how much a counter of the telemetry has grown."""
        return int(getattr(self.end.telemetry, name) - getattr(self.start.telemetry, name))

    def seconds(self, *steps: str) -> float:
        """Return the CPU time of some steps."""
        end, start = self.end.stopwatch, self.start.stopwatch
        return sum(end.seconds(step) - start.seconds(step) for step in steps)


@dataclass(frozen=True, slots=True)
class Spell:
    """How long to measure: turns of R, but for each of the two parts not more than this."""

    warm_turns: float = 4
    turns: float = 2
    most_tuples: float = inf
    most_s: float = inf


def measure_service(
    operator: Operator,
    page_count: int,
    stream: Iterator[pa.RecordBatch],
    now_s: Callable[[], float],
    spell: Spell = Spell(),  # noqa: B008  (frozen)
    check: Callable[[pa.RecordBatch], None] | None = None,
) -> ServiceRate:
    """Run a join on an endless stream until it is warm and for some turns of R after that.

    Each output batch is shown to `check`, which is to raise if it is wrong.
    """
    watched = _Watched(operator, page_count, stream, now_s, spell)
    joined = operator.join(watched)
    for batch in joined:
        if check is not None:
            check(batch)
        if watched.is_done:
            break
    if isinstance(joined, Generator):
        joined.close()
    return watched.result()


def check_complete(telemetry: Telemetry, most_waiting: int) -> None:
    """Raise if more tuples are missing from the output than can wait; for joins that all match."""
    missing = telemetry.stream_rows - telemetry.output_rows
    if missing > most_waiting:
        raise AssertionError(
            f"a join lost rows: {missing} are missing, {most_waiting} at most can wait: {telemetry}"
        )


class _Watched:
    """A source that notes when the join is warm, and when enough has been measured."""

    def __init__(
        self,
        operator: Operator,
        page_count: int,
        stream: Iterator[pa.RecordBatch],
        now_s: Callable[[], float],
        spell: Spell,
    ) -> None:
        self._operator = operator
        self._page_count = page_count
        self._stream = stream
        self._now_s = now_s
        self._spell = spell
        self._tuples = 0
        self._begun: _Mark | None = None
        self._start: _Mark | None = None
        self._end: _Mark | None = None

    @property
    def is_done(self) -> bool:
        return self._end is not None

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        for batch in self._stream:
            self._look()
            if self.is_done:
                return
            self._tuples += batch.num_rows
            yield batch

    def result(self) -> ServiceRate:
        assert self._start is not None
        assert self._end is not None
        return ServiceRate(self._start, self._end)

    def _look(self) -> None:
        operator = self._operator
        operator.stopwatch.lap("outside")
        mark = _Mark(
            self._tuples, self._now_s(), replace(operator.telemetry), operator.stopwatch.copy()
        )
        if self._begun is None:
            self._begun = mark
        elif self._start is None:
            if self._is_over(self._begun, mark, self._spell.warm_turns):
                self._start = mark
        elif self._is_over(self._start, mark, self._spell.turns):
            self._end = mark

    def _is_over(self, start: _Mark, now: _Mark, turns: float) -> bool:
        pages = now.telemetry.pages_scanned - start.telemetry.pages_scanned
        return now.now_s > start.now_s and (
            pages >= turns * self._page_count
            or now.tuples - start.tuples >= self._spell.most_tuples
            or now.now_s - start.now_s >= self._spell.most_s
        )
