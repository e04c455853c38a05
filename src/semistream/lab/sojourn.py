"""How long a tuple is with a join: from the moment it arrives until its result comes out.

`hybridjoin.txt` section 3 tells two parts apart. *Processing time* is what it takes while tuples
are there whenever the join asks for them. *Waiting time* is what comes on top when they are not:
MESHJOIN reads on only when its next w tuples have come, INLJ falls behind a stream that is faster
than it is, and HYBRIDJOIN goes on with what it has.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from semistream.budget.split import Split
from semistream.lab.rig import Rig
from semistream.relation.device import EmulatedDevice

_BATCH_ROWS = 128
_TURNS = 4


@dataclass(frozen=True, slots=True)
class Sojourn:
    """The mean over the tuples that came out in the second half of a run."""

    mean_s: float
    tuples: int


def stay_at_full_speed(rig: Rig, algorithm: str, memory_bytes: float, split: Split) -> Sojourn:
    """Return how long a tuple stays when the next one is always there."""
    device = rig.device_for(algorithm)
    assert device is not None, "a tuple's stay is read off an emulated device's clock"
    operator = rig.new_join(algorithm, memory_bytes, split, device)
    seen = _Stays(device)
    for batch in operator.join(_Punctual(rig, device)):
        seen.note(batch)
        if operator.telemetry.pages_scanned >= _TURNS * rig.page_count:
            break
    return seen.late_mean(rig.times)


def stay_at_rate(
    rig: Rig,
    algorithm: str,
    memory_bytes: float,
    split: Split,
    rate: float,
    seconds: float,
    at_least: int = 1,
) -> Sojourn:
    """Return how long a tuple stays when so many arrive per second.

    The join gets no tuples before `at_least` have come.
    """
    device = rig.slow_device(algorithm)
    operator = rig.new_join(algorithm, memory_bytes, split, device)
    seen = _Stays(device)
    for batch in operator.join(_Steady(rig, device, rate, seconds, at_least)):
        if device.now_s > seconds:
            break
        seen.note(batch)
    return seen.late_mean(1.0)


class _Stays:
    """What came out: when, and how long it had been there."""

    def __init__(self, device: EmulatedDevice) -> None:
        self._device = device
        self._stays: list[np.ndarray[tuple[int], np.dtype[np.float64]]] = []

    def note(self, batch: pa.RecordBatch) -> None:
        self._stays.append(self._device.now_s - batch.column("price").to_numpy())

    def late_mean(self, times: float) -> Sojourn:
        if not self._stays:
            return Sojourn(float("nan"), 0)
        stays = np.concatenate(self._stays)
        late = stays[len(stays) // 2 :]
        return Sojourn(float(late.mean()) * times, len(late))


class _Punctual:
    """A stream that is there whenever it is asked for, each tuple with the time it was taken."""

    def __init__(self, rig: Rig, device: EmulatedDevice) -> None:
        self._rig, self._device = rig, device

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        row = 0
        while True:
            batch = self._rig.stream_rows(row, _BATCH_ROWS)
            row += batch.num_rows
            yield _timed(batch, np.full(batch.num_rows, self._device.now_s))


class _Steady:
    """So many tuples per second, at least so many at a time.

    A join that asks in vain is told so, and may go on with what it has; if it asks again without
    having done anything, time passes until there are enough.
    """

    def __init__(
        self, rig: Rig, device: EmulatedDevice, rate: float, seconds: float, at_least: int
    ) -> None:
        self._rig, self._device = rig, device
        self._rate, self._seconds, self._at_least = rate, seconds, at_least

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        row, asked_at = 0, -1.0
        while self._device.now_s < self._seconds:
            now = self._device.now_s
            due = int(self._rate * now) - row
            if due < self._at_least:
                if self._at_least > 1 or now == asked_at:  # the join has nothing else to do
                    self._device.idle((row + self._at_least + 0.5) / self._rate - now)
                    continue
                asked_at = now
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
