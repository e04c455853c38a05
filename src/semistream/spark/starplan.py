"""The plan of a star: which relations are joined together, in which order, with which memory.

Relations whose routing is local need no rows to move, so they are joined in whatever pass there is.
Those that need a shuffle share one if it brings the same rows to the same tasks: equal columns of
the stream, the same kind of key, as many partitions. So there are as many passes as there are
different shuffles, and one if there is none.

The memory is divided by the cost model (`semistream.advice.division`): for each relation the time
of a micro-batch is predicted for some budgets, and the division with the least sum is taken. What
is left over goes to the relations that are not held in memory as a whole.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil
from pathlib import PurePosixPath

from semistream.advice.calibration import calibration_for
from semistream.advice.calibration.record import weight_of
from semistream.advice.calibration.sparkcosts import known_costs
from semistream.advice.choice import Advisor
from semistream.advice.division import divide, task_s
from semistream.advice.question import Question
from semistream.advice.situation import largest_partition
from semistream.cost.conditions import Conditions
from semistream.errors import BudgetError
from semistream.relation.relation import Relation
from semistream.spark.parallelism import Cores
from semistream.spark.routing import Given, Route, choose_route
from semistream.spark.staroptions import StarOptions
from semistream.spec import JoinSpec
from semistream.units import format_bytes

_STEP_BITS = 2  # each budget that is tried is a quarter of the one before
_STEPS = 6
_RESIDENT_ROOM = 1.1  # times what R takes in memory, so that it fits beside small parts


@dataclass(frozen=True)
class Member:
    """One relation of a star, as the user gave it."""

    number: int  # in the order that they were given
    relation: Relation
    spec: JoinSpec  # for a stream that all relations before have been joined with
    needs: frozenset[int]  # the numbers of those that have columns that this one compares
    algorithm: str
    given_bytes: int | None  # of the memory, if the user said so
    options: StarOptions

    @property
    def label(self) -> str:
        """The name of the relation in messages."""
        return PurePosixPath(self.relation.location).stem


@dataclass(frozen=True)
class Planned:
    """A relation of a star with its memory."""

    member: Member
    route: Route
    predicted_s: float  # of its join, in a micro-batch
    fits: bool  # all that a task joins fits its memory

    @property
    def memory_bytes(self) -> int:
        """Its part of the memory, of all tasks or of each as the user gave it."""
        given = self.route.given
        found = given.memory_bytes if given.memory_bytes is not None else given.per_task_bytes
        assert found is not None, "one of the two is given"
        return found


@dataclass(frozen=True)
class StarPlan:
    """How the relations of a star are joined: in passes, each of some relations. Print it."""

    passes: tuple[tuple[Planned, ...], ...]
    batch_rows: int  # of the micro-batches that it is best for

    def __str__(self) -> str:
        """Return a line for each pass and each relation."""
        lines = []
        for number, planned in enumerate(self.passes, 1):
            moves = "rows stay in their tasks" if is_local(planned) else "rows are shuffled"
            lines.append(f"pass {number}: {moves}")
            lines += [
                f"  {each.member.label}: {format_bytes(each.memory_bytes)}"
                f"{', held in memory' if each.fits else ''}; "
                f"about {1e3 * each.predicted_s:,.1f} ms of a micro-batch of "
                f"{self.batch_rows:,} rows"
                for each in planned
            ]
        return "\n".join(lines)


def is_local(planned: Sequence[Planned]) -> bool:
    """Return whether the rows of a pass stay in the tasks that they are in."""
    return all(each.route.is_local for each in planned)


def plan(members: Sequence[Member], memory: Given, cores: Cores, batch_rows: int) -> StarPlan:
    """Divide the memory, choose the routes, and put the relations into passes."""
    whole_bytes = memory.memory_bytes if memory.memory_bytes is not None else memory.per_task_bytes
    assert whole_bytes is not None, "one of the two is given"
    is_per_task = memory.memory_bytes is None
    curves = [_Curve(each, cores, is_per_task, batch_rows) for each in members]
    options = [curve.options(curve.budgets(whole_bytes)) for curve in curves]
    shares = divide(
        whole_bytes, [[(size, o.predicted_s) for size, o in each.items()] for each in options]
    )
    if shares is None:
        raise _too_little(members, [min(o, default=whole_bytes) for o in options], is_per_task)
    chosen = [found[share] for found, share in zip(options, shares, strict=True)]
    left_bytes = whole_bytes - sum(shares)
    growing = [i for i, p in enumerate(chosen) if not p.fits and not members[i].given_bytes]
    for i in growing:
        for larger in curves[i].options([shares[i] + left_bytes // len(growing)]).values():
            if larger.predicted_s <= chosen[i].predicted_s:
                chosen[i] = larger
    return StarPlan(_passes(chosen), batch_rows)


def _too_little(members: Sequence[Member], least: Sequence[int], is_per_task: bool) -> BudgetError:
    each = ", ".join(
        f"{format_bytes(size)} for {member.label}"
        for member, size in zip(members, least, strict=True)
    )
    argument = "memory_per_task" if is_per_task else "memory"
    return BudgetError(
        f"the memory is too little for {len(members)} relations, which need {each}.",
        sum(least),
        argument=argument,
    )


class _Curve:
    """What one relation's join takes, by its memory."""

    def __init__(self, member: Member, cores: Cores, is_per_task: bool, batch_rows: int) -> None:
        self._member, self._cores, self._rows = member, cores, batch_rows
        self._is_per_task = is_per_task
        self._question: Question | None = None  # to the cost model, once it was asked
        self._models: dict[bool, tuple[Advisor, Conditions]] = {}  # by: over all of R

    def budgets(self, whole_bytes: int) -> list[int]:
        """Return the budgets to try: fractions of the whole, what holds R, and the least."""
        if self._member.given_bytes:
            self._route(self._member.given_bytes)  # raises if it is too little
            return [self._member.given_bytes]
        sizes = {whole_bytes >> (_STEP_BITS * i) for i in range(_STEPS)}
        return sorted(sizes | {self._resident_bytes(), self._least_bytes()} - {0})

    def options(self, sizes: Sequence[int]) -> dict[int, Planned]:
        """Return the join in each of these budgets, without those that are too small."""
        found = {}
        for size_bytes in sizes:
            try:
                route = self._route(size_bytes)
                time_s, fits = self._time_s(route)
            except BudgetError:
                continue
            found[size_bytes] = Planned(self._member, route, time_s, fits)
        return found

    def _least_bytes(self) -> int:
        """Return about the least memory in which it can run."""
        size_bytes = 1
        for _ in range(3):  # a route that is refused names the least of another one at first
            try:
                self._route(size_bytes)
                return size_bytes
            except BudgetError as error:
                if not error.least_bytes:
                    raise
                size_bytes = error.least_bytes
        return size_bytes

    def _resident_bytes(self) -> int:
        """Return the memory in which all tasks hold what they join."""
        if not self._member.relation.row_count:
            return 0
        advisor, _ = self._model(True)
        tasks = 1 if self._is_per_task else self._cores.count
        return ceil(advisor.resident_bytes * _RESIDENT_ROOM) * tasks

    def _route(self, size_bytes: int) -> Route:
        member = self._member
        given = Given(None, size_bytes) if self._is_per_task else Given(size_bytes, None)
        about = (member.algorithm, member.relation, member.spec, given, self._cores)
        return choose_route(member.options.routing, *about)

    def _model(self, whole: bool) -> tuple[Advisor, Conditions]:
        if whole not in self._models:
            relation, spec = self._member.relation, self._member.spec
            if self._question is None:
                self._question = Question(relation, spec, calibration_for(relation, spec))
            partition = None if whole else largest_partition(relation)
            conditions, _ = self._question.conditions(partition)
            self._models[whole] = (self._question.advisor(partition), conditions)
        return self._models[whole]

    def _time_s(self, route: Route) -> tuple[float, bool]:
        """Return the time that a micro-batch takes because of this join; whether all of R fits."""
        if not self._member.relation.row_count or not self._member.spec.stream_key:
            return 0.0, False  # nothing to read; or all of it, whatever the memory
        advisor, conditions = self._model(route.joins_all)
        cores = self._cores.count
        tasks = cores if route.is_local else self._member.relation.partition_count
        rows = ceil(self._rows / tasks)
        about = (self._member.algorithm, advisor, conditions, rows, route.join_bytes)
        joined_s = ceil(tasks / cores) * task_s(*about)
        if not route.is_local:
            costs = known_costs().costs
            values = sum(map(weight_of, self._member.spec.stream_schema.types))
            joined_s += costs.stage_s + self._rows / cores * values * costs.shuffle_s
        return joined_s, advisor.fits(route.join_bytes)


