"""The verdicts of the soak: what grows is found, what is only noisy or warming up is not."""

import math

import numpy as np
import pytest
from benchmarks.soak import judge, slope

TIMES = list(np.arange(0.0, 1800.0, 10.0))
NOISE = np.random.default_rng(1).normal(0, 20, len(TIMES))


def is_flat(values: object) -> bool:
    return judge("memory", "MB", 10.0, TIMES, list(np.asarray(values, float))).is_flat


def test_noise_and_warm_up_are_flat() -> None:
    assert is_flat(500 + NOISE)
    assert is_flat(np.minimum(500, 100 + np.arange(len(TIMES)) * 12) + NOISE)
    assert is_flat(500 - np.arange(len(TIMES)) + NOISE)
    spikes = np.where(np.arange(len(TIMES)) % 9 == 0, 5_000, 500)
    assert is_flat(spikes)


def test_a_leak_is_found() -> None:
    assert not is_flat(500 + 0.5 * np.arange(len(TIMES)) + NOISE)
    assert not is_flat(500 + 0.5 * np.arange(len(TIMES)) + np.abs(NOISE) * 5)


def test_the_slope_is_that_of_a_line() -> None:
    assert slope(TIMES, [3 + 0.25 * t for t in TIMES]) == pytest.approx(0.25)


def test_what_was_not_measured_is_not_flat() -> None:
    with pytest.raises(ValueError, match="backlog was not measured"):
        judge("backlog", "rows", 0.0, TIMES, [math.nan] * len(TIMES))
