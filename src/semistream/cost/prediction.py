"""What a cost model says of a join with certain settings."""

from dataclasses import dataclass
from math import inf


@dataclass(frozen=True, slots=True)
class Work:
    """What some tuples take in all: time, and what is read for them."""

    seconds: float
    pages: float  # whose key codes are read
    bytes_read: float

    def __add__(self, other: "Work") -> "Work":
        """Return the work of both."""
        return Work(
            self.seconds + other.seconds,
            self.pages + other.pages,
            self.bytes_read + other.bytes_read,
        )


@dataclass(frozen=True, slots=True)
class Prediction:
    """One loop of a join, and what follows from it."""

    loop_s: float  # c_loop
    tuples_per_loop: float  # w: tuples that each loop serves, the front stage's included
    pages_per_loop: float  # b, or those of b that are read
    latency_s: float  # between the arrival of a tuple and its last match, on average
    hit_ratio: float = 0.0  # p_N: the share of the tuples that never has to wait
    hit_s: float = 0.0  # of loop_s, for each tuple that the front stage resolves
    io_s: float = 0.0  # c_I/O, of loop_s
    bytes_per_loop: float = 0.0  # that are read
    stream_rows: int | None = None  # of the stream, if it ends
    stream_s: float = 0.0  # the time for all of it
    stream_pages: float = 0.0  # read for all of it
    stream_bytes: float = 0.0

    @property
    def rate(self) -> float:
        """μ = w / c_loop: tuples per second (equation 3 of `meshjoin.txt`)."""
        return self.tuples_per_loop / self.loop_s if self.loop_s else float("inf")

    @property
    def speed(self) -> float:
        """Tuples per second over the whole stream, its start and its end included, if it ends."""
        if self.stream_rows is None:
            return self.rate
        return self.stream_rows / self.stream_s if self.stream_s else float("inf")

    @property
    def pages_per_tuple(self) -> float:
        """IO_s = b / w (equation 4)."""
        return self.pages_per_loop / self.tuples_per_loop

    @property
    def pages_per_second(self) -> float:
        """IO_t = b / c_loop (equation 4)."""
        return self.pages_per_loop / self.loop_s if self.loop_s else float("inf")

    def work(self, loops: float) -> Work:
        """Return what `loops` loops take."""
        return Work(loops * self.loop_s, loops * self.pages_per_loop, loops * self.bytes_per_loop)

    def waiting_s(self, arrival_rate: float) -> float:
        """Return how long a tuple waits, on average, until enough have arrived for a loop.

        `hybridjoin.txt` section 3: w/λ for the first of w tuples, nothing for the last.
        """
        return self.tuples_per_loop / (2 * arrival_rate)

    def latency_at_s(self, arrival_rate: float) -> float:
        """Return the time from the arrival of a tuple to its last match, on average."""
        return self.latency_s + self.waiting_s(arrival_rate)


@dataclass(frozen=True, slots=True)
class Target:
    """What a join is to hold: the arrivals, and a latency on average."""

    rate: float  # tuples per second that arrive
    latency_s: float = inf
    headroom: float = 1.0  # it is to serve this multiple of the rate

    def is_held(self, prediction: Prediction) -> bool:
        """Return whether a join that is predicted like this holds both."""
        return self.worth(prediction)[:2] == (1.0, 1.0)

    def worth(self, prediction: Prediction) -> tuple[float, float, float]:
        """Return what splits are compared by: to hold the rate, then the latency, then speed.

        The rate comes first, because behind a join that is too slow the latency grows for ever.
        """
        served = prediction.rate / (self.headroom * self.rate)
        latency_s = prediction.latency_at_s(self.rate)
        in_time = self.latency_s / latency_s if latency_s else 1.0
        return min(1.0, served), min(1.0, in_time), prediction.speed
