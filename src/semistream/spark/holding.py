"""Holds on the snapshots that queries of this driver keep to, so that none is pruned meanwhile.

Workers start and end between micro-batches, and only Spark knows which queries still run, so the
driver keeps its holds until it exits: those of batch queries, and of queries with a relation that
was opened at a named snapshot. Other streaming queries pin a snapshot for each micro-batch
(`semistream.spark.following`). What a micro-batch plans for itself is released when it has ended.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from semistream.relation.leases import Hold
from semistream.relation.relation import Relation

_planned: list[Hold] = []
_of_a_batch: ContextVar[list[Hold] | None] = ContextVar("holds of a micro-batch", default=None)


def hold(relation: Relation) -> None:
    """Hold a snapshot until this driver exits, or until the micro-batch that needs it has ended."""
    holds = _of_a_batch.get()
    (_planned if holds is None else holds).append(relation.hold())


@contextmanager
def releasing_holds() -> Iterator[None]:
    """Release the holds of what is planned in the block when the block ends."""
    holds: list[Hold] = []
    before = _of_a_batch.set(holds)
    try:
        yield
    finally:
        _of_a_batch.reset(before)
        for each in holds:
            each.release()
