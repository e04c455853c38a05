"""How the claims of `hybridjoin.txt` are judged: from a figure's table to a finding."""

import itertools

import numpy as np
from numpy.typing import NDArray

from semistream.lab.claims import Finding, Table, falls, has_peak, rises
from semistream.workload.selfsimilar import hurst_by_range, hurst_by_variance

RATES = (75.0, 100.0, 125.0, 250.0, 500.0, 2000.0)
COMPUTING = "+computing"  # ends the name of a line with computing charged
LINES = ("meshjoin", "hybridjoin", "inlj", "meshjoin+computing", "hybridjoin+computing")
AT_RATES = {"HYBRIDJOIN, 125 tuples/s": 125.0, "HYBRIDJOIN, 2,000 tuples/s": 2000.0}
FLOWS = ("tuples", "tuples_of_second_seed", "tuples_of_third_seed")  # columns of figure 9
ONE_PAGE = "HYBRIDJOIN, 125 tuples/s, one page at a time"


def use_falls(table: Table) -> Finding:
    """Judge whether pages are requested less and less towards the end of R."""
    uses = table.values("uses_per_million")
    return Finding.of(
        f"{uses[0]:,.0f} uses per million tuples near the beginning, {uses[-1]:,.0f} at the end",
        holds=uses[0] > 10 * uses[-1] and falls(uses[::4], 0.1),
        in_shape=uses[0] > uses[-1],
    )


def peak_by_buffer(table: Table) -> Finding:
    """Judge whether the rate has its maximum at a disk buffer inside the range."""
    rates = table.values("tuples_per_s")
    best = table.values("disk_buffer_mb")[rates.index(max(rates))]
    return Finding.of(
        f"most at {best:.2f} MB; {rates[0] / max(rates):.0%} of that at the smallest, "
        f"{rates[-1] / max(rates):.0%} at the largest",
        holds=has_peak(rates, 0.1),
        in_shape=has_peak(rates),
    )


def more_match(table: Table) -> Finding:
    """Judge whether a loop resolves more tuples, up to the best disk buffer."""
    served = table.values("tuples_per_loop")
    best = table.values("tuples_per_s").index(max(table.values("tuples_per_s")))
    return Finding.of(
        f"from {served[0]:,.0f} tuples per loop to {served[best]:,.0f} where the rate is best",
        holds=rises(served[: best + 1], 0.01),
    )


def io_grows(table: Table) -> Finding:
    """Judge whether a loop's I/O cost grows with the disk buffer."""
    costs = table.values("io_ms_per_loop")
    return Finding.of(
        f"from {costs[0]:.1f} to {costs[-1]:.0f} ms per loop", holds=rises(costs, 0.01)
    )


def eighty_twenty(table: Table) -> Finding:
    """Judge whether a fifth of the products has four fifths of the sales."""
    sales = table.lookup("products_percent", "sales_percent")[20.0]
    return Finding.of_numbers(f"20 % of the products have {sales:.0f} % of the sales", (sales, 80))


def _flows(table: Table) -> list[NDArray[np.float64]]:
    return [np.array(table.values(name)) for name in FLOWS]


def is_bursty(table: Table) -> Finding:
    """Judge whether the flow varies around its mean over many steps, with each seed."""
    flows = [flow.reshape(-1, 64).mean(axis=1) / flow.mean() for flow in _flows(table)]
    least, most = max(means.min() for means in flows), min(means.max() for means in flows)
    return Finding.of(
        f"over 64 steps, from {least:.2f} to {most:.2f} times the mean, or further",
        holds=bool(most > 1.5 and least < 0.5),
    )


def is_self_similar(table: Table) -> Finding:
    """Judge whether the flow's Hurst parameter is far above that of shuffled steps."""
    scales, flows = [1 << i for i in range(11)], _flows(table)
    by_variance = min(hurst_by_variance(flow, scales) for flow in flows)
    by_range = min(hurst_by_range(flow, scales) for flow in flows)
    beyond = min(hurst_by_variance(flow, [1024, 2048, 4096]) for flow in flows)
    rng = np.random.default_rng(1)
    shuffled = max(hurst_by_variance(rng.permutation(flow), scales) for flow in flows)
    found = min(by_variance, by_range)
    return Finding.of(
        f"Hurst parameter up to 1,024 steps at least {by_variance:.2f} (variances) and "
        f"{by_range:.2f} (ranges), beyond that {beyond:.2f}; the same steps shuffled: "
        f"{shuffled:.2f} at most",
        holds=found > 0.65 and beyond > 0.65 and shuffled < 0.6,
        in_shape=found > 0.65 and shuffled < 0.6,
    )


def latency_is_lower(table: Table) -> Finding:
    """Judge whether HYBRIDJOIN's latency is far below MESHJOIN's, at both arrival rates."""
    ratios = {
        name: table.ratios("rows_millions", "seconds", "algorithm", "meshjoin", name)
        for name in (*AT_RATES, ONE_PAGE)
    }
    slow, fast = (ratios[name] for name in AT_RATES)
    return Finding.of(
        f"MESHJOIN's is {min(slow):.1f} to {max(slow):.1f} times HYBRIDJOIN's at 125 per second, "
        f"{min(ratios[ONE_PAGE]):.0f} to {max(ratios[ONE_PAGE]):.0f} times if HYBRIDJOIN reads one "
        f"page at a time, but {min(fast):.1f} to {max(fast):.1f} times at 2,000",
        holds=min(slow) >= 2 and min(fast) >= 2,
        in_shape=min(slow) > 1.2 and min(fast) > 0.8,
    )


