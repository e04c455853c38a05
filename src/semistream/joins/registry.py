"""Every algorithm by its name: the one list that the API, the tests and the benchmarks use."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, TypeAlias

from semistream.budget.rules import RULES
from semistream.budget.split import USUAL, Split
from semistream.joins.frontstage import TupleCache
from semistream.joins.hybridjoin import HybridJoin
from semistream.joins.indexjoin import IndexJoin
from semistream.joins.inlj import BatchedInlj, Inlj
from semistream.joins.keptfront import KeptFront
from semistream.joins.lookupjoin import LookUpJoin
from semistream.joins.meshjoin import MeshJoin
from semistream.joins.offline import OfflineJoin
from semistream.joins.opened import Opened
from semistream.joins.orderedlookup import OrderedLookUpJoin
from semistream.joins.resident import ResidentJoin
from semistream.joins.rmeshjoin import RMeshJoin
from semistream.joins.scanjoin import ScanJoin
from semistream.joins.streamjoin import JoinTask, StreamJoin
from semistream.joins.xhybridjoin import XHybridJoin
from semistream.relation.relation import Relation
from semistream.spec import JoinSpec

Family: TypeAlias = Literal["scan", "index", "lookup", "bound"]


@dataclass(frozen=True, slots=True)
class Algorithm:
    """All that the rest of the package knows of one algorithm."""

    name: str  # in the API, the command line, reports and metrics
    label: str  # in explanations and charts
    make: Callable[[JoinTask], StreamJoin]
    family: Family  # a scan of R, pages by index, look-ups, or only a bound to compare with
    preference: int  # between options that the model rates equal, the lowest is taken
    has_front: bool = False  # a front stage of hot rows
    pins_pages: bool = False
    one_tuple_at_a_time: bool = False  # a page is read for each tuple: never the best choice


def _algorithm(
    driver: Callable[..., StreamJoin],
    family: Family,
    name: str,
    label: str,
    tactic: Callable[[Any, int], object],
    preference: int,
) -> Algorithm:
    """Return the record of a tactic that a driver runs by the budget rules of this name."""
    rules = RULES[name]
    front = TupleCache.for_budget if rules.has_front else None
    make = partial(driver, rules=rules, make_tactic=tactic, make_front=front)
    flags = (rules.has_front, rules.pins_pages, rules.reads_one_page)
    return Algorithm(name, label, make, family, preference, *flags)


def _look_ups(task: JoinTask) -> StreamJoin:
    kind = OrderedLookUpJoin if task.spec.in_order else LookUpJoin
    return kind(task, RULES["lookup"])


_scan = partial(_algorithm, ScanJoin, "scan")
_index = partial(_algorithm, IndexJoin, "index")

_ALL = (
    Algorithm("resident", "all of R in memory", ResidentJoin, "bound", 0),
    _index("inlj", "INLJ", Inlj, 9),
    _index("binlj", "batched INLJ", BatchedInlj, 6),
    _scan("meshjoin", "MESHJOIN", MeshJoin, 3),
    _scan("rmeshjoin", "R-MESHJOIN", RMeshJoin, 4),
    _index("hybridjoin", "HYBRIDJOIN", HybridJoin, 2),
    _index("xhybridjoin", "X-HYBRIDJOIN", XHybridJoin, 7),
    _index("cinlj", "front stage + INLJ", Inlj, 8),
    _index("cbinlj", "front stage + batched INLJ", BatchedInlj, 5),
    _scan("cmeshjoin", "CMESHJOIN", MeshJoin, 1),
    _index("chybridjoin", "front stage + HYBRIDJOIN", HybridJoin, 0),
    Algorithm("lookup", "look-ups in the order of R", _look_ups, "lookup", 10),
    Algorithm("offline", "best fixed cache", OfflineJoin, "bound", 1),
)

ALGORITHMS = {algorithm.name: algorithm for algorithm in _ALL}
# Not algorithms to choose, but what to measure them by: all of R in memory, the best fixed cache.
BOUNDS = tuple(a.name for a in _ALL if a.family == "bound")


def make_operator(
    name: str,
    relation: Relation,
    spec: JoinSpec,
    budget_bytes: int,
    partition: int | None = None,
    split: Split = USUAL,
    opened: Opened | None = None,
    front: KeptFront | None = None,
) -> StreamJoin:
    """Return the named join, ready to run, over a relation or one partition of it.

    It opens the relation by itself, unless that was `opened` before. With a `front` that outlives
    it, the variant with a front stage is made, if the algorithm has one.
    """
    if front is not None and f"c{name}" in ALGORITHMS:
        name = f"c{name}"
    task = JoinTask(relation, spec, budget_bytes, partition, split, opened, front)
    join = ALGORITHMS[name].make(task)
    join.telemetry.algorithms = 1 << list(ALGORITHMS).index(name)
    return join
