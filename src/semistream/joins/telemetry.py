"""What an operator counted while it ran: one row of numbers per task."""

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace


@dataclass(slots=True)
class Telemetry:
    """Counters of one run of one operator.

    Those named ``peak`` are maxima, `algorithms` is a set, all others are sums.
    """

    stream_rows: int = 0  # rows read from the stream
    shed_rows: int = 0  # rows that were shed, besides those; on Spark a metric of its own
    output_rows: int = 0  # rows emitted
    matched_pairs: int = 0  # of a stream row and a row of R
    missed_rows: int = 0  # stream rows without a match
    null_key_rows: int = 0  # of these, rows without a key
    front_hits: int = 0  # stream rows that the front stage has resolved
    front_admissions: int = 0  # rows of R that entered the front stage
    warm_rows: int = 0  # that the front stage had at the start, from the micro-batch before
    retunings: int = 0  # changes of algorithm or split by `auto`
    iterations: int = 0  # of the join's loop
    pages_scanned: int = 0  # pages whose key codes were read
    bytes_read: int = 0  # from disk
    window_rows_peak: int = 0  # tuples in the window
    memory_bytes_peak: int = 0  # reserved
    front_bytes_peak: int = 0  # of these, by the front stage, pinned pages, or all of R
    window_bytes_peak: int = 0  # by waiting tuples
    disk_bytes_peak: int = 0  # by the disk buffer
    table_bytes_peak: int = 0  # by the page table and the page index
    buffer_bytes_peak: int = 0  # by input and output
    join_us: int = 0  # microseconds of the join, without waiting for Spark
    predicted_us: int = 0  # of these, by the model that `auto` chose by; 0 if it used none
    algorithms: int = 0  # that ran: a bit for each, in the order of the registry

    @classmethod
    def names(cls) -> tuple[str, ...]:
        """Return the counters' names, in the order of `values`."""
        return tuple(field.name for field in fields(cls))

    def values(self) -> list[int]:
        """Return the counters, in the order of `names`."""
        return [getattr(self, name) for name in self.names()]

    def plus(self, other: "Telemetry") -> "Telemetry":
        """Return the counters of two runs, one after the other."""
        summed = replace(self)
        for name in self.names():
            a, b = getattr(self, name), getattr(other, name)
            kept = max(a, b) if name.endswith("_peak") else a + b
            setattr(summed, name, a | b if name == "algorithms" else kept)
        return summed

    def with_split(self, peaks: Mapping[str, int]) -> "Telemetry":
        """Return the counters with the memory of each part, by the peaks of a ledger's holders."""
        summed = dict.fromkeys(_PARTS.values(), 0)
        for holder, size_bytes in peaks.items():
            if holder in _PARTS:
                summed[_PARTS[holder]] += size_bytes
        return replace(self, **summed)


# The counter of each holder in the ledger.
_PARTS = {
    "front stage": "front_bytes_peak",
    "pinned pages": "front_bytes_peak",
    "relation": "front_bytes_peak",
    "window": "window_bytes_peak",
    "disk buffer": "disk_bytes_peak",
    "page table": "table_bytes_peak",
    "page index": "table_bytes_peak",
    "input": "buffer_bytes_peak",
    "output buffer": "buffer_bytes_peak",
}
