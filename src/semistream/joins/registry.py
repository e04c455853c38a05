"""Every algorithm by its name: the one list that the API, the tests and the benchmarks use."""

from collections.abc import Callable

from semistream.errors import OptionError, did_you_mean
from semistream.joins import resident
from semistream.joins.meshjoin import MeshJoin
from semistream.joins.operator import Operator, WindowJoin
from semistream.joins.resident import ResidentJoin
from semistream.joins.spec import JoinSpec
from semistream.relation.relation import Relation

AUTO = "auto"


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


ALGORITHMS: dict[str, Callable[[Relation, JoinSpec, int, int | None], Operator]] = {
    "resident": ResidentJoin,
    "meshjoin": _mesh_join,
}