def _passes(planned: Sequence[Planned]) -> tuple[tuple[Planned, ...], ...]:
    """Put relations into as few passes as shuffles allow; those that others need come before."""
    passes: list[tuple[object, list[Planned]]] = []  # what is shuffled by, and the relations
    placed: dict[int, int] = {}  # the pass of each relation, by number

    def place(each: Planned) -> None:
        if each.member.number in placed:
            return
        for number in each.member.needs:
            place(planned[number])
        after = max((placed[number] for number in each.member.needs), default=-1)
        by = _shuffled_by(each)
        first = max(after, 0) if by is None else after + 1
        fitting = [i for i in range(first, len(passes)) if by is None or passes[i][0] == by]
        if not fitting:
            passes.append((by, []))
            fitting = [len(passes) - 1]
        passes[fitting[0]][1].append(each)
        placed[each.member.number] = fitting[0]

    for each in sorted(planned, key=lambda p: p.route.is_local):  # those that are shuffled first
        place(each)
    return tuple(_ordered(each) for _, each in passes)


def _shuffled_by(planned: Planned) -> object:
    """Return what decides where the rows go; None if they stay."""
    if planned.route.is_local:
        return None
    relation, spec = planned.member.relation, planned.member.spec
    types = tuple(relation.schema.field(name).type for name in relation.key)
    return (spec.stream_key, types, relation.partition_count, planned.route.spread)


def _ordered(planned: Sequence[Planned]) -> tuple[Planned, ...]:
    """Return the relations of a pass in order: those first that can only make rows fewer."""
    waiting = sorted(
        planned, key=lambda p: (p.member.spec.how not in ("semi", "anti"), p.member.number)
    )
    ordered: list[Planned] = []
    while waiting:
        left = {each.member.number for each in waiting}
        ready = next(each for each in waiting if not each.member.needs & left)
        ordered.append(ready)
        waiting.remove(ready)
    return tuple(ordered)
