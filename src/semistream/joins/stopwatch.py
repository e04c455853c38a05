"""Where a join's time goes, step by step: what the cost factors are measured with.

A join is in one step at any moment, and the time that passes belongs to it. A phase of the join
switches to its step and back, so a phase within another (reading a column while output is made)
counts for itself alone. Time that passes while the join's generator is suspended is `outside`.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from time import perf_counter_ns
from types import TracebackType
from typing import TypeVar

_Item = TypeVar("_Item")


@dataclass(slots=True)
class Stopwatch:
    """Nanoseconds by step; the names are those of the cost factors (`semistream.cost.factors`)."""

    outside: int = 0  # in the source, or in the code that takes the output
    read: int = 0  # c_S
    look_up: int = 0  # the front stage
    hit: int = 0  # output from the front stage
    append: int = 0  # c_A
    io: int = 0  # c_I/O
    probe: int = 0  # c_H
    output: int = 0  # c_O
    learn: int = 0  # the front stage
    expire: int = 0  # c_E
    loop: int = 0  # everything else
    _step: str = field(default="outside", repr=False)  # the step that the join is in
    _last: int = field(default_factory=perf_counter_ns, repr=False)  # when it was last counted

    def switch(self, step: str) -> str:
        """Count the time since the last switch, and enter another step; return the one before."""
        now, before = perf_counter_ns(), self._step
        setattr(self, before, getattr(self, before) + now - self._last)
        self._last, self._step = now, step
        return before

    def phase(self, step: str) -> "_Phase":
        """Return a context whose time counts for a step."""
        return _Phase(self, step)

    def timed(self, step: str, items: Iterable[_Item]) -> Iterator[_Item]:
        """Yield the items; the time it takes to make each of them counts for a step."""
        before = self.switch(step)
        for item in items:
            self.switch(before)
            yield item
            before = self.switch(step)
        self.switch(before)

    def lap(self, step: str) -> None:
        """Count the time since the last switch for a step, without a change of step."""
        now = perf_counter_ns()
        setattr(self, step, getattr(self, step) + now - self._last)
        self._last = now

    def seconds(self, step: str) -> float:
        """Return the time spent on a step."""
        return float(getattr(self, step)) / 1e9

    def copy(self) -> "Stopwatch":
        """Return what has been counted so far."""
        return replace(self)


class _Phase:
    """A part of a join whose time counts for one step."""

    __slots__ = ("_before", "_step", "_stopwatch")

    def __init__(self, stopwatch: Stopwatch, step: str) -> None:
        self._stopwatch = stopwatch
        self._step = step

    def __enter__(self) -> None:
        self._before = self._stopwatch.switch(self._step)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._stopwatch.switch(self._before)
