"""The choice: each algorithm with its best split of a budget, ranked by predicted rate."""

from collections.abc import Sequence
from dataclasses import dataclass

from semistream.advice.situation import reader_for
from semistream.budget import resident
from semistream.budget.rowsizes import Widths
from semistream.budget.sizes import Sizes
from semistream.budget.sizing import Sizing
from semistream.budget.split import USUAL
from semistream.cost.conditions import Conditions
from semistream.cost.models import MODELS
from semistream.cost.tuning import Tuned, first_look, glance, refine, survey
from semistream.errors import BudgetError
from semistream.joins.registry import ALGORITHMS
from semistream.relation.reader import PageReader
from semistream.relation.relation import Relation
from semistream.spec import JoinSpec, read_columns

RESIDENT = ALGORITHMS["resident"].name
LOOK_UP = ALGORITHMS["lookup"].name
# What `auto` chooses from.
CHOICES = tuple(
    a.name for a in ALGORITHMS.values() if a.family != "bound" and not a.one_tuple_at_a_time
)
# With fewer tuples than this for each of R's pages, nothing reads less than look-ups do, and their
# other costs are small; if R is not in the page cache, their requests are not.
_FEW_PER_PAGE = 5
_FEW_PER_UNCACHED_PAGE = 1
# After a coarse survey, only options with this share of the best rate are tuned further.
_CLOSE = 0.7
_GLANCED = 4  # algorithms of which more splits are tried
# For a target, budgets are tried from the least one up. The first is larger than it by about a
# kilobyte, two to the power of this; each has twice as much more as the one before.
_LEAST_BITS = 10
# If none of them holds the target, all splits are searched within this number of the largest ones.
_RANKED = 4
# Options with this share of the best rate are equal, as far as the model can tell.
_AS_GOOD = 0.995


def _preference(name: str) -> int:
    return ALGORITHMS[name].preference


def most_preferred() -> str:
    """Return the algorithm to run if the model is not used."""
    return min(CHOICES, key=_preference)


@dataclass(frozen=True, slots=True)
class Option:
    """An algorithm with its best split."""

    name: str
    tuned: Tuned

    @property
    def rate(self) -> float:
        """Predicted tuples per second, while the stream goes on."""
        return self.tuned.prediction.rate

    @property
    def speed(self) -> float:
        """Predicted tuples per second over the whole stream, if it ends."""
        return self.tuned.prediction.speed


