"""Index nested loops in the papers' terms: `meshjoin.txt` section 3.2, after equation 4."""

from semistream.lab.equations.symbols import Symbols


def service_rate(s: Symbols, pages_per_probe: float = 1.0, hit_ratio: float = 0.0) -> float:
    """Return μ with one random read per tuple and probe that misses the buffer pool."""
    io_s = (1 - hit_ratio) * pages_per_probe * s.io_s(1)
    return 1 / (io_s + s.read_s + s.probe_s + s.output_s)
