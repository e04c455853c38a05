"""A figure, and the lab that makes it.

A figure is a list of points to measure, a way to draw their table, and the paper's claims about it.
It knows nothing of files; `semistream.lab.runner` writes them.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeAlias, TypeVar, cast

from semistream.advice.measure import Measured
from semistream.lab.canvas import Canvas
from semistream.lab.claims import Claim, Row, Table
from semistream.lab.rig import FULL_PAGE_BYTES, REAL, Rig, Setting
from semistream.relation.relation import Relation
from semistream.workload.base import Workload
from semistream.workload.synthetic import Synthetic

PAPERS_DISK = "hdd-papers"
ONE_COST_DISK = "hdd-one-cost"
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
    device: str = PAPERS_DISK
    seed: int = 7
    clouds: Path | None = None  # folder with real cloud reports; generated ones without it
    kept: dict[object, object] = field(default_factory=dict)  # by their settings

    def with_seed(self, seed: int) -> "Lab":
        """Return the same lab with another seed; it shares all relations and results."""
        return replace(self, seed=seed)

    def disk(self, kind: str) -> str:
        """Return this kind of the papers' disk, unless another device was asked for."""
        return kind if self.device == PAPERS_DISK else self.device

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
        device: str | None = None,
    ) -> Rig:
        """Return a rig with the workload that `make` returns for a factor, `times` smaller.

        It has the lab's device, or this kind of the papers' disk in its place.
        At full scale pages have 64 KiB: the page table is part of the budget.
        """
        workload = make(times)
        page_bytes = max(page_bytes, FULL_PAGE_BYTES) if times == 1.0 else page_bytes
        stored: Workload = workload
        if isinstance(workload, Synthetic) and workload.relation_exponent is None:
            # Streams of any skew and any seed refer to the same R.
            stored = replace(workload, exponent=0.0, seed=0)

        def store() -> Relation:
            folder = self.folder / f"{len(self.kept)}.rel"
            relation = Rig.store(folder, stored, row_bytes, page_bytes)
            if self.device == REAL:
                os.sync()  # only what is on disk can be dropped from the page cache
            return relation

        relation = self.keep((stored, row_bytes, page_bytes), store)
        device = self.disk(device or PAPERS_DISK)
        where = (times, row_bytes, page_bytes, device)
        scans: dict[Setting, Measured] = self.keep((stored, *where, "scans"), dict)
        return self.keep(
            (workload, *where), lambda: Rig(relation, workload, device, times, row_bytes, scans)
        )

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
    is_random: bool = True  # depends on the seed, so it is made with several
    disk: str = PAPERS_DISK  # the kind of the papers' disk that it reads from
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
