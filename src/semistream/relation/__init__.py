"""R on disk: immutable snapshots of hash partitions, cut into pages, with a sparse index."""

from semistream.relation.build import build_relation
from semistream.relation.relation import Relation

__all__ = ["Relation", "build_relation"]
