"""How the claims of `cmeshjoin-front-stage.txt` are judged: from a figure's table to a finding."""

from semistream.lab.claims import Finding, Table, has_peak, rises

EXPONENTS = (0.0, 0.25, 0.5, 0.75, 1.0)
COMPUTING, OF_2007 = "+computing", "+computing of 2007"  # end the names of lines
SKEWED = "skewed"
TPCH_LINES = ("cmeshjoin", "meshjoin", f"cmeshjoin {SKEWED}", f"meshjoin {SKEWED}")


def _leads(table: Table, x: str, charged: str = "") -> dict[float, float]:
    ours = table.lookup(x, "tuples_per_s", algorithm=f"cmeshjoin{charged}")
    theirs = table.lookup(x, "tuples_per_s", algorithm=f"meshjoin{charged}")
    return {float(k): ours[k] / theirs[k] for k in ours if k in theirs}


def _told(table: Table, x: str, at: float) -> str:
    """Return a lead on the three clocks."""
    disk, now, then = (_leads(table, x, charged)[at] for charged in ("", COMPUTING, OF_2007))
    return (
        f"{disk:.1f} times on the disk's clock, {now:.1f} with computing charged, {then:.1f} with "
        "that of 2007"
    )


def cache_has_best(table: Table) -> Finding:
    """Judge whether each budget has its best cache inside the range."""
    best = []
    for share in table.distinct("memory_percent"):
        rows = table.where(memory_percent=share)
        rates = rows.values("tuples_per_s")
        fronts = rows.values("front_percent")
        best.append((has_peak(rates), fronts[rates.index(max(rates))]))
    told = ", ".join(f"{front:g} %" for _, front in best)
    return Finding.of(f"best with {told} of the memory", holds=all(inside for inside, _ in best))


def lead_in(share: float, stated: float, table: Table) -> Finding:
    """Judge whether CMESHJOIN has the stated lead over MESHJOIN in a share of R, in percent."""
    mesh = table.lookup("memory_percent", "tuples_per_s", line="MESHJOIN, 0")
    ours = table.lookup("memory_percent", "tuples_per_s", line="CMESHJOIN, 1")
    lead = ours[share] / mesh[share]
    return Finding.of_numbers(f"{lead:.1f} times", (lead, stated), in_order=lead > 1)


def more_with_skew_and_memory(table: Table) -> Finding:
    """Judge whether CMESHJOIN is faster with each step of skew."""
    by_skew = [
        table.lookup("memory_percent", "tuples_per_s", line=f"CMESHJOIN, {e:g}")[10.0]
        for e in EXPONENTS
    ]
    return Finding.of(
        ", ".join(f"{rate / by_skew[0]:.2f}" for rate in by_skew)
        + " times its rate without skew, in 10 %",
        holds=rises(by_skew, 0.01),
        in_shape=by_skew[-1] > by_skew[0],
    )


def lead_at(rows_millions: float, stated: float, table: Table) -> Finding:
    """Judge whether CMESHJOIN has the stated lead over MESHJOIN at a size of R."""
    lead = _leads(table, "rows_millions")[rows_millions]
    told = _told(table, "rows_millions", rows_millions)
    return Finding.of_numbers(told, (lead, stated), in_order=lead > 1)


def lead_grows(table: Table) -> Finding:
    """Judge whether CMESHJOIN's lead over MESHJOIN grows with R."""
    found = [_leads(table, "rows_millions", charged) for charged in ("", COMPUTING, OF_2007)]
    told = [f"{leads[20.0]:.2f} to {leads[100.0]:.2f}" for leads in found]
    return Finding.of(
        f"from 20 to 100 million rows: {told[0]} times on the disk's clock, {told[1]} with "
        f"computing charged, {told[2]} with that of 2007",
        holds=all(leads[100.0] > leads[20.0] for leads in found),
        in_shape=any(leads[100.0] > leads[20.0] for leads in found),
    )


def falls_less(table: Table) -> Finding:
    """Judge whether CMESHJOIN's rate falls less than MESHJOIN's as R grows."""
    kept = {}
    for charged in ("", OF_2007):
        for name in ("cmeshjoin", "meshjoin"):
            rates = table.lookup("rows_millions", "tuples_per_s", algorithm=f"{name}{charged}")
            kept[name, charged] = rates[100.0] / rates[20.0]
    less = [kept["cmeshjoin", charged] > kept["meshjoin", charged] for charged in ("", OF_2007)]
    return Finding.of(
        f"from 20 to 100 million rows CMESHJOIN keeps {kept['cmeshjoin', '']:.0%}, MESHJOIN "
        f"{kept['meshjoin', '']:.0%}; with computing of 2007 {kept['cmeshjoin', OF_2007]:.0%} and "
        f"{kept['meshjoin', OF_2007]:.0%}",
        holds=all(less),
        in_shape=any(less),
    )


