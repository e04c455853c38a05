"""How the claims of `xhybridjoin.txt` are judged: from a figure's table to a finding."""

import numpy as np

from semistream.lab.claims import FAR, NEAR, Finding, Table, has_peak, rises
from semistream.lab.rig import UNTUNED

OTHERS = ("meshjoin", "rmeshjoin", "hybridjoin")
TUNED_MESHJOIN = "meshjoin-tuned"
EXPONENTS = (0.0, 0.2, 0.6, 1.0)


def _leads(x: str, table: Table) -> list[float]:
    """Return X-HYBRIDJOIN's rate over the best of the others', along x."""
    lines = [table.ratios(x, "tuples_per_s", "algorithm", UNTUNED, name) for name in OTHERS]
    return [min(leads) for leads in zip(*lines, strict=True)]


def ahead_of_all(x: str, table: Table) -> Finding:
    """Judge whether X-HYBRIDJOIN is ahead of all others along x."""
    leads = _leads(x, table)
    return Finding.of(
        f"{min(leads):.2f} to {max(leads):.2f} times the next",
        holds=min(leads) >= 1.1,
        in_shape=min(leads) > 1,
    )


def slightly_ahead(table: Table) -> Finding:
    """Judge whether HYBRIDJOIN is ahead of MESHJOIN and R-MESHJOIN."""
    ratios = [
        ratio
        for name in ("meshjoin", "rmeshjoin")
        for ratio in table.ratios("memory_mb", "tuples_per_s", "algorithm", "hybridjoin", name)
    ]
    return Finding.of(
        f"{min(ratios):.2f} to {max(ratios):.2f} times",
        holds=min(ratios) > 1 and max(ratios) <= 1.5,  # slightly
        in_shape=float(np.median(ratios)) > 1 and min(ratios) > 0.95,
    )


def hybridjoin_share(table: Table) -> Finding:
    """Judge whether HYBRIDJOIN has the stated shares of X-HYBRIDJOIN's rate."""
    shares = table.ratios("rows_millions", "tuples_per_s", "algorithm", "hybridjoin", UNTUNED)
    return Finding.of_numbers(
        f"{shares[0]:.0%} of X-HYBRIDJOIN's at 0.5 million rows, {shares[-1]:.0%} at 8 million",
        (shares[0], 0.7),
        (shares[-1], 0.5),
        in_order=shares[-1] < shares[0] < 1,
    )


def ahead_but_at_zero(table: Table) -> Finding:
    """Judge whether X-HYBRIDJOIN is ahead at every exponent above 0."""
    leads = dict(zip(EXPONENTS, _leads("exponent", table), strict=True))
    skewed_leads = [lead for exponent, lead in leads.items() if exponent > 0]
    return Finding.of(
        "times the next: "
        + ", ".join(f"{lead:.2f} at {exponent:g}" for exponent, lead in leads.items()),
        holds=min(skewed_leads) > 1,
        in_shape=all(lead > 1 for exponent, lead in leads.items() if exponent >= 0.6),
    )


def more_with_skew(table: Table) -> Finding:
    """Judge whether X-HYBRIDJOIN's lead grows with the exponent."""
    leads = _leads("exponent", table)
    return Finding.of(
        f"from {leads[1]:.2f} at 0.2 to {leads[-1]:.2f} times the next at 1",
        holds=rises(leads, 0.02),
        in_shape=leads[-1] > leads[0],
    )


def behind_at_zero(table: Table) -> Finding:
    """Judge whether X-HYBRIDJOIN is slower than MESHJOIN without skew."""
    found = table.lookup("algorithm", "tuples_per_s", exponent=0.0)
    share = found[UNTUNED] / found["meshjoin"]
    return Finding.of(f"{share:.2f} times MESHJOIN's rate", holds=share < 1)


