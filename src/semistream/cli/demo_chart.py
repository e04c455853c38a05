"""The demo's chart: bursts, time per micro-batch against plain Spark, memory against the master."""

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

import matplotlib as mpl

mpl.use("Agg")
from matplotlib import pyplot as plt
from matplotlib.axes import Axes

OURS, THEIRS, QUIET = "#0b7285", "#e8590c", "#adb5bd"


class Batch(Protocol):
    """The figures of a micro-batch that the chart shows."""

    @property
    def rows(self) -> int:
        """The number of its sales."""
        ...

    @property
    def seconds(self) -> float:
        """Its duration."""
        ...


def draw_chart(
    path: Path,
    *,
    ours: Sequence[Batch],
    plain: Sequence[Batch],
    plain_title: str,
    budget_bytes: int,
    peak_bytes: int,
    relation_bytes: int,
) -> Path:
    """Draw the three panels and return the path of the file."""
    figure, (arrivals, times, memory) = plt.subplots(1, 3, figsize=(13, 4), layout="constrained")
    _draw_arrivals(arrivals, ours)
    _draw_times(times, ours, plain, plain_title)
    _draw_memory(memory, budget_bytes, peak_bytes, relation_bytes)
    figure.savefig(path, dpi=130)
    plt.close(figure)
    return path


def _draw_arrivals(axes: Axes, ours: Sequence[Batch]) -> None:
    axes.bar(range(len(ours)), [b.rows / 1000 for b in ours], color=QUIET)
    axes.set(title="Sales arrive in bursts", xlabel="micro-batch", ylabel="sales (thousands)")
    _tidy(axes)


def _draw_times(
    axes: Axes, ours: Sequence[Batch], plain: Sequence[Batch], plain_title: str
) -> None:
    axes.plot([b.seconds for b in plain], "o-", color=THEIRS, label=f"plain Spark:\n{plain_title}")
    axes.plot([b.seconds for b in ours], "o-", color=OURS, label="semistream")
    axes.set(title="Time to enrich and write a micro-batch", xlabel="micro-batch", ylabel="seconds")
    axes.set_ylim(bottom=0)
    axes.legend(frameon=False)
    _tidy(axes)


def _draw_memory(axes: Axes, budget_bytes: int, peak_bytes: int, relation_bytes: int) -> None:
    names = ["product master", "budget", "peak reserved"]
    sizes = [relation_bytes / 1e6, budget_bytes / 1e6, peak_bytes / 1e6]
    bars = axes.barh(names, sizes, color=[QUIET, THEIRS, OURS])
    axes.bar_label(bars, labels=[f" {size:,.1f} MB" for size in sizes])
    axes.set(title="Memory of the join against its master", xlabel="MB")
    axes.set_xlim(right=max(sizes) * 1.25)
    axes.invert_yaxis()
    _tidy(axes)


def _tidy(axes: Axes) -> None:
    axes.spines[["top", "right"]].set_visible(False)
