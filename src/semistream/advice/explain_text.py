"""How `explain` prints times, rates and tables."""

from collections.abc import Sequence
from math import floor, inf, log10


def aligned_lines(lines: list[list[str]]) -> list[str]:
    """Return the lines of a table: its first column to the left, all others to the right."""
    widths = [max(len(line[i]) for line in lines) for i in range(len(lines[0]))]
    return ["  ".join(_aligned(line, widths)) for line in lines]


def _aligned(line: Sequence[str], widths: Sequence[int]) -> list[str]:
    first, *rest = zip(line, widths, strict=True)
    return [first[0].ljust(first[1]), *(text.rjust(width) for text, width in rest)]


def rounded(number: float) -> float:
    """Return a number with its first three digits only: the models know no more.

    >>> rounded(8_201_350.0), rounded(0.01234), rounded(0.0), rounded(inf)
    (8200000.0, 0.0123, 0.0, inf)
    """
    return round(number, 2 - floor(log10(number))) if 0 < number < inf else number


def rate_text(rate: float) -> str:
    """Return tuples per second; never none, however few there are.

    >>> rate_text(8_201_350.0), rate_text(0.01234)
    ('8,200,000', '0.0123')
    """
    number = rounded(rate)
    return f"{number:,.0f}" if number >= 100 else f"{number:g}"


def seconds(time_s: float) -> str:
    """Return a time with a unit that suits it.

    >>> seconds(0.00042), seconds(0.112), seconds(3.21)
    ('0.42 ms', '112 ms', '3.2 s')
    """
    if time_s < 1:
        return f"{time_s * 1e3:.0f} ms" if time_s >= 0.01 else f"{time_s * 1e3:.2g} ms"
    return f"{time_s:,.1f} s"


def milliseconds(time_ms: float) -> str:
    """Return a time in milliseconds, however long it is.

    >>> milliseconds(0.4567), milliseconds(11.2), milliseconds(12345.6)
    ('0.46 ms', '11 ms', '12,346 ms')
    """
    return f"{time_ms:,.0f} ms" if time_ms >= 10 else f"{time_ms:.2g} ms"
