"""What the options of a join cost, beside what its algorithm does.

They are factors of a common machine, measured by the CPU time of a join in memory and by that of
look-ups (`docs/decisions.md`); they are not calibrated.
"""

CONDITION_S = 50e-9  # to check a pair of rows, beside equal keys
ORDERED_SHARE = 0.8  # of the rate that look-ups have, if rows leave in the order of the stream
WEIGHT_BYTES = 8  # of a tuple that may be shed


def with_condition(rate: float, pairs_per_tuple: float) -> float:
    """Return the rate of a join that checks a condition on each pair.

    >>> round(with_condition(1e6, 1.0))
    952381
    """
    return 1 / (1 / rate + CONDITION_S * pairs_per_tuple)


def kept_share(rate: float, served: float) -> float:
    """Return the share of the rows that is kept where more may be shed.

    >>> kept_share(100.0, 40.0), kept_share(10.0, 40.0)
    (0.4, 1.0)
    """
    return min(1.0, served / rate)