def pinned_serve(table: Table) -> Finding:
    """Judge whether the pinned part resolves the stated number of tuples."""
    found = table.lookup("memory_mb", "as_in_the_paper")
    ours = table.lookup("memory_mb", "tuples_millions")
    return Finding.of_numbers(
        f"{found[50.0]:.2f} million tuples in 50 MB, {found[250.0]:.2f} million in 250 MB "
        f"(the paper: 0.4 and more than 2); with our smaller tuples {ours[50.0]:.2f} and "
        f"{ours[250.0]:.2f}",
        (found[50.0], 0.4),
        (min(found[250.0], 2.0), 2.0),
        in_order=found[250.0] > found[50.0],
    )


def has_summit(part: str, table: Table) -> Finding:
    """Judge whether along one part the rate has its peak inside, for every size of the other."""
    table = table.where(what="measured")
    other = "pinned_mb" if part == "swapped_mb" else "swapped_mb"
    lines = [table.where(**{other: size}).values("tuples_per_s") for size in table.distinct(other)]
    inside = sum(has_peak(line) for line in lines)
    best = max(table, key=lambda row: float(row["tuples_per_s"]))
    return Finding.of(
        f"along {inside} of {len(lines)} lines; most in all at {best[part]:g} MB",
        holds=inside == len(lines),
        in_shape=inside > len(lines) / 2,
    )


def saves_reading(table: Table) -> Finding:
    """Judge whether the pinned part saves about a third of the reading."""
    leads = table.ratios("memory_mb", "tuples_per_s", "algorithm", UNTUNED, "hybridjoin")
    saved = [1 - 1 / lead for lead in leads]
    return Finding.of_numbers(
        f"{min(saved):.0%} to {max(saved):.0%} of the disk's time for a tuple",
        (min(saved), 0.33),
        (max(saved), 0.33),
    )


def rises_fast(table: Table) -> Finding:
    """Judge whether the rate rises rapidly with the pinned part and falls slowly."""
    rates = table.lookup("pinned_mb", "tuples_per_s", swapped_mb=4.0, what="measured")
    gain = rates[2.5] / rates[0.0]
    kept = rates[24.0] / max(rates.values())
    return Finding.of(
        f"with 4 MB swappable, 2.5 MB pinned make it {gain:.1f} times as fast; with 24 MB "
        f"{kept:.0%} of the best is left",
        holds=gain >= 2 and kept >= 0.7,
        in_shape=gain > 1.2,
    )


def tuning_agrees(table: Table) -> Finding:
    """Judge whether the sizes that the paper's equations choose give the best measured rate."""
    best = max(table.where(what="measured").values("tuples_per_s"))
    told, shares = [], {}
    for what, name in (("printed", "as printed"), ("corrected", "corrected"), ("model", "by ours")):
        (row,) = table.where(what=what)
        shares[what] = float(row["tuples_per_s"]) / best
        sizes = f"{row['swapped_mb']:.1f} and {row['pinned_mb']:.1f} MB"
        told.append(f"{name} {sizes}, {shares[what]:.0%} of the best rate of the grid")
    return Finding.of_numbers("; ".join(told), (shares["printed"], 1.0))


def close(x: str, stated: float, table: Table) -> Finding:
    """Judge whether the paper's equations deviate from the measured rates by the stated share."""
    means = {}
    for what in ("printed", "corrected", "model"):
        ratios = table.ratios(x, "tuples_per_s", "what", what, "measured")
        means[what] = float(np.mean([abs(r - 1) for r in ratios]))
    return Finding.of(
        f"mean deviation of the paper's equations {means['printed']:.0%}, with equation 9 "
        f"corrected {means['corrected']:.1%}, of our model {means['model']:.1%}",
        holds=means["printed"] <= (1 + NEAR) * stated,
        in_shape=means["printed"] <= FAR * stated,
    )


def tuning_pays(x: str, table: Table) -> Finding:
    """Judge whether tuning makes X-HYBRIDJOIN faster everywhere along x."""
    ratios = table.ratios(x, "tuples_per_s", "what", "tuned", "untuned")
    return Finding.of(
        f"{min(ratios):.2f} to {max(ratios):.2f} times",
        holds=min(ratios) >= 1.1,
        in_shape=min(ratios) >= 1,
    )