def meshjoin_waits(table: Table) -> Finding:
    """Judge whether tuples wait longer with MESHJOIN than with HYBRIDJOIN."""
    ratios = table.ratios("arrivals_per_s", "seconds", "algorithm", "meshjoin", "hybridjoin")
    return Finding.of(
        f"{min(ratios):,.0f} to {max(ratios):,.0f} times as long", holds=min(ratios) > 1
    )


def inlj_falls_behind(table: Table) -> Finding:
    """Judge whether INLJ's latency grows with the arrival rate."""
    waits = table.lookup("arrivals_per_s", "seconds", algorithm="inlj")
    return Finding.of(
        f"{waits[75.0]:.2g} s at 75 per second, {waits[250.0]:.1f} s at 250, "
        f"{waits[2000.0]:.1f} s at 2,000, and growing with the length of the run",
        holds=waits[2000.0] > 10 * waits[75.0] and rises(list(waits.values())[1:]),
        in_shape=waits[2000.0] > waits[75.0],
    )


def inlj_first(table: Table) -> Finding:
    """Judge whether INLJ has the lower latency at low arrival rates."""
    ratios = table.ratios("arrivals_per_s", "seconds", "algorithm", "hybridjoin", "inlj")
    told = ", ".join(f"{r:.2g} at {rate:g}" for r, rate in zip(ratios, RATES[:3], strict=False))
    return Finding.of(
        f"HYBRIDJOIN's waiting time over INLJ's: {told} tuples per second",
        holds=min(ratios[:3]) > 1,
        in_shape=ratios[0] > 1,
    )


def gain_shrinks(table: Table) -> Finding:
    """Judge whether HYBRIDJOIN's lead over MESHJOIN shrinks as R grows."""
    gains = table.ratios("rows_millions", "tuples_per_s", "algorithm", "hybridjoin", "meshjoin")
    told = ", ".join(f"{g:.2f}" for g in gains)
    return Finding.of(
        f"{told} times MESHJOIN as R grows", holds=falls(gains, 0.02), in_shape=gains[-1] < gains[0]
    )


def turns_at(table: Table) -> Finding:
    """Judge whether HYBRIDJOIN is ahead on a disk without seeks; tell where its lead ends."""
    leads = {
        float(size): table.lookup("seek_ms", "lead", rows_millions=size)
        for size in table.distinct("rows_millions")
    }
    told = ", ".join(f"{_ends_at(by_seek)} at {size:g}M rows" for size, by_seek in leads.items())
    first = [by_seek[0.0] for by_seek in leads.values()]
    return Finding.of(
        f"{min(first):.2f} to {max(first):.2f} times MESHJOIN without seeks; the lead ends {told}",
        holds=min(first) > 1,
    )


def _ends_at(leads: dict[str | float, float]) -> str:
    """Return the seek time at which a lead falls below 1, straight between two points."""
    points = [(float(seek), lead) for seek, lead in leads.items()]
    if points[0][1] <= 1:
        return "before 0 ms"
    for (seek, lead), (next_seek, next_lead) in itertools.pairwise(points):
        if next_lead <= 1:
            at = seek + (lead - 1) / (lead - next_lead) * (next_seek - seek)
            return f"at {at:.1f} ms"
    return f"beyond {points[-1][0]:g} ms"


def does_not_stop(table: Table) -> Finding:
    """Judge whether pauses leave HYBRIDJOIN's latency as it is and add to MESHJOIN's."""
    longest = {
        name: table.lookup("pause_s", "longest_s", algorithm=name)
        for name in ("meshjoin", "hybridjoin")
    }
    mesh, ours = longest["meshjoin"], longest["hybridjoin"]
    left = table.lookup("algorithm", "unresolved", pause_s=300.0)
    return Finding.of(
        f"the longest latency is {ours[0.0]:.1f} s without pauses and {ours[300.0]:.1f} s with "
        f"pauses of 300 s; MESHJOIN's {mesh[0.0]:,.0f} and {mesh[300.0]:,.0f} s. At the end of "
        f"such a pause {left['hybridjoin']:,.0f} tuples have no result, with MESHJOIN "
        f"{left['meshjoin']:,.0f}",
        holds=ours[300.0] <= 1.5 * ours[0.0] and mesh[300.0] >= mesh[0.0] + 300,
        in_shape=ours[300.0] < mesh[300.0],
    )


def serves_at_once(table: Table) -> Finding:
    """Judge whether HYBRIDJOIN's mean latency is far below MESHJOIN's, whatever the pause."""
    ratios = table.ratios("pause_s", "latency_s", "algorithm", "meshjoin", "hybridjoin")
    return Finding.of(
        f"MESHJOIN's mean latency is {min(ratios):,.0f} to {max(ratios):,.0f} times HYBRIDJOIN's",
        holds=min(ratios) >= 10,
        in_shape=min(ratios) > 1,
    )
