"""The tuner: the best algorithm, split and budget for a demand, by the cost model."""

from dataclasses import dataclass, replace
from functools import cached_property
from math import expm1, inf

import numpy as np
from numpy.typing import NDArray

from semistream.advice.choice import LOOK_UP, Advisor, Option, are_few
from semistream.advice.explain_text import rate_text, seconds
from semistream.advice.situation import demand_of, layout_of, skew_of
from semistream.budget.indexjoin import IndexJoinSettings
from semistream.budget.split import Split
from semistream.cost import lookup
from semistream.cost.conditions import Conditions, Layout
from semistream.cost.defaults import with_uncached
from semistream.cost.demand import Demand, Skew
from semistream.cost.factors import CostFactors
from semistream.cost.models import MODELS
from semistream.cost.prediction import Target
from semistream.cost.tuning import Tuned, least_budget, tune
from semistream.errors import BudgetError
from semistream.joins.frontstage import POLICY
from semistream.relation.pageindex import PageIndex
from semistream.relation.reader import PageReader
from semistream.units import format_bytes

HEADROOM = 1.25  # with an expected rate: the join is tuned for this multiple of it
_BYTES_PER_PAGE = 96  # the page index, shares by page, and what is computed from them
_UNCOUNTED_BYTES = 1 << 20  # of these
_REMEDIES = "Raise memory, request fewer columns, or allow a longer latency"


@dataclass(frozen=True, slots=True)
class Chosen:
    """A choice, and what it was made for."""

    budget_bytes: int
    option: Option
    skew: Skew | None  # of the demand; None if the choice did not depend on it
    rate: float | None = None  # expected arrivals per second
    stream_rows: int | None = None  # expected, if the stream is expected to end

    def is_like(self, other: "Chosen") -> bool:
        """Return whether a join by the other choice would be the same."""
        ours, theirs = self.option.tuned, other.option.tuned
        return (
            self.option.name == other.option.name
            and self.budget_bytes == other.budget_bytes
            and (ours.settings, ours.cached_rows) == (theirs.settings, theirs.cached_rows)
        )

    def missed_text(self, latency_s: float | None) -> str:
        """Say that a latency is not held, what is predicted and what would help; empty if it is."""
        prediction, rate = self.option.tuned.prediction, self.rate
        if latency_s is None or rate is None or rate == inf:
            return ""
        if Target(rate, latency_s).is_held(prediction):
            return ""
        said = f"{self.option.name} in {format_bytes(self.budget_bytes)}"
        if prediction.rate < rate:
            said += (
                f" is predicted to serve {rate_text(prediction.rate)} rows/s of the "
                f"{rate_text(rate)} that arrive, so rows will wait ever longer"
            )
        else:
            latency = seconds(prediction.latency_at_s(rate))
            said += f" has the least predicted latency, {latency} at {rate_text(rate)} rows/s"
        return f"latency={seconds(latency_s)} is not held: {said}. {_REMEDIES}"

    def fits(self, skew: Skew) -> bool:
        """Return whether it was made for a demand like this."""
        return self.skew is not None and not self.skew.has_moved(skew)


