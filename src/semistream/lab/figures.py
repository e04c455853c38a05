"""A figure, and the lab that makes it.

A figure is a list of points to measure, a way to draw their table, and the paper's claims about it.
It knows nothing of files; `semistream.lab.runner` writes them.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeAlias, TypeVar, cast

from semistream.lab.canvas import Canvas
from semistream.lab.claims import Claim, Row, Table
from semistream.lab.rig import REAL, Rig
from semistream.relation.relation import Relation
from semistream.workload.base import Workload
from semistream.workload.synthetic import Synthetic

_Kept = TypeVar("_Kept")
Point: TypeAlias = Callable[[], Row | Sequence[Row]]


@dataclass(frozen=True, slots=True)
class Scale:
    """How large the experiments are: as in the paper, or in miniature."""

    name: str
    is_full: bool
    smaller: float = 1.0  # than at quick scale


SCALES = {"quick": Scale("quick", is_full=False), "paper": Scale("paper", is_full=True)}


@dataclass
class Lab:
    """The surroundings of figures: scale, device, folder for relations, and earlier results.

    A relation is built once, and a setting is measured once, however many figures show it.
    """

    folder: Path
    scale: Scale = SCALES["quick"]
    device: str = "hdd-papers"
    seed: int = 7
    kept: dict[object, object] = field(default_factory=dict, init=False)  # by their settings

    def times(self, quick: float) -> float:
        """Return how many times smaller than in the paper all sizes are; `quick` at quick scale."""
        return 1.0 if self.scale.is_full else quick * self.scale.smaller

    def rig(
        self,
        make: Callable[[float], Workload],
        times: float,
        *,
        row_bytes: int = 120,
        page_bytes: int = 16_384,
    ) -> Rig:
        """Return a rig with the workload that `make` returns for a factor, `times` smaller.

        At full scale pages have 64 KiB: the page table is part of the budget, and its share must
        not be larger than in miniature.
        """
        workload = make(times)
        page_bytes = max(page_bytes, 65_536) if times == 1.0 else page_bytes
        stored: Workload = workload
        if isinstance(workload, Synthetic) and workload.relation_exponent is None:
            stored = replace(workload, exponent=0.0)  # streams of any skew refer to the same R

        def store() -> Relation:
            folder = self.folder / f"{len(self.kept)}.rel"
            relation = Rig.store(folder, stored, row_bytes, page_bytes)
            if self.device == REAL:
                os.sync()  # only what is on disk can be dropped from the page cache
            return relation

        relation = self.keep((stored, row_bytes, page_bytes), store)
        key = (workload, times, row_bytes, page_bytes)
        return self.keep(key, lambda: Rig(relation, workload, self.device, times, row_bytes))

    def keep(self, key: object, make: Callable[[], _Kept]) -> _Kept:
        """Return the earlier result for this key, or make it."""
        if key not in self.kept:
            self.kept[key] = make()
        return cast("_Kept", self.kept[key])


@dataclass(frozen=True)
class Figure:
    """A figure of a paper, or of our own."""

    paper: str
    number: str
    title: str
    points: Callable[[Lab], Sequence[Point]]
    draw: Callable[[Canvas, Table], None]
    claims: tuple[Claim, ...] = ()
    note: str = ""  # further remarks for the reader
    medium: str = ""  # replaces the device, for a figure that does not read from it
    needs_clock: bool = False  # can only be made on an emulated device
    size: tuple[float, float] = (7.2, 4.4)  # inches

    @property
    def name(self) -> str:
        """The name on the command line."""
        return f"{self.paper}-{self.number}"


def by_name(figures: Sequence[Figure]) -> Mapping[str, Figure]:
    """Return figures by their names, which must differ."""
    named = {figure.name: figure for figure in figures}
    assert len(named) == len(figures), "two figures have one name"
    return named
