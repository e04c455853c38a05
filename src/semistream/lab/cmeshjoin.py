"""The figures of `cmeshjoin-front-stage.txt`: how much a cache before MESHJOIN gains.

Popular rows lie anywhere in R.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from semistream.budget.split import Split
from semistream.cost.demand import Demand
from semistream.lab.charts import Lines, Stated
from semistream.lab.claims import Claim, Row, Table
from semistream.lab.common import cloud_reports, on_real_reports, rate_row, reports_of, tracks
from semistream.lab.computing import OF_2007, rate_with_computing
from semistream.lab.equations import cmeshjoin as printed
from semistream.lab.equations.symbols import Symbols
from semistream.lab.figures import Figure, Lab, Point
from semistream.lab.findings import cmeshjoin as findings
from semistream.lab.rig import Rig
from semistream.workload.miniature import Miniature
from semistream.workload.skewed_tpch import SkewedTpch
from semistream.workload.tpch import Tpch

PAPER = "cmeshjoin"
_ROWS = 100_000_000
_TIMES = 200
# Up to 2 % of R: in a budget of 600 KB the smallest output buffer would be a tenth of it, and 2 or
# 3 tuples would enter per read.
_FINE_TIMES, _FINE_SHARE = 50, 2.0
_SHARES = (1.0, 2.0, 6.0, 10.0)  # percent of R
_FEW_SHARES = (1.0, 5.0, 10.0)  # where there are six lines
_SIZES = (20e6, 60e6, 100e6)
_FRONT_SHARES = (0.02, 0.05, 0.1, 0.17, 0.3, 0.55)
# In a budget of 1 % of R, less than 8 % of it is too little for a cache.
_FRONT_SHARES_OF_ONE = (0.08, 0.1, 0.15, 0.2, 0.3, 0.4, 0.55)
_PAGES_PER_READ = (1, 2, 3, 4, 5, 6, 8, 10, 12, 16)
_SCALE_FACTOR, _CUSTOMER_BYTES = 100, 192
_CLOUD_ROWS, _CLOUD_BYTES, _CLOUD_TIMES = 20_000_000, 128, 100


_LINES = tuple(
    f"{name}{charged}"
    for charged in ("", findings.COMPUTING, findings.OF_2007)
    for name in ("cmeshjoin", "meshjoin")
)


def _rig(lab: Lab, rows: float = _ROWS, exponent: float = 1.0, share: float = 10.0) -> Rig:
    """Return the rig of section 4, for a memory that is a share of R, in percent."""

    def make(times: float) -> Miniature:
        return Miniature(int(rows / times), exponent, seed=lab.seed, times=times)

    # The page table has about as large a share of the memory as at full size.
    if share <= _FINE_SHARE:
        return lab.rig(make, lab.times(_FINE_TIMES), page_bytes=65_536)
    return lab.rig(make, lab.times(_TIMES), page_bytes=16_384)


def _memory(share: float, rows: float = _ROWS, row_bytes: int = 120) -> float:
    return share / 100 * rows * row_bytes


def _cache_rows(lab: Lab, share: float, front: float) -> list[Row]:
    rig, memory = _rig(lab, share=share), _memory(share)
    split = _best_split(rig, memory, int(front * memory / rig.times))
    measured = rig.measure("cmeshjoin", memory, split)
    at: Row = {
        "memory_percent": share,
        "front_percent": front * 100,
        "cached_rows": measured.cached_rows * rig.times,
    }
    rates = {
        "measured": measured.rate,
        "printed": _printed_rate(rig, memory, measured.cached_rows * rig.times),
        "model": rig.predict("cmeshjoin", measured).rate,
    }
    return [{**at, "what": what, "tuples_per_s": rate} for what, rate in rates.items()]


def _best_split(rig: Rig, memory: float, front_bytes: int) -> Split:
    """Return the best disk buffer for the memory that a cache leaves, as the paper tunes it."""
    splits = [Split(pages, front_bytes=front_bytes) for pages in _PAGES_PER_READ]
    tried = [(split, rig.evaluate("cmeshjoin", memory, split)) for split in splits]
    # A disk buffer that does not fit gets another size, at the cost of the cache.
    fits = [t for t in tried if t[1].settings.pages_per_read == t[0].pages_per_read]
    return max(fits, key=lambda t: t[1].prediction.rate)[0]


def _printed_rate(rig: Rig, memory: float, h_r: float) -> float:
    """Return equation 4, made a rate by one number: MESHJOIN's without a cache.

    By equation 3 MESHJOIN's rate is proportional to its share of R; the factor is that of MESHJOIN
    in the whole memory.
    """
    symbols = Symbols(rig.size_bytes / 8192, io_s=lambda b: 0.0, row_bytes=rig.row_bytes)
    whole = printed.back_rate_as_printed(symbols, memory, 0.0)
    back = printed.back_rate_as_printed(symbols, memory, h_r)
    rate = rig.measure_tuned("meshjoin", memory).rate * back / whole
    return printed.service_rate(Demand.zipf(1.0, round(rig.rows)), h_r, rate)


def _cache_points(lab: Lab) -> Sequence[Point]:
    return [partial(_cache_rows, lab, 1.0, front) for front in _FRONT_SHARES_OF_ONE]


def _cache_by_memory(lab: Lab) -> Sequence[Point]:
    def rows(share: float, front: float) -> list[Row]:
        return [row for row in _cache_rows(lab, share, front) if row["what"] == "measured"]

    return [
        partial(rows, share, front)
        for share in (1.0, 4.0, 10.0)
        for front in (_FRONT_SHARES_OF_ONE if share == 1.0 else _FRONT_SHARES)
    ]


def _memory_points(lab: Lab) -> Sequence[Point]:
    def rows(share: float, exponent: float, algorithm: str) -> list[Row]:
        labels = {"memory_percent": share, "exponent": exponent}
        line = "MESHJOIN, 0" if algorithm == "meshjoin" else f"CMESHJOIN, {exponent:g}"
        rig = _rig(lab, exponent=exponent, share=share)
        found = rate_row(rig, algorithm, _memory(share), **labels)
        return [{**row, "line": line} for row in found]

    lines = [("meshjoin", 0.0), *(("cmeshjoin", exponent) for exponent in findings.EXPONENTS)]
    return [partial(rows, s, exponent, name) for name, exponent in lines for s in _FEW_SHARES]


def _size_points(lab: Lab) -> Sequence[Point]:
    def rows(size: float, algorithm: str) -> list[Row]:
        rig = _rig(lab, size)
        return _row(rig, algorithm, _memory(10.0), rows_millions=size / 1e6)

    return [partial(rows, size, name) for name in (*_LINES, "inlj") for size in _SIZES]


def _row(rig: Rig, line: str, memory: float, **labels: float) -> list[Row]:
    """Return a rate, with computing charged if the line says so."""
    algorithm, _, charged = line.partition("+")
    if not charged:
        return rate_row(rig, line, memory, **labels)
    times = OF_2007 if line.endswith(findings.OF_2007) else 1.0
    measured = rig.measure_tuned(algorithm, memory)
    rate = rate_with_computing(rig, algorithm, measured, times)
    return [{**labels, "algorithm": line, "tuples_per_s": rate}]


def _skew_points(lab: Lab) -> Sequence[Point]:
    def rows(exponent: float, algorithm: str) -> list[Row]:
        rig = _rig(lab, exponent=exponent)
        return _row(rig, algorithm, _memory(10.0), exponent=exponent)

    return [partial(rows, exponent, name) for name in _LINES for exponent in findings.EXPONENTS]


def _tpch_points(lab: Lab) -> Sequence[Point]:
    def rows(share: float, line: str) -> list[Row]:
        algorithm, _, skew = line.partition(" ")
        make = _skewed_tpch if skew else _tpch
        rig = lab.rig(
            partial(make, lab),
            lab.times(_SCALE_FACTOR),
            row_bytes=_CUSTOMER_BYTES,
            page_bytes=16_384,
        )
        memory = _memory(share, rig.rows, _CUSTOMER_BYTES)
        found = rate_row(rig, algorithm, memory, memory_percent=share)
        return [{**row, "algorithm": line} for row in found]

    return [partial(rows, share, name) for name in findings.TPCH_LINES for share in _SHARES]


def _tpch(lab: Lab, times: float) -> Tpch:
    return Tpch(_SCALE_FACTOR / times, "customer-orders", lab.folder / "tpch")


def _skewed_tpch(lab: Lab, times: float) -> SkewedTpch:
    return SkewedTpch(_tpch(lab, times), times=times, seed=lab.seed)


def _cloud_points(lab: Lab) -> Sequence[Point]:
    def rows(share: float, algorithm: str) -> list[Row]:
        rig = cloud_reports(lab, _CLOUD_ROWS, _CLOUD_BYTES, _CLOUD_TIMES)
        memory = share / 100 * rig.size_bytes
        reports = reports_of(lab)
        return rate_row(rig, algorithm, memory, memory_percent=share, reports=reports)

    names = ("cmeshjoin", "meshjoin")
    return [partial(rows, share, name) for name in names for share in _SHARES]


def _full_size_lead(share: float, rows: float = _ROWS) -> float:
    """Return the best lead by equation 4 at full size, less the memory that MESHJOIN gives up."""
    demand = Demand.zipf(1.0, int(rows))
    caches = np.geomspace(1e-3, 0.9, 60) * share / 100 * rows
    leads = [(1 - h / (share / 100 * rows)) / (1 - demand.hit_ratio(h)) for h in caches]
    return float(max(leads))


_CEILING = (
    "By equations 1, 3 and 4 themselves, with R of 100 million rows, a cache of any size in 1 % of "
    f"R gives at most {_full_size_lead(1.0):.1f} times MESHJOIN's rate, and in 10 % "
    f"{_full_size_lead(10.0):.1f} times. The rest may be saved computing: the lines with computing "
    "charged show how much that is."
)


def _times_meshjoin(
    x: str,
    stated: dict[float, float],
    table: Table,
    series: str = "algorithm",
    of: str = "meshjoin",
) -> list[Stated]:
    """Return the paper's leads over MESHJOIN, times our MESHJOIN's rate."""
    rates = table.lookup(x, "tuples_per_s", **{series: of})
    return [Stated(at, rates[at] * lead, f"{lead:g} ×") for at, lead in stated.items()]


_CHARGED = (
    "With computing charged: at measured cost factors of a server of 2026, and at 150 times these, "
    "about those of the first paper's machine. The claims are judged on the latter, the nearest to "
    "the paper's, where computing decides; on the disk's clock alone otherwise."
)
_RATE = "service rate (tuples/s)"
_BY_MEMORY = Lines("memory_percent", "tuples_per_s", "memory (% of R)", _RATE, "algorithm")
_BY_CACHE = "cache (% of the memory)"

FIGURES = (
    Figure(
        PAPER,
        "2",
        "CMESHJOIN by size of its cache: cost model against measurement, memory 1 % of R",
        _cache_points,
        Lines("front_percent", "tuples_per_s", _BY_CACHE, _RATE, "what"),
        (
            Claim(
                "Estimates and measurements match closely.",
                "section 4, figure 2",
                partial(tracks, x="front_percent"),
                why="Equation 3 leaves out what the window and the learning of hot keys take "
                "besides, and equation 1 that a cache in sets does not hold exactly the hottest.",
            ),
        ),
        note="Equations 1, 3 and 4 as printed give a share of R, not a rate; one number makes it a "
        "rate: MESHJOIN's in the whole memory.",
        needs_clock=True,
    ),
    Figure(
        PAPER,
        "3a",
        "CMESHJOIN by size of its cache, for three budgets; Zipf 1",
        _cache_by_memory,
        Lines(
            "front_percent",
            "tuples_per_s",
            _BY_CACHE,
            _RATE,
            "memory_percent",
            named=lambda share: f"memory {share:g} % of R",
        ),
        (
            Claim(
                "Cache and join have to be balanced: each budget has a best size of the cache.",
                "section 4, figure 3(a)",
                findings.cache_has_best,
            ),
            Claim(
                "A cache of a small part of the memory gains a lot.",
                "section 3, figure 3(a)",
                findings.small_cache_pays,
            ),
        ),
        needs_clock=True,
    ),
    Figure(
        PAPER,
        "3b",
        "CMESHJOIN by memory and skew; R of 100M rows",
        _memory_points,
        Lines(
            "memory_percent",
            "tuples_per_s",
            "memory (% of R)",
            _RATE,
            "line",
            named=lambda line: str(line).replace(", ", ", exponent "),
            stated_of=lambda table: _times_meshjoin(
                "memory_percent", {1.0: 5.0, 10.0: 7.0}, table, "line", "MESHJOIN, 0"
            ),
        ),
        (
            Claim(
                "At exponent 1 CMESHJOIN is up to 7 times as fast as MESHJOIN in 10 % of R.",
                "section 4, figure 3(b)",
                partial(findings.lead_in, 10.0, 7.0),
                why=_CEILING,
            ),
            Claim(
                "In 1 % of R it is still up to 5 times as fast.",
                "section 4, figure 3(b)",
                partial(findings.lead_in, 1.0, 5.0),
                why=_CEILING,
            ),
            Claim(
                "The more skew, the faster.",
                "section 4, figure 3(b)",
                findings.more_with_skew_and_memory,
            ),
        ),
        note="As in the paper MESHJOIN is shown for exponent 0, where it is best.",
    ),
    Figure(
        PAPER,
        "3c",
        "CMESHJOIN, MESHJOIN and INLJ by size of R; 1.12 GB, Zipf 1",
        _size_points,
        Lines(
            "rows_millions",
            "tuples_per_s",
            "rows of R (millions)",
            f"{_RATE}, log",
            "algorithm",
            log_y=True,
            stated_of=partial(_times_meshjoin, "rows_millions", {20.0: 4.5, 100.0: 6.5}),
        ),
        (
            Claim(
                "CMESHJOIN is up to 4.5 times as fast as MESHJOIN at 20 million rows.",
                "section 4, figure 3(c)",
                partial(findings.lead_at, 20.0, 4.5),
            ),
            Claim(
                "It is 6.5 times as fast at 100 million.",
                "section 4, figure 3(c)",
                partial(findings.lead_at, 100.0, 6.5),
                why=_CEILING,
            ),
            Claim(
                "Its lead grows with R.",
                "section 4, figure 3(c)",
                findings.lead_grows,
                why="With a fixed memory a cache of the same size has a smaller share of a larger "
                "R, and by equation 1 a smaller share of the stream. By equation 3 the back "
                "stage's rate and MESHJOIN's fall alike, so by equation 4 the lead shrinks. "
                "Without equation 3, which leaves computing out, it need not: a join that is "
                "limited by computing where R is small has its lead cut there.",
            ),
            Claim(
                "Its rate does not fall in inverse proportion to R, as MESHJOIN's does.",
                "section 4, figure 3(c)",
                findings.falls_less,
                why="See the claim above: by equations 1, 3 and 4 it falls more.",
            ),
            Claim(
                "It is far ahead of INLJ.",
                "section 4, figure 3(c)",
                findings.beats_inlj,
            ),
        ),
        note=_CHARGED,
    ),
    Figure(
        PAPER,
        "3d",
        "CMESHJOIN and MESHJOIN by skew; memory 10 % of R",
        _skew_points,
        Lines(
            "exponent",
            "tuples_per_s",
            "Zipf exponent of the stream",
            _RATE,
            "algorithm",
            stated_of=partial(_times_meshjoin, "exponent", {1.0: 7.0}),
        ),
        (
            Claim(
                "The more skew, the further CMESHJOIN is ahead.",
                "section 4, figure 3(d)",
                findings.ahead_the_more_skew,
            ),
            Claim(
                "It is significantly faster even with moderate skew.",
                "section 4, figure 3(d)",
                findings.ahead_with_some_skew,
                why="At exponent 0.5 the first tenth of the keys has a third of the stream; the "
                "window loses about as much by the memory of a cache for them.",
            ),
            Claim(
                "At exponent 1 it is about 7 times as fast as MESHJOIN.",
                "section 4, figure 3(d)",
                findings.seven_times,
                why=_CEILING,
            ),
            Claim(
                "It is slower only without any skew, by a constant factor.",
                "section 4, figures 3(b) and 3(d)",
                findings.worse_only_at_zero,
                why="Where the front stage does not pay, the model gives it no memory.",
            ),
            Claim(
                "MESHJOIN gains nothing from skew; it becomes slightly slower.",
                "section 4, figure 3(d)",
                findings.mesh_falls_with_skew,
                why="The reason is computing (long chains in its hash table). Charged as it was "
                "measured on a machine of today, it is a small part of the disk's time.",
            ),
        ),
        note=_CHARGED,
    ),
    Figure(
        PAPER,
        "3e",
        "CMESHJOIN and MESHJOIN on TPC-H: customer ⋈ orders",
        _tpch_points,
        replace(
            _BY_MEMORY,
            stated_of=partial(_times_meshjoin, "memory_percent", {1.0: 4.0, 10.0: 4.0}),
            named=lambda line: {
                f"{name} {findings.SKEWED}": f"{label}, skewed customers (ours)"
                for name, label in (("cmeshjoin", "CMESHJOIN"), ("meshjoin", "MESHJOIN"))
            }.get(str(line), str(line)),
        ),
        (
            Claim(
                "CMESHJOIN is about 4 times as fast as MESHJOIN.",
                "section 4, figure 3(e)",
                findings.four_times,
                why="TPC-H draws the customer of an order uniformly, from two thirds of them. No "
                "cache of 10 % of R can then serve more than 15 % of the stream. The paper does "
                "not say how its stream was drawn.",
            ),
        ),
        note="Scale factor 1 at quick scale, 100 in the paper. A customer's columns are stored as "
        "one payload of 184 bytes. The lines with skewed customers are ours: the same tables, but "
        "an order's customer is drawn by Zipf's law with exponent 1.",
    ),
    Figure(
        PAPER,
        "3f",
        "CMESHJOIN and MESHJOIN on cloud reports (without --clouds: generated)",
        _cloud_points,
        _BY_MEMORY,
        (
            Claim(
                "CMESHJOIN is ahead of MESHJOIN in every budget.",
                "section 4, figure 3(f)",
                on_real_reports(findings.ahead_in_all),
                why="Not judged on the stand-in. There each longitude has many rows in R, and the "
                "more rows the more often it is requested. A cache that resolves a key must have "
                "all its rows, so no row is worth more than another, and ours keeps no keys of "
                "more than three rows. The paper's algorithm answers with the one row that it has.",
            ),
        ),
        note="Without --clouds these are not the real reports, but generated ones with their "
        "widths, domain and clustered longitudes.",
    ),
)
