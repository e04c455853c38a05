"""Progress on stderr: how much is done, of how much, and the time left.

On a terminal one line is drawn again and again, and is gone at the end. Elsewhere, in a log, there
is a line every `_LOG_S` seconds. Nothing but the standard library is needed.
"""

import sys
import time
from collections.abc import Callable
from shutil import get_terminal_size
from types import TracebackType
from typing import TextIO

_DRAW_S = 0.1  # between two drawings on a terminal
_LOG_S = 10.0  # between two lines in a log
_BAR = 24  # characters


class Progress:
    """The progress of one step; a context manager, so that its line is cleared at the end."""

    def __init__(
        self,
        what: str,
        show: Callable[[float], str],
        unit: str = "",
        stream: TextIO | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Name the step; `show` turns an amount into text, to which the unit is added once."""
        self._what = what
        self._show = show
        self._unit = f" {unit}" if unit else ""
        self._stream = stream or sys.stderr
        self._clock = clock
        self._is_terminal = self._stream.isatty()
        # The first update, as (when, how much was done): the speed is measured from there.
        self._first: tuple[float, float] | None = None
        self._drawn_at = clock()
        self._width = 0  # of the line that is on the terminal

    def __enter__(self) -> "Progress":
        """Draw nothing yet."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        """Clear the line."""
        if self._width:
            print(f"\r{' ' * self._width}\r", end="", file=self._stream, flush=True)

    def update(self, done: float, total: float | None, is_estimate: bool = False) -> None:
        """Say how much is done; the total may be unknown, or an estimate."""
        now = self._clock()
        self._first = self._first or (now, done)
        if now - self._drawn_at < (_DRAW_S if self._is_terminal else _LOG_S):
            return
        self._drawn_at = now
        began, before = self._first
        left_s = None
        if total and done > before:
            left_s = (now - began) / (done - before) * (total - done)
        line = self._line(done, total, is_estimate, left_s)
        if self._is_terminal:
            line = line[: get_terminal_size().columns - 1]
            print(f"\r{line:{self._width}}", end="", file=self._stream, flush=True)
            self._width = len(line)
        else:
            print(line, file=self._stream, flush=True)

    def _line(
        self, done: float, total: float | None, is_estimate: bool, left_s: float | None
    ) -> str:
        if not total or done > total:
            return f"{self._what}  {self._show(done)}{self._unit}"
        filled = int(done / total * _BAR)
        of = f"{self._show(done)} of {'about ' if is_estimate else ''}{self._show(total)}"
        return (
            f"{self._what}  [{'#' * filled}{'-' * (_BAR - filled)}] {done / total:4.0%}  "
            f"{of}{self._unit}{'' if left_s is None else f'  {format_duration(left_s)} left'}"
        )


def format_duration(seconds: float) -> str:
    """Return minutes and seconds, with hours if there are any.

    >>> format_duration(7.4), format_duration(3_725)
    ('0:07', '1:02:05')
    """
    whole = round(seconds)
    hours, minutes = whole // 3600, whole // 60 % 60
    return f"{hours}:{minutes:02}:{whole % 60:02}" if hours else f"{minutes}:{whole % 60:02}"
