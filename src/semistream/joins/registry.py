"""Every algorithm by its name: the one list that the API, the tests and the benchmarks use."""

from collections.abc import Callable
from typing import TypeAlias

from semistream.errors import OptionError, did_you_mean
from semistream.joins import resident
from semistream.joins.clairvoyant import ClairvoyantJoin
from semistream.joins.frontstage import MakeFront, TupleCache
from semistream.joins.hybridjoin import HybridJoin
from semistream.joins.indexjoin import IndexJoin, IndexTactic
from semistream.joins.inlj import BatchedInlj, Inlj
from semistream.joins.meshjoin import MeshJoin
from semistream.joins.operator import Operator, TacticMaker, WindowJoin
from semistream.joins.resident import ResidentJoin
from semistream.joins.rmeshjoin import RMeshJoin
from semistream.joins.spec import JoinSpec, read_columns
from semistream.joins.xhybridjoin import XHybridJoin
from semistream.relation.relation import Relation

AUTO = "auto"
_Make: TypeAlias = Callable[[Relation, JoinSpec, int, int | None], Operator]


def make_operator(
    name: str,
    relation: Relation,
    spec: JoinSpec,
    budget_bytes: int,
    partition: int | None = None,
) -> Operator:
    """Return the named join, ready to run, over a relation or one partition of it."""
    if name == AUTO:
        name = choose(relation, spec, budget_bytes, partition)
    if name not in ALGORITHMS:
        known = [AUTO, *ALGORITHMS]
        raise OptionError(
            f"algorithm must be one of {', '.join(known)}; got {name!r}.{did_you_mean(name, known)}"
        )
    return ALGORITHMS[name](relation, spec, budget_bytes, partition)


def choose(
    relation: Relation, spec: JoinSpec, budget_bytes: int, partition: int | None = None
) -> str:
    """Return what ``auto`` stands for: `resident` where R fits the budget, else `chybridjoin`.

    It is the best or close to it on skewed streams and on slow disks, and reads only pages that are
    asked for; without skew its cache rests.
    """
    columns = read_columns(relation, spec)
    reader = relation.reader(list(columns), partition)
    fits = resident.least_memory_bytes(reader, columns) <= budget_bytes
    return "resident" if fits else "chybridjoin"


def _window_join(tactics: TacticMaker, make_front: MakeFront | None = None) -> _Make:
    def make(
        relation: Relation, spec: JoinSpec, budget_bytes: int, partition: int | None
    ) -> Operator:
        return WindowJoin(relation, spec, budget_bytes, tactics, partition, make_front)

    return make


def _index_join(
    make_tactic: Callable[[], IndexTactic], make_front: MakeFront | None = None
) -> _Make:
    def make(
        relation: Relation, spec: JoinSpec, budget_bytes: int, partition: int | None
    ) -> Operator:
        return IndexJoin(relation, spec, budget_bytes, make_tactic(), partition, make_front)

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
