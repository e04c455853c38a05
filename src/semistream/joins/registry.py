"""Every algorithm by its name: the one list that the API, the tests and the benchmarks use."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, TypeAlias

from semistream.budget.split import USUAL, Split
from semistream.joins.clairvoyant import ClairvoyantJoin
from semistream.joins.frontstage import MakeFront, TupleCache
from semistream.joins.hybridjoin import HybridJoin
from semistream.joins.indexjoin import IndexJoin, IndexTactic
from semistream.joins.inlj import BatchedInlj, Inlj
from semistream.joins.meshjoin import MeshJoin
from semistream.joins.opened import Opened
from semistream.joins.operator import StreamJoin, TacticMaker, WindowJoin
from semistream.joins.resident import ResidentJoin
from semistream.joins.rmeshjoin import RMeshJoin
from semistream.joins.xhybridjoin import XHybridJoin
from semistream.relation.relation import Relation
from semistream.spec import JoinSpec

_Make: TypeAlias = Callable[[Relation, JoinSpec, int, int | None, Split, Opened | None], StreamJoin]
Family: TypeAlias = Literal["scan", "index", "bound"]


@dataclass(frozen=True, slots=True)
class Algorithm:
    """All that the rest of the package knows of one algorithm."""

    name: str  # in the API, the command line, reports and metrics
    label: str  # in explanations and charts
    make: _Make
    family: Family  # a scan of R, pages by index, or only a bound to compare with
    preference: int  # between options that the model rates equal, the lowest is taken
    has_front: bool = False  # a front stage of hot rows
    pins_pages: bool = False
    one_tuple_at_a_time: bool = False  # a page is read for each tuple: never the best choice
    suits_short_streams: bool = False  # nothing must warm up, and no window must fill


def _window_join(tactics: TacticMaker, make_front: MakeFront | None = None) -> _Make:
    def make(
        relation: Relation,
        spec: JoinSpec,
        budget_bytes: int,
        partition: int | None,
        split: Split,
        opened: Opened | None,
    ) -> StreamJoin:
        about = (relation, spec, budget_bytes, tactics, partition)
        return WindowJoin(*about, make_front, split, opened)

    return make


def _index_join(
    make_tactic: Callable[[], IndexTactic], make_front: MakeFront | None = None
) -> _Make:
    def make(
        relation: Relation,
        spec: JoinSpec,
        budget_bytes: int,
        partition: int | None,
        split: Split,
        opened: Opened | None,
    ) -> StreamJoin:
        about = (relation, spec, budget_bytes, make_tactic(), partition)
        return IndexJoin(*about, make_front, split, opened)

    return make


_ALL = (
    Algorithm("resident", "all of R in memory", ResidentJoin, "bound", 0),
    Algorithm("inlj", "INLJ", _index_join(Inlj), "index", 9, one_tuple_at_a_time=True),
    Algorithm(
        "binlj", "batched INLJ", _index_join(BatchedInlj), "index", 6, suits_short_streams=True
    ),
    Algorithm("meshjoin", "MESHJOIN", _window_join(MeshJoin), "scan", 3),
    Algorithm(
        "rmeshjoin", "R-MESHJOIN", _window_join(RMeshJoin), "scan", 4, suits_short_streams=True
    ),
    Algorithm(
        "hybridjoin", "HYBRIDJOIN", _index_join(HybridJoin), "index", 2, suits_short_streams=True
    ),
    Algorithm("xhybridjoin", "X-HYBRIDJOIN", _index_join(XHybridJoin), "index", 7, pins_pages=True),
    Algorithm(
        "cinlj",
        "front stage + INLJ",
        _index_join(Inlj, TupleCache.for_budget),
        "index",
        8,
        has_front=True,
        one_tuple_at_a_time=True,
    ),
    Algorithm(
        "cbinlj",
        "front stage + batched INLJ",
        _index_join(BatchedInlj, TupleCache.for_budget),
        "index",
        5,
        has_front=True,
    ),
    Algorithm(
        "cmeshjoin",
        "CMESHJOIN",
        _window_join(MeshJoin, TupleCache.for_budget),
        "scan",
        1,
        has_front=True,
    ),
    Algorithm(
        "chybridjoin",
        "front stage + HYBRIDJOIN",
        _index_join(HybridJoin, TupleCache.for_budget),
        "index",
        0,
        has_front=True,
    ),
    Algorithm("clairvoyant", "best fixed cache", ClairvoyantJoin, "bound", 1),
)

ALGORITHMS = {algorithm.name: algorithm for algorithm in _ALL}
# Not algorithms to choose, but what to measure them by: all of R in memory, the best hot set.
BOUNDS = tuple(a.name for a in _ALL if a.family == "bound")


def make_operator(
    name: str,
    relation: Relation,
    spec: JoinSpec,
    budget_bytes: int,
    partition: int | None = None,
    split: Split = USUAL,
    opened: Opened | None = None,
) -> StreamJoin:
    """Return the named join, ready to run, over a relation or one partition of it.

    It opens the relation by itself, unless that was `opened` before.
    """
    return ALGORITHMS[name].make(relation, spec, budget_bytes, partition, split, opened)
