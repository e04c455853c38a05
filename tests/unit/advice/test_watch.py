"""The watch: when it looks, and what it returns; on clocks that the tests move."""

from dataclasses import dataclass, field
from math import inf
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from semistream.advice.tuner import Chosen
from semistream.advice.watch import Retune, Watch
from semistream.cost.demand import Demand

UNIFORM, SKEWED = Demand.zipf(0.0, 10_000), Demand.zipf(1.0, 10_000)
WINDOW = 1_000
LOOK_S = 0.5


@dataclass
class Scene:
    """Stand-ins for the tuner, the source and the join, and a watch between them."""

    chosen_rate: float | None = None
    stream_rows: int | None = None  # expected
    has_all_memory: bool = False
    best_rate: float = 200.0  # predicted for another choice; what runs has 100
    assumed: Demand | None = UNIFORM  # by the choice
    demand: Demand = UNIFORM  # of every sample from now on
    limits_overhead: bool = False
    now_s: float = 0.0
    source: Any = field(init=False)

    def watch(self) -> Watch:
        self.source = SimpleNamespace(
            row_count=0,
            waited_s=0.0,
            empty_batches=0,
            rows_per_sample=100,
            now_s=lambda: self.now_s,
            sample=lambda: np.zeros(0, np.int64),
            forget_sample=lambda: None,
        )
        tuner: Any = SimpleNamespace(
            model_bytes=0,
            demand=self._look,
            has_all_memory=lambda _: self.has_all_memory,
            best=lambda demand, _: SimpleNamespace(
                budget_bytes=1, option=SimpleNamespace(rate=self.best_rate), demand=demand
            ),
            rate_under=lambda *_: 100.0,
        )
        join: Any = SimpleNamespace(telemetry=SimpleNamespace(front_hits=0), idle_bytes=1)
        settings = SimpleNamespace(places=WINDOW)
        option: Any = SimpleNamespace(tuned=SimpleNamespace(settings=settings))
        skew = None if self.assumed is None else self.assumed.skew
        chosen = Chosen(1, option, skew, self.chosen_rate, self.stream_rows)
        about = (tuner, self.source, chosen, join)
        return Watch(*about, clock=lambda: self.now_s, limits_overhead=self.limits_overhead)

    def _look(self, _: object) -> Demand:
        self.now_s += LOOK_S if self.limits_overhead else 0.0
        return self.demand

    def arrive(self, rows: int, seconds: float = 1.0, waited_s: float = 0.0) -> None:
        self.source.row_count += rows
        self.source.waited_s += waited_s
        self.now_s += seconds


def test_a_steady_stream_is_left_alone() -> None:
    scene = Scene()
    watch = scene.watch()
    for _ in range(5):
        scene.arrive(WINDOW)
        assert watch.look() is None


def test_another_skew_must_be_seen_twice() -> None:
    scene = Scene()
    watch = scene.watch()
    scene.demand = SKEWED
    scene.arrive(WINDOW)
    assert watch.look() is None, "a sample may be from before and after a change"
    scene.arrive(WINDOW - 1)
    assert watch.look() is None, "the window has not passed yet"
    scene.arrive(1)
    assert watch.look() == Retune("key skew changed: Zipf exponent 0.00 → 1.00", None)


def test_another_choice_must_be_clearly_better() -> None:
    scene = Scene(best_rate=110.0)
    watch = scene.watch()
    scene.demand = SKEWED
    for _ in range(4):
        scene.arrive(WINDOW)
        assert watch.look() is None


def test_a_stream_that_goes_on() -> None:
    """After half as many rows again as were expected, it may go on for ever."""
    scene = Scene(stream_rows=2 * WINDOW)
    watch = scene.watch()
    for _ in range(3):
        scene.arrive(WINDOW)
        assert watch.look() is None
    scene.arrive(WINDOW)
    reason = "the stream goes on after 4,000 rows, 2,000 were expected"
    assert watch.look() == Retune(reason, None)


def test_a_choice_that_did_not_depend_on_the_demand() -> None:
    """The demand that is seen first is what others are compared with."""
    scene = Scene(assumed=None, demand=SKEWED)
    watch = scene.watch()
    for _ in range(3):
        scene.arrive(WINDOW)
        assert watch.look() is None
    scene.demand = UNIFORM
    scene.arrive(WINDOW)
    assert watch.look() is None
    scene.arrive(WINDOW)
    assert watch.look() == Retune("key skew changed: Zipf exponent 1.00 → 0.00", None)


@pytest.mark.parametrize(
    ("arrivals", "changes"), [(500, True), (700, False), (1_200, False), (1_300, True)]
)
def test_other_arrivals(arrivals: int, changes: bool) -> None:
    """Arrivals set the pace when the join waits for them."""
    scene = Scene(chosen_rate=1_000.0)
    watch = scene.watch()
    scene.arrive(2 * arrivals, seconds=2.0, waited_s=1.0)
    retune = watch.look()
    assert (retune is not None) == changes
    assert retune is None or retune.rate == arrivals


@pytest.mark.parametrize("has_all_memory", [False, True])
def test_more_arrivals_than_can_be_served(has_all_memory: bool) -> None:
    scene = Scene(chosen_rate=1_000.0, has_all_memory=has_all_memory)
    watch = scene.watch()
    scene.arrive(WINDOW)
    assert watch.look() is None, "it may have to catch up"
    scene.arrive(WINDOW)
    retune = watch.look()
    assert retune is None if has_all_memory else retune is not None and retune.rate == inf


def test_a_join_that_has_all_that_arrived_is_not_behind() -> None:
    """It never waits, but empty batches tell it that there are no more rows for now."""
    scene = Scene(chosen_rate=float(WINDOW))
    watch = scene.watch()
    for _ in range(4):
        scene.arrive(WINDOW)
        scene.source.empty_batches += 1
        assert watch.look() is None
    scene.arrive(2 * WINDOW)
    scene.source.empty_batches += 1
    retune = watch.look()
    assert retune is not None
    assert retune.rate == 2 * WINDOW, "what arrives is known"


def test_looks_are_rare_enough() -> None:
    """A look of half a second is not repeated before 25 seconds have passed."""
    scene = Scene(limits_overhead=True)
    watch = scene.watch()
    scene.arrive(WINDOW)
    assert watch.look() is None
    scene.demand = SKEWED
    looked_s = scene.now_s
    scene.arrive(WINDOW, seconds=24.0)
    watch.look()
    assert scene.now_s == looked_s + 24.0, "no look"
    scene.arrive(WINDOW, seconds=1.0)
    watch.look()
    assert scene.now_s == looked_s + 25.0 + LOOK_S


def test_a_demand_has_moved_if_caches_would_hit_otherwise() -> None:
    assert UNIFORM.skew.has_moved(SKEWED.skew)
    assert not SKEWED.skew.has_moved(Demand.zipf(1.02, 10_000).skew)
