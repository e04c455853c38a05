"""How the claims of `meshjoin.txt` are judged: from a figure's table to a finding."""

from semistream.lab.claims import Finding, Table, falls, has_peak, rises
from semistream.lab.rig import POOLED

_CLOCKS = ("computing", "meshjoin")


def _by_line(table: Table, line: str, y: str) -> list[list[float]]:
    return [table.where(**{line: value}).values(y) for value in table.distinct(line)]


def least_in_the_middle(table: Table) -> Finding:
    """Judge whether each rate needs least memory at a disk buffer inside the range."""
    lines = _by_line(table, "rate", "memory_mb")
    inside = sum(has_peak([-memory for memory in line]) for line in lines)
    return Finding.of(f"at {inside} of {len(lines)} rates", holds=inside == len(lines))


def memory_varies(table: Table) -> Finding:
    """Judge by what factor the needed memory varies with the disk buffer."""
    spreads = [max(line) / min(line) for line in _by_line(table, "rate", "memory_mb")]
    return Finding.of(
        f"the most is {min(spreads):.1f} to {max(spreads):.1f} times the least",
        holds=min(spreads) >= 2,
        in_shape=min(spreads) >= 1.2,
    )


def is_flat_at_the_least(table: Table) -> Finding:
    """Judge over which range of disk buffers the memory is within a tenth of the least."""
    ranges = []
    for rate in table.distinct("rate"):
        sizes = table.where(rate=rate).lookup("disk_buffer_mb", "memory_mb")
        good = [float(b) for b, memory in sizes.items() if memory <= 1.1 * min(sizes.values())]
        ranges.append(max(good) / min(good))
    return Finding.of(
        f"within a tenth of the least over a factor of {min(ranges):.0f} to {max(ranges):.0f}",
        holds=min(ranges) >= 3,
    )


def most_in_the_middle(table: Table) -> Finding:
    """Judge whether each budget is fastest at a disk buffer inside the range."""
    lines = _by_line(table, "memory_mb", "tuples_per_s")
    inside = sum(has_peak(line, 0.05) for line in lines)
    return Finding.of(f"in {inside} of {len(lines)} budgets", holds=inside == len(lines))


def falls_sharply(table: Table) -> Finding:
    """Judge which share of the best rate is left with the largest disk buffer."""
    left = [line[-1] / max(line) for line in _by_line(table, "memory_mb", "tuples_per_s")]
    return Finding.of(
        f"{max(left):.0%} of the rate is left where the disk buffer has 98 % of the memory",
        holds=max(left) < 0.5,
        in_shape=max(left) < 0.9,
    )


def high_then_drops(table: Table) -> Finding:
    """Judge whether the rate is high with small disk buffers and drops with large ones."""
    rates = table.lookup("disk_buffer_mb", "tuples_per_s", what="measured")
    top = max(rates.values())
    small = min(r for b, r in rates.items() if 0.4 <= float(b) <= 3.2) / top
    large = min(rates.values()) / top
    return Finding.of(
        f"at least {small:.0%} of the best from 0.4 to 3.2 MB, {large:.0%} at the largest",
        holds=small >= 0.8 and large <= 0.5,
        in_shape=large <= 0.5,
    )


def ten_times(x: str, table: Table) -> Finding:
    """Judge whether MESHJOIN's rate, with computing charged, is about ten times INLJ's."""
    ratios = table.ratios(x, "tuples_per_s", "algorithm", "computing", POOLED)
    return Finding.of_numbers(
        f"with computing charged {min(ratios):,.0f} to {max(ratios):,.0f} times INLJ",
        (min(ratios), 10),
        (max(ratios), 10),
    )


def far_ahead(x: str, table: Table) -> Finding:
    """Judge whether MESHJOIN is ahead of INLJ by a large factor."""
    ratios = table.ratios(x, "tuples_per_s", "algorithm", "meshjoin", POOLED)
    budgets = len(table.distinct(x))
    return Finding.of(
        f"{min(ratios):,.0f} to {max(ratios):,.0f} times INLJ, at the {len(ratios)} of {budgets} "
        "points where both can run",
        holds=min(ratios) >= 5,
        in_shape=min(ratios) > 1,
    )


def rates_at(expected: dict[float, float], table: Table) -> Finding:
    """Judge whether rates with computing charged are those of the paper."""
    rates = table.lookup("memory_percent", "tuples_per_s", algorithm="computing")
    found = {share: rates[share] for share in expected}
    told = ", ".join(f"{rate:,.0f} in {share:g} %" for share, rate in found.items())
    return Finding.of_numbers(
        f"with computing charged: {told} (the paper: "
        f"{', '.join(f'{r:,.0f}' for r in expected.values())})",
        *((found[s], r) for s, r in expected.items()),
        in_order=rises(found.values()),
    )


def inlj_rate(table: Table) -> Finding:
    """Judge whether INLJ's rate is the paper's 274 tuples/s."""
    rate = table.lookup("memory_percent", "tuples_per_s", algorithm=POOLED)[0.5]
    return Finding.of_numbers(f"{rate:,.0f} tuples/s", (rate, 274))


def diminishing(table: Table) -> Finding:
    """Judge whether ten times the memory gives less than ten times the rate."""
    growths = {}
    for name in ("meshjoin", "computing"):
        rates = table.lookup("memory_percent", "tuples_per_s", algorithm=name)
        growths[name] = rates[10.0] / rates[1.0]
    return Finding.of(
        f"with computing charged, 10 times the memory, from 1 to 10 %, gives "
        f"{growths['computing']:.1f} times the rate (the paper: 4.3); on the disk's clock alone "
        f"{growths['meshjoin']:.1f} times",
        holds=growths["computing"] < 8,
        in_shape=growths["computing"] < growths["meshjoin"],
    )


def skew_lowers(table: Table) -> Finding:
    """Judge whether both algorithms become slower as R becomes more skewed."""
    mesh = list(table.lookup("relation_skew", "tuples_per_s", algorithm="computing").values())
    inlj = list(table.lookup("relation_skew", "tuples_per_s", algorithm=POOLED).values())
    return Finding.of(
        f"from the least skew to the most, MESHJOIN with computing charged keeps "
        f"{mesh[-1] / mesh[0]:.0%}, INLJ {inlj[-1] / inlj[0]:.0%}",
        holds=max(mesh[-1] / mesh[0], inlj[-1] / inlj[0]) < 0.95 and falls(mesh, 0.02),
        in_shape=mesh[-1] < 0.95 * mesh[0],
    )


def at_the_highest_skew(table: Table) -> Finding:
    """Judge whether MESHJOIN's lowest rate is 9,000 tuples/s."""
    rates = {n: min(table.where(algorithm=n).values("tuples_per_s")) for n in _CLOCKS}
    return Finding.of_numbers(
        f"{rates['computing']:,.0f} tuples/s at the least with computing charged, "
        f"{rates['meshjoin']:,.0f} on the disk's clock",
        (rates["computing"], 9_000),
    )
