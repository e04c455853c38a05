"""The cost factors of a common machine, so that nothing has to be measured before the first row.

Measured on one core of a cloud server (AMD EPYC, 2026) for relations in the page cache, with 1 to
14 columns added, then scaled in groups so that predicted rates agree with those that `make bench
ARGS=engine` measured of whole joins, and with front stages of 1 to 13 MB: 50 rates, median error
3 %. A column more makes a row cost a little more; texts and nested values count as several.
`semistream calibrate` replaces them by the machine's own.
"""

from semistream.cost.factors import CostFactors, FrontCosts, IoCurve, RequestCosts, StepCosts
from semistream.cost.spark import SparkCosts

_IO = IoCurve(
    (4_368, 17_472, 69_888, 279_552, 1_118_208, 4_472_832),
    (10e-6, 11e-6, 15e-6, 36e-6, 97e-6, 387e-6),
)
# By rows of the window: append, expire, and the probe of a scan.
_WINDOWS = ((75_000, 13.6, 2.6, 1.3), (260_000, 16.2, 1.7, 2.7), (960_000, 20.4, 1.7, 9.0))
_INDEX_WINDOWS = ((65_000, 28, 16), (220_000, 35, 23), (835_000, 46, 29))
# By rows of the front stage: a look-up, which is a miss of the processor's caches if they are many.
_FRONTS = ((39_000, 12), (118_000, 20), (206_000, 35), (330_000, 54), (510_000, 77))
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
# Of what is read from the disk of such a server, not from the page cache, many requests at a time.
_DISK_REQUEST_S, _DISK_BYTES_PER_S = 13e-6, 1.5e9


def default_factors(stream_columns: float, added_columns: float) -> CostFactors:
    """Return the factors for these numbers of columns; a column of texts counts as three."""
    added, wide = added_columns, stream_columns / _USUAL_STREAM_COLUMNS

    def steps(rows: int, loop_us: float, entry_us: float, **nanoseconds: float) -> StepCosts:
        costs = {f"{step}_s": 1e-9 * ns for step, ns in nanoseconds.items()}
        costs |= {"loop_s": 1e-6 * loop_us, "entry_s": 1e-6 * entry_us}
        return StepCosts(rows, read_s=1e-9 * _READ_NS, **costs)

    o = 19 * wide + 4.1 * added
    scan = tuple(
        steps(n, 96 + 0.6 * added, 59, append=a * wide, expire=e, probe=p, output=o, repeat=56)
        for n, a, e, p in _WINDOWS
    )
    o = 10.3 * wide + 4.1 * added
    index = tuple(
        steps(n, 90 + 1.0 * added, 74, append=a * wide, expire=e, probe=22, output=o, repeat=20)
        for n, a, e in _INDEX_WINDOWS
    )
    look_up = steps(
        1, 400 + 25 * added, 0, append=8 * wide, probe=45, output=17 * wide + 11 * added
    )
    front = tuple(
        FrontCosts(
            rows,
            look_up_s=1e-9 * look_up,
            hit_s=1e-9 * (11.4 * wide + 3.5 * added),
            learn_s=1e-9 * (75 + 4.3 * added),
            loop_s=1e-6 * (172 + 11.5 * added),
        )
        for rows, look_up in _FRONTS
    )
    pinned = FrontCosts(1, 30e-9, 1e-9 * (20 * wide + 8 * added))
    resident_s = 1e-9 * (_READ_NS + 25 + 14 * wide + 4 * added)
    return CostFactors(_IO, scan, index, front, (pinned,), resident_s, (look_up,), REQUESTS)


def with_uncached(factors: CostFactors, share: float) -> CostFactors:
    """Return the factors where a share of R is not in the page cache, but on a local disk."""
    if not share:
        return factors
    return factors.with_device(0.0, share * _DISK_REQUEST_S, _DISK_BYTES_PER_S / share)
