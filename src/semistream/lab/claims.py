"""The papers' claims about their figures, as data: a claim, the figure's table, a verdict.

A claim is judged on the table in the figure's CSV file. A claim about a number *holds* if the
number here is within 25 % of it, and *holds in shape* within a factor of 2 with the same order; any
other claim holds if the statement is true here, and in shape if most of it is. Otherwise it *does
not hold here*, and `why` gives the reason. A claim about data that we do not have is *not judged*.
With several seeds a claim is judged for each, and the least favourable verdict counts.
"""

import csv
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from math import inf, isnan, nan, sqrt
from pathlib import Path
from typing import TypeAlias

import numpy as np

Value: TypeAlias = str | float
Row: TypeAlias = Mapping[str, Value]
NEAR, FAR = 0.25, 2.0  # a number holds within this share of it, and in shape within this factor
INTERVAL = "_ci95"  # ends the name of a column with half the width of a confidence interval
# Student's t for a two-sided interval of 95 %, by the number of values.
_STUDENT = {2: 12.706, 3: 4.303, 4: 3.182, 5: 2.776, 6: 2.571, 7: 2.447, 8: 2.365, 9: 2.306}


class Verdict(StrEnum):
    """The outcome of a claim."""

    HOLDS = "holds"
    IN_SHAPE = "holds in shape"
    NOT_HERE = "does not hold here"
    NOT_JUDGED = "not judged"


@dataclass(frozen=True, slots=True)
class Finding:
    """A verdict and the number that it is based on."""

    verdict: Verdict
    number: str

    @classmethod
    def of(cls, number: str, *, holds: bool, in_shape: bool = False) -> "Finding":
        """Return the best verdict that applies."""
        if holds:
            return cls(Verdict.HOLDS, number)
        return cls(Verdict.IN_SHAPE if in_shape else Verdict.NOT_HERE, number)

    @classmethod
    def of_numbers(
        cls, number: str, *pairs: tuple[float, float], in_order: bool = True
    ) -> "Finding":
        """Return the verdict on stated numbers, from pairs of what was found and what was stated.

        `in_order`: whether what was found has the order, or the direction, of what was stated.

        >>> [Finding.of_numbers("", (found, 10)).verdict.value for found in (9, 6)]
        ['holds', 'holds in shape']
        """
        near = all(abs(found / stated - 1) <= NEAR for found, stated in pairs)
        not_far = all(1 / FAR <= found / stated <= FAR for found, stated in pairs)
        return cls.of(number, holds=near and in_order, in_shape=not_far and in_order)


@dataclass(frozen=True)
class Claim:
    """One statement of a paper about one of its figures."""

    says: str
    source: str  # section and figure
    judge: Callable[["Table"], Finding]
    why: str = ""  # the reason if it does not hold, or only in shape


@dataclass(frozen=True)
class Table:
    """The rows of a figure, as they are in its CSV file."""

    rows: Sequence[Row]

    def __iter__(self) -> Iterator[Row]:
        """Go through the rows."""
        return iter(self.rows)

    def __len__(self) -> int:
        """How many rows there are."""
        return len(self.rows)

    def where(self, **having: Value) -> "Table":
        """Return the rows with these values."""
        return Table([r for r in self.rows if all(r[name] == v for name, v in having.items())])

    def values(self, name: str) -> list[float]:
        """Return a column of numbers."""
        return [number(row, name) for row in self.rows]

    def distinct(self, name: str) -> list[Value]:
        """Return the different values of a column, in the order of their first appearance."""
        return list(dict.fromkeys(row[name] for row in self.rows))

    def lookup(self, key: str, value: str, **having: Value) -> dict[Value, float]:
        """Return one column by another, for the rows with these values that have a number."""
        found = {row[key]: number(row, value) for row in self.where(**having)}
        return {k: v for k, v in found.items() if not isnan(v)}

    def ratios(self, key: str, value: str, series: str, over: str, under: str) -> list[float]:
        """Return, wherever both series have a value, the first over the second.

        Over zero, such as a waiting time of nothing, it is infinity, and 1 if both are zero.
        """
        above = self.lookup(key, value, **{series: over})
        below = self.lookup(key, value, **{series: under})
        pairs = [(above[k], below[k]) for k in above if k in below]
        return [a / b if b else (inf if a else 1.0) for a, b in pairs]

    def intervals(self, name: str) -> list[float] | None:
        """Return half the widths of a column's confidence intervals; None if it has none."""
        column = name + INTERVAL
        if not any(column in row and row[column] != "" for row in self.rows):
            return None
        return [float(row.get(column) or 0.0) for row in self.rows]

    @classmethod
    def mean_of(cls, tables: Sequence["Table"]) -> "Table":
        """Return the means of tables that differ in their numbers only, with their intervals."""
        if len(tables) == 1:
            return tables[0]
        if len({len(table) for table in tables}) > 1:
            raise AssertionError("the seeds of a figure gave different numbers of rows")
        return cls([_mean_row(rows) for rows in zip(*(t.rows for t in tables), strict=True)])

    def write(self, path: Path) -> None:
        """Write a CSV file, numbers with six digits."""
        names = list(dict.fromkeys(name for row in self.rows for name in row))
        with path.open("w", newline="") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(names)
            writer.writerows([_text(row.get(name, "")) for name in names] for row in self.rows)

    @classmethod
    def read(cls, path: Path) -> "Table":
        """Read a CSV file; what looks like a number is one."""
        with path.open(newline="") as file:
            return cls([{n: _value(v) for n, v in row.items()} for row in csv.DictReader(file)])


def number(row: Row, name: str) -> float:
    """Return a value that is a number."""
    return float(row[name])


def falls(values: Iterable[float], tolerance: float = 0.0) -> bool:
    """Return whether each value is at most the one before, but for a tolerance.

    >>> falls([3, 2, 2.01], 0.02), falls([1, 2])
    (True, False)
    """
    values = list(values)
    pairs = itertools.pairwise(values)
    return all(later <= earlier * (1 + tolerance) for earlier, later in pairs)


def rises(values: Iterable[float], tolerance: float = 0.0) -> bool:
    """Return whether each value is at least the one before, but for a tolerance."""
    return falls(reversed(list(values)), tolerance)


def has_peak(values: Sequence[float], drop: float = 0.0) -> bool:
    """Return whether the largest value is inside, and both ends are below it by a share.

    >>> has_peak([1, 5, 4], 0.1), has_peak([1, 2, 3])
    (True, False)
    """
    top = max(values)
    at_the_ends = max(values[0], values[-1])
    return values.index(top) not in (0, len(values) - 1) and at_the_ends <= (1 - drop) * top


def _mean_row(rows: Sequence[Row]) -> Row:
    """Return the mean of rows; a column whose numbers differ gets an interval."""
    mean: dict[str, Value] = {}
    for name, first in rows[0].items():
        values = [row[name] for row in rows]
        if isinstance(first, str) or all(value == first for value in values):
            if any(value != first for value in values):
                raise AssertionError(f"the seeds of a figure differ in {name!r}: {values}")
            mean[name] = first
            continue
        numbers = np.array(values, float)
        is_known = not np.isnan(numbers).any()
        half = _STUDENT.get(len(numbers), 1.96) * numbers.std(ddof=1) / sqrt(len(numbers))
        mean[name] = float(numbers.mean()) if is_known else nan
        mean[name + INTERVAL] = float(half) if is_known else nan
    return mean


def _text(value: Value) -> str:
    return value if isinstance(value, str) else f"{value:.6g}"


def _value(text: str) -> Value:
    try:
        return float(text)
    except ValueError:
        return text
