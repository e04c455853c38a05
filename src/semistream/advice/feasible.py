"""Whether a budget is enough for a join, as far as that is known before the stream has a row.

The least budget depends on the relation's pages and on the widths of the stream's values. Only
fixed widths are known in advance: for all others the least is assumed, so no budget is refused that
would do. A budget that is refused is refused with the least for values of usual widths, which is
better advice.
"""

from semistream.advice.auto import AUTO, make_join
from semistream.advice.choice import Advisor
from semistream.advice.situation import largest_partition, stream_widths
from semistream.budget.rowsizes import Widths
from semistream.budget.rules import RULES
from semistream.budget.split import USUAL
from semistream.errors import BudgetError
from semistream.joins.opened import Opened
from semistream.memory import MemoryLedger
from semistream.relation.relation import Relation
from semistream.spec import JoinSpec

# The bound that splits its budget as another algorithm does.
_SPLIT_AS = {"offline": "cmeshjoin"}


def task_budget(
    name: str, relation: Relation, spec: JoinSpec, memory_bytes: int, tasks: int | None = None
) -> int:
    """Return each task's share of the memory of a join, in bytes, if the join can run in it.

    Each partition of R is joined by one task; `tasks` of them run at once, all unless given, and
    have equal shares. Raises `BudgetError` if the task of the largest partition would, and what is
    wrong with the name of the algorithm.
    """
    count = tasks or relation.partition_count
    share_bytes = max(1, memory_bytes // count)
    try:
        check_share(name, relation, spec, share_bytes)
    except BudgetError as error:
        raise error.for_all_tasks(count) from None
    return share_bytes


def check_share(
    name: str, relation: Relation, spec: JoinSpec, budget_bytes: int, *, whole: bool = False
) -> None:
    """Raise `BudgetError` if a task cannot run in a budget; see `task_budget`.

    The task joins the largest partition of R, or the `whole` of it.
    """
    partition = None if whole else largest_partition(relation)
    split_as = _SPLIT_AS.get(name, name)
    if split_as != AUTO and split_as not in RULES:
        make_join(name, relation, spec, budget_bytes, partition)  # raises, if there is a reason
        return
    opened = Opened.within(MemoryLedger(budget_bytes), relation, spec, partition)
    try:
        if opened.reader.row_count:  # otherwise all rows of the stream are misses
            _check(split_as, relation, spec, budget_bytes, opened)
    finally:
        opened.reader.close()


def _check(
    name: str, relation: Relation, spec: JoinSpec, budget_bytes: int, opened: Opened
) -> None:
    """Check with the least widths; if these are too much, raise the error of the usual ones."""
    count = len(spec.stream_schema)
    try:
        least = Widths((1.0,) * count, (0,) * count)
        _split(name, Advisor(relation, spec, least, reader=opened.reader), budget_bytes)
    except BudgetError:
        usual = stream_widths(relation, spec)
        _split(name, Advisor(relation, spec, usual, reader=opened.reader), budget_bytes)
        raise


def _split(name: str, advisor: Advisor, budget_bytes: int) -> None:
    if name != AUTO:
        RULES[name].settings(advisor.sizes(name), budget_bytes, USUAL)
    elif not advisor.fits(budget_bytes):
        advisor.first_that_fits(budget_bytes)
