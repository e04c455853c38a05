"""Tuning: the split of a budget with the best predicted rate, and the least budget for a target.

*Most rate for a budget* (`meshjoin.txt` 3.2; `meshjoin-default-settings.txt` equation 5;
`xhybridjoin.txt` 6.3; `cmeshjoin-front-stage.txt` 3.2): b, the pinned pages l and the size of the
front stage are chosen; the memory equation gives the window what they leave. All are whole numbers,
and the rate has steps where ⌈N_R/b⌉ has them, so the search is over grids, not by derivatives:
coarse over each dimension, then finer around the best, one dimension after the other.

*Least memory for a rate* (`meshjoin.txt` 3.2, equation 6): the rate grows with the budget, so the
least one is found by halving. With a latency as well, splits that hold both are preferred
(`Target.worth`).
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from math import ceil

from semistream.budget.rules import Settings
from semistream.budget.sizes import Sizes
from semistream.budget.split import USUAL, Split, most_pages
from semistream.cost.conditions import Conditions
from semistream.cost.models import Model
from semistream.cost.prediction import Prediction, Target
from semistream.errors import BudgetError

# b: what a coarse search tries, as shares of the pages that fit, and of a budget for other parts.
_COARSE = (1 / 256, 1 / 64, 1 / 32, 1 / 16, 1 / 8, 1 / 4, 1 / 2, 3 / 4)
_SHARES = (0.0, 1 / 64, 1 / 32, 1 / 16, 1 / 8, 1 / 6, 1 / 4, 1 / 3, 1 / 2)
_FINE = (0.71, 0.84, 0.92, 1.09, 1.19, 1.41)
_ROUNDS = 2
# What `glance` tries: this part of the usual disk buffer, and of the budget for a front stage; or a
# larger buffer, and a front stage that the processor's caches hold.
_GLANCED, _LARGER = 0.4, 2.0
_SMALL_FRONT, _SMALL_FRONT_BYTES = 0.06, 3 << 19  # of the budget, and at most


@dataclass(frozen=True, slots=True)
class Tuned:
    """A split, the settings it results in, and what the model predicts for them."""

    split: Split
    settings: Settings
    cached_rows: int
    prediction: Prediction


def evaluate(
    model: Model, sizes: Sizes, budget_bytes: int, conditions: Conditions, split: Split = USUAL
) -> Tuned:
    """Return the settings of a split, predicted; `BudgetError` if the budget is too small."""
    oldest = True if conditions.oldest_picks else split.oldest_picks
    split = replace(split, most_tuples=conditions.stream_rows, oldest_picks=oldest)
    settings, cached_rows = model.rules.settings(sizes, budget_bytes, split)
    return Tuned(split, settings, cached_rows, model.predict(conditions, settings, cached_rows))


def tune(model: Model, sizes: Sizes, budget_bytes: int, conditions: Conditions) -> Tuned:
    """Return the best split of a budget; `BudgetError` if it is too small for any."""
    surveyed = survey(model, sizes, budget_bytes, conditions)
    return refine(model, sizes, budget_bytes, conditions, surveyed)


def survey(model: Model, sizes: Sizes, budget_bytes: int, conditions: Conditions) -> Tuned:
    """Return the best split of a coarse grid.

    The search goes one dimension after the other and would not get far from its start. So for
    algorithms that cache rows or pin pages, it also starts without any.
    """
    search = _Search(model, sizes, budget_bytes, conditions)
    starts = [USUAL]
    if model.rules.has_front or model.rules.pins_pages:
        starts.append(Split(front_bytes=0, pinned_pages=0))
    found = [
        search.step(evaluate(model, sizes, budget_bytes, conditions, start), _COARSE)
        for start in starts
    ]
    return max(found, key=lambda tuned: conditions.worth(tuned.prediction))


def first_look(model: Model, sizes: Sizes, budget_bytes: int, conditions: Conditions) -> Tuned:
    """Return the usual split, or one with a small front stage and a large buffer if it is better.

    `BudgetError` if the budget is too small.
    """
    usual = evaluate(model, sizes, budget_bytes, conditions)
    if not model.rules.has_front:
        return usual
    front_bytes = min(int(_SMALL_FRONT * budget_bytes), _SMALL_FRONT_BYTES)
    other = Split(_larger(usual), front_bytes)
    return _Search(model, sizes, budget_bytes, conditions).best_of(usual, [other])


def glance(
    model: Model, sizes: Sizes, budget_bytes: int, conditions: Conditions, looked: Tuned
) -> Tuned:
    """Return the best of a few splits, and of the one that was the best at first."""
    if model.rules.reads_one_page and not model.rules.has_front:
        return looked
    smaller = Split(pages_per_read=max(1, round(looked.settings.pages_per_read * _GLANCED)))
    splits = [smaller]
    if model.rules.has_front:
        splits.append(replace(smaller, front_bytes=int(budget_bytes * _GLANCED)))
        splits.append(replace(looked.split, pages_per_read=_larger(looked)))
    return _Search(model, sizes, budget_bytes, conditions).best_of(looked, splits)


def _larger(tuned: Tuned) -> int:
    return int(tuned.settings.pages_per_read * _LARGER)


def refine(
    model: Model,
    sizes: Sizes,
    budget_bytes: int,
    conditions: Conditions,
    best: Tuned,
) -> Tuned:
    """Return the best split around another."""
    search = _Search(model, sizes, budget_bytes, conditions)
    for _ in range(_ROUNDS):
        best = search.step(best, _FINE)
    return best


@dataclass(frozen=True)
class _Search:
    """One dimension after the other."""

    model: Model
    sizes: Sizes
    budget_bytes: int
    conditions: Conditions

    def step(self, best: Tuned, steps: tuple[float, ...]) -> Tuned:
        """Return the best of the splits around one, dimension by dimension."""
        if not self.model.rules.reads_one_page:
            fitting = max(1, most_pages(self.sizes, self.budget_bytes))
            counts = _page_counts(best, steps, fitting, self.sizes.page_count)
            best = self.best_of(best, [replace(best.split, pages_per_read=b) for b in counts])
        if self.model.rules.has_front:
            amounts = _amounts(best.split.front_bytes, steps, self.budget_bytes)
            best = self.best_of(best, [replace(best.split, front_bytes=m) for m in amounts])
        if self.model.rules.pins_pages:
            whole = self.sizes.pinned_bytes(self.sizes.page_count)
            most = max(1, self.sizes.page_count * self.budget_bytes // max(1, whole))
            amounts = _amounts(best.split.pinned_pages, steps, most)
            best = self.best_of(best, [replace(best.split, pinned_pages=n) for n in amounts])
        return best

    def best_of(self, best: Tuned, splits: list[Split]) -> Tuned:
        """Return the best of some splits and one that was evaluated before."""
        for split in splits:
            other = evaluate(self.model, self.sizes, self.budget_bytes, self.conditions, split)
            # A split that does not fit is replaced by the tightest one, with hardly any output
            # buffer; that is for budgets in which nothing else fits.
            is_tighter = other.settings.output_rows < best.settings.output_rows // 2
            worth = self.conditions.worth
            if worth(other.prediction) > worth(best.prediction) and not is_tighter:
                best = other
        return best


def least_budget(
    model: Model,
    sizes: Sizes,
    conditions: Conditions,
    target: Target,
    most_bytes: int,
) -> int | None:
    """Return the least budget that holds a target, to one part in 64; None if the most does not."""
    conditions = replace(conditions, target=target)

    def holds(budget_bytes: int) -> bool:
        try:
            return target.is_held(tune(model, sizes, budget_bytes, conditions).prediction)
        except BudgetError:
            return False

    low, high = min(model.rules.least_bytes(sizes), most_bytes), most_bytes
    if not holds(high):
        return None
    while high - low > high // 64:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high


def _page_counts(
    tuned: Tuned, steps: tuple[float, ...], fitting: int, page_count: int
) -> Iterable[int]:
    """Return values of b to try: shares of what fits, or some around the best so far.

    And for each the least that makes as many reads of R as it does.
    """
    base = fitting if steps is _COARSE else tuned.settings.pages_per_read
    tried = {max(1, min(fitting, round(base * step))) for step in steps}
    if steps is not _COARSE:
        reads = ceil(page_count / tuned.settings.pages_per_read)
        tried |= {ceil(page_count / r) for r in (reads - 1, reads + 1) if r >= 1}
    least = {ceil(page_count / ceil(page_count / b)) for b in tried}
    return sorted(b for b in tried | least if b <= fitting)


def _amounts(current: int | None, steps: tuple[float, ...], most: int) -> list[int]:
    if steps is _COARSE:
        return [int(most * share) for share in _SHARES]
    return [int(current * step) for step in steps] if current else []
