"""X-HYBRIDJOIN's equations as printed, equation 9 also corrected: `xhybridjoin.txt` 4.3, 6.1, 6.3.

The paper assumes that R is sorted by frequency, so that the first d_N tuples are the most popular,
and derives its probabilities for Zipf exponent 1; here they are for any exponent.

*Equation 9* is corrected. Its derivation needs the mean number of matches, n·p, among the tuples of
the old and of the new part of the queue, but uses n·p·(1 − p), the variance. With the mean::

    w = h_S·p_old / (1 + p_old − p_new)
"""

from collections.abc import Callable
from itertools import product

import numpy as np

from semistream.cost.demand import Demand
from semistream.lab.equations.symbols import Symbols


def memory(s: Symbols, k: float, l: float, h_s: float) -> float:  # noqa: E741
    """Equations 1 (k = l = 1) and 4: (k + l)·v_P + the hash table's part + the queue's part."""
    per_tuple = s.fudge * s.stream_bytes + s.pointer_bytes
    return (k + l) * s.page_bytes + h_s * per_tuple


def loop_cost(s: Symbols, w: float, k: float, l: float) -> float:  # noqa: E741
    """Equations 2 (k = l = 1) and 5: c_I/O(k·v_P) + (d_N + d_S)c_H + w(c_O + c_E + c_S + c_A)."""
    per_tuple = s.output_s + s.expire_s + s.read_s + s.append_s
    return s.io_s(k) + (k + l) * s.rows_per_page * s.probe_s + w * per_tuple


def service_rate(s: Symbols, w: float, k: float, l: float) -> float:  # noqa: E741
    """Equations 3 and 6: μ = w / c_loop."""
    return w / loop_cost(s, w, k, l)


def old_probability(row_count: float, d_n: float, d_s: float) -> float:
    """Equation 7: p_old = 1/n, with n partitions of d_S tuples in what is not pinned."""
    return min(1.0, d_s / max(d_s, row_count - d_n))


def new_probability(demand: Demand, d_n: float, d_s: float) -> float:
    """Equation 8: p_new = p_N + p_S / n."""
    pinned = demand.hit_ratio(d_n)
    return pinned + (1 - pinned) * old_probability(demand.key_count, d_n, d_s)


def stream_input_as_printed(demand: Demand, h_s: float, d_n: float, d_s: float) -> float:
    """Equation 9 as printed: w = h_S·q_old / (1 + q_old − q_new), where q = p·(1 − p)."""
    old = old_probability(demand.key_count, d_n, d_s)
    new = new_probability(demand, d_n, d_s)
    return h_s * old * (1 - old) / (1 + old * (1 - old) - new * (1 - new))


def stream_input(demand: Demand, h_s: float, d_n: float, d_s: float) -> float:
    """Equation 9 corrected: w = h_S·p_old / (1 + p_old − p_new)."""
    old = old_probability(demand.key_count, d_n, d_s)
    new = new_probability(demand, d_n, d_s)
    return h_s * old / (1 + old - new)


def best_parts(
    s: Symbols,
    demand: Demand,
    memory_bytes: float,
    served: Callable[[Demand, float, float, float], float] = stream_input,
) -> tuple[int, int]:
    """Return k and l, in pages, at which μ is largest (section 6.3), over a grid of whole pages.

    `served` is equation 9, corrected or as printed.
    """
    per_tuple = s.fudge * s.stream_bytes + s.pointer_bytes
    most = memory_bytes / s.page_bytes
    sizes = np.unique(np.geomspace(1, max(1.0, 0.9 * most), 60).astype(int)).tolist()

    def rate(parts: tuple[int, int]) -> float:
        k, l = parts  # noqa: E741
        h_s = (memory_bytes - (k + l) * s.page_bytes) / per_tuple
        if h_s < 1:
            return 0.0
        w = served(demand, h_s, l * s.rows_per_page, k * s.rows_per_page)
        return service_rate(s, w, k, l)

    return max(product(sizes, [0, *sizes]), key=rate)