class Advisor:
    """Ranks the algorithms for one join, at any budget and under any conditions."""

    def __init__(
        self,
        relation: Relation,
        spec: JoinSpec,
        widths: Widths,
        partition: int | None = None,
        reader: PageReader | None = None,
    ) -> None:
        """Prepare for stream rows whose columns have these widths."""
        self._relation, self._spec = relation, spec
        self._widths = widths
        self._reader = reader or reader_for(relation, spec, partition)
        self._sizes: dict[tuple[str, bool], Sizes] = {}  # by family, has a front stage

    def fits(self, budget_bytes: int) -> bool:
        """Return whether R with the columns that are read fits a budget."""
        return self.resident_bytes <= budget_bytes

    @property
    def row_count(self) -> int:
        """The number of rows of R, or of the partition of it that is joined."""
        return self._reader.row_count

    @property
    def resident_bytes(self) -> int:
        """The memory to hold R, or the partition of it that is joined."""
        columns = read_columns(self._relation, self._spec)
        return resident.least_memory_bytes(self._reader, columns)

    def sizes(self, name: str) -> Sizes:
        """Return the sizes of an algorithm's parts."""
        kind = (ALGORITHMS[name].family, ALGORITHMS[name].has_front)
        if kind not in self._sizes:
            sizing = Sizing.of(self._relation, self._spec, self._reader, kind[1])
            size_up = {
                "scan": sizing.for_scan,
                "index": sizing.for_index,
                "lookup": sizing.for_look_ups,
            }[kind[0]]
            self._sizes[kind] = size_up(self._widths)
        return self._sizes[kind]

    def rank(
        self, budget_bytes: int, conditions: Conditions, names: Sequence[str] = CHOICES
    ) -> list[Option]:
        """Return the algorithms that can run in a budget, the best first; `BudgetError` if none."""
        surveyed: list[Option] = []
        errors: dict[str, BudgetError] = {}
        for name in names:
            try:
                found = survey(MODELS[name], self.sizes(name), budget_bytes, conditions)
                surveyed.append(Option(name, found))
            except BudgetError as error:
                errors[name] = error
        if not surveyed:
            raise errors[
                min(errors, key=lambda name: (errors[name].least_bytes or 0, _preference(name)))
            ]
        close = _close(surveyed, conditions)
        options = [
            Option(o.name, self._refine(o, budget_bytes, conditions)) if o in close else o
            for o in surveyed
        ]
        options = _best_first(options, conditions)
        favourite = _favourite(options, conditions)
        return [favourite, *(o for o in options if o is not favourite)]

    def choose(self, budget_bytes: int, conditions: Conditions) -> Option:
        """Return the best algorithm with a good split, by a small part of what `rank` computes.

        All are compared at one or two splits, the best ones at a few others. `BudgetError` if none
        can run in the budget.
        """
        found: list[Option] = []
        errors: list[BudgetError] = []
        for name in CHOICES:
            try:
                tuned = first_look(MODELS[name], self.sizes(name), budget_bytes, conditions)
                found.append(Option(name, tuned))
            except BudgetError as error:
                errors.append(error)
        if not found:
            raise min(errors, key=lambda error: error.least_bytes or 0)
        close = _close(found, conditions)[:_GLANCED]
        options = [self._glance(option, budget_bytes, conditions) for option in close]
        return _favourite(options, conditions)

    def choose_for(self, most_bytes: int, conditions: Conditions) -> tuple[int, Option]:
        """Return a budget and an algorithm that hold the target of `conditions`.

        It is the least budget, to a factor of 2 beyond the least in which anything runs; or where
        none holds the target, the one that comes closest. Not always the most, because a larger
        window has a longer latency.
        """
        assert conditions.target is not None, "it is what this is for"
        least = min(MODELS[name].rules.least_bytes(self.sizes(name)) for name in CHOICES)
        spare = max(0, most_bytes - least)
        halvings = reversed(range(max(1, spare.bit_length() - _LEAST_BITS)))
        budgets = [min(most_bytes, least + (spare >> times)) for times in halvings]
        ways = [(budget, self.choose) for budget in budgets]
        ways += [(budget, self._first) for budget in budgets[-_RANKED:]]
        tried: list[tuple[int, Option]] = []
        for budget_bytes, choose in ways:
            option = choose(budget_bytes, conditions)
            if conditions.target.is_held(option.tuned.prediction):
                return budget_bytes, option
            tried.append((budget_bytes, option))
        return max(tried, key=lambda each: conditions.worth(each[1].tuned.prediction))

    def _first(self, budget_bytes: int, conditions: Conditions) -> Option:
        return self.rank(budget_bytes, conditions)[0]

    def _glance(self, option: Option, budget_bytes: int, conditions: Conditions) -> Option:
        model, sizes = MODELS[option.name], self.sizes(option.name)
        return Option(option.name, glance(model, sizes, budget_bytes, conditions, option.tuned))

    def first_that_fits(self, budget_bytes: int) -> str:
        """Return the most preferred algorithm that can run in a budget; `BudgetError` if none."""
        errors: list[BudgetError] = []
        for name in sorted(CHOICES, key=_preference):
            try:
                MODELS[name].rules.settings(self.sizes(name), budget_bytes, USUAL)
                return name
            except BudgetError as error:
                errors.append(error)
        raise min(errors, key=lambda error: error.least_bytes or 0)

    def _refine(self, option: Option, budget_bytes: int, conditions: Conditions) -> Tuned:
        model = MODELS[option.name]
        return refine(model, self.sizes(option.name), budget_bytes, conditions, option.tuned)


def _best_first(options: list[Option], conditions: Conditions) -> list[Option]:
    def worth(option: Option) -> tuple[float, float, float]:
        return conditions.worth(option.tuned.prediction)

    return sorted(options, key=worth, reverse=True)


def _close(options: list[Option], conditions: Conditions) -> list[Option]:
    """Return options that may be the best once they are tuned further, the best first."""
    options = _best_first(options, conditions)
    if conditions.target is not None:
        return options[:_GLANCED]
    return [option for option in options if option.speed >= _CLOSE * options[0].speed]


def _favourite(options: list[Option], conditions: Conditions) -> Option:
    """Return the most preferred of the options that are as good as the best."""
    worths = [conditions.worth(option.tuned.prediction) for option in options]
    *held, speed = max(worths)
    good = [o for o, w in zip(options, worths, strict=True) if w >= (*held, _AS_GOOD * speed)]
    return min(good, key=lambda option: _preference(option.name))


def are_few(stream_rows: int, page_count: int, *, is_cached: bool = True) -> bool:
    """Return whether a stream is short enough for look-ups to be best, whatever its demand."""
    per_page = _FEW_PER_PAGE if is_cached else _FEW_PER_UNCACHED_PAGE
    return stream_rows < per_page * page_count
