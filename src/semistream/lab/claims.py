"""The papers' claims about their figures, as data: a claim, the figure's table, a verdict.

A claim is judged on the table in the figure's CSV file. It *holds* if the paper's statement is true
here too, with its number; it *holds in shape* if the direction or the order is the same but not the
number; otherwise it *does not hold here*, and `why` gives the reason.
"""

import csv
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from math import isnan
from pathlib import Path
from typing import TypeAlias

Value: TypeAlias = str | float
Row: TypeAlias = Mapping[str, Value]


class Verdict(StrEnum):
    """The outcome of a claim."""

    HOLDS = "holds"
    IN_SHAPE = "holds in shape"
    NOT_HERE = "does not hold here"


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
        """Return, wherever both series have a value, the first over the second."""
        above = self.lookup(key, value, **{series: over})
        below = self.lookup(key, value, **{series: under})
        return [above[k] / below[k] for k in above if k in below]

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


def _text(value: Value) -> str:
    return value if isinstance(value, str) else f"{value:.6g}"


def _value(text: str) -> Value:
    try:
        return float(text)
    except ValueError:
        return text
