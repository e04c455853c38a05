"""Where a join's time goes, step by step: what the cost factors are measured with.

A join is in one step at any moment, and the time that passes belongs to it. A phase of the join
switches to its step and back, so a phase within another (reading a column while output is made)
counts for itself alone. Time that passes while the join's generator is suspended is `outside`.

===========  ===============================================================================
step         symbol in the cost models (`semistream.cost.factors`)
===========  ===============================================================================
`outside`    in the source, or in the code that takes the output
`read`       c_S
`look_up`    the front stage
`hit`        output from the front stage
`append`     c_A
`io`         c_I/O
`probe`      c_H
`output`     c_O
`learn`      the front stage
`expire`     c_E
`loop`       everything else
===========  ===============================================================================
"""

from collections.abc import Iterable, Iterator
from time import perf_counter_ns
from types import TracebackType
from typing import TypeVar

_Item = TypeVar("_Item")
_STEPS = (
    *("outside", "read", "look_up", "hit", "append", "io"),
    *("probe", "output", "learn", "expire", "loop"),
)


class Stopwatch:
    """Time by step."""

    __slots__ = ("_phases", "last", "nanoseconds", "step")

    def __init__(self) -> None:
        """Begin outside of the join."""
        self.nanoseconds = dict.fromkeys(_STEPS, 0)  # by step
        self.step = "outside"  # the one that the join is in
        self.last = perf_counter_ns()  # up to when time has been counted
        self._phases = {step: _Phase(self, step) for step in _STEPS}

    def phase(self, step: str) -> "_Phase":
        """Return a context whose time counts for a step."""
        return self._phases[step]

    def switch(self, step: str) -> str:
        """Count the time up to now, and enter another step; return the one before."""
        before = self.step
        self.lap(before)
        self.step = step
        return before

    def timed(self, step: str, items: Iterable[_Item]) -> Iterator[_Item]:
        """Yield the items; the time it takes to make each of them counts for a step."""
        before = self.switch(step)
        for item in items:
            self.switch(before)
            yield item
            before = self.switch(step)
        self.switch(before)

    def lap(self, step: str) -> None:
        """Count the time up to now for a step."""
        now = perf_counter_ns()
        self.nanoseconds[step] += now - self.last
        self.last = now

    def seconds(self, step: str) -> float:
        """Return the time spent on a step."""
        return self.nanoseconds[step] / 1e9

    def copy(self) -> "Stopwatch":
        """Return what has been counted so far."""
        copy = Stopwatch()
        copy.nanoseconds = dict(self.nanoseconds)
        return copy


class _Phase:
    """A part of a join whose time counts for one step.

    `switch`, written out: joins enter phases several times for each piece of output.
    """

    __slots__ = ("_before", "_step", "_stopwatch")

    def __init__(self, stopwatch: Stopwatch, step: str) -> None:
        self._stopwatch = stopwatch
        self._step = step
        self._before: list[str] = []  # steps to go back to; several if the phase is nested

    def __enter__(self) -> None:
        stopwatch, now = self._stopwatch, perf_counter_ns()
        stopwatch.nanoseconds[stopwatch.step] += now - stopwatch.last
        stopwatch.last = now
        self._before.append(stopwatch.step)
        stopwatch.step = self._step

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        stopwatch, now = self._stopwatch, perf_counter_ns()
        stopwatch.nanoseconds[stopwatch.step] += now - stopwatch.last
        stopwatch.last = now
        stopwatch.step = self._before.pop()
