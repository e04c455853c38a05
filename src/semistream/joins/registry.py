"""Every algorithm by its name: the one list that the API, the tests and the benchmarks use."""

from collections.abc import Callable
from typing import TypeAlias

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
    return ALGORITHMS[name](relation, spec, budget_bytes, partition, split, opened)


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


ALGORITHMS: dict[str, _Make] = {
    "resident": ResidentJoin,
    "inlj": _index_join(Inlj),
    "binlj": _index_join(BatchedInlj),
    "meshjoin": _window_join(MeshJoin),
    "rmeshjoin": _window_join(RMeshJoin),
    "hybridjoin": _index_join(HybridJoin),
    "xhybridjoin": _index_join(XHybridJoin),
    "cinlj": _index_join(Inlj, TupleCache.for_budget),
    "cbinlj": _index_join(BatchedInlj, TupleCache.for_budget),
    "cmeshjoin": _window_join(MeshJoin, TupleCache.for_budget),
    "chybridjoin": _index_join(HybridJoin, TupleCache.for_budget),
    "clairvoyant": ClairvoyantJoin,
}

# Not algorithms to choose, but what to measure them by: all of R in memory, the best hot set.
BOUNDS = ("resident", "clairvoyant")
