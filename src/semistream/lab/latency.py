"""Latency: the time from a tuple's arrival until its result is emitted.

`hybridjoin.txt` section 3 has two parts of it. *Processing time* is the latency while the join
always finds tuples to read. *Waiting time* is added when it does not: MESHJOIN continues only when
its next w tuples have arrived, INLJ falls behind a stream that is faster than it is, and HYBRIDJOIN
continues with the tuples in its window.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from semistream.budget.split import Split
from semistream.lab.rig import Rig
from semistream.relation.device import EmulatedDevice

_BATCH_ROWS = 128
_CYCLES = 4


@dataclass(frozen=True, slots=True)
class Latency:
    """The mean over the tuples that were emitted in the second half of a run."""

    mean_s: float
    tuples: int


def latency_at_full_speed(rig: Rig, algorithm: str, memory_bytes: float, split: Split) -> Latency:
    """Return the latency when the join always finds tuples to read."""
    device = rig.device_for(algorithm)
    assert device is not None, "latency is read off an emulated device's clock"
    operator = rig.new_join(algorithm, memory_bytes, split, device)
    seen = _Latencies(device)
    for batch in operator.join(_Punctual(rig, device)):
        seen.note(batch)
        if operator.telemetry.pages_scanned >= _CYCLES * rig.page_count:
            break
    return seen.late_mean(rig.times)


def latency_at_rate(
    rig: Rig,
    algorithm: str,
    memory_bytes: float,
    split: Split,
    rate: float,
    seconds: float,
    at_least: int = 1,
) -> Latency:
    """Return the latency when `rate` tuples arrive per second, over a run of `seconds`.

    The join gets no tuples before `at_least` have arrived.
    """
    device = rig.slow_device(algorithm)
    operator = rig.new_join(algorithm, memory_bytes, split, device)
    seen = _Latencies(device)
    for batch in operator.join(_Steady(rig, device, rate, seconds, at_least)):
        if device.now_s > seconds:
            break
        seen.note(batch)
    return seen.late_mean(1.0)


class _Latencies:
    """The latency of every tuple that was emitted."""

    def __init__(self, device: EmulatedDevice) -> None:
        self._device = device
        self._latencies: list[np.ndarray[tuple[int], np.dtype[np.float64]]] = []

    def note(self, batch: pa.RecordBatch) -> None:
        self._latencies.append(self._device.now_s - batch.column("price").to_numpy())

    def late_mean(self, times: float) -> Latency:
        if not self._latencies:
            return Latency(float("nan"), 0)
        latencies = np.concatenate(self._latencies)
        late = latencies[len(latencies) // 2 :]
        return Latency(float(late.mean()) * times, len(late))


class _Punctual:
    """A stream that always has tuples; each carries the time at which the join took it."""

    def __init__(self, rig: Rig, device: EmulatedDevice) -> None:
        self._rig, self._device = rig, device

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        row = 0
        while True:
            batch = self._rig.stream_rows(row, _BATCH_ROWS)
            row += batch.num_rows
            yield _timed(batch, np.full(batch.num_rows, self._device.now_s))


class _Steady:
    """`rate` tuples per second, handed over `at_least` at a time.

    A join that requests tuples too early gets an empty batch, and may continue with the tuples it
    has; if it requests again without having read from the device, time passes until enough arrived.
    """

    def __init__(
        self, rig: Rig, device: EmulatedDevice, rate: float, seconds: float, at_least: int
    ) -> None:
        self._rig, self._device = rig, device
        self._rate, self._seconds, self._at_least = rate, seconds, at_least

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        row, requested_at = 0, -1.0
        while self._device.now_s < self._seconds:
            now = self._device.now_s
            due = int(self._rate * now) - row
            if due < self._at_least:
                if self._at_least > 1 or now == requested_at:  # the join has nothing else to do
                    self._device.idle((row + self._at_least + 0.5) / self._rate - now)
                    continue
                requested_at = now
                yield self._rig.stream_rows(row, 0)
                continue
            batch = self._rig.stream_rows(row, min(due, max(_BATCH_ROWS, self._at_least)))
            arrived = (row + 1 + np.arange(batch.num_rows)) / self._rate
            row += batch.num_rows
            yield _timed(batch, arrived)


def _timed(
    batch: pa.RecordBatch, times: np.ndarray[tuple[int], np.dtype[np.float64]]
) -> pa.RecordBatch:
    at = batch.schema.get_field_index("price")
    columns = [*batch.columns[:at], pa.array(times), *batch.columns[at + 1 :]]
    return pa.RecordBatch.from_arrays(columns, schema=batch.schema)
