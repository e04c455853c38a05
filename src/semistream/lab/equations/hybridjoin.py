"""HYBRIDJOIN's equations as printed: `hybridjoin.txt` section 4.4.

*Equation 1* divides the memory beside the disk buffer between hash table and queue by weights α and
β. Both hold the same tuples, so the weights are the bytes of a tuple in each: f·v_S, and a node of
12 bytes in a queue that is linked both ways (table 2). Another size of the node is the switch for a
queue of another make; ours has no node for each tuple.

*Equation 2* divides by e, the exponent, so it has no value for a uniform stream (e = 0). There
HYBRIDJOIN serves 2·h_S/(n + 1) tuples in each of n loads: k would be 2, not the fitted 1.36.
"""

from semistream.cost.demand import Demand
from semistream.lab.equations import xhybridjoin
from semistream.lab.equations.symbols import Symbols

K = -1.36  # fitted to the authors' machine and data
BENCHMARK_EXPONENT = -1.0  # e, the slope of the power law behind the 80/20 rule
NODE_BYTES = 12.0  # of the queue, table 2


def memory_parts(
    s: Symbols, memory_bytes: float, b: float, node_bytes: float = NODE_BYTES
) -> tuple[float, float, float]:
    """Equation 1: v_P, α/(α+β)·(M − v_P) and β/(α+β)·(M − v_P), for b pages of v_P in all."""
    alpha, beta = s.fudge * s.stream_bytes, node_bytes
    disk_buffer = b * s.page_bytes
    left = max(0.0, memory_bytes - disk_buffer)
    return disk_buffer, alpha / (alpha + beta) * left, beta / (alpha + beta) * left


def hash_tuples(s: Symbols, memory_bytes: float, b: float, node_bytes: float = NODE_BYTES) -> float:
    """Return H_t, the tuples of the hash table of equation 1."""
    _, table_bytes, _ = memory_parts(s, memory_bytes, b, node_bytes)
    return table_bytes / (s.fudge * s.stream_bytes)


def stream_input(
    s: Symbols, h_s: float, d_t: float, k: float = K, e: float = BENCHMARK_EXPONENT
) -> float:
    """Equation 2: w = k·h_S·d_T / (e·R_t), the tuples that a loop serves; infinite at e = 0."""
    return k * h_s * d_t / (e * s.row_count) if e else float("inf")


def derived_k(row_count: float, h_s: float, d_t: float, exponent: float = 1.0) -> float:
    """Return the −k of equation 2 that follows from how the algorithm works, for loads of d_T rows.

    R is sorted by frequency. With small loads it is nearly 2. The larger the loads, the more of the
    stream requests the first one, and the smaller it is.
    """
    w = xhybridjoin.stream_input(Demand.zipf(exponent, int(row_count)), h_s, 0.0, d_t)
    return w * row_count / (h_s * d_t)


def loop_cost(s: Symbols, w: float, b: float = 1.0) -> float:
    """Equation 3: c_loop = c_I/O(v_P) + (v_P/v_R)·c_H + w(c_O + c_E + c_S + c_A)."""
    per_tuple = s.output_s + s.expire_s + s.read_s + s.append_s
    return s.io_s(b) + b * s.rows_per_page * s.probe_s + w * per_tuple


def service_rate(s: Symbols, h_s: float, b: float = 1.0, k: float = K) -> float:
    """Equation 4: μ = w / c_loop."""
    w = stream_input(s, h_s, b * s.rows_per_page, k)
    return w / loop_cost(s, w, b)


def service_rate_for(
    s: Symbols, memory_bytes: float, b: float, node_bytes: float = NODE_BYTES
) -> float:
    """Equations 1 to 4: μ as a function of the disk buffer, for a memory (section 4.5)."""
    return service_rate(s, hash_tuples(s, memory_bytes, b, node_bytes), b)
