"""Calibration: the cost factors of this machine, this device and this schema, measured.

::

    relation, spec ──► load ──► stored ──────────────────────────────────► Calibration
                        └─ none ──► those of a common machine ───────────►
    semistream calibrate ──► runs ──► fit ──► store

Nothing is measured unless that is asked for. Then real joins run on the real relation, each for a
fraction of a second, with windows of several sizes and disk buffers of two sizes; a stopwatch says
how long each step took and the telemetry how often it was done (`runs`). The cost of a step is then
a least-squares fit over the runs: one part for each time the step is done, one for each loop
whatever is in it (`fit`). Reading is timed by itself, request size by request size (`reading`); the
read plan of look-ups by dense ones and sparse ones. The result is stored for the next process
(`store`).

A disturbance only ever makes a run slower, so each is made in several rounds and the fastest one
counts. The typical error of the factors: by how much rounds differ from each other, and how far the
runs are from their fit.
"""

from semistream.advice.calibration.calibrate import calibrate, calibration_for, factors_for
from semistream.advice.calibration.record import Calibration, usual_spec
from semistream.advice.calibration.store import load, store

__all__ = [
    "Calibration",
    "calibrate",
    "calibration_for",
    "factors_for",
    "load",
    "store",
    "usual_spec",
]
