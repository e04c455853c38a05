import itertools
import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from semistream.errors import OptionError
from semistream.workload.arrivals import Arrivals, Bursty, Intermittent, Steady
from semistream.workload.bursty import VirtualStreams, mean_bandwidth
from semistream.workload.selfsimilar import hurst_by_range, hurst_by_variance

ALL: list[Arrivals] = [
    Steady(1234.5),
    Steady(0.3),
    Intermittent(700, on_s=1.7, off_s=0.9),
    Intermittent(50, on_s=1, off_s=0),
    Bursty(2500),
    Bursty(1.5, seed=3, step_s=0.01),
]


@pytest.mark.parametrize("arrivals", ALL, ids=repr)
def test_rows_arrive_one_after_the_other(arrivals: Arrivals) -> None:
    times = np.linspace(0, 400, 2_000)
    counts = [arrivals.arrived_by(float(t)) for t in times]
    assert counts[0] == 0
    assert all(a <= b for a, b in itertools.pairwise(counts))
    assert counts == [pickle.loads(pickle.dumps(arrivals)).arrived_by(float(t)) for t in times]
    assert arrivals.arrived_by(-1.0) == 0


@given(row=st.integers(0, 3_000_000), which=st.sampled_from(ALL[:4] + ALL[4:5]))
def test_a_row_is_there_from_its_time_on(row: int, which: Arrivals) -> None:
    when = which.time_of(row)
    assert which.arrived_by(when) >= row + 1
    assert which.arrived_by(when - 1e-6 * max(when, 1e-3)) <= row


@pytest.mark.parametrize("arrivals", ALL, ids=repr)
def test_times_follow_rows(arrivals: Arrivals) -> None:
    times = [arrivals.time_of(row) for row in range(0, 500, 7)]
    assert all(a < b for a, b in itertools.pairwise(times))


def test_a_bursty_stream_keeps_its_mean_and_comes_in_bursts() -> None:
    arrivals = Bursty(1000, seed=1, step_s=0.01)
    assert arrivals.arrived_by(20_000) == pytest.approx(20_000_000, rel=0.05)
    per_second = np.diff([arrivals.arrived_by(t) for t in range(2_000)])
    assert per_second.min() < 300
    assert per_second.max() > 1_700


def test_a_bursty_stream_can_go_back() -> None:
    there_and_back = Bursty(1000, seed=11, step_s=0.001)
    late = there_and_back.arrived_by(1_000)
    early = there_and_back.arrived_by(3.3)
    assert early == Bursty(1000, seed=11, step_s=0.001).arrived_by(3.3)
    assert there_and_back.arrived_by(1_000) == late


def test_an_intermittent_stream_rests() -> None:
    arrivals = Intermittent(100, on_s=10, off_s=5)
    assert arrivals.arrived_by(10) == arrivals.arrived_by(14.99) == 1_000
    assert arrivals.time_of(999) == pytest.approx(10)
    assert arrivals.time_of(1_000) == pytest.approx(15.01)


@pytest.mark.parametrize(
    "make",
    [
        lambda: Steady(0),
        lambda: Bursty(10, step_s=-1),
        lambda: Intermittent(10, on_s=0, off_s=1),
        lambda: Intermittent(10, on_s=1, off_s=-1),
        lambda: Steady(1).time_of(-1),
    ],
)
def test_arrivals_refuse_nonsense(make: object) -> None:
    with pytest.raises(OptionError):
        make()  # type: ignore[operator]


def test_virtual_streams_start_as_in_the_figure_or_stationary() -> None:
    figure = VirtualStreams(np.random.default_rng(1), stationary=False).advance(4)
    assert figure[0] == 2046
    stationary = [VirtualStreams(np.random.default_rng(i)).advance(1)[0] for i in range(200)]
    assert np.mean(stationary) == pytest.approx(mean_bandwidth(), rel=0.2)


def test_virtual_streams_go_on_from_a_state() -> None:
    streams = VirtualStreams(np.random.default_rng(1))
    streams.advance(777)
    state = streams.state()
    streams.restore(np.random.default_rng(2), state)
    ahead = streams.advance(500)
    streams.restore(np.random.default_rng(2), state)
    assert streams.advance(500).tolist() == ahead.tolist()


@pytest.mark.parametrize("seed", [1, 2])
def test_bursts_lie_within_bursts_up_to_the_slowest_switch(seed: int) -> None:
    """Up to 2^10 steps H is about 0.9 by variance, 0.98 by range; beyond, bursts even out."""
    steps = VirtualStreams(np.random.default_rng(seed)).advance(1 << 18)
    within = [1 << i for i in range(4, 11)]
    assert 0.8 < hurst_by_variance(steps, within) < 1.0
    assert 0.85 < hurst_by_range(steps, within) < 1.1
    assert hurst_by_variance(steps) > 0.65
    beyond = [1 << i for i in range(11, 15)]
    assert hurst_by_range(steps, beyond) < 0.65


@pytest.mark.parametrize("control", ["shuffled", "poisson"])
def test_independent_arrivals_are_not_self_similar(control: str) -> None:
    rng = np.random.default_rng(4)
    steps = VirtualStreams(rng).advance(1 << 18)
    independent = rng.permutation(steps) if control == "shuffled" else rng.poisson(1023, 1 << 18)
    within = [1 << i for i in range(4, 11)]
    assert hurst_by_variance(independent, within) == pytest.approx(0.5, abs=0.05)
    assert hurst_by_range(independent, within) == pytest.approx(0.5, abs=0.06)


@pytest.mark.parametrize("series", [[1.0] * 10, [1.0] * 4096])
def test_hurst_needs_a_long_series_that_varies(series: list[float]) -> None:
    with pytest.raises(OptionError, match="Hurst"):
        hurst_by_variance(series)
    with pytest.raises(OptionError, match="Hurst"):
        hurst_by_range(series)
