"""The cost of holding all of R in memory: it is read once, then each tuple is looked up."""

from semistream.cost.conditions import Layout
from semistream.cost.factors import CostFactors
from semistream.cost.prediction import Prediction


def predict(factors: CostFactors) -> Prediction:
    """Return a loop of one tuple: c_S, a look-up and a result."""
    return Prediction(factors.resident_s, 1.0, 0.0, 0.0, hit_ratio=1.0)


def load_s(layout: Layout, factors: CostFactors) -> float:
    """Return the time until all of R is in memory: its columns are read, its rows stored."""
    read_s = factors.io(layout.page_count * (layout.code_bytes + sum(layout.part_bytes)))
    return read_s + layout.row_count * factors.index[-1].append_s
