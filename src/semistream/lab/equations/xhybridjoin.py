"""X-HYBRIDJOIN's equations as printed, equation 9 also corrected: `xhybridjoin.txt` 4.3, 6.1, 6.3.

The paper assumes that R is sorted by frequency, so that the first d_N tuples are the most popular,
and derives its probabilities for Zipf exponent 1; here they are for any exponent.

*Equations 1 and 4* divide the memory beside the disk buffer between hash table and queue, α and
1 − α, as equation 1 of HYBRIDJOIN does (`equations.hybridjoin`); a node of the queue has 12 bytes.

*Equation 9* is corrected twice. Its derivation needs the mean number of matches, n·p, among the
tuples of the old and of the new part of the queue, but uses n·p·(1 − p), the variance. With the
mean (`stream_input_of_means`)::

    w = h_S·p_old / (1 + p_old − p_new)

It also takes every partition to be loaded as often as any other (p_old = 1/n). But the oldest tuple
picks the partition, so a popular one comes more often. Let q_m be partition m's share of the tuples
that are not pinned, and T the number of such tuples that pass between a tuple's arrival at the end
of the queue and its turn at the front. After a load of m the next tuple for m arrives after 1/q_m
others, and m is loaded again T later. So per tuple there are Σ q_m/(1 + q_m·T) loads, and
(`stream_input`)::

    w = 1 / ((1 − p_N)·Σ q_m/(1 + q_m·T))

T follows from the slots: those of the waiting tuples, and those of the w·p_N new ones that the
pinned part resolves in the same loop::

    h_S = Σ T·q_m·(1 + q_m·T·(1 + q_m)/2) / (1 + q_m·T) + w·p_N
"""

from collections.abc import Callable
from itertools import product
from typing import TypeAlias

import numpy as np

from semistream.cost.demand import Demand, falling_root
from semistream.lab.equations.symbols import Symbols

NODE_BYTES = 12.0  # of the queue, table 2
Served: TypeAlias = Callable[[Demand, float, float, float], float]  # equation 9: w of h_S, d_N, d_S


def memory_parts(
    s: Symbols,
    memory_bytes: float,
    k: float,
    l: float,  # noqa: E741
    node_bytes: float = NODE_BYTES,
) -> tuple[float, float, float]:
    """Equations 1 (k = l = 1) and 4: (k + l)·v_P, α·(M − (k + l)v_P), (1 − α)·(M − (k + l)v_P)."""
    table = s.fudge * s.stream_bytes
    alpha = table / (table + node_bytes)
    disk_buffer = (k + l) * s.page_bytes
    left = max(0.0, memory_bytes - disk_buffer)
    return disk_buffer, alpha * left, (1 - alpha) * left


def hash_tuples(
    s: Symbols,
    memory_bytes: float,
    k: float,
    l: float,  # noqa: E741
    node_bytes: float = NODE_BYTES,
) -> float:
    """Return h_S, the tuples of the hash table of equations 1 and 4."""
    _, table_bytes, _ = memory_parts(s, memory_bytes, k, l, node_bytes)
    return table_bytes / (s.fudge * s.stream_bytes)


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


def stream_input_of_means(demand: Demand, h_s: float, d_n: float, d_s: float) -> float:
    """Equation 9 with means for variances: w = h_S·p_old / (1 + p_old − p_new)."""
    old = old_probability(demand.key_count, d_n, d_s)
    new = new_probability(demand, d_n, d_s)
    return h_s * old / (1 + old - new)


def stream_input(demand: Demand, h_s: float, d_n: float, d_s: float) -> float:
    """Equation 9 corrected: the oldest tuple picks the partition (see above)."""
    edges = np.append(np.arange(d_n, demand.key_count, d_s), demand.key_count)
    reached = demand.hit_ratios(edges)
    p_n = float(reached[0])
    left = 1.0 - p_n
    if left <= 0.0:  # everything is pinned: each loop serves a whole hash table
        return h_s
    q = np.diff(reached) / left

    def served(wait: float) -> float:
        return float(1 / (left * (q / (1 + q * wait)).sum()))

    def free_slots(wait: float) -> float:
        waiting = (q * wait * (1 + q * wait * (1 + q) / 2) / (1 + q * wait)).sum()
        return float(h_s - waiting - served(wait) * p_n)

    return served(falling_root(free_slots, 0.0, 4.0 * h_s + 4.0))


def best_parts(
    s: Symbols,
    demand: Demand,
    memory_bytes: float,
    served: Served = stream_input,
    node_bytes: float = NODE_BYTES,
) -> tuple[int, int]:
    """Return k and l, in pages, at which μ is largest (section 6.3), over a grid of whole pages.

    `served` is equation 9, corrected or as printed.
    """
    most = memory_bytes / s.page_bytes
    sizes = np.unique(np.geomspace(1, max(1.0, 0.9 * most), 40).astype(int)).tolist()

    def rate(parts: tuple[int, int]) -> float:
        k, l = parts  # noqa: E741
        h_s = hash_tuples(s, memory_bytes, k, l, node_bytes)
        if h_s < 1:
            return 0.0
        w = served(demand, h_s, l * s.rows_per_page, k * s.rows_per_page)
        return service_rate(s, w, k, l)

    return max(product(sizes, [0, *sizes]), key=rate)


def partition_rows(
    s: Symbols,
    demand: Demand,
    memory_bytes: float,
    pinned_matches: float,
    served: Served = stream_input_as_printed,
) -> float:
    """Return d_T, both parts of this size, at which a loop has so many matches in the pinned part.

    Section 5.2.4 states 0.4 million matches in 4,000 loops in 50 MB, with R of 2 million tuples. No
    section states the size of a partition; it follows from this.
    """

    def too_few(rows: float) -> float:
        pages = rows / s.rows_per_page
        h_s = hash_tuples(s, memory_bytes, pages, pages)
        return pinned_matches - demand.hit_ratio(rows) * served(demand, h_s, rows, rows)

    return falling_root(too_few, 1.0, 0.02 * memory_bytes / s.row_bytes)
