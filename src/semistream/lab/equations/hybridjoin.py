"""HYBRIDJOIN's equations as printed: `hybridjoin.txt` section 4.4."""

from semistream.lab.equations.symbols import Symbols

K = -1.36  # fitted to the authors' machine and data
BENCHMARK_EXPONENT = -1.0  # e, the slope of the power law behind the 80/20 rule


def memory(s: Symbols, b: float, h_s: float) -> float:
    """Equation 1: M = v_P + the hash table's part + the queue's part, here by their tuples."""
    per_tuple = s.fudge * s.stream_bytes + s.pointer_bytes
    return b * s.page_bytes + h_s * per_tuple


def stream_input(s: Symbols, h_s: float, d_t: float, k: float = K) -> float:
    """Equation 2: w = k·h_S·d_T / (e·R_t), the tuples that a loop serves."""
    return k * h_s * d_t / (BENCHMARK_EXPONENT * s.row_count)


def loop_cost(s: Symbols, w: float, b: float = 1.0) -> float:
    """Equation 3: c_loop = c_I/O(v_P) + (v_P/v_R)·c_H + w(c_O + c_E + c_S + c_A)."""
    per_tuple = s.output_s + s.expire_s + s.read_s + s.append_s
    return s.io_s(b) + b * s.rows_per_page * s.probe_s + w * per_tuple


def service_rate(s: Symbols, h_s: float, b: float = 1.0, k: float = K) -> float:
    """Equation 4: μ = w / c_loop."""
    w = stream_input(s, h_s, b * s.rows_per_page, k)
    return w / loop_cost(s, w, b)
