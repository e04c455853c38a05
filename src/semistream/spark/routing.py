"""Routing: whether rows move to the task of their partition of R, or stay where they are.

::

    shuffle    rows ── by key code ──► P tasks, each over one partition of R
    local      rows ──────────────────► the tasks they are in, each over all of R

A shuffle costs a stage of its own, and Spark writes all rows to disk and reads them again. Where
the pages of R that are requested can be read by any task, as on a local or mounted disk, a few rows
are joined before that is done. With many rows of a micro-batch for each page of R the shuffle pays:
each page is read by one task instead of by all.

``auto`` decides when the plan is built, by what is known then. Rows stay where they are if

* R is on a local or mounted path: requests to an object store are too expensive for each task to
  make them all;
* R will stay in the page cache: else each task reads from disk what the others have read. With R of
  6 GB, 400,000 rows and 1 GB of page cache a shuffle made a micro-batch 1.5 to 1.9 times as fast;
  one of 10,000 rows took 1.1 to 1.3 times as long;
* the algorithm is ``lookup``, or ``auto``, which takes it for few rows: all others read most of R
  in each task;
* each task's share of the memory holds the page table of all of R and a window of look-ups;
* the number of tasks that run at once is known, or memory is given for each.

With a shuffle the rows of hot keys, where R knows them, are spread over all tasks
(`semistream.spark.spreading`), if each task's share holds the page table of all of R.
Without equal keys (``on=[]``) a row may match in every partition: rows stay where they are.

Memory: `memory` is divided by the number of tasks that run at once. With a shuffle these are P, or
as many as there are cores if there are fewer. A part of it is for what stays warm between
micro-batches (`semistream.spark.warm`): the front stage of each task that runs, the file that it
writes, and a file for each place. Another part is to merge output in. A join that needs these parts
itself does not have them, nor one whose rows of R are in memory anyway: all of R in the join's, or
in the page cache of a host where rows stay in their tasks.
"""

from dataclasses import dataclass, replace

from semistream.advice.auto import AUTO, MESHJOIN
from semistream.advice.choice import LOOK_UP, RESIDENT
from semistream.advice.feasible import check_share
from semistream.advice.ordered import check_order
from semistream.errors import BudgetError, OptionError, did_you_mean
from semistream.joins.registry import ALGORITHMS
from semistream.memory import stays_cached
from semistream.relation.relation import Relation
from semistream.spark.parallelism import Cores
from semistream.spark.spreading import hot_codes
from semistream.spec import JoinSpec

SHUFFLE, LOCAL = "shuffle", "local"
ROUTINGS = (AUTO, SHUFFLE, LOCAL)
# The part of a task's memory in which small pieces of output are merged.
_MERGED_PART = 1 / 16
_MOST_MERGED_BYTES = 2 << 20
# The part that stays warm, the most and the least of a front stage: loading takes a millisecond for
# every few megabytes.
_WARM_PART = 1 / 3
_MOST_WARM_BYTES = 32 << 20
_LEAST_WARM_BYTES = 64 << 10


