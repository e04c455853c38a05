"""The charts of an explanation: rates by algorithm and budget, or the time of a micro-batch."""

from dataclasses import dataclass
from itertools import cycle
from os import PathLike

import matplotlib as mpl

mpl.use("Agg")
import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.ticker import EngFormatter

from semistream.advice.microbatch import Curves
from semistream.units import format_bytes

_CHOSEN, _OTHER, _LINE = "#1b6ca8", "#b8c4cf", "#d1495b"
_COLOURS = ("#1b6ca8", "#d1495b", "#edae49", "#66a182", "#7d5ba6", "#8d6e63")


@dataclass(frozen=True, slots=True)
class Chart:
    """What is drawn: predicted rates in tuples per second."""

    title: str
    by_algorithm: dict[str, float]  # best first
    chosen: str  # one of these
    by_budget: dict[int, float]  # bytes, and the rate of the best algorithm
    memory_bytes: int  # one of these
    arrivals: float | None  # tuples per second, if given

    def draw(self, path: str | PathLike[str]) -> None:
        """Draw into a file."""
        figure, (left, right) = plt.subplots(
            1, 2, figsize=(10, 4.2), width_ratios=(3, 2), layout="constrained"
        )
        self._draw_algorithms(left)
        self._draw_budgets(right)
        figure.suptitle(self.title, fontsize=11)
        figure.savefig(path, dpi=150)
        plt.close(figure)

    def _draw_algorithms(self, axes: Axes) -> None:
        names = list(self.by_algorithm)[::-1]
        rates = [self.by_algorithm[name] for name in names]
        colours = [_CHOSEN if name == self.chosen else _OTHER for name in names]
        bars = axes.barh(names, rates, color=colours)
        axes.bar_label(bars, [f"{rate:,.0f}" for rate in rates], padding=3, fontsize=8)
        axes.set_xscale("log")
        axes.set_xlim(min(rates) / 2, max(rates) * 6)
        axes.set_xlabel("tuples per second")
        self._draw_arrivals(axes)
        axes.spines[["top", "right"]].set_visible(False)

    def _draw_budgets(self, axes: Axes) -> None:
        sizes = sorted(self.by_budget)
        rates = [self.by_budget[size] for size in sizes]
        colours = [_CHOSEN if size == self.memory_bytes else _OTHER for size in sizes]
        bars = axes.bar([format_bytes(size) for size in sizes], rates, color=colours, width=0.6)
        axes.bar_label(bars, [f"{rate:,.0f}" for rate in rates], padding=3, fontsize=8)
        axes.set_xlabel("memory")
        axes.set_ylabel("tuples per second, best algorithm")
        axes.yaxis.set_major_formatter("{x:,.0f}")
        axes.margins(y=0.15)
        if self.arrivals:
            axes.axhline(self.arrivals, color=_LINE, linestyle="--", linewidth=1)
        axes.spines[["top", "right"]].set_visible(False)

    def _draw_arrivals(self, axes: Axes) -> None:
        if self.arrivals:
            axes.axvline(self.arrivals, color=_LINE, linestyle="--", linewidth=1)
            axes.annotate(
                "arrives",
                (self.arrivals, 0.02),
                xycoords=("data", "axes fraction"),
                color=_LINE,
                fontsize=8,
                xytext=(3, 0),
                textcoords="offset points",
            )


@dataclass(frozen=True, slots=True)
class BatchChart:
    """What is drawn: the predicted time of a micro-batch, against its rows and the size of R."""

    title: str
    curves: Curves  # the same algorithms in both
    rows: int  # of the micro-batch that was asked for
    relation_rows: int
    chosen: str  # by `auto`, for that micro-batch

    def draw(self, path: str | PathLike[str]) -> None:
        """Draw into a file."""
        figure, (left, right) = plt.subplots(
            1, 2, figsize=(11, 4.6), sharey=True, layout="constrained"
        )
        by_rows, by_size = self.curves.by_rows, self.curves.by_size
        self._draw_lines(left, by_rows, self.rows, "rows of the micro-batch")
        about = f"rows of R, for a micro-batch of {self.rows:,} rows"
        self._draw_lines(right, by_size, self.relation_rows, about)
        left.set_ylabel("milliseconds")
        left.yaxis.set_major_formatter("{x:,g}")
        names = [f"{name} (auto)" if name == self.chosen else name for name in by_rows]
        figure.legend(
            left.get_lines()[: len(names)], names, loc="outside right center", frameon=False
        )
        figure.suptitle(self.title, fontsize=11)
        figure.savefig(path, dpi=150)
        plt.close(figure)

    def _draw_lines(
        self, axes: Axes, curves: dict[str, dict[int, float]], here: int, about: str
    ) -> None:
        for name, colour in zip(curves, cycle(_COLOURS), strict=False):
            points = sorted(curves[name].items())
            times = [1e3 * seconds for _, seconds in points]
            wide = 2.4 if name == self.chosen else 1.4
            axes.plot([x for x, _ in points], times, color=colour, linewidth=wide, marker=".")
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.axvline(here, color=_OTHER, linestyle="--", linewidth=1, zorder=0)
        axes.set_xlabel(about)
        axes.xaxis.set_major_formatter(EngFormatter(sep=""))
        axes.grid(visible=True, which="major", color=_OTHER, alpha=0.4, linewidth=0.6)
        axes.spines[["top", "right"]].set_visible(False)
