"""CMESHJOIN's equations as printed and corrected: `cmeshjoin-front-stage.txt` section 3.2.

Two are corrected. *Equation 3* as printed is a share of R, only proportional to a rate; corrected,
it is MESHJOIN's own rate, so that equation 4 is a rate. *Equation 6* as printed leaves out that
μ_dp falls with h_R, so it is positive everywhere and has no root; the whole derivative has one::

    dμ/dh = μ_dp·p' / (1 − p)²  −  (8 + v_R) / (R_t·v_R·(1 − p))
"""

from semistream.cost.demand import Demand, falling_root
from semistream.lab.equations import meshjoin
from semistream.lab.equations.symbols import Symbols

RECORDER_BYTES = 8  # of the frequency recorder, for each cached tuple


def hit_ratio(demand: Demand, h_r: float) -> float:
    """Equation 1: p_N(h_R), for any demand."""
    return demand.hit_ratio(h_r)


def hit_ratio_slope(demand: Demand, h_r: float) -> float:
    """Equation 2: dp_N/dh_R ≈ p_N(x + 1) − p_N(x)."""
    return demand.hit_ratio(h_r + 1) - demand.hit_ratio(h_r)


def back_rate_as_printed(s: Symbols, memory_bytes: float, h_r: float) -> float:
    """Equation 3 as printed: μ_dp ≈ (M − (8 + v_R)·h_R) / (R_t·v_R)."""
    left = memory_bytes - (RECORDER_BYTES + s.row_bytes) * h_r
    return max(0.0, left) / (s.row_count * s.row_bytes)


def back_rate(s: Symbols, memory_bytes: float, h_r: float, b: float) -> float:
    """Equation 3 corrected: MESHJOIN's rate in the memory that the front stage leaves."""
    left = memory_bytes - (RECORDER_BYTES + s.row_bytes) * h_r
    return meshjoin.service_rate_for(s, left, b)


def service_rate(demand: Demand, h_r: float, back: float) -> float:
    """Equation 4: μ_cm = μ_dp / (1 − p_N)."""
    return back / max(1e-12, 1 - hit_ratio(demand, h_r))


def slope_as_printed(s: Symbols, demand: Demand, memory_bytes: float, h_r: float) -> float:
    """Equation 6 as printed: dμ_cm/dh_R ≈ μ_dp / (1 − p_N)² · dp_N/dh_R."""
    missed = 1 - hit_ratio(demand, h_r)
    back = back_rate_as_printed(s, memory_bytes, h_r)
    return back / missed**2 * hit_ratio_slope(demand, h_r)


def second_slope_as_printed(s: Symbols, demand: Demand, memory_bytes: float, h_r: float) -> float:
    """Equation 7 as printed: d²μ_cm/dh_R² ≈ 2·μ_dp / (1 − p_N)³ · (dp_N/dh_R)²."""
    missed = 1 - hit_ratio(demand, h_r)
    back = back_rate_as_printed(s, memory_bytes, h_r)
    return 2 * back / missed**3 * hit_ratio_slope(demand, h_r) ** 2


def slope(s: Symbols, demand: Demand, memory_bytes: float, h_r: float) -> float:
    """Equation 6 corrected: the whole derivative, in which μ_dp falls with h_R."""
    missed = 1 - hit_ratio(demand, h_r)
    falls = (RECORDER_BYTES + s.row_bytes) / (s.row_count * s.row_bytes)
    return slope_as_printed(s, demand, memory_bytes, h_r) - falls / missed


def best_cache(s: Symbols, demand: Demand, memory_bytes: float) -> float:
    """Return the h_R at which μ_cm is largest: where the whole derivative is zero."""
    most = memory_bytes / (RECORDER_BYTES + s.row_bytes)
    return falling_root(lambda h: slope(s, demand, memory_bytes, h), 1.0, most * 0.999)
