"""A join on a stream that arrives over time: what it serves, and how long tuples wait for it.

`hybridjoin.txt` section 3 has two parts of a tuple's latency. *Processing time* passes in the join
window while the join works. *Waiting time* is all other time: until the join takes the tuple, a
backlog included, and in the window while nothing is done because too few tuples have arrived.
MESHJOIN continues only when its next w tuples have arrived; HYBRIDJOIN continues with the tuples in
its window; INLJ falls behind a stream that is faster than it is.

In miniature MESHJOIN runs on a disk that is as small as R, and its times are multiplied: all its
tuples and times scale. An index join at a low rate has few tuples in its window, which do not
scale; it runs on a disk that reads the small R as slowly as the full one (`Rig.slow_device`).
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from semistream.budget.meshjoin import MeshJoinSettings
from semistream.budget.split import Split
from semistream.joins.registry import ALGORITHMS
from semistream.lab.flows import STEP_S, Flow
from semistream.lab.rig import Rig
from semistream.relation.device import EmulatedDevice

_BATCH_ROWS = 128
_MOST_BATCH_ROWS = 1024
_FEW_ROWS = 4  # for a join that takes one at a time
Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Served:
    """Tuples that were emitted in the second part of a run: how many a second, and mean times."""

    tuples: int
    rate: float
    waiting_s: float
    processing_s: float
    longest_s: float  # latency of any tuple
    unresolved: float = 0.0  # tuples that arrived and have no result at the end, at full size

    @property
    def latency_s(self) -> float:
        """From a tuple's arrival to its result."""
        return self.waiting_s + self.processing_s


def scales(algorithm: str) -> bool:
    """Return whether all tuples and times of a join in miniature scale (see above)."""
    return ALGORITHMS[algorithm].family == "scan"


def on_bursts(
    rig: Rig,
    algorithm: str,
    memory_bytes: float,
    split: Split,
    rate: float,
    seconds: float,
    seed: int,
) -> Served:
    """Run a join on bursts of `rate` tuples a second on average, for `seconds` at full size."""
    times = rig.times if scales(algorithm) else 1.0
    flow = Flow.bursty(rate, seconds / times, seed, STEP_S / times)
    return on_flow(rig, algorithm, memory_bytes, split, flow)


def on_flow(
    rig: Rig,
    algorithm: str,
    memory_bytes: float,
    split: Split,
    flow: Flow,
    device: EmulatedDevice | None = None,
) -> Served:
    """Run a join on a flow; the times of its points are those in miniature, if the join scales.

    Tuples count that are emitted after the first third of the flow's time. With a device of the
    rig, other than the join's usual one here, all times are multiplied.
    """
    times = rig.times if device is not None or scales(algorithm) else 1.0
    if device is None:
        device = rig.device_for(algorithm) if scales(algorithm) else rig.slow_device(algorithm)
    assert device is not None, "times are read off an emulated device's clock"
    join = rig.new_join(algorithm, memory_bytes, split, device)
    settings = rig.evaluate(algorithm, memory_bytes, split).settings
    at_least = settings.tuples_per_read if isinstance(settings, MeshJoinSettings) else 1
    alone = ALGORITHMS[algorithm].one_tuple_at_a_time
    source = _Arriving(rig, device, flow, at_least, one_by_one=alone)
    end_s = float(flow.times_s[-1])
    seen = _Seen(source, end_s / 3)
    emitted = 0
    for batch in join.join(source):
        if device.now_s > end_s:
            break
        emitted += batch.num_rows
        seen.note(batch, device.now_s)
    return replace(seen.result(end_s, times), unresolved=(flow.total - emitted) * times)


class _Arriving:
    """A stream whose tuples carry when they arrived and which batch of it they were in.

    A join that requests tuples too early gets an empty batch, and may continue with the tuples it
    has; if it requests again without having read from the device, or needs `at_least` tuples to
    continue, time passes until these have arrived.
    """

    def __init__(
        self, rig: Rig, device: EmulatedDevice, flow: Flow, at_least: int, *, one_by_one: bool
    ) -> None:
        self._rig, self._device, self._flow = rig, device, flow
        self._one_by_one = one_by_one
        self._at_least = at_least
        self.idle_s = 0.0  # time that passed without anything to do
        self.taken_s: list[float] = []  # when the join took each batch
        self.idle_before_s: list[float] = []  # `idle_s` at that time

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        row, requested_at, end_s = 0, -1.0, float(self._flow.times_s[-1])
        while self._device.now_s < end_s:
            now = self._device.now_s
            due = self._flow.arrived_by(now) - row
            if due < self._at_least:
                if self._at_least > 1 or now == requested_at:
                    self._pass_time(self._when(row + self._at_least) - now)
                    continue
                requested_at = now
                yield self._rig.stream_rows(row, 0)
                continue
            # No more than the join can use at once: tuples in its input would count as processed.
            many = self._at_least if self._at_least > 1 else min(_MOST_BATCH_ROWS, due // 4)
            most = _FEW_ROWS if self._one_by_one else max(_BATCH_ROWS, many)
            batch = self._rig.stream_rows(row, min(due, most))
            self.taken_s.append(now)
            self.idle_before_s.append(self.idle_s)
            arrived = self._flow.times_of(row, batch.num_rows)
            row += batch.num_rows
            yield _marked(batch, arrived, len(self.taken_s) - 1)

    def _when(self, tuples: int) -> float:
        """Return when this many tuples have arrived, or the end: the stream goes on beyond it."""
        if tuples > self._flow.total:
            return float(self._flow.times_s[-1])
        return float(self._flow.times_of(tuples - 1, 1)[0])

    def _pass_time(self, seconds: float) -> None:
        seconds = max(seconds, 1e-9)
        self._device.idle(seconds)
        self.idle_s += seconds


class _Seen:
    """Waiting and processing times of the tuples that were emitted after `from_s`."""

    def __init__(self, source: _Arriving, from_s: float) -> None:
        self._source, self._from_s = source, from_s
        self._waiting: list[Floats] = []
        self._latency: list[Floats] = []

    def note(self, batch: pa.RecordBatch, now_s: float) -> None:
        if now_s < self._from_s or not batch.num_rows:
            return
        arrived = batch.column("price").to_numpy()
        number = batch.column("quantity").to_numpy()
        taken = np.array(self._source.taken_s)[number]
        idle = self._source.idle_s - np.array(self._source.idle_before_s)[number]
        self._waiting.append(taken - arrived + idle)
        self._latency.append(now_s - arrived)

    def result(self, end_s: float, times: float) -> Served:
        if not self._latency:
            return Served(0, 0.0, float("nan"), float("nan"), float("nan"))
        waiting, latency = np.concatenate(self._waiting), np.concatenate(self._latency)
        return Served(
            len(latency),
            len(latency) / (end_s - self._from_s),
            float(waiting.mean()) * times,
            float((latency - waiting).mean()) * times,
            float(latency.max()) * times,
        )


def _marked(batch: pa.RecordBatch, arrived: Floats, number: int) -> pa.RecordBatch:
    """Return a batch with arrival times as its prices and its number as its quantities."""
    columns = dict(zip(batch.schema.names, batch.columns, strict=True))
    columns["price"] = pa.array(arrived)
    columns["quantity"] = pa.array(np.full(batch.num_rows, number, np.int32))
    return pa.RecordBatch.from_arrays(list(columns.values()), schema=batch.schema)
