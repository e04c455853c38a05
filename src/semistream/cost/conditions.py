"""The inputs of a prediction besides the settings: R's layout on disk, demand, cost factors."""

from dataclasses import dataclass, field, replace
from math import inf

import numpy as np
from numpy.typing import NDArray

from semistream.budget.frontsizes import FrontPolicy
from semistream.budget.pagesizes import READ_THROUGH_PAGES
from semistream.cost.demand import Demand
from semistream.cost.factors import CostFactors, RequestCosts

Floats = NDArray[np.float64]
# Of a large R, only this number of loads, or of pages, is computed exactly.
_FEW_LOADS = 128
_FEW_PAGES = 16_384


@dataclass(frozen=True, slots=True)
class Layout:
    """The layout of R on disk, as far as the cost of reading depends on it."""

    page_count: int
    row_count: int
    code_bytes: float  # of a page's key codes, which every read needs
    part_bytes: tuple[float, ...]  # of a page's other parts: a request each, if the page matches
    pages_per_stretch: float  # pages of a part that are contiguous in the file
    whole_pages: bool = False  # read all parts of each page at once, as the papers do
    rows_per_key: float = 1.0  # on average

    @property
    def rows_per_page(self) -> float:
        """v_P / v_R: the rows of a page."""
        return self.row_count / max(1, self.page_count)


@dataclass(frozen=True)
class Conditions:
    """R, the stream and the machine, as the cost models see them."""

    layout: Layout
    demand: Demand
    factors: CostFactors
    front: FrontPolicy  # of the front stage, for the algorithms that have one
    match_share: float = 1.0  # σ: the share of the tuples that find a match
    stream_rows: int | None = None  # of a stream that ends; None if it does not, or is not known to
    # The shares of the pages, once they are computed.
    _pages: list[Floats] = field(default_factory=list, repr=False, compare=False)

    @property
    def page_shares(self) -> Floats:
        """The share of the stream that belongs to each page."""
        if not self._pages:
            self._pages.append(self.demand.by_page(self.layout.page_count))
        return self._pages[0]

    def with_demand(self, demand: Demand) -> "Conditions":
        """Return the same conditions with another demand."""
        return replace(self, demand=demand, _pages=[])

    def with_page_shares(self, shares: Floats) -> "Conditions":
        """Return the same conditions with other shares of the pages."""
        return replace(self, _pages=[shares])

    def io(self, loads: "Loads") -> tuple[float, float]:
        """Return c_I/O(b), and the bytes: the codes of b pages, the parts of those with matches."""
        layout, io, pages = self.layout, self.factors.io, loads.pages
        breaks = pages / layout.pages_per_stretch
        if layout.whole_pages:
            sizes = [size for size in (layout.code_bytes, *layout.part_bytes) if size]
            follows = len(sizes) == 1 and not loads.are_scattered
            each = (io(pages * size / (1 + breaks), follows=follows) for size in sizes)
            return (1 + breaks) * sum(each), pages * sum(sizes)
        # Codes lie in a file of their own; without columns to fetch a scan never seeks.
        follows = not layout.part_bytes and not loads.are_scattered
        read_bytes = pages * layout.code_bytes
        cost = io(read_bytes, follows=follows)
        if not layout.part_bytes:
            return cost, read_bytes
        loads = loads.thinned()
        runs, fetched = loads.runs()
        runs = runs + breaks * fetched / pages
        for size in layout.part_bytes:
            requests = runs * io.each(fetched * size / np.maximum(runs, 1e-9))
            cost += float(np.average(requests, weights=loads.often))
        fetched_pages = float(np.average(fetched, weights=loads.often))
        return cost, float(read_bytes + fetched_pages * sum(layout.part_bytes))

    def requested_pages(self, tuples: float) -> float:
        """Return how many different pages so many tuples request."""
        return float(-np.expm1(-tuples * self.page_shares).sum())


