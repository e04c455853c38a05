"""Burstiness of a series on many time scales: the Hurst parameter, estimated in two ways.

Add up the arrivals of m steps at a time. Independent arrivals even out: the variance of the means
falls as 1/m, and the Hurst parameter H is 0.5. In a self-similar series bursts lie within bursts:
the variance falls only as m^(2H - 2), with H up to 1. The rescaled range, by how much the running
sum varies in m steps in units of the standard deviation, grows as m^H.

Each estimate is the slope of a line through points in log-log scale. `variance_points` and
`range_points` return the points, to check that they are close to a line.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from semistream.errors import OptionError

_LEAST_BLOCKS = 16


def hurst_by_variance(series: ArrayLike, scales: Sequence[int] | None = None) -> float:
    """Return the Hurst parameter by aggregated variance: 1 + slope / 2.

    >>> noise = np.random.default_rng(1).poisson(100, 65_536)
    >>> abs(hurst_by_variance(noise) - 0.5) < 0.06
    True
    """
    return 1.0 + _slope(*variance_points(series, scales)) / 2.0


def hurst_by_range(series: ArrayLike, scales: Sequence[int] | None = None) -> float:
    """Return the Hurst parameter by the rescaled range: the slope."""
    return _slope(*range_points(series, scales))


def variance_points(
    series: ArrayLike, scales: Sequence[int] | None = None
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Return the scales m and the variance of the means of m steps each."""
    values, used = _values(series), _scales(series, scales, least=1)
    return used, np.array([_blocks(values, m).mean(axis=1).var() for m in used])


def range_points(
    series: ArrayLike, scales: Sequence[int] | None = None
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Return the scales m and the mean rescaled range of stretches of m steps."""
    values, used = _values(series), _scales(series, scales, least=16)
    return used, np.array([_rescaled_range(_blocks(values, m)) for m in used])


def _rescaled_range(blocks: NDArray[np.float64]) -> float:
    strayed = np.cumsum(blocks - blocks.mean(axis=1, keepdims=True), axis=1)
    deviations = blocks.std(axis=1)
    varied = deviations > 0
    if not varied.any():
        return float("nan")
    ranges = np.maximum(strayed.max(axis=1), 0.0) - np.minimum(strayed.min(axis=1), 0.0)
    return float((ranges[varied] / deviations[varied]).mean())


def _blocks(values: NDArray[np.float64], scale: int) -> NDArray[np.float64]:
    whole = len(values) // scale
    return values[: whole * scale].reshape(whole, scale)


def _values(series: ArrayLike) -> NDArray[np.float64]:
    return np.asarray(series, np.float64)


def _scales(series: ArrayLike, scales: Sequence[int] | None, least: int) -> NDArray[np.int64]:
    most = len(_values(series)) // _LEAST_BLOCKS
    used = [1 << i for i in range(40)] if scales is None else scales
    kept = [m for m in used if least <= m <= most]
    if len(kept) < 2:
        raise OptionError(
            f"a Hurst estimate needs two scales of at least {least} steps that fit "
            f"{_LEAST_BLOCKS} times into the series; this one has {len(_values(series))} steps"
        )
    return np.array(kept, np.int64)


def _slope(scales: NDArray[np.int64], values: NDArray[np.float64]) -> float:
    usable = np.isfinite(values) & (values > 0)
    if usable.sum() < 2:
        raise OptionError("a Hurst estimate needs a series that varies; this one is constant")
    return float(np.polyfit(np.log(scales[usable]), np.log(values[usable]), 1)[0])
