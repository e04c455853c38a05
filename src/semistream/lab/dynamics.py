"""Dynamic tuning, measured: how soon a join is as fast as a fresh one after the stream changes."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain, islice

import numpy as np
import pyarrow as pa

from semistream.advice.auto import SelfTuningJoin
from semistream.cost.factors import CostFactors
from semistream.lab.validation import Bench
from semistream.relation.device import EmulatedDevice, Reading

_ENOUGH = 0.9
_STEPS = 40  # that the time after a change is divided into


@dataclass(frozen=True, slots=True)
class Recovery:
    """How a join recovered from a change in mid-stream."""

    change: str
    retunings: int
    windows: float | None  # until it was back at 90 % of a fresh join's rate
    reached: float  # its rate at the end, of the fresh join's
    reasons: tuple[str, ...]


def skew_change(bench: Bench, share: float, before: float, after: float) -> Recovery:
    """Change the Zipf exponent in mid-stream; compare with a join that knew only the second."""
    rows = _rows_of_a_run(bench, share, max(before, after))
    first = list(islice(bench.workload.endless(before, bench.batch_rows), rows // bench.batch_rows))
    then = list(islice(bench.workload.endless(after, bench.batch_rows), rows // bench.batch_rows))
    fresh = _Watched(bench, share, then)
    fresh.run()
    changed = _Watched(bench, share, [*first, *then])
    changed.run()
    change = f"Zipf {before} becomes {after}"
    return changed.recovery(change, len(first), fresh.late_rate, fresh.places)


def rate_change(bench: Bench, share: float, times: float) -> Recovery:
    """Let arrivals become several times as many in mid-stream, up to what the budget can serve."""
    rows = _rows_of_a_run(bench, share, 0.0)
    batches = list(islice(bench.workload.endless(0.0, bench.batch_rows), rows // bench.batch_rows))
    fresh = _Watched(bench, share, batches)
    fresh.run()
    slow = fresh.late_rate / times
    changed = _Watched(bench, share, [*batches, *batches], rate=slow, until=len(batches))
    changed.run()
    change = f"{slow:,.0f} tuples/s become as many as can be served"
    return changed.recovery(change, len(batches), fresh.late_rate, fresh.places)


def _rows_of_a_run(bench: Bench, share: float, exponent: float) -> int:
    """Return enough rows for some ten windows, those that a front stage resolves included."""
    option = bench.advisor.rank(bench.budget(share), bench.conditions(exponent))[0]
    tuned = option.tuned
    passing = 1 - tuned.prediction.hit_ratio
    return int(20 * max(tuned.settings.places, 16_384) / passing)


class _Watched:
    """A self-tuning join on an emulated device, with a clock reading for each batch."""

    def __init__(
        self,
        bench: Bench,
        share: float,
        batches: list[pa.RecordBatch],
        rate: float | None = None,
        until: int = 0,
    ) -> None:
        """With a rate, the first batches, up to `until`, arrive no faster than that."""
        assert bench.device is not None
        self._device = EmulatedDevice.named(bench.device)
        factors = CostFactors.of_device(*self._device.costs)
        relation = bench.relation.read_by(Reading(self._device))
        budget = bench.budget(share)
        self.join = SelfTuningJoin(relation, bench.spec, budget, factors=factors, rate=rate)
        self._batches = batches
        self._rate, self._until = rate, until
        self._marks: list[tuple[int, float]] = []  # rows before each batch, and when it came

    def run(self) -> None:
        """Join everything; no row may be lost."""
        joined = sum(batch.num_rows for batch in self.join.join(self._source()))
        arrived = sum(batch.num_rows for batch in self._batches)
        if joined != arrived:
            raise AssertionError(f"{arrived} rows came, but {joined} were joined")

    def _source(self) -> Iterator[pa.RecordBatch]:
        rows = 0
        for i, batch in enumerate(chain(self._batches)):
            if self._rate is not None and i < self._until:
                due_s = rows / self._rate
                self._device.idle(max(0.0, due_s - self._device.now_s))
            self._marks.append((rows, self._device.now_s))
            rows += batch.num_rows
            yield batch

    @property
    def places(self) -> int:
        """The tuples that can wait, as it was tuned last."""
        option = self.join.changes[-1].option
        assert option is not None
        return option.tuned.settings.places

    @property
    def late_rate(self) -> float:
        """The rate over the last third."""
        return self._rate_between(len(self._marks) * 2 // 3, len(self._marks) - 1)

    def recovery(self, change: str, at: int, fresh_rate: float, places: int) -> Recovery:
        """Compare the rates after a change with those of a fresh join."""
        last = len(self._marks) - 1
        edges = np.unique(np.linspace(at, last, _STEPS + 1).astype(int)).tolist()
        back = None
        for start, end in zip(edges[:-2], edges[2:], strict=True):
            if self._rate_between(start, end) >= _ENOUGH * fresh_rate:
                rows = self._marks[start][0] - self._marks[at][0]
                hits = 0.0 if self.join.changes[-1].option is None else self._hit_ratio
                back = rows * (1 - hits) / places
                break
        return Recovery(
            change,
            self.join.telemetry.retunings,
            back,
            self.late_rate / fresh_rate,
            tuple(c.reason for c in self.join.changes[1:]),
        )

    @property
    def _hit_ratio(self) -> float:
        option = self.join.changes[-1].option
        return 0.0 if option is None else option.tuned.prediction.hit_ratio

    def _rate_between(self, first: int, last: int) -> float:
        rows = self._marks[last][0] - self._marks[first][0]
        return rows / (self._marks[last][1] - self._marks[first][1])
