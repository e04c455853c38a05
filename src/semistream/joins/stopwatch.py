"""Where a join's time goes, step by step: what the cost factors are measured with.

A lap says what the time since the last one was spent on. So time that passes while a generator is
suspended can be told apart: it belongs to whoever is outside.
"""

from dataclasses import dataclass, field, replace
from time import perf_counter_ns


@dataclass(slots=True)
class Stopwatch:
    """Nanoseconds by step; the names are those of the cost factors (`semistream.cost.factors`)."""

    outside: int = 0  # in the source, or with whoever takes the output
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
    _last: int = field(default_factory=perf_counter_ns, repr=False)

    def lap(self, step: str) -> None:
        """Count the time since the last lap for a step."""
        now = perf_counter_ns()
        setattr(self, step, getattr(self, step) + now - self._last)
        self._last = now

    def seconds(self, step: str) -> float:
        """Return the time spent on a step."""
        return float(getattr(self, step)) / 1e9

    def copy(self) -> "Stopwatch":
        """Return what has been counted so far."""
        return replace(self)
