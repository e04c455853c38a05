"""The cost factors of a common machine, so that nothing has to be measured before the first row.

Measured on one core of a cloud server (AMD EPYC, 2026) for relations in the page cache, with 1 to
14 columns added, then scaled in groups so that predicted rates agree with those that `make bench
ARGS=engine` measured of whole joins: 38 rates, median error 9 %. A column more makes a row cost a
little more; texts and nested values count as several. `semistream calibrate` replaces them by the
machine's own.
"""

from semistream.cost.factors import CostFactors, FrontCosts, IoCurve, RequestCosts, StepCosts
from semistream.cost.spark import SparkCosts

_IO = IoCurve(
    (4_368, 17_472, 69_888, 279_552, 1_118_208, 4_472_832),
    (11e-6, 12e-6, 16e-6, 39e-6, 104e-6, 414e-6),
)
# By rows of the window: append, expire, and the probe of a scan.
_WINDOWS = ((75_000, 16, 3, 1.7), (260_000, 19, 2, 3.6), (960_000, 24, 2, 12.1))
_INDEX_WINDOWS = ((65_000, 28, 16), (220_000, 35, 23), (835_000, 46, 29))
_READ_NS = 5
# Mapped: a row is a cache miss, and a large page of 2 MiB takes 1.5 µs; some are small.
REQUESTS = RequestCosts(2.4e-6, 1 / 6e9, mapped_row_s=30e-9, mapped_byte_s=0.01e-9)
# Spark's part of a micro-batch, on two cores of such a server. No fit: chosen by hand, to agree
# with a bare `mapInArrow` of 400,000 rows in 0.36 s, and with what a join's tasks and a shuffle
# added to it (docs/decisions.md). `semistream bench spark` ends with a fit, in this form.
SPARK = SparkCosts(
    batch_s=0.2, task_s=0.1, row_s=0.4e-6, value_s=0.07e-6, stage_s=0.1, shuffle_s=0.1e-6
)
_USUAL_STREAM_COLUMNS = 3


def default_factors(stream_columns: float, added_columns: float) -> CostFactors:
    """Return the factors for these numbers of columns; a column of texts counts as three."""
    added, wide = added_columns, stream_columns / _USUAL_STREAM_COLUMNS

    def steps(rows: int, loop_us: float, entry_us: float, **nanoseconds: float) -> StepCosts:
        costs = {f"{step}_s": 1e-9 * ns for step, ns in nanoseconds.items()}
        costs |= {"loop_s": 1e-6 * loop_us, "entry_s": 1e-6 * entry_us}
        return StepCosts(rows, read_s=1e-9 * _READ_NS, **costs)

    scan_output, index_output = 14 * wide + 4 * added, 17 * wide + 4 * added
    scan = tuple(
        steps(n, 90 + 4 * added, 55, append=a * wide, expire=e, probe=p, output=scan_output)
        for n, a, e, p in _WINDOWS
    )
    index = tuple(
        steps(n, 92 + 6 * added, 76, append=a * wide, expire=e, probe=22, output=index_output)
        for n, a, e in _INDEX_WINDOWS
    )
    look_up = steps(
        1, 400 + 25 * added, 0, append=8 * wide, probe=56, output=21 * wide + 14 * added
    )
    front = FrontCosts(1, 29e-9, 1e-9 * (16 * wide + 5 * added), 1e-9 * (53 + 3 * added))
    pinned = FrontCosts(1, 30e-9, 1e-9 * (20 * wide + 8 * added))
    resident_s = 1e-9 * (_READ_NS + 25 + 14 * wide + 4 * added)
    return CostFactors(_IO, scan, index, (front,), (pinned,), resident_s, (look_up,), REQUESTS)
