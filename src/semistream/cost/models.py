"""Every algorithm's cost model by its name: the predicted rate of a split of a budget."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from semistream.budget.frontsizes import WAYS
from semistream.budget.indexjoin import IndexJoinSettings
from semistream.budget.rules import RULES, BudgetRules, Settings
from semistream.cost import frontstage, hybridjoin, inlj, lookup, meshjoin, xhybridjoin
from semistream.cost.conditions import Conditions
from semistream.cost.prediction import Prediction, Work

_Predict = Callable[[Conditions, Any], Prediction]
_Drain = Callable[[Conditions, Any, float], Work]
_FILLED_FIRST = 1.75


@dataclass(frozen=True, slots=True)
class Model:
    """The cost model of one algorithm."""

    rules: BudgetRules
    predict_back: _Predict  # a loop, while the stream goes on
    drain_back: _Drain  # tuples that all fit the window, until the last is resolved
    empties_window: bool = False  # in each loop, whatever has arrived
    # Windows of tuples that pass, as was measured, before the front stage has a key of which one
    # window has enough: a scan resolves tuples from its first loop on, while the window fills; an
    # index join fills it first, and needs a part of a sweep to come to the key's page.
    learns_after: float = _FILLED_FIRST

    def predict(self, conditions: Conditions, settings: Settings, cached_rows: int) -> Prediction:
        """Return what a loop with these settings costs and serves, and the stream if it ends."""
        loop = self._loop(conditions, settings, cached_rows)
        rows = conditions.stream_rows
        if rows is None:
            return loop
        if self.empties_window:
            loops, left = divmod(rows, settings.places)
            work = loop.work(loops)
            if left:
                work += self.drain_back(conditions, settings, left)
        else:
            # Tuples that fit the window are all there before the first is resolved: a front stage
            # is empty until then. Those after them are served as in a stream that goes on.
            waiting = min(rows, settings.places)
            work = self.drain_back(conditions, settings, waiting)
            work += self._work_behind(conditions, settings, loop, rows - waiting, cached_rows)
        return replace(
            loop,
            stream_rows=rows,
            stream_s=work.seconds,
            stream_pages=work.pages,
            stream_bytes=work.bytes_read,
        )

    def _loop(self, conditions: Conditions, settings: Settings, cached_rows: int) -> Prediction:
        if not cached_rows:
            return self.predict_back(conditions, settings)

        def back(rest: Conditions) -> Prediction:
            return self.predict_back(rest, settings)

        return frontstage.predict(conditions, cached_rows, back, settings.places)

    def _work_behind(
        self,
        conditions: Conditions,
        settings: Settings,
        loop: Prediction,
        tuples: int,
        cached_rows: int,
    ) -> Work:
        """Return what tuples take that come after a full window.

        At first the front stage has few rows, whatever it will have later. With one place it takes
        any row, so it is soon full. Pinned pages are chosen when a cycle ends.
        """
        places = settings.places
        if isinstance(settings, IndexJoinSettings) and settings.pinned_pages:
            return xhybridjoin.work_from_first_cycle(conditions, settings, loop, tuples)
        if places == 1 or not cached_rows:
            return loop.work(tuples / loop.tuples_per_loop)
        passing = loop.tuples_per_loop * (1 - loop.hit_ratio)
        rows = places + tuples
        about = (cached_rows // WAYS, WAYS, self.learns_after)
        hits = conditions.demand.learned_share(rows, places, *about) * rows
        loops = (tuples - min(loop.hit_ratio * tuples, hits)) / passing
        work = loop.work(loops)
        # These loops serve fewer hits than the later ones, whose cost is `loop_s`.
        hits_less = loops * loop.tuples_per_loop - tuples
        return replace(work, seconds=work.seconds - hits_less * loop.hit_s)


def _one_by_one(conditions: Conditions, settings: Any, tuples: float) -> Work:
    return inlj.predict_one(conditions, settings).work(tuples)


_SCAN = (meshjoin.predict, meshjoin.drain)
_SWEEP = (inlj.predict_sweep, hybridjoin.drain)
_HYBRID = (hybridjoin.predict, hybridjoin.drain)
_ONE = (inlj.predict_one, _one_by_one)

_PREDICTIONS: dict[str, tuple[_Predict, _Drain]] = {
    "inlj": _ONE,
    "binlj": _SWEEP,
    "meshjoin": _SCAN,
    "rmeshjoin": (meshjoin.predict_reduced, meshjoin.drain_reduced),
    "hybridjoin": _HYBRID,
    "xhybridjoin": (xhybridjoin.predict, hybridjoin.drain),
    "lookup": (lookup.predict, lookup.drain),
    # Behind a front stage the back stage's model holds, with what is left of the stream.
    "cinlj": _ONE,
    "cbinlj": _SWEEP,
    "cmeshjoin": _SCAN,
    "chybridjoin": _HYBRID,
}

MODELS = {
    name: Model(
        RULES[name],
        *both,
        empties_window=name == "lookup",
        learns_after=0.5 if both is _SCAN else _FILLED_FIRST,
    )
    for name, both in _PREDICTIONS.items()
}