class Tuner:
    """Asks the model what to run within a budget, for any demand and rate."""

    def __init__(
        self,
        advisor: Advisor,
        reader: PageReader,
        columns: tuple[str, ...],
        budget_bytes: int,
        factors: CostFactors,
        latency_s: float | None = None,
        uncached_share: float = 0.0,
    ) -> None:
        """Prepare for joins that read these columns; nothing is computed yet.

        `latency_s` is what tuples may have on average, if there is a rate; `uncached_share` is the
        share of R that has to be read from a local disk.
        """
        self._advisor = advisor
        self._reader = reader
        self._columns = columns
        self._budget_bytes = budget_bytes
        self._factors = with_uncached(factors, uncached_share)
        self._is_cached = not uncached_share
        self._latency_s = inf if latency_s is None else latency_s

    @cached_property
    def layout(self) -> Layout:
        """The layout of R, as the models need it."""
        return layout_of(self._reader, self._columns)

    @cached_property
    def page_index(self) -> PageIndex:
        """The index on R's pages."""
        return PageIndex(self._reader)

    @property
    def model_bytes(self) -> int:
        """The memory of the model while it compares algorithms, the first megabyte aside."""
        return max(0, _BYTES_PER_PAGE * self._reader.page_count - _UNCOUNTED_BYTES)

    def has_all_memory(self, chosen: Chosen) -> bool:
        """Return whether a choice uses the whole budget."""
        return chosen.budget_bytes >= self._budget_bytes

    def demand(self, codes: NDArray[np.int64]) -> Demand:
        """Return the demand that a sample of key codes shows."""
        return demand_of(codes, self._reader, self.page_index)

    def skew(self, codes: NDArray[np.int64]) -> Skew:
        """Return the skew that a sample of key codes shows."""
        return skew_of(codes, self._reader)

    def for_few(self, stream_rows: int) -> Chosen | None:
        """Return look-ups if the stream is so short that nothing reads less than they do.

        Then no other algorithm has to be considered, and the demand need not be known. None for
        longer streams, and where requests are expensive: there, all of R may be read as well.
        """
        page_count = self._reader.page_count
        is_short = are_few(stream_rows, page_count, is_cached=self._is_cached)
        if not is_short or not self._reader.reads_values:
            return None
        sizes, split = self._advisor.sizes(LOOK_UP), Split(most_tuples=stream_rows)
        settings, _ = MODELS[LOOK_UP].rules.settings(sizes, self._budget_bytes, split)
        assert isinstance(settings, IndexJoinSettings), "those of look-ups are"
        pages = -page_count * expm1(-stream_rows / page_count)
        loop = lookup.loop_over(self.layout, self._factors, settings, stream_rows, pages)
        prediction = replace(loop, stream_rows=stream_rows, stream_s=loop.loop_s)
        tuned = Tuned(split, settings, 0, prediction)
        return Chosen(self._budget_bytes, Option(LOOK_UP, tuned), None, stream_rows=stream_rows)

    def best(self, demand: Demand, rate: float | None, stream_rows: int | None = None) -> Chosen:
        """Return the best choice for a demand, and for the length of the stream if that is known.

        With a rate, it uses the least memory that holds it, and the latency if there is one.
        """
        advisor, most_bytes = self._advisor, self._budget_bytes
        conditions = replace(self._conditions(demand), stream_rows=stream_rows)
        if rate is None:
            option = advisor.choose(most_bytes, conditions)
            return Chosen(most_bytes, option, demand.skew, stream_rows=stream_rows)
        target = Target(rate, self._latency_s, HEADROOM)
        held = replace(conditions, stream_rows=None, target=target)
        if inf in (rate, self._latency_s):  # to catch up with more than is served, the fastest
            option = advisor.choose(most_bytes, conditions)
        else:
            most_bytes, option = advisor.choose_for(most_bytes, held)
        model, sizes = MODELS[option.name], advisor.sizes(option.name)
        least = least_budget(model, sizes, held, target, most_bytes)
        budget_bytes = most_bytes if least is None else least
        tuned = option.tuned if least is None else tune(model, sizes, budget_bytes, held)
        return Chosen(budget_bytes, Option(option.name, tuned), demand.skew, rate, stream_rows)

    def can_run(self, chosen: Chosen) -> bool:
        """Return whether a choice has room for the rows of this stream, which may be wider."""
        option = chosen.option
        sizes, split = self._advisor.sizes(option.name), option.tuned.split
        try:
            MODELS[option.name].rules.settings(sizes, chosen.budget_bytes, split)
        except BudgetError:
            return False
        return True

    def rate_under(self, chosen: Chosen, demand: Demand) -> float:
        """Return the predicted rate of a choice, its settings unchanged, under another demand."""
        tuned, model = chosen.option.tuned, MODELS[chosen.option.name]
        return model.predict(self._conditions(demand), tuned.settings, tuned.cached_rows).rate

    def _conditions(self, demand: Demand) -> Conditions:
        return Conditions(self.layout, demand, self._factors, POLICY)
