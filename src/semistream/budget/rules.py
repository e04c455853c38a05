"""Every algorithm by its name: how it splits a budget, and the least that it can run in."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from semistream.budget import indexjoin, lookup, meshjoin, xhybridjoin
from semistream.budget.indexjoin import IndexJoinSettings
from semistream.budget.meshjoin import MeshJoinSettings
from semistream.budget.sizes import Sizes
from semistream.budget.split import Split, front_share

Settings: TypeAlias = MeshJoinSettings | IndexJoinSettings


@dataclass(frozen=True, slots=True)
class BudgetRules:
    """How one algorithm splits a budget."""

    least_bytes: Callable[[Sizes], int]  # the least budget of the back stage
    split_back: Callable[[Sizes, int, Split], Settings]  # settings of the back stage
    has_front: bool = False  # a front stage of hot rows
    pins_pages: bool = False
    reads_one_page: bool = False  # or none at a time: b is not tuned

    def front_bytes(self, sizes: Sizes, budget_bytes: int, split: Split) -> int:
        """Return the size of the front stage; 0 if there is none, or no room for one."""
        if not self.has_front:
            return 0
        share = front_share(budget_bytes, self.least_bytes(sizes), split)
        return share if sizes.cached_rows(share) else 0

    def settings(self, sizes: Sizes, budget_bytes: int, split: Split) -> tuple[Settings, int]:
        """Return the settings that a split comes to, and how many rows the front stage has."""
        front_bytes = self.front_bytes(sizes, budget_bytes, split)
        settings = self.split_back(sizes, budget_bytes - front_bytes, split)
        return settings, sizes.cached_rows(front_bytes) if front_bytes else 0


def _least_index_bytes(sizes: Sizes) -> int:
    return indexjoin.least_memory_bytes(sizes, sizes.least_pages)


def _least_ordered_bytes(sizes: Sizes) -> int:
    """The same for joins that have an order of their own in which pages are read."""
    return indexjoin.least_memory_bytes(sizes, sizes.least_pages, may_be_urgent=False)


def _index_rules(name: str, *, has_front: bool = False, one_tuple: bool = False) -> BudgetRules:
    is_urgent = name not in ("inlj", "binlj")  # these have an order of their own

    def split_back(sizes: Sizes, budget_bytes: int, split: Split) -> IndexJoinSettings:
        most = 1 if one_tuple else None
        return indexjoin.settings_for_budget(
            name, sizes, budget_bytes, sizes.least_pages, split, most, may_be_urgent=is_urgent
        )

    least = _least_index_bytes if is_urgent else _least_ordered_bytes
    return BudgetRules(least, split_back, has_front, reads_one_page=one_tuple)


def _tuned_parts(sizes: Sizes, budget_bytes: int, split: Split) -> IndexJoinSettings:
    if split.equal_parts:
        return _equal_parts(sizes, budget_bytes, split)
    return xhybridjoin.tuned_parts(sizes, budget_bytes, sizes.least_pages, split)


def _equal_parts(sizes: Sizes, budget_bytes: int, split: Split) -> IndexJoinSettings:
    return xhybridjoin.equal_parts(sizes, budget_bytes, sizes.least_pages, split)


_MESH = (meshjoin.least_memory_bytes, meshjoin.settings_for_budget)

RULES: dict[str, BudgetRules] = {
    "inlj": _index_rules("inlj", one_tuple=True),
    "binlj": _index_rules("binlj"),
    "meshjoin": BudgetRules(*_MESH),
    "rmeshjoin": BudgetRules(meshjoin.least_reduced_bytes, meshjoin.reduced_settings_for_budget),
    "hybridjoin": _index_rules("hybridjoin"),
    "xhybridjoin": BudgetRules(_least_index_bytes, _tuned_parts, pins_pages=True),
    "cinlj": _index_rules("inlj", has_front=True, one_tuple=True),
    "cbinlj": _index_rules("binlj", has_front=True),
    "cmeshjoin": BudgetRules(*_MESH, has_front=True),
    "lookup": BudgetRules(_least_ordered_bytes, lookup.settings_for_budget, reads_one_page=True),
    "chybridjoin": _index_rules("hybridjoin", has_front=True),
}
# X-HYBRIDJOIN as in section 4 of its paper: both parts of the disk buffer of one size.
EQUAL_PARTS = BudgetRules(_least_index_bytes, _equal_parts, pins_pages=True)
