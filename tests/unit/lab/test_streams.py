"""Joins on streams that arrive over time: bursts, pauses, waiting and processing apart."""

from pathlib import Path

import numpy as np
import pytest

from semistream.budget.meshjoin import MeshJoinSettings
from semistream.budget.split import Split
from semistream.lab.flows import Flow
from semistream.lab.latency import on_flow
from semistream.lab.rig import Rig
from semistream.workload.miniature import Miniature

MB = 1e6


def rig(folder: Path, times: float, exponent: float = 0.5) -> Rig:
    workload = Miniature(int(1e6 / times), exponent, times=times)
    return Rig.build(folder / "r.rel", workload, "hdd-papers", times, 120, 4096)


@pytest.mark.parametrize(
    "flow",
    [Flow.steady(50, 20), Flow.bursty(50, 20, seed=3), Flow.intermittent(100, 2, 3, 20)],
)
def test_a_tuple_has_arrived_from_its_time_on(flow: Flow) -> None:
    times = flow.times_of(0, flow.total)
    assert np.all(np.diff(times) >= 0)
    for row in (0, 1, flow.total // 2, flow.total - 1):
        assert flow.arrived_by(times[row] + 1e-6) > row
        assert flow.arrived_by(times[row] - 1e-3) <= row


def test_bursts_have_the_mean_that_was_asked_for_and_vary() -> None:
    flow = Flow.bursty(100, 60, seed=7)
    assert flow.total == pytest.approx(6000, abs=1)
    by_second = np.diff([flow.arrived_by(t) for t in range(61)])
    assert by_second.max() > 1.5 * by_second.min()
    assert Flow.bursty(100, 60, seed=8).arrived_by(30) != flow.arrived_by(30)


def test_a_scan_at_full_speed_works_half_a_cycle_for_a_tuple(tmp_path: Path) -> None:
    here = rig(tmp_path, 20.0)
    tuned = here.tuned("meshjoin", 12 * MB)
    cycle_s = here.size_bytes / 80e6
    flow = Flow.steady(2 * tuned.prediction.rate, 6 * cycle_s / here.times)
    served = on_flow(here, "meshjoin", 12 * MB, tuned.split, flow)
    assert served.processing_s == pytest.approx(cycle_s / 2, rel=0.25)
    assert served.rate == pytest.approx(tuned.prediction.rate, rel=0.1)
    assert served.waiting_s > 0.5 * cycle_s  # in the backlog of a stream that is twice as fast


def test_hybridjoin_does_not_wait_for_more_tuples(tmp_path: Path) -> None:
    here = rig(tmp_path, 20.0)
    served = on_flow(here, "hybridjoin", 12 * MB, Split(1), Flow.steady(50.0, 20.0))
    assert served.tuples > 500
    assert served.latency_s < 0.05  # two reads or so
    pauses = on_flow(here, "hybridjoin", 12 * MB, Split(1), Flow.intermittent(50.0, 1, 9, 60))
    assert pauses.longest_s < 1


def test_meshjoin_waits_for_its_next_tuples(tmp_path: Path) -> None:
    here = rig(tmp_path, 20.0)
    tuned = here.tuned("meshjoin", 12 * MB)
    assert isinstance(tuned.settings, MeshJoinSettings)
    rate = 500.0
    flow = Flow.steady(rate, 3 * tuned.settings.places / rate)
    served = on_flow(here, "meshjoin", 12 * MB, tuned.split, flow)
    # At full size the window is `times` larger, and so is the time until it has been replaced.
    assert served.latency_s == pytest.approx(
        tuned.settings.places * here.times / rate / 2, rel=0.15
    )
    assert served.waiting_s > 10 * served.processing_s


def test_in_a_pause_meshjoins_tuples_stay_unresolved(tmp_path: Path) -> None:
    """The run ends in a pause, but the stream does not end: MESHJOIN waits, HYBRIDJOIN is done."""
    here = rig(tmp_path, 20.0)
    tuned = here.tuned("meshjoin", 12 * MB)
    on_s = tuned.settings.places / 500.0  # as many tuples as the window has
    flow = Flow.intermittent(500.0, on_s, on_s, 5.5 * on_s)
    served = on_flow(here, "meshjoin", 12 * MB, tuned.split, flow)
    # The window is full, and R has passed by half of it on average.
    assert served.unresolved == pytest.approx(tuned.settings.places * here.times / 2, rel=0.1)
    assert served.rate == pytest.approx(250.0, rel=0.05)
    flow = Flow.intermittent(50.0, 2.0, 2.0, 11.0)
    served = on_flow(here, "hybridjoin", 12 * MB, Split(1), flow)
    assert served.unresolved == 0
    assert served.rate == pytest.approx(25.0)
