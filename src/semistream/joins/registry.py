"""Every algorithm by its name: the one list that the API, the tests and the benchmarks use."""

from collections.abc import Callable
from typing import TypeAlias

from semistream.errors import OptionError, did_you_mean
from semistream.joins import resident
from semistream.joins.hybridjoin import HybridJoin
from semistream.joins.indexjoin import IndexJoin, IndexTactic
from semistream.joins.inlj import BatchedInlj, Inlj
from semistream.joins.meshjoin import MeshJoin
from semistream.joins.operator import Operator, WindowJoin
from semistream.joins.resident import ResidentJoin
from semistream.joins.spec import JoinSpec
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
    """Return what ``auto`` stands for: `resident` where R fits the budget, else `meshjoin`."""
    columns = resident.read_columns(relation, spec)
    reader = relation.reader(list(columns), partition)
    fits = resident.least_memory_bytes(reader, columns) <= budget_bytes
    return "resident" if fits else "meshjoin"


def _mesh_join(
    relation: Relation, spec: JoinSpec, budget_bytes: int, partition: int | None
) -> Operator:
    return WindowJoin(relation, spec, budget_bytes, MeshJoin.for_budget, partition)


def _index_join(make_tactic: Callable[[], IndexTactic]) -> _Make:
    def make(
        relation: Relation, spec: JoinSpec, budget_bytes: int, partition: int | None
    ) -> Operator:
        return IndexJoin(relation, spec, budget_bytes, make_tactic(), partition)

    return make


ALGORITHMS: dict[str, _Make] = {
    "resident": ResidentJoin,
    "inlj": _index_join(Inlj),
    "binlj": _index_join(BatchedInlj),
    "meshjoin": _mesh_join,
    "hybridjoin": _index_join(HybridJoin),
}
