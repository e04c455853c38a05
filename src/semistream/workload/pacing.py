"""Cuts a stream into pieces: evenly, or in real time as its rows arrive."""

import time
from collections.abc import Callable, Iterator

from semistream.errors import OptionError
from semistream.workload.arrivals import Arrivals

MOST_ROWS = 4_000_000


def even_cuts(rows: int, pieces: int) -> Iterator[tuple[int, int]]:
    """Yield first row and count of each piece.

    >>> list(even_cuts(10, 3))
    [(0, 3), (3, 3), (6, 4)]
    """
    if rows < 0 or pieces < 1:
        raise OptionError(f"rows must be at least 0 and files at least 1; got {rows} and {pieces}")
    for piece in range(pieces):
        first, end = rows * piece // pieces, rows * (piece + 1) // pieces
        if end > first:
            yield first, end - first


def paced_cuts(
    arrivals: Arrivals,
    rows: int | None,
    every_s: float,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> Iterator[tuple[int, int]]:
    """Every `every_s` seconds, yield first row and count of the rows that have arrived since.

    Nothing is yielded when no row arrived. A consumer that is late gets all rows that arrived
    meanwhile, in pieces of at most `MOST_ROWS`.
    """
    if every_s <= 0:
        raise OptionError(f"the seconds between two files must be greater than 0; got {every_s}")
    start, first, tick = clock(), 0, 0
    while rows is None or first < rows:
        tick = max(tick + 1, int((clock() - start) / every_s))
        sleep(max(0.0, start + tick * every_s - clock()))
        arrived = arrivals.arrived_by(clock() - start)
        end = arrived if rows is None else min(arrived, rows)
        while first < end:
            count = min(end - first, MOST_ROWS)
            yield first, count
            first += count
