"""Compares figures that were made twice, such as in miniature and at the papers' size."""

from dataclasses import dataclass
from math import isnan
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


def compare(first: Path, second: Path) -> list[Pair]:
    """Return the figures that both folders have."""
    others = {result.name: result for result in results_in(second)}
    pairs = [(mine, others[mine.name]) for mine in results_in(first) if mine.name in others]
    return [_pair(mine, other, first, second) for mine, other in pairs]


def _pair(mine: Result, other: Result, first: Path, second: Path) -> Pair:
    tables = [Table.read(folder / f"{mine.name}.csv") for folder in (first, second)]
    ratios = _ratios(*tables)
    same = [a.verdict == b.verdict for a, b in zip(mine.claims, other.claims, strict=True)]
    verdicts = f"{sum(same)} of {len(same)} the same"
    if not ratios:
        return Pair(mine.name, 0, float("nan"), float("nan"), float("nan"), verdicts)
    return Pair(
        mine.name, len(ratios), min(ratios), float(np.median(ratios)), max(ratios), verdicts
    )


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
