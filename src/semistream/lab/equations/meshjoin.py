"""MESHJOIN's equations as printed: `meshjoin.txt` section 3.2, `meshjoin-default-settings.txt` 3.

`w` and `b` are real numbers here, as in the papers. Equation numbers are those of `meshjoin.txt`;
equations 1, 2 and 4 of the second paper are its equations 1, 2 and 3.

Table 1 of `meshjoin.txt` has IO_t for the I/Os per tuple and IO_s for those per second. Equation 4
and the sentence before it exchange the two: IO_s = b/w is per stream tuple, and IO_t = b/c_loop per
unit of time. The functions here are named by what they return.
"""

from semistream.cost.demand import falling_root
from semistream.lab.equations.symbols import Symbols

DEFAULT_DISK_BUFFER_BYTES = 0.93e6  # `meshjoin-default-settings.txt`, table 2


def memory(s: Symbols, w: float, b: float) -> float:
    """Equation 1: M = b·v_P + w·v_S + w·(N_R/b)·sizeof(ptr) + w·f·(N_R/b)·v_S."""
    return b * s.page_bytes + w * _bytes_per_entering_tuple(s, b)


def window_entry(s: Symbols, memory_bytes: float, b: float) -> float:
    """Equation 3 of the second paper: w, equation 1 solved for it."""
    return max(0.0, memory_bytes - b * s.page_bytes) / _bytes_per_entering_tuple(s, b)


def loop_cost(s: Symbols, w: float, b: float) -> float:
    """Equation 2: c_loop = c_I/O(b) + w(c_E + c_S + c_A) + b(v_P/v_R)c_H + σ·b(v_P/v_R)c_O."""
    per_tuple = s.expire_s + s.read_s + s.append_s
    per_row = s.probe_s + s.selectivity * s.output_s
    return s.io_s(b) + w * per_tuple + b * s.rows_per_page * per_row


def service_rate(s: Symbols, w: float, b: float) -> float:
    """Equation 3: μ = w / c_loop."""
    return w / loop_cost(s, w, b)


def service_rate_for(s: Symbols, memory_bytes: float, b: float) -> float:
    """Equation 5 of the second paper: μ as a function of b alone, for a memory."""
    return service_rate(s, window_entry(s, memory_bytes, b), b)


def pages_per_tuple(w: float, b: float) -> float:
    """Equation 4: IO_s = b / w, read requests for each stream tuple (IO_t of table 1)."""
    return b / w


def pages_per_second(s: Symbols, w: float, b: float) -> float:
    """Equation 4: IO_t = b / c_loop, read requests per second (IO_s of table 1)."""
    return b / loop_cost(s, w, b)


def keeps_up(s: Symbols, rate: float, w: float, b: float) -> bool:
    """Equation 5: λ ≤ μ, so λ·c_loop ≤ w."""
    return rate * loop_cost(s, w, b) <= w


def least_window_entry(s: Symbols, rate: float, b: float) -> float:
    """Equation 6: w = λ·c_loop, where the service rate just meets the stream's.

    c_loop is a straight line over w, so w is where the two lines cross. If they do not, no window
    is large enough: infinity.
    """
    fixed = loop_cost(s, 0.0, b)
    per_tuple = s.expire_s + s.read_s + s.append_s
    return rate * fixed / (1 - rate * per_tuple) if rate * per_tuple < 1 else float("inf")


def least_memory(s: Symbols, rate: float, b: float) -> float:
    """Equations 6 and 1: the least memory for a rate, as a function of b (figure 5a)."""
    return memory(s, least_window_entry(s, rate, b), b)


def best_disk_buffer(s: Symbols, memory_bytes: float) -> float:
    """Return the b that makes μ largest for a memory (figure 5b): where its derivative is zero."""
    high = memory_bytes / s.page_bytes

    def slope(b: float) -> float:
        step = max(1e-6 * high, 1e-3)
        rates = [service_rate_for(s, memory_bytes, x) for x in (b + step, max(step, b - step))]
        return rates[0] - rates[1]

    return falling_root(slope, high * 1e-4, high * 0.999)


def _bytes_per_entering_tuple(s: Symbols, b: float) -> float:
    reads = s.page_count / b
    return s.stream_bytes + reads * s.pointer_bytes + s.fudge * reads * s.stream_bytes
