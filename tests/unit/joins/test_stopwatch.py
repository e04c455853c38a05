"""The stopwatch: time counts for one step, also when phases nest and generators pause."""

from collections.abc import Iterator

import pytest

from semistream.joins import stopwatch
from semistream.joins.stopwatch import Stopwatch


class Clock:
    """A clock that the test moves on."""

    def __init__(self) -> None:
        self.now = 0

    def __call__(self) -> int:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(stopwatch, "perf_counter_ns", clock)
    return clock


@pytest.fixture
def watch(clock: Clock) -> Stopwatch:
    watch = Stopwatch()
    watch.switch("loop")
    return watch


def spent(watch: Stopwatch) -> dict[str, int]:
    return {step: time for step, time in watch.nanoseconds.items() if time}


def test_a_phase_within_another_counts_for_itself_alone(clock: Clock, watch: Stopwatch) -> None:
    clock.now += 1
    with watch.phase("output"):
        clock.now += 10
        with watch.phase("io"):
            clock.now += 100
        clock.now += 20
    clock.now += 2
    watch.switch("loop")
    assert spent(watch) == {"loop": 3, "output": 30, "io": 100}


def test_items_are_timed_where_they_are_made(clock: Clock, watch: Stopwatch) -> None:
    def items() -> Iterator[int]:
        for item in range(3):
            clock.now += 10
            yield item
        clock.now += 5

    for _ in watch.timed("probe", items()):
        clock.now += 1
        with watch.phase("output"):
            clock.now += 100
    watch.switch("loop")
    assert spent(watch) == {"probe": 35, "output": 300, "loop": 3}


def test_a_phase_ends_with_an_error(clock: Clock, watch: Stopwatch) -> None:
    def fail() -> None:
        with watch.phase("io"):
            clock.now += 7
            raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"):
        fail()
    clock.now += 1
    watch.switch("loop")
    assert spent(watch) == {"io": 7, "loop": 1}


def test_a_phase_within_the_same_phase(clock: Clock, watch: Stopwatch) -> None:
    with watch.phase("io"):
        clock.now += 1
        with watch.phase("output"), watch.phase("io"):
            clock.now += 10
        clock.now += 100
    clock.now += 1_000
    watch.switch("loop")
    assert spent(watch) == {"io": 111, "loop": 1_000}


def test_time_outside_is_not_the_phase_that_is_suspended(clock: Clock, watch: Stopwatch) -> None:
    def join() -> Iterator[int]:
        with watch.phase("hit"):
            clock.now += 10
            with watch.phase("outside"):
                yield 1
            clock.now += 10

    for _ in join():
        clock.now += 1_000
    assert spent(watch) == {"hit": 20, "outside": 1_000}
