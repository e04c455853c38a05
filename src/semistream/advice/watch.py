"""The watch: looks at a running join now and then, and returns a retune when it should end.

It looks after each full window, at most for `_MOST_OVERHEAD` of the time, and compares what arrives
with what the join was chosen for: the length of the stream, the arrival rate, the demand. It
changes nothing but its own counters; a `Retune` says what to choose for next.
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import inf
from time import perf_counter

from semistream.advice.sampling import SampledSource
from semistream.advice.tuner import HEADROOM, Chosen, Tuner
from semistream.joins.streamjoin import StreamJoin

HYSTERESIS = 1.15  # another choice must be better by this factor
_WINDOWS = 1  # between two looks
_MOST_OVERHEAD = 0.02  # looking may take this part of the time
_FEWER = 0.6  # of the rate the join was tuned for: below this, arrivals have changed
_STARVED = 0.05  # if the join waits this part of the time for input, arrivals set the pace
_LONGER = 1.5  # than expected: then the stream is taken to go on
_BUSY_LOOKS = 2  # in a row, then more input arrives than the join can serve


@dataclass(frozen=True, slots=True)
class Retune:
    """A running join is to end, and another choice to be made."""

    reason: str
    rate: float | None  # arrivals per second to choose for; None if no rate was expected


class Watch:
    """Watches one join that runs, from its first batch to its last."""

    def __init__(
        self,
        tuner: Tuner,
        source: SampledSource,
        chosen: Chosen,
        join: StreamJoin,
        *,
        clock: Callable[[], float] = perf_counter,
        limits_overhead: bool = True,
    ) -> None:
        """Begin a new sample. `clock` times the looks; without a limit it does not matter."""
        self._tuner, self._source, self._join = tuner, source, join
        self._chosen = chosen
        self._clock = clock
        self._limits_overhead = limits_overhead
        self._assumed = chosen.skew  # that the choice is still the best for
        self._last_skew = chosen.skew  # at the last look
        self._busy_looks = 0  # in a row, at which the join never waited for input
        self._look_s = 0.0  # the time that the last look took
        self._restart()

    def look(self) -> Retune | None:
        """Return a retune if the join should end before the next batch; called before each."""
        if not self._is_time():
            return None
        started_s = self._clock()
        retune = self._length_retune() or self._rate_retune() or self._demand_retune()
        self._look_s = self._clock() - started_s
        if retune is None:
            self._restart()
        return retune

    def _restart(self) -> None:
        """Note where everything stands, for the next look."""
        self._looked_s = self._clock()  # for the overhead
        # For the arrival rate.
        self._since_s, self._waited_s = self._source.now_s(), self._source.waited_s
        self._empty_batches = self._source.empty_batches
        # For the tuples that have passed the window.
        self._rows, self._hits = self._source.row_count, self._join.telemetry.front_hits
        self._source.forget_sample()

    def _is_time(self) -> bool:
        rows = self._source.row_count - self._rows
        waited = rows - (self._join.telemetry.front_hits - self._hits)
        window = self._chosen.option.tuned.settings.places
        if rows < self._source.rows_per_sample or waited < _WINDOWS * window:
            return False
        since_s = self._clock() - self._looked_s
        return not self._limits_overhead or since_s * _MOST_OVERHEAD >= self._look_s

    def _length_retune(self) -> Retune | None:
        expected = self._chosen.stream_rows
        if expected is None or self._source.row_count <= _LONGER * expected:
            return None
        reason = f"the stream goes on after {self._source.row_count:,} rows"
        return Retune(f"{reason}, {expected:,} were expected", self._chosen.rate)

    def _rate_retune(self) -> Retune | None:
        expected = self._chosen.rate
        if expected is None:
            return None
        elapsed_s = max(1e-9, self._source.now_s() - self._since_s)
        waited_s = self._source.waited_s - self._waited_s
        arrivals = (self._source.row_count - self._rows) / elapsed_s
        has_all = self._source.empty_batches > self._empty_batches  # that have arrived
        if waited_s < _STARVED * elapsed_s and not has_all:
            # The join sets the pace, or catches up with what came while it was started.
            self._busy_looks += 1
            if self._tuner.has_all_memory(self._chosen) or self._busy_looks < _BUSY_LOOKS:
                return None
            # The arrival rate is not known, only that it is higher: all memory, for now.
            reason = f"more than {arrivals:,.0f} tuples/s arrive, {expected:,.0f} were expected"
            return Retune(reason, inf)
        self._busy_looks = 0
        if _FEWER * expected <= arrivals <= HEADROOM * expected:
            return None
        before = "the most that can be served" if expected == inf else f"{expected:,.0f} tuples/s"
        return Retune(f"arrivals changed: {before} → {arrivals:,.0f} tuples/s arrive", arrivals)

    def _demand_retune(self) -> Retune | None:
        if self._tuner.model_bytes > self._join.idle_bytes:
            return None
        demand, last = self._tuner.demand(self._source.sample()), self._last_skew
        self._last_skew = skew = demand.skew
        if self._assumed is None or last is None:  # the choice did not depend on it
            self._assumed = skew
            return None
        # A sample from before and after a change is like neither: wait for two that are alike.
        if not self._assumed.has_moved(skew) or last.has_moved(skew):
            return None
        best = self._tuner.best(demand, self._chosen.rate)
        is_same_size = best.budget_bytes == self._chosen.budget_bytes
        before, self._assumed = self._assumed, skew
        rate_now = self._tuner.rate_under(self._chosen, demand)
        if is_same_size and best.option.rate < HYSTERESIS * rate_now:
            return None
        reason = f"key skew changed: Zipf exponent {before.exponent:.2f} → {skew.exponent:.2f}"
        return Retune(reason, self._chosen.rate)
