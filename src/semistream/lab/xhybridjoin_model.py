"""X-HYBRIDJOIN's cost model against measurement: figures 4, 6 and 8.

The equations as printed, equation 9 also corrected, and our own model.
"""

from collections.abc import Sequence
from functools import partial

from semistream.budget.split import Split
from semistream.cost.demand import Demand
from semistream.cost.tuning import Tuned
from semistream.lab.claims import Row, Table
from semistream.lab.common import MB, PAGE_BYTES, symbols_of
from semistream.lab.equations import xhybridjoin as printed
from semistream.lab.figures import Lab, Point
from semistream.lab.hybridjoin_streams import BUDGETS_MB, MEMORY, skewed
from semistream.lab.rig import Rig

SWAPPED_MB = (0.6, 1.2, 2.4, 4.0, 6.0, 10.0, 16.0)
PINNED_MB = (0.0, 0.6, 1.2, 2.5, 5.0, 10.0, 16.0, 24.0)
_GRID_SWAPPED_MB = (1.2, 2.4, 4.0, 6.0, 10.0, 16.0)  # of figure 4
_GRID_PINNED_MB = (0.0, 0.6, 2.5, 5.0, 10.0, 24.0)


_GRID = "measured"  # marks the rows of figure 4 that are its grid


def surface_points(lab: Lab) -> Sequence[Point]:
    """Return figure 4: the rates of a grid of sizes, and those at the sizes that models choose."""

    def row(swapped_mb: float, pinned_mb: float) -> Row:
        rig = skewed(lab)
        split = Split(rig.pages_in(swapped_mb * MB), None, round(pinned_mb * MB / rig.page_bytes))
        rate = rig.measure("xhybridjoin", MEMORY, split).rate
        sizes: Row = {"swapped_mb": swapped_mb, "pinned_mb": pinned_mb}
        return {**sizes, "what": _GRID, "tuples_per_s": rate}

    def chosen(what: str) -> Row:
        rig = skewed(lab)
        swapped, pinned = _best_pages(rig, what)
        rate = rig.measure("xhybridjoin", MEMORY, Split(swapped, None, pinned)).rate
        page_mb = rig.page_bytes / MB
        sizes: Row = {"swapped_mb": swapped * page_mb, "pinned_mb": pinned * page_mb}
        return {**sizes, "what": what, "tuples_per_s": rate}

    grid = [partial(row, s, p) for p in _GRID_PINNED_MB for s in _GRID_SWAPPED_MB]
    return [*grid, *(partial(chosen, what) for what in ("printed", "corrected", "model"))]


def _best_pages(rig: Rig, what: str) -> tuple[int, int]:
    """Return the best sizes of both parts, in pages of the rig, by one of the models."""
    if what == "model":
        best = rig.tuned("xhybridjoin", MEMORY).settings
        return best.pages_per_read, best.pinned_pages
    symbols = symbols_of(rig, "xhybridjoin", printed.NODE_BYTES, seeks=True)
    served = printed.stream_input_as_printed if what == "printed" else printed.stream_input
    demand = Demand.zipf(1.0, round(symbols.row_count))
    k, l = printed.best_parts(symbols, demand, MEMORY, served)  # noqa: E741
    return rig.pages_in(k * PAGE_BYTES), round(l * PAGE_BYTES / rig.page_bytes)


def grid_of(table: Table) -> Table:
    """Return the measured grid of figure 4."""
    return table.where(what=_GRID)


def tuning_points(lab: Lab, x: str) -> Sequence[Point]:
    """Return one line through the grid, at the best size of the other part by the model."""

    def rows(size: float) -> list[Row]:
        rig = skewed(lab)
        best = rig.tuned("xhybridjoin", MEMORY).settings
        if x == "swapped_mb":
            split = Split(rig.pages_in(size * MB), pinned_pages=best.pinned_pages)
        else:
            pinned = round(size * MB / rig.page_bytes)
            split = Split(best.pages_per_read, pinned_pages=pinned)
        rates = {
            "measured": rig.measure("xhybridjoin", MEMORY, split).rate,
            "printed": _printed_rate(rig, MEMORY, split, printed.stream_input_as_printed),
            "corrected": _printed_rate(rig, MEMORY, split, printed.stream_input),
            "model": rig.evaluate("xhybridjoin", MEMORY, split).prediction.rate,
        }
        return [{x: size, "what": what, "tuples_per_s": rate} for what, rate in rates.items()]

    return [partial(rows, size) for size in (SWAPPED_MB if x == "swapped_mb" else PINNED_MB)]


def _printed_rate(rig: Rig, memory: float, split: Split, served: printed.Served) -> float:
    """Return the rate by equations 4 to 6 and one of the forms of equation 9."""
    symbols = symbols_of(rig, "xhybridjoin", printed.NODE_BYTES, seeks=True)
    settings = rig.evaluate("xhybridjoin", memory, split).settings
    k, l = (  # noqa: E741
        pages * rig.page_bytes / PAGE_BYTES
        for pages in (settings.pages_per_read, settings.pinned_pages)
    )
    h_s = settings.places * rig.times
    demand = Demand.zipf(1.0, round(symbols.row_count))
    w = served(demand, h_s, l * symbols.rows_per_page, k * symbols.rows_per_page)
    return printed.service_rate(symbols, w, k, l)


def validation_points(lab: Lab) -> Sequence[Point]:
    """Return figure 8: rates by memory."""

    def rows(memory: float) -> list[Row]:
        rig = skewed(lab)
        tuned = tuned_below_r(rig, memory * MB)
        measured = rig.measure("xhybridjoin", memory * MB, tuned.split)
        rates = {
            "measured": measured.rate,
            "printed": _printed_rate(
                rig, memory * MB, tuned.split, printed.stream_input_as_printed
            ),
            "corrected": _printed_rate(rig, memory * MB, tuned.split, printed.stream_input),
            "model": rig.predict("xhybridjoin", measured).rate,
        }
        at: Row = {"memory_mb": memory, "algorithm": "xhybridjoin"}
        return [{**at, "what": what, "tuples_per_s": rate} for what, rate in rates.items()]

    return [partial(rows, memory) for memory in BUDGETS_MB]


def tuned_below_r(rig: Rig, memory: float) -> Tuned:
    """Return the best split with less than all of R pinned: a join that never reads has no rate."""
    tuned = rig.tuned("xhybridjoin", memory)
    most = int(0.95 * rig.page_count)
    if tuned.settings.pinned_pages <= most:
        return tuned
    return rig.evaluate("xhybridjoin", memory, Split(tuned.settings.pages_per_read, None, most))