@dataclass(frozen=True)
class Loads:
    """The loads of a cycle of R: what of their pages is fetched, and in how many pieces."""

    pages: float  # of a load, on average
    touched: Floats  # for each load (a row), the probability that each of its pages has a match
    matches: Floats  # of each load
    output_rows: float  # matches of a piece
    often: Floats | None = None  # how often each load is made; equally often unless given
    are_scattered: bool = False  # a load does not continue where the one before ended

    def thinned(self) -> "Loads":
        """Return fewer loads to compute: those with most matches, and some of the others."""
        count, pages = self.touched.shape
        kept = max(_FEW_LOADS, _FEW_PAGES // pages)
        if count <= 2 * kept:
            return self
        by_matches = np.argsort(-self.matches, kind="stable")
        hot, others = by_matches[:kept], by_matches[kept:]
        some = others[np.linspace(0, len(others) - 1, kept).astype(np.int64)]
        often = np.ones(count) if self.often is None else self.often
        stand_for = often[others].sum() / max(1e-300, often[some].sum())
        chosen = np.concatenate([hot, some])
        weights = np.concatenate([often[hot], often[some] * stand_for])
        return replace(
            self, touched=self.touched[chosen], matches=self.matches[chosen], often=weights
        )

    def runs(self) -> tuple[Floats, Floats]:
        """Return for each load the number of runs of pages that are fetched, and of pages."""
        touched = self.touched
        count, pages = touched.shape
        at = READ_THROUGH_PAGES + 1
        edge = np.zeros((count, at))
        padded = np.hstack([edge, touched, edge])

        def shifted(by: int) -> Floats:
            return padded[:, at + by : at + by + pages]

        starts = touched * (1 - shifted(-1)) * (1 - shifted(-2)) * (1 - shifted(-3))
        gap_of_one = shifted(-1) * shifted(1)
        gap_of_two = shifted(-1) * (1 - shifted(1)) * shifted(2)
        gap_of_two = gap_of_two + shifted(-2) * (1 - shifted(-1)) * shifted(1)
        along = (1 - touched) * (gap_of_one + gap_of_two)
        # Where one piece ends and the next begins, a run is cut in the middle of a page.
        cuts = _pieces(self.matches, self.output_rows) - 1
        return starts.sum(axis=1) + cuts, (touched + along).sum(axis=1) + cuts


def _pieces(matches: Floats, output_rows: float) -> Floats:
    """Return in how many pieces Poisson-distributed matches are processed, at least one."""
    pieces = matches / output_rows
    spread = np.sqrt(np.maximum(matches, 1e-9)) / output_rows
    whole = np.floor(pieces)
    expected = np.maximum(1.0, whole)
    expected += np.where(whole > 0, _above((pieces - whole) / spread), 0.0)
    expected += _above((pieces - whole - 1) / spread)
    return np.asarray(expected, np.float64)


def _above(deviations: Floats) -> Floats:
    """Return the probability that a normal variable is above its mean minus `deviations`."""
    return np.asarray(1 / (1 + np.exp(-1.702 * np.clip(deviations, -40, 40))), np.float64)


def in_loads(shares: Floats, pages: int) -> Floats:
    """Return page shares cut into loads of `pages` pages, the last one padded with zeros."""
    loads = -(-len(shares) // pages)
    padded = np.zeros(loads * pages)
    padded[: len(shares)] = shares
    return padded.reshape(loads, pages)


def planned_io(
    layout: Layout,
    costs: RequestCosts,
    pages: float,
    buffer_pages: float = inf,
    pieces: float = 1.0,
) -> tuple[float, float]:
    """Return what a read plan for so many pages costs, and its bytes; they are spread evenly.

    With the share q of the pages requested, a gap of k pages has the probability q·(1 − q)^k; up to
    G pages, it is read along. What is requested goes through a buffer of `buffer_pages` pages, a
    request for each time that it is filled, which continues where the one before ended if no gap
    lies between. Output is made in `pieces`, so columns are read in so many turns, and codes
    between them.
    """
    if not pages:
        return 0.0, 0.0
    share = min(1.0, pages / layout.page_count)
    buffer_bytes = buffer_pages * max(layout.code_bytes, *layout.part_bytes, 1.0)
    seconds = read_bytes = 0.0
    for i, size in enumerate((layout.code_bytes, *layout.part_bytes)):
        most_bytes = min(costs.most_gap_bytes, buffer_bytes)
        most_gap = int(min(layout.page_count, most_bytes / max(1.0, size)))
        apart = (1 - share) ** (most_gap + 1)  # the probability of a longer gap
        along = (1 - share) / share * (1 - apart) - (most_gap + 1) * apart
        fetched = min(layout.page_count, pages * (1 + max(0.0, along))) * size
        # A view ends with the last page that fits: half a page with its gap is left.
        room = max(size, buffer_bytes - size / share / 2)
        turns = pieces if i else max(1.0, min(pieces, fetched / room))
        views = turns * max(1.0, fetched / turns / room + 0.5 * (fetched / turns > room))
        requests = max(turns, pages * apart, pages / layout.pages_per_stretch * share)
        seconds += requests * costs.request_s + fetched * costs.byte_s
        # The end of a view falls into a segment, a page and the gap before it, by its length.
        seconds += (views - turns) * (costs.request_s - share**2 * costs.seek_s)
        read_bytes += fetched
    return seconds, read_bytes
