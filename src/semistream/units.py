"""Byte sizes as people write them, and as they read them."""

import re
from datetime import timedelta

from semistream.errors import OptionError

_FACTORS = {
    "": 1,
    "B": 1,
    "BYTES": 1,
    "KB": 10**3,
    "MB": 10**6,
    "GB": 10**9,
    "KIB": 2**10,
    "MIB": 2**20,
    "GIB": 2**30,
}


_SECONDS = {
    **dict.fromkeys(("ms", "millisecond", "milliseconds"), 1e-3),
    **dict.fromkeys(("", "s", "sec", "second", "seconds"), 1.0),
    **dict.fromkeys(("m", "min", "minute", "minutes"), 60.0),
    **dict.fromkeys(("h", "hour", "hours"), 3_600.0),
    **dict.fromkeys(("d", "day", "days"), 86_400.0),
}


def parse_bytes(size: int | str) -> int:
    """Return a byte count from ``64_000_000``, ``"64MB"``, ``"64 MiB"`` or ``"1.5gb"``.

    >>> parse_bytes("20MB"), parse_bytes("1KiB"), parse_bytes(17)
    (20000000, 1024, 17)
    """
    if isinstance(size, int) and not isinstance(size, bool):
        size_bytes = size
    else:
        found = re.fullmatch(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([A-Za-z]*)\s*", str(size))
        if not found or found[2].upper() not in _FACTORS:
            raise OptionError(
                f"a size must be a number of bytes or text such as '64MB' or '512KiB'; got {size!r}"
            )
        size_bytes = int(float(found[1]) * _FACTORS[found[2].upper()])
    if size_bytes <= 0:
        raise OptionError(f"a size must be positive; got {size!r}")
    return size_bytes


def parse_budget(memory: int | str, relation_bytes: int) -> int:
    """Return a budget in bytes: a size, or a share of a relation's size such as ``"5%"``.

    >>> parse_budget("5%", 200_000_000), parse_budget("64MB", 200_000_000)
    (10000000, 64000000)
    """
    found = re.fullmatch(r"\s*([0-9]+(?:\.[0-9]+)?)\s*%\s*", str(memory))
    if found:
        return max(1, int(float(found[1]) / 100 * relation_bytes))
    try:
        return parse_bytes(memory)
    except OptionError:
        raise OptionError(
            "memory must be a size or a share of the relation, such as '64MB' or '5%'; "
            f"got {memory!r}"
        ) from None


def parse_seconds(duration: float | str | timedelta) -> float:
    """Return a duration in seconds: a number, a timedelta, or text such as ``"10min"``.

    >>> parse_seconds("10min"), parse_seconds("1.5h"), parse_seconds(30), parse_seconds("50ms")
    (600.0, 5400.0, 30.0, 0.05)
    """
    if isinstance(duration, timedelta):
        seconds = duration.total_seconds()
    elif isinstance(duration, str):
        found = re.fullmatch(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([a-z]*)\s*", duration.lower())
        if not found or found[2] not in _SECONDS:
            raise OptionError(
                f"a duration must be a number of seconds or text such as '50ms', '30s', '10min', "
                f"'2h' or '1d'; got {duration!r}"
            )
        seconds = float(found[1]) * _SECONDS[found[2]]
    else:
        seconds = float(duration)
    if seconds <= 0:
        raise OptionError(f"a duration must be positive; got {duration!r}")
    return seconds


def format_bytes(size_bytes: float) -> str:
    """Return a size for people, in decimal units with three digits.

    >>> format_bytes(20_971_520), format_bytes(812)
    ('21.0 MB', '812 B')
    """
    for unit, factor in (("GB", 10**9), ("MB", 10**6), ("KB", 10**3)):
        if size_bytes >= factor:
            return f"{size_bytes / factor:.1f} {unit}"
    return f"{size_bytes:.0f} B"
