"""The inputs of a prediction besides the settings: R's layout on disk, demand, cost factors."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cache
from math import inf
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from semistream.budget.frontsizes import FrontPolicy
from semistream.budget.pagesizes import mapped_bytes
from semistream.cost.demand import Demand
from semistream.cost.factors import CostFactors, RequestCosts, StepCosts
from semistream.cost.kernels import count_runs
from semistream.cost.prediction import Prediction, Target

Floats = NDArray[np.float64]
_Runs: TypeAlias = Callable[[int], tuple[Floats, Floats]]  # of the loads, by the widest gap
# Of a large R, only loads with this number of pages in all are computed exactly, at least these.
_FEW_PAGES = 8_192
_LEAST_LOADS = 2


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
    oldest_picks: bool = False  # the next pages of HYBRIDJOIN, as in its paper
    target: Target | None = None  # that a split is to hold; without one the fastest is the best
    # The shares of the pages, once they are computed.
    _pages: list[Floats] = field(default_factory=list, repr=False, compare=False)

    @property
    def page_shares(self) -> Floats:
        """The share of the stream that belongs to each page."""
        if not self._pages:
            self._pages.append(self.demand.by_page(self.layout.page_count))
        return self._pages[0]

    def worth(self, prediction: Prediction) -> tuple[float, float, float]:
        """Return what splits and algorithms are compared by."""
        if self.target is None:
            return 1.0, 1.0, prediction.speed
        return self.target.worth(prediction)

    def repeat_s(self, step: StepCosts) -> float:
        """Return what a tuple costs on average because others in the window have its key."""
        return step.repeat_s * self.demand.repeated_share(step.rows) if step.repeat_s else 0.0

    def with_demand(self, demand: Demand) -> "Conditions":
        """Return the same conditions with another demand."""
        return replace(self, demand=demand, _pages=[])

    def with_page_shares(self, shares: Floats) -> "Conditions":
        """Return the same conditions with other shares of the pages."""
        return replace(self, _pages=[shares])

    def io(self, loads: "Loads") -> tuple[float, float, float]:
        """Return c_I/O(b) of a load, its bytes, and the pages whose codes are among these.

        Those are the codes of b pages, or of the requested ones, and the parts of those with
        matches.
        """
        layout, io, pages = self.layout, self.factors.io, loads.pages
        breaks = pages / layout.pages_per_stretch
        if layout.whole_pages:
            sizes = [size for size in (layout.code_bytes, *layout.part_bytes) if size]
            follows = len(sizes) == 1 and not loads.are_scattered
            each = (io(pages * size / (1 + breaks), follows=follows) for size in sizes)
            return (1 + breaks) * sum(each), pages * sum(sizes), pages
        loads = loads.thinned()
        runs = cache(loads.runs)  # parts of similar sizes have equal runs
        cost, read_bytes = self._codes(loads, runs)
        code_pages = read_bytes / max(1.0, layout.code_bytes)
        cuts = loads.cuts
        for size, count in Counter(layout.part_bytes).items():
            seconds, size_bytes = self._part(loads, runs, size, breaks / pages, cuts)
            cost, read_bytes = cost + count * seconds, read_bytes + count * size_bytes
        return cost, read_bytes, code_pages

    def _codes(self, loads: "Loads", runs_of: "_Runs") -> tuple[float, float]:
        """Return the time and bytes of a load's codes: they lie in a file of their own."""
        size, io = self.layout.code_bytes, self.factors.io
        # Without columns to fetch a scan never seeks.
        follows = not self.layout.part_bytes and not loads.are_scattered
        if loads.asks is None:
            return io(loads.pages * size, follows=follows), loads.pages * size
        # No seek either if a load ends with a page that was read and the next one begins behind it.
        continues = float(np.mean(loads.touched[:, -1])) ** 2
        runs, fetched = self._runs_of_codes(loads, runs_of)
        seconds, size_bytes = self._planned(loads, size, runs, fetched)
        return seconds - follows * continues * io.seek_s, size_bytes

    def _runs_of_codes(self, loads: "Loads", runs_of: "_Runs") -> tuple[Floats, Floats]:
        """Return the runs of pages whose codes are read, and the number of pages in them."""
        gap = self._most_gap_pages(self.layout.code_bytes)
        if self.layout.rows_per_key <= 1:
            return runs_of(gap)
        # The rows of a key may run on to the next page, which is read as well.
        runs, fetched = runs_of(max(0, gap - 1))
        return runs, np.minimum(loads.pages, fetched + runs)

    def _part(
        self, loads: "Loads", runs_of: "_Runs", size: float, breaks: float, cuts: Floats
    ) -> tuple[float, float]:
        """Return the time and bytes of a part of the pages with matches.

        `breaks` is how often a page does not lie behind the one before it in the file; `cuts` are
        those of the loads.
        """
        runs, fetched = runs_of(self._most_gap_pages(size))
        runs = runs + breaks * fetched
        return self._planned(loads, size, runs, fetched + cuts, cuts)

    def _planned(
        self, loads: "Loads", size: float, runs: Floats, pages: Floats, cuts: Floats | float = 0.0
    ) -> tuple[float, float]:
        """Return the time and bytes of runs of pages, on average.

        The requests of a piece are made together.

        The first of them costs what the curve says, each of the others a request more.
        """
        first = np.minimum(1.0, runs) + cuts
        seconds = first * self.factors.io.each(pages * size / np.maximum(first, 1e-9))
        seconds += np.maximum(0.0, runs - 1) * self.factors.planned.request_s
        size_bytes = size * float(np.average(pages, weights=loads.often))
        return float(np.average(seconds, weights=loads.often)), size_bytes

    def _most_gap_pages(self, size: float) -> int:
        """Return how many pages of a part are read rather than skipped."""
        return int(
            min(self.layout.page_count, self.factors.planned.most_gap_bytes / max(1.0, size))
        )

    def requested_pages(self, tuples: float) -> float:
        """Return how many different pages `tuples` tuples request."""
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
    # For each load, the probability that it is made for each of its pages. None if it is made in
    # any case, and the codes of all its pages are read.
    asks: Floats | None = None

    def thinned(self) -> "Loads":
        """Return fewer loads to compute: those with most matches, and some of the others."""
        count, pages = self.touched.shape
        kept = max(_LEAST_LOADS, _FEW_PAGES // pages)
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
            self,
            touched=self.touched[chosen],
            matches=self.matches[chosen],
            often=weights,
            asks=None if self.asks is None else self.asks[chosen],
        )

    @property
    def cuts(self) -> Floats:
        """For each load, where one piece ends and the next begins: a run is cut inside a page."""
        return np.asarray(_pieces(self.matches, self.output_rows) - 1, np.float64)

    def runs(self, most_gap: int) -> tuple[Floats, Floats]:
        """Return for each load the number of runs of pages that are fetched, and of pages in them.

        Pages without a match are read as well where at most G = `most_gap` of them lie between two
        with one. So a run starts at page j if that has a match and the G + 1 pages before have
        none; its end is found in the same way, and the pages between are those of the run. Pages
        are independent of each other, but for the one that the load is made for: with v_j for the
        others and u_j for that one, no page of a set W has a match with the probability
        (1 − Σ u_j)·Π(1 − v_j).
        """
        count, pages = self.touched.shape
        asks = np.zeros((1, pages)) if self.asks is None else self.asks
        runs, fetched = np.empty((2, count))
        count_runs(self.touched, asks, most_gap, runs, fetched)
        return runs, fetched


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
    rows: float = inf,
) -> tuple[float, float]:
    """Return the seconds and the bytes of a read plan for `pages` pages that are spread evenly.

    With the share q of the pages requested, a gap of k pages has the probability q·(1 − q)^k; up to
    G pages, it is read as well. What is requested goes through a buffer of `buffer_pages` pages:
    each time that it is filled costs a request, without a seek if no gap lies before it. Columns
    are read once for each of the output's `pieces`, and codes between them.

    If the file can be mapped in what the disk buffer has beside its buffers, and costs less then,
    `rows` rows are looked at where they lie.
    """
    if not pages:
        return 0.0, 0.0
    share = min(1.0, pages / layout.page_count)
    buffer_bytes = buffer_pages * max(layout.code_bytes, *layout.part_bytes, 1.0)
    may_map = costs.mapped_row_s > 0 and mapped_bytes(buffer_pages * layout.code_bytes) > 0
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
        read_s = requests * costs.request_s + fetched * costs.byte_s
        # The end of a view falls into a segment, a page and the gap before it, by its length.
        read_s += (views - turns) * (costs.request_s - share**2 * costs.seek_s)
        mapped_s = rows * costs.mapped_row_s + size * layout.page_count * costs.mapped_byte_s
        seconds += min(read_s, mapped_s) if may_map else read_s
        read_bytes += fetched
    return seconds, read_bytes