def beats_inlj(table: Table) -> Finding:
    """Judge whether CMESHJOIN is at least ten times as fast as INLJ."""
    ratios = table.ratios("rows_millions", "tuples_per_s", "algorithm", "cmeshjoin", "inlj")
    return Finding.of(f"{min(ratios):,.0f} times and more", holds=min(ratios) >= 10)


def ahead_with_some_skew(table: Table) -> Finding:
    """Judge whether CMESHJOIN is clearly ahead with moderate skew."""
    leads = _leads(table, "exponent")
    return Finding.of(
        f"{leads[0.5]:.2f} times at 0.5, {leads[0.75]:.2f} at 0.75",
        holds=leads[0.5] >= 1.2,
        in_shape=leads[0.5] > 1 and leads[0.75] >= 1.2,
    )


def ahead_the_more_skew(table: Table) -> Finding:
    """Judge whether CMESHJOIN's lead grows with skew."""
    leads = _leads(table, "exponent")
    return Finding.of(
        ", ".join(f"{lead:.2f} at {exponent:g}" for exponent, lead in leads.items()),
        holds=rises(list(leads.values()), 0.02) and leads[1.0] > 1.5,
    )


def small_cache_pays(table: Table) -> Finding:
    """Judge whether a cache of a tenth of the memory makes the join clearly faster."""
    rates = table.where(memory_percent=10.0)
    plain = rates.values("tuples_per_s")[0]
    gains = rates.lookup("front_percent", "tuples_per_s")
    gain = gains[10.0] / plain
    return Finding.of(
        f"with a tenth of the memory {gain:.2f} times what a fiftieth gives",
        holds=gain >= 1.2,
        in_shape=gain > 1,
    )


def seven_times(table: Table) -> Finding:
    """Judge whether CMESHJOIN is about 7 times as fast as MESHJOIN at exponent 1."""
    lead = _leads(table, "exponent")[1.0]
    return Finding.of_numbers(_told(table, "exponent", 1.0), (lead, 7.0), in_order=lead > 1)


def worse_only_at_zero(table: Table) -> Finding:
    """Judge whether CMESHJOIN is slower than MESHJOIN without skew, and only there."""
    leads = _leads(table, "exponent")
    return Finding.of(
        f"{leads[0.0]:.2f} times MESHJOIN's rate at 0, {leads[0.25]:.2f} at 0.25",
        holds=leads[0.0] <= 1.0 and min(v for e, v in leads.items() if e) > 1,
        in_shape=min(v for e, v in leads.items() if e) >= 0.99,
    )


def mesh_falls_with_skew(table: Table) -> Finding:
    """Judge whether MESHJOIN becomes slightly slower with skew, with computing charged."""
    shares = []
    for charged in (COMPUTING, OF_2007):
        rates = table.lookup("exponent", "tuples_per_s", algorithm=f"meshjoin{charged}")
        shares.append(rates[1.0] / rates[0.0])
    return Finding.of(
        f"at exponent 1 it is {shares[0]:.3f} times that at 0 with computing charged, "
        f"{shares[1]:.3f} times with that of 2007",
        holds=all(0.8 < share < 0.995 for share in shares),
        in_shape=any(0.8 < share < 0.995 for share in shares),
    )


def ahead_in_all(table: Table) -> Finding:
    """Judge whether CMESHJOIN is ahead of MESHJOIN in all budgets."""
    leads = _leads(table, "memory_percent")
    budgets = len(table.distinct("memory_percent"))
    return Finding.of(
        f"{_by_share(leads)}: {len(leads)} of {budgets} budgets are enough for both",
        holds=min(leads.values()) > 1.05,
        in_shape=min(leads.values()) > 1,
    )


def four_times(table: Table) -> Finding:
    """Judge whether CMESHJOIN is about 4 times as fast as MESHJOIN on TPC-H."""
    leads = _leads(table, "memory_percent")
    skewed = _leads(table, "memory_percent", f" {SKEWED}")
    return Finding.of_numbers(
        f"{_by_share(leads)}; with skewed customers (ours) {_by_share(skewed)}",
        *((lead, 4.0) for lead in leads.values()),
        in_order=min(leads.values()) > 1,
    )


def _by_share(leads: dict[float, float]) -> str:
    return ", ".join(f"{lead:.2f} in {share:g} %" for share, lead in leads.items())
