"""What Spark adds to a join: the time of a micro-batch that is not the join's.

::

    T = c_batch + waves · (c_task + rows of a task · (c_row + values · c_value) + the join)
      [ + c_stage + rows / cores · values · c_shuffle,  if rows are shuffled ]

*Values* are the columns of a row that go to Python and come back, texts counted as several. A core
that converts rows cannot join at the same time, so the times add up. *Waves*: with more tasks than
cores, some have to wait for others.
"""

from collections.abc import Sequence
from dataclasses import astuple, dataclass
from math import ceil

import numpy as np


@dataclass(frozen=True, slots=True)
class Load:
    """A micro-batch as Spark sees it."""

    rows: int
    cores: int
    tasks: int  # that join its rows
    values_in: float  # of a row of the stream
    values_out: float  # of a joined row
    is_shuffled: bool

    @property
    def waves(self) -> int:
        """How often each core gets a task."""
        return ceil(self.tasks / self.cores)

    @property
    def task_rows(self) -> int:
        """The rows of one task."""
        return ceil(self.rows / self.tasks)


@dataclass(frozen=True, slots=True)
class SparkCosts:
    """Seconds of Spark's part, on one core."""

    batch_s: float  # a micro-batch, whatever is in it: offsets, plan, commit
    task_s: float  # a task: its start, and opening R
    row_s: float  # a row to Python and back
    value_s: float  # a value of it, in either direction
    stage_s: float  # the stage that a shuffle adds
    shuffle_s: float  # a value through the shuffle

    def own_s(self, load: Load) -> float:
        """Return the time of a micro-batch without the join's."""
        return float(np.dot(astuple(self), _counts(load)))

    @classmethod
    def fit(cls, measured: Sequence[tuple[Load, float, float]]) -> "SparkCosts":
        """Return the costs, none below zero, that explain measured micro-batches best.

        Each comes with the time of Spark's part and that of all, of which errors are a share.
        """
        counts = np.array([_counts(load) for load, _, _ in measured])
        own = np.array([own_s / all_s for _, own_s, all_s in measured])
        weighted = counts / np.array([all_s for _, _, all_s in measured])[:, None]
        used = np.ones(counts.shape[1], bool)
        while True:
            found = np.zeros(len(used))
            found[used] = np.linalg.lstsq(weighted[:, used], own, rcond=None)[0]
            if (found >= 0).all():
                return cls(*found.tolist())
            used[np.argmin(found)] = False


def _counts(load: Load) -> tuple[float, ...]:
    """Return how often each cost is paid one after the other, in the order of `SparkCosts`."""
    rows = load.waves * load.task_rows
    shuffled = load.rows / load.cores * load.values_in if load.is_shuffled else 0.0
    values = rows * (load.values_in + load.values_out)
    return 1.0, float(load.waves), float(rows), values, float(load.is_shuffled), shuffled
