"""The cost of MESHJOIN and of R-MESHJOIN: what a loop costs and how many tuples it serves."""

from dataclasses import replace

import numpy as np

from semistream.budget.meshjoin import MeshJoinSettings
from semistream.cost.conditions import Conditions, Loads, in_loads
from semistream.cost.factors import at_size
from semistream.cost.prediction import Prediction, Work


def predict_reduced(conditions: Conditions, settings: MeshJoinSettings) -> Prediction:
    """Return the same for R-MESHJOIN, which lets a whole window in at once, once a cycle."""
    return predict(conditions, settings, 1 / settings.reads_per_cycle)


def predict(conditions: Conditions, settings: MeshJoinSettings, entries: float = 1.0) -> Prediction:
    """Return what a loop costs and serves (equations 2 and 3), with `entries` entries a loop.

    ::

        c_loop = c_I/O(b) + w·(c_E + c_S + c_A) + b·(v_P/v_R)·c_H + σ·w·c_O + c_0

    Unlike the paper's, c_I/O reads whole pages only where a tuple of the window has its match; and
    each tuple has σ results, not each row. c_0 is a loop's own cost.
    """
    layout = conditions.layout
    reads, window = settings.reads_per_cycle, settings.window_tuples
    entering, pages = window / reads, layout.page_count / reads
    step = at_size(conditions.factors.scan, window)
    waiting = window * in_loads(conditions.page_shares, settings.pages_per_read)
    found = conditions.match_share * waiting.sum(axis=1)
    # Pieces are whole blocks of probes, each of a sixteenth as many chains as the output has rows;
    # one that might not fit any more is left for the next piece.
    per_piece = settings.output_rows * (1 - 0.9 * _chain_tuples(layout.row_count, window) / 16)
    io_s, io_bytes, _ = conditions.io(Loads(pages, -np.expm1(-waiting), found, per_piece))
    matches = conditions.match_share * entering
    loop_s = (
        io_s
        + entering * step.tuple_s
        + pages * layout.rows_per_page * step.probe_s
        + matches * step.output_s
        + entering * conditions.repeat_s(step)
        + step.loop_s
        + entries * step.entry_s
    )
    latency_s = loop_s * reads / 2
    return Prediction(loop_s, entering, pages, latency_s, io_s=io_s, bytes_per_loop=io_bytes)


def drain_reduced(conditions: Conditions, settings: MeshJoinSettings, tuples: float) -> Work:
    """Return what R-MESHJOIN takes for tuples that all fit the window: one cycle."""
    filled = replace(settings, window_tuples=max(1, int(tuples)))
    return predict_reduced(conditions, filled).work(settings.reads_per_cycle)


def drain(conditions: Conditions, settings: MeshJoinSettings, tuples: float) -> Work:
    """Return the same for MESHJOIN: tuples enter step by step, and each sees a whole cycle."""
    entries = tuples / max(1, settings.window_tuples)  # in cycles
    filled = replace(settings, window_tuples=max(1, int(tuples)))
    return predict(conditions, filled).work((1 + entries) * settings.reads_per_cycle)


def _chain_tuples(row_count: int, window: int) -> float:
    """Return the tuples of a bucket that is not empty; each covers a power of two of codes."""
    codes = 2.0 ** max(0.0, np.ceil(np.log2(max(1, row_count) / window)))
    load = window * codes / max(1, row_count)
    return float(load / -np.expm1(-load))
