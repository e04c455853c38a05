"""Progress on stderr: total, time left, and nothing that disturbs a log."""

import io

from semistream.cli.progress import Progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class Clock:
    """A clock that goes on by a step whenever it is asked."""

    def __init__(self, step_s: float) -> None:
        self.now, self.step_s = 0.0, step_s

    def __call__(self) -> float:
        self.now += self.step_s
        return self.now


def shown(stream: io.StringIO, step_s: float, total: float | None, updates: int) -> list[str]:
    progress = Progress("reading", lambda n: f"{n:,.0f}", "rows", stream, Clock(step_s))
    with progress:
        for i in range(1, updates + 1):
            progress.update(100 * i, total)
    return stream.getvalue().replace("\r", "\n").splitlines()


def test_a_terminal_shows_total_and_time_left() -> None:
    lines = shown(Terminal(), 1.0, 1_000, 5)
    assert lines[1] == "reading  [##----------------------]  10%  100 of 1,000 rows"
    assert lines[5].startswith(
        "reading  [############------------]  50%  500 of 1,000 rows  0:05 left"
    )
    assert lines[-1].strip() == "", "the line is cleared"


def test_a_terminal_is_not_drawn_at_each_update() -> None:
    lines = shown(Terminal(), 0.01, 100_000, 1_000)
    assert 50 < len(lines) < 130


def test_a_log_has_a_line_every_ten_seconds() -> None:
    lines = shown(io.StringIO(), 1.0, 10_000, 25)
    assert lines == [
        "reading  [##----------------------]  10%  1,000 of 10,000 rows  1:30 left",
        "reading  [####--------------------]  20%  2,000 of 10,000 rows  1:20 left",
    ]


def test_a_short_step_leaves_nothing_in_a_log() -> None:
    assert shown(io.StringIO(), 0.1, 1_000, 10) == []


def test_an_unknown_total() -> None:
    assert shown(io.StringIO(), 1.0, None, 10) == ["reading  1,000 rows"]
    assert shown(io.StringIO(), 1.0, 900, 10) == ["reading  1,000 rows"], "it was estimated too low"
