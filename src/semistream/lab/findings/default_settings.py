"""How the claims of `meshjoin-default-settings.txt` are judged: from a table to a finding."""

from semistream.lab.claims import Finding, Table, falls, rises

OPTIMA_MB = {20.0: 0.93, 40.0: 1.35, 80.0: 1.91, 160.0: 2.63}  # section 4.4
GAINS = {40.0: 0.004, 80.0: 0.0117, 160.0: 0.0178}  # section 4.4


def has_knee(table: Table) -> Finding:
    """Judge whether the rate is low at 0.1 MB and near the best at the knee, 0.93 MB."""
    rates = table.lookup("disk_buffer_mb", "tuples_per_s")
    top = max(rates.values())
    near = _nearest(rates, 0.93)
    small = _nearest(rates, 0.1)
    return Finding.of(
        f"{small / top:.0%} of the best at 0.1 MB, {near / top:.1%} at 0.93 MB",
        holds=small / top < 0.8 and near / top > 0.95,
        in_shape=small < near,
    )


def levels_off(table: Table) -> Finding:
    """Judge how much a disk buffer beyond the knee gains."""
    rates = table.lookup("disk_buffer_mb", "tuples_per_s")
    gain = max(rates.values()) / _nearest(rates, 0.93) - 1
    return Finding.of(
        f"a larger disk buffer than 0.93 MB gains {gain:.1%} at most",
        holds=gain < 0.03,
        in_shape=gain < 0.1,
    )


def _nearest(values: dict[str | float, float], x: float) -> float:
    return values[min(values, key=lambda key: abs(float(key) - x))]


def optimum_grows(table: Table) -> Finding:
    """Judge whether the best disk buffer grows with the budget."""
    optima = table.lookup("memory_mb", "disk_buffer_mb", what="measured")
    told = ", ".join(f"{size:.2f}" for size in optima.values())
    return Finding.of(f"{told} MB", holds=rises(optima.values()) and optima[320.0] > optima[20.0])


def optima_as_printed(table: Table) -> Finding:
    """Judge whether the best disk buffers by the paper's equations are those that it states."""
    found = {
        what: table.lookup("memory_mb", "disk_buffer_mb", what=what)
        for what in ("printed", "model")
    }
    told = {w: ", ".join(f"{sizes[m]:.2f}" for m in OPTIMA_MB) for w, sizes in found.items()}
    return Finding.of_numbers(
        f"{told['printed']} MB by the paper's equations, {told['model']} by our model",
        *((found["printed"][memory], size) for memory, size in OPTIMA_MB.items()),
        in_order=rises(found["printed"].values()),
    )


def _gains(table: Table) -> dict[float, float]:
    gains = {}
    for memory in (float(m) for m in table.distinct("memory_mb")):
        rates = table.lookup("disk_buffer_mb", "tuples_per_s", memory_mb=memory)
        gains[memory] = max(rates.values()) / _nearest(rates, 0.93) - 1
    return gains


def gains_as_printed(table: Table) -> Finding:
    """Judge whether the optimum gains over the default what the paper states."""
    gains = _gains(table)
    told = ", ".join(f"{gains[m]:.1%} in {m:g} MB" for m in GAINS)
    return Finding.of_numbers(
        f"{told} (the paper: {', '.join(f'{g:.1%}' for g in GAINS.values())})",
        *((gains[m], g) for m, g in GAINS.items()),
        in_order=rises(gains[m] for m in GAINS),
    )


def saturates(table: Table) -> Finding:
    """Judge whether every budget gains little beyond the default disk buffer."""
    gains = _gains(table)
    return Finding.of(
        f"a disk buffer beyond the default gains {max(gains.values()):.1%} at most",
        holds=max(gains.values()) <= 0.05,
        in_shape=max(gains.values()) <= 0.1,
    )


def io_falls(table: Table) -> Finding:
    """Judge whether a page costs less to read as the disk buffer grows."""
    costs = table.values("io_ms_per_page")
    return Finding.of(
        f"{costs[0]:.3f} ms per page at 0.1 MB, {costs[5]:.3f} at 0.93 MB",
        holds=falls(costs, 0.01) and costs[0] > 1.2 * costs[5],
        in_shape=falls(costs, 0.01),
    )


def io_levels_off(table: Table) -> Finding:
    """Judge whether the cost of a page is nearly constant beyond the default."""
    costs = table.values("io_ms_per_page")
    return Finding.of(
        f"{costs[5]:.3f} ms per page at 0.93 MB, {costs[-1]:.3f} at 7 MB",
        holds=costs[5] < 1.1 * costs[-1],
        in_shape=costs[5] < 1.3 * costs[-1],
    )


def loses_less_than(most: float, table: Table) -> Finding:
    """Judge whether the default loses less than `most` against the optimum, as a share."""
    ratios = table.ratios("memory_mb", "tuples_per_s", "what", "default", "optimum")
    losses = [1 - r for r in ratios]
    return Finding.of(
        f"it loses {min(losses):.1%} to {max(losses):.1%} from 20 to 320 MB",
        holds=max(losses) < most,
        in_shape=max(losses) < 2 * most,
    )


def drops(table: Table) -> Finding:
    """Judge whether the rate drops as the disk buffer takes most of the memory."""
    rates = table.where(what="measured").values("tuples_per_s")
    return Finding.of(
        f"{rates[0]:,.0f} tuples/s at the default, {rates[-1]:,.0f} at 14 of 20 MB",
        holds=rates[-1] < 0.5 * rates[0] and falls(rates[1:], 0.02),
        in_shape=rates[-1] < rates[0],
    )
