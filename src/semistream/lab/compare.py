"""Compares figures that were made twice, such as in miniature and at the papers' size."""

from dataclasses import dataclass
from math import isnan, nan
from pathlib import Path

import numpy as np

from semistream.lab.claims import INTERVAL, Table, Value
from semistream.lab.runner import Result, results_in

_RESULTS = ("tuples_per_s", "seconds", "lead", "disk_buffer_mb", "sales_percent", "latency_s")


@dataclass(frozen=True, slots=True)
class Pair:
    """A figure in two folders: the numbers of one over those of the other, and the verdicts."""

    name: str
    numbers: int
    least: float
    median: float
    most: float
    verdicts: str
    changed: tuple[str, ...]  # the claims whose verdicts differ, with both


def compare(first: Path, second: Path) -> list[Pair]:
    """Return the figures that both folders have."""
    others = {result.name: result for result in results_in(second)}
    pairs = [(mine, others[mine.name]) for mine in results_in(first) if mine.name in others]
    return [_pair(mine, other, first, second) for mine, other in pairs]


def _pair(mine: Result, other: Result, first: Path, second: Path) -> Pair:
    tables = [Table.read(folder / f"{mine.name}.csv") for folder in (first, second)]
    ratios = _ratios(*tables)
    others = {claim.says: claim.verdict for claim in other.claims}
    both = [(claim, others[claim.says]) for claim in mine.claims if claim.says in others]
    changed = tuple(f"{c.says} {c.verdict} / {v}" for c, v in both if c.verdict != v)
    verdicts = f"{len(both) - len(changed)} of {len(both)} the same"
    least, median, most = np.quantile(ratios, (0.0, 0.5, 1.0)).tolist() if ratios else [nan] * 3
    return Pair(mine.name, len(ratios), least, median, most, verdicts, changed)


def _ratios(first: Table, second: Table) -> list[float]:
    """Return the measured numbers of rows at the same place, one over the other."""
    column = next((name for name in _RESULTS if len(first) and name in first.rows[0]), None)
    if column is None or len(first) != len(second):
        return []
    ratios = []
    for mine, other in zip(first, second, strict=True):
        if _labels(mine) != _labels(other) or mine.get("what", "measured") != "measured":
            continue
        a, b = float(mine[column]), float(other[column])
        if b and not isnan(a) and not isnan(b):
            ratios.append(a / b)
    return ratios


def _labels(row: "dict[str, Value] | object") -> dict[str, str]:
    assert isinstance(row, dict)
    return {n: v for n, v in row.items() if isinstance(v, str) and not n.endswith(INTERVAL)}
