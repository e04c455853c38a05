"""What an operator counted while it ran: one row of numbers per task."""

from dataclasses import dataclass, fields


@dataclass(slots=True)
class Telemetry:
    """Counters of one run of one operator. Those named ``peak`` are maxima, the others sums."""

    stream_rows: int = 0  # rows read from the stream
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

    @classmethod
    def names(cls) -> tuple[str, ...]:
        """Return the counters' names, in the order of `values`."""
        return tuple(field.name for field in fields(cls))

    def values(self) -> list[int]:
        """Return the counters, in the order of `names`."""
        return [getattr(self, name) for name in self.names()]
