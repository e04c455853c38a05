"""The chart of an explanation: what each algorithm is worth, and what other budgets would buy."""

from collections.abc import Mapping, Sequence
from os import PathLike
from typing import Protocol

import matplotlib as mpl

mpl.use("Agg")
import matplotlib.pyplot as plt
from matplotlib.axes import Axes

from semistream.units import format_bytes

_CHOSEN, _OTHER, _LINE = "#1b6ca8", "#b8c4cf", "#d1495b"


class Ranked(Protocol):
    """An algorithm and its predicted rate."""

    @property
    def algorithm(self) -> str: ...  # noqa: D102
    @property
    def tuples_per_s(self) -> float: ...  # noqa: D102


class Explained(Ranked, Protocol):
    """What the chart shows of an `Explanation`, which has the meaning of each."""

    @property
    def rows(self) -> int: ...  # noqa: D102
    @property
    def memory_bytes(self) -> int: ...  # noqa: D102
    @property
    def rate(self) -> float | None: ...  # noqa: D102
    @property
    def skew(self) -> float: ...  # noqa: D102
    @property
    def ranking(self) -> Sequence[Ranked]: ...  # noqa: D102
    @property
    def other_budgets(self) -> Mapping[int, float]: ...  # noqa: D102


def draw(explanation: Explained, path: str | PathLike[str]) -> None:
    """Draw into a file."""
    figure, (left, right) = plt.subplots(
        1, 2, figsize=(10, 4.2), width_ratios=(3, 2), layout="constrained"
    )
    _by_algorithm(explanation, left)
    _by_budget(explanation, right)
    figure.suptitle(
        f"{explanation.rows:,} rows, {format_bytes(explanation.memory_bytes)}, "
        f"Zipf {explanation.skew:.2f}: predicted service rate",
        fontsize=11,
    )
    figure.savefig(path, dpi=150)
    plt.close(figure)


def _by_algorithm(explanation: Explained, axes: Axes) -> None:
    ranking = explanation.ranking[::-1]
    rates = [row.tuples_per_s for row in ranking]
    colours = [_CHOSEN if row.algorithm == explanation.algorithm else _OTHER for row in ranking]
    bars = axes.barh([row.algorithm for row in ranking], rates, color=colours)
    axes.bar_label(bars, [f"{rate:,.0f}" for rate in rates], padding=3, fontsize=8)
    axes.set_xscale("log")
    axes.set_xlim(min(rates) / 2, max(rates) * 6)
    axes.set_xlabel("tuples per second")
    _draw_rate(explanation, axes)
    axes.spines[["top", "right"]].set_visible(False)


def _by_budget(explanation: Explained, axes: Axes) -> None:
    rates = {**explanation.other_budgets, explanation.memory_bytes: explanation.tuples_per_s}
    sizes = sorted(rates)
    bars = axes.bar(
        [format_bytes(size) for size in sizes],
        [rates[size] for size in sizes],
        color=[_CHOSEN if size == explanation.memory_bytes else _OTHER for size in sizes],
        width=0.6,
    )
    axes.bar_label(bars, [f"{rates[size]:,.0f}" for size in sizes], padding=3, fontsize=8)
    axes.set_xlabel("memory")
    axes.set_ylabel("tuples per second, best algorithm")
    axes.yaxis.set_major_formatter("{x:,.0f}")
    axes.margins(y=0.15)
    if explanation.rate:
        axes.axhline(explanation.rate, color=_LINE, linestyle="--", linewidth=1)
    axes.spines[["top", "right"]].set_visible(False)


def _draw_rate(explanation: Explained, axes: Axes) -> None:
    if explanation.rate:
        axes.axvline(explanation.rate, color=_LINE, linestyle="--", linewidth=1)
        axes.annotate(
            "arrives",
            (explanation.rate, 0.02),
            xycoords=("data", "axes fraction"),
            color=_LINE,
            fontsize=8,
            xytext=(3, 0),
            textcoords="offset points",
        )