@dataclass(frozen=True, slots=True)
class Given:
    """The memory of a join in bytes, as the user gave it: one of the two is None."""

    memory_bytes: int | None  # of the tasks that run at once, together
    per_task_bytes: int | None  # of each task

    def less(self, task_bytes: int, tasks: int) -> "Given":
        """Return what is left if each task needs some bytes for something else."""
        if self.memory_bytes is not None:
            return Given(max(1, self.memory_bytes - tasks * task_bytes), None)
        return Given(None, max(1, (self.per_task_bytes or 0) - task_bytes))

    def share_bytes(self, tasks: int) -> int:
        """Return the memory of one of the tasks that run at once."""
        if self.memory_bytes is not None:
            return max(1, self.memory_bytes // tasks)
        assert self.per_task_bytes is not None, "one of the two is given"
        return self.per_task_bytes


@dataclass(frozen=True, slots=True)
class Route:
    """How the rows of a stream come to tasks, and the memory of each task."""

    is_local: bool  # rows stay where they are
    tasks: int  # the most that run at once
    given: Given
    instead: str = ""  # what else to do if the memory is too little
    places: int = 0  # that keep a file between micro-batches
    merged_bytes: int = 0  # of the share, to merge output in
    warm_bytes: int = 0  # of a front stage that stays warm
    spread: tuple[int, ...] = ()  # codes of hot keys, whose rows may go to any task

    @property
    def joins_all(self) -> bool:
        """Whether each task joins with all of R, not with one partition of it."""
        return self.is_local or bool(self.spread)

    @property
    def share_bytes(self) -> int:
        """The memory of one task."""
        return self.given.share_bytes(self.tasks)

    @property
    def join_bytes(self) -> int:
        """The memory of one task's join."""
        return self.share_bytes - self.merged_bytes - self._beside_bytes(self.warm_bytes)

    def with_parts(self, *, merging: bool, warm: bool) -> "Route":
        """Return the route with memory to merge output in, and to stay warm."""
        merged_bytes = min(_MOST_MERGED_BYTES, int(self.share_bytes * _MERGED_PART))
        most_bytes = int(self.share_bytes * _WARM_PART / self._warm_copies)
        warm_bytes = min(_MOST_WARM_BYTES, most_bytes)
        return replace(
            self,
            merged_bytes=merged_bytes if merging else 0,
            warm_bytes=warm_bytes if warm and warm_bytes >= _LEAST_WARM_BYTES else 0,
        )

    @property
    def _warm_copies(self) -> float:
        """Of each task: the front stage, the file it writes, and its part of the files that are."""
        return 2 + self.places / self.tasks

    def _beside_bytes(self, warm_bytes: int) -> int:
        return int(warm_bytes * self._warm_copies)

    def explained(self, error: BudgetError) -> BudgetError:
        """Return the error of one task's join with advice for what the user gave."""
        beside = self.share_bytes - self.join_bytes
        least = None if error.least_bytes is None else error.least_bytes + beside
        if self.given.memory_bytes is None:
            otherwise = error.otherwise + self.instead
            return BudgetError(error.problem, least, otherwise, "memory_per_task")
        alone = BudgetError(error.problem, least, error.otherwise)
        return alone.for_all_tasks(self.tasks, self.instead)


def choose_route(
    routing: str, algorithm: str, relation: Relation, spec: JoinSpec, given: Given, cores: Cores
) -> Route:
    """Return the route of a stream, or raise what is wrong: with the name, or with the memory."""
    if routing not in ROUTINGS:
        raise OptionError(
            f"routing must be one of {', '.join(ROUTINGS)}; got {routing!r}."
            + did_you_mean(routing, ROUTINGS)
        )
    if not spec.stream_key:
        algorithm, routing = _without_key(routing)
    is_countable = given.memory_bytes is None or not cores.can_grow
    if routing == LOCAL and not is_countable:
        raise OptionError(
            "with dynamic allocation of executors it is not known how many tasks will run at once; "
            "with routing='local' give memory_per_task instead of memory"
        )
    local = Route(True, cores.count, given, ", or set routing to 'shuffle'", cores.count)
    if routing == AUTO and is_countable and _is_for_look_ups(local, algorithm, relation, spec):
        routing = LOCAL
    if routing == LOCAL:
        return _checked(local, algorithm, relation, spec)
    shuffled = _shuffled(relation, given, cores)
    spread = replace(shuffled, spread=hot_codes(relation) if _reads_by_key(algorithm) else ())
    if spread.spread:
        try:
            return _checked(spread, algorithm, relation, spec)
        except BudgetError:
            pass  # the page table of one partition may fit
    return _checked(shuffled, algorithm, relation, spec)


def routing_for_order(ordered: str | None, routing: str, algorithm: str) -> str:
    """Return the routing of a join whose output is ordered: a shuffle keeps only keys in order."""
    check_order(ordered, algorithm)
    if ordered == "stream" and routing == SHUFFLE:
        raise OptionError(
            "a shuffle does not keep the order of the stream; with ordered='stream' leave routing "
            "out, or set it to 'local'. With ordered='key' rows may be shuffled"
        )
    return LOCAL if ordered == "stream" else routing


def _without_key(routing: str) -> tuple[str, str]:
    """Return the algorithm and the routing of a join that compares no keys.

    A row may match in every partition of R: it stays where it is, and its task reads all of them.
    """
    if routing == SHUFFLE:
        raise OptionError(
            "with on=[] a row may match in every partition of the relation, so there is none to "
            "send it to; leave routing out, or set it to 'local'"
        )
    return MESHJOIN, LOCAL


def _is_for_look_ups(route: Route, algorithm: str, relation: Relation, spec: JoinSpec) -> bool:
    """Return whether rows should stay where they are; see above."""
    store = relation.store
    if algorithm not in (AUTO, LOOK_UP) or not (_is_cached(relation) or store.is_queried):
        return False
    try:
        check_share(LOOK_UP, relation, spec, route.share_bytes, whole=True)
    except BudgetError:
        return False
    return True


def _shuffled(relation: Relation, given: Given, cores: Cores) -> Route:
    partitions = relation.partition_count
    tasks = partitions if cores.can_grow else min(partitions, cores.count)
    instead = ", or build the relation with fewer partitions" if tasks == partitions else ""
    return Route(False, tasks, given, instead, partitions)


def _checked(route: Route, algorithm: str, relation: Relation, spec: JoinSpec) -> Route:
    """Return the route with memory for other parts, if the join can do without that."""
    merging = route.with_parts(merging=True, warm=False)
    warm = route.with_parts(merging=True, warm=True)
    is_in_memory = _is_resident(merging, algorithm, relation, spec) or (
        route.is_local and _is_cached(relation)
    )
    stays_warm = _learns(algorithm) and not is_in_memory
    for tried in (warm, merging, route) if stays_warm else (merging, route):
        try:
            check_share(algorithm, relation, spec, tried.join_bytes, whole=route.joins_all)
            return tried
        except BudgetError as error:
            refusal = error
    raise route.explained(refusal) from None


def _reads_by_key(algorithm: str) -> bool:
    """Return whether an algorithm reads pages that are requested, and not all of R."""
    return algorithm == AUTO or (
        algorithm in ALGORITHMS and ALGORITHMS[algorithm].family in ("index", "lookup")
    )


def _learns(algorithm: str) -> bool:
    """Return whether an algorithm has a front stage, of its own or given."""
    return algorithm in (AUTO, LOOK_UP) or (
        algorithm in ALGORITHMS and ALGORITHMS[algorithm].has_front
    )


def _is_resident(route: Route, algorithm: str, relation: Relation, spec: JoinSpec) -> bool:
    """Return whether `auto` can hold all that a task joins: then nothing is gained by less."""
    if algorithm != AUTO:
        return False
    try:
        check_share(RESIDENT, relation, spec, route.join_bytes, whole=route.joins_all)
    except BudgetError:
        return False
    return True


def _is_cached(relation: Relation) -> bool:
    """Return whether R will stay in the page cache: there a look-up costs as little as a hit.

    The driver's memory stands for that of the hosts that run tasks, because it is all that is known
    when the plan is built.
    """
    return relation.store.is_local and stays_cached(relation.size_bytes)
