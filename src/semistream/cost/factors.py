"""The cost factors: what one step of a join costs on one machine, device and schema.

Those of `meshjoin.txt`, table 1, and some of ours; `semistream.cost` has the symbols. CPU costs
grow with the structures they work on, because of the processor's caches. So they are measured at
several sizes and interpolated between them.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from itertools import pairwise
from math import log
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class IoCurve:
    """c_I/O: seconds for one request, by its size; straight between and beyond what was measured.

    >>> curve = IoCurve((0, 1000), (0.008, 0.009))
    >>> round(curve(2000), 4), round(curve(1000, follows=True), 4)
    (0.01, 0.009)
    """

    sizes_bytes: tuple[float, ...]
    seconds: tuple[float, ...]
    seek_s: float = 0.0  # saved if a request continues where the one before ended

    @classmethod
    def of_device(cls, seek_s: float, request_s: float, bytes_per_s: float) -> "IoCurve":
        """Return the curve of a device with these costs: a straight line."""
        start = seek_s + request_s
        return cls((0.0, 1e9), (start, start + 1e9 / bytes_per_s), seek_s)

    def __call__(self, size_bytes: float, *, follows: bool = False) -> float:
        """Return what a request of this size costs."""
        return float(self.each(np.array([size_bytes]))[0]) - self.seek_s * follows

    def each(self, sizes_bytes: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return what requests of these sizes cost."""
        sizes, seconds = self.sizes_bytes, self.seconds
        beyond = np.maximum(0.0, sizes_bytes - sizes[-1])
        slope = (seconds[-1] - seconds[-2]) / (sizes[-1] - sizes[-2])
        return np.asarray(np.interp(sizes_bytes, sizes, seconds) + beyond * slope, np.float64)

    def times(self, factor: float) -> "IoCurve":
        """Return a curve that charges `factor` times as much."""
        return IoCurve(self.sizes_bytes, tuple(factor * s for s in self.seconds), self.seek_s)

    def plus(self, other: "IoCurve") -> "IoCurve":
        """Return a curve that charges both: an emulated device, and this machine's work for it."""
        sizes = tuple(sorted({*self.sizes_bytes, *other.sizes_bytes}))
        costs = tuple(self(size) + other(size) for size in sizes)
        return IoCurve(sizes, costs, self.seek_s + other.seek_s)


@dataclass(frozen=True, slots=True)
class StepCosts:
    """CPU seconds of each step of a join, for one size of its window or cache."""

    rows: int  # of the window or cache
    read_s: float = 0.0  # a tuple from the stream buffer, its key coded
    append_s: float = 0.0  # a tuple into the window
    expire_s: float = 0.0  # a tuple out of the window
    probe_s: float = 0.0  # probing with one row (scan) or one tuple (index)
    output_s: float = 0.0  # creating a result tuple
    repeat_s: float = 0.0  # more for a tuple, if another one in the window has its key
    loop_s: float = 0.0  # fixed cost of a loop
    entry_s: float = 0.0  # fixed cost of letting tuples in and out

    @property
    def tuple_s(self) -> float:
        """The cost of each tuple, whether it matches or not: c_S + c_A + c_E."""
        return self.read_s + self.append_s + self.expire_s


@dataclass(frozen=True, slots=True)
class FrontCosts:
    """CPU seconds of each step of a front stage, for one size of it."""

    rows: int  # of the front stage
    look_up_s: float = 0.0  # a look-up
    hit_s: float = 0.0  # creating a result tuple from a hit
    learn_s: float = 0.0  # observing one match of the back stage
    loop_s: float = 0.0  # fixed cost of a loop


@dataclass(frozen=True, slots=True)
class RequestCosts:
    """What a read plan pays for a request among others, and for each byte of it."""

    request_s: float = 0.0
    byte_s: float = 0.0
    seek_s: float = 0.0  # of request_s, saved if it continues where the one before ended
    # Where the file is in the page cache and can be mapped (0: it cannot): for each row that is
    # looked at there, and for each byte between the first row and the last.
    mapped_row_s: float = 0.0
    mapped_byte_s: float = 0.0

    @property
    def most_gap_bytes(self) -> float:
        """The gap between two pages at which reading it costs as much as another request."""
        return self.request_s / self.byte_s if self.byte_s else 0.0


@dataclass(frozen=True, slots=True)
class CostFactors:
    """All factors; without any measurements computing costs nothing, as on a device's own clock."""

    io: IoCurve
    scan: tuple[StepCosts, ...] = (StepCosts(1),)  # joins that probe a window with rows of R
    index: tuple[StepCosts, ...] = (StepCosts(1),)  # joins that probe pages with tuples
    front: tuple[FrontCosts, ...] = (FrontCosts(1),)
    pinned: tuple[FrontCosts, ...] = (FrontCosts(1),)
    resident_s: float = 0.0  # a tuple, with all of R in memory
    look_up: tuple[StepCosts, ...] = (StepCosts(1),)  # look-ups in the order of R
    requests: RequestCosts = RequestCosts()  # of a read plan

    @property
    def planned(self) -> RequestCosts:
        """What requests cost that are made together; by the curve if that was not measured."""
        if self.requests.byte_s:
            return self.requests
        first, last = self.io(0.0), self.io(self.io.sizes_bytes[-1])
        return RequestCosts(first, (last - first) / self.io.sizes_bytes[-1])

    @classmethod
    def of_device(cls, seek_s: float, request_s: float, bytes_per_s: float) -> "CostFactors":
        """Return the costs of a device alone: computing costs nothing."""
        requests = RequestCosts(seek_s + request_s, 1 / bytes_per_s, seek_s)
        return cls(IoCurve.of_device(seek_s, request_s, bytes_per_s), requests=requests)

    def with_device(self, seek_s: float, request_s: float, bytes_per_s: float) -> "CostFactors":
        """Return these factors with a device's charges on top."""
        ours = self.requests
        each_s, byte_s = seek_s + request_s + ours.request_s, 1 / bytes_per_s + ours.byte_s
        requests = RequestCosts(each_s, byte_s, seek_s)
        io = IoCurve.of_device(seek_s, request_s, bytes_per_s).plus(self.io)
        return replace(self, io=io, requests=requests)


_Costs = TypeVar("_Costs", StepCosts, FrontCosts)


def at_size(points: Sequence[_Costs], rows: float) -> _Costs:
    """Return the costs at a size: between two measurements straight over its logarithm."""
    rows = max(1.0, rows)
    if rows <= points[0].rows or len(points) == 1:
        return replace(points[0], rows=int(rows))
    for below, above in pairwise(points):
        if rows <= above.rows:
            t = log(rows / below.rows) / log(above.rows / below.rows)
            return _between(below, above, t, int(rows))
    return replace(points[-1], rows=int(rows))


def _between(below: _Costs, above: _Costs, t: float, rows: int) -> _Costs:
    names = [f.name for f in fields(below) if f.name != "rows"]
    costs = {n: (1 - t) * getattr(below, n) + t * getattr(above, n) for n in names}
    return replace(below, rows=rows, **costs)
