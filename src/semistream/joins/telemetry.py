"""What an operator counted while it ran: one row of numbers per task."""

from dataclasses import dataclass, fields


@dataclass(slots=True)
class Telemetry:
    """Counters of one run of one operator. Those named ``peak`` are maxima, the others sums."""

    stream_rows: int = 0
    output_rows: int = 0
    matched_pairs: int = 0
    missed_rows: int = 0
    null_key_rows: int = 0
    front_hits: int = 0
    front_admissions: int = 0
    retunings: int = 0
    iterations: int = 0
    pages_scanned: int = 0
    bytes_read: int = 0
    window_rows_peak: int = 0
    memory_bytes_peak: int = 0

    @classmethod
    def names(cls) -> tuple[str, ...]:
        """Return the counters' names, in the order of `values`."""
        return tuple(field.name for field in fields(cls))

    def values(self) -> list[int]:
        """Return the counters, in the order of `names`."""
        return [getattr(self, name) for name in self.names()]
