"""Every error that a user can see, one class per remedy.

Each message says what happened, where, what was needed, and what to do.
"""

from collections.abc import Iterable
from difflib import get_close_matches


class SemistreamError(Exception):
    """Base of all errors that Semistream raises on purpose."""


class BudgetError(SemistreamError):
    """The memory budget is too small. Remedy: raise ``memory`` to what the message says.

    `least_bytes` is the least budget that is sufficient, if it is known; the message then ends with
    the advice to raise ``memory`` to it, and with the alternatives.

    >>> raise BudgetError("meshjoin cannot run in 1.0 KB.", 5_000, " or more")
    Traceback (most recent call last):
        ...
    semistream.errors.BudgetError: meshjoin cannot run in 1.0 KB. Raise memory to 5000 bytes or more
    """

    def __init__(
        self,
        problem: str,
        least_bytes: int | None = None,
        otherwise: str = "",
        argument: str = "memory",
    ) -> None:
        """Describe the problem and, if it is known, the least sufficient budget.

        `argument` is what the budget was given by.
        """
        raised = f" Raise {argument} to {least_bytes} bytes{otherwise}"
        advice = "" if least_bytes is None else raised
        super().__init__(problem + advice)
        self.problem = problem
        self.least_bytes = least_bytes
        self.otherwise = otherwise

    def for_all_tasks(
        self, count: int, instead: str = ", or build the relation with fewer partitions"
    ) -> "BudgetError":
        """Return the error of a whole join whose memory is shared equally by `count` tasks.

        Each task needs buffers of its own, so fewer tasks need less in total: `instead` says how.
        """
        if count == 1:
            return self
        problem = (
            f"each of the {count} tasks that run at once gets an equal share of memory; in one, "
            f"{self.problem}"
        )
        whole = None if self.least_bytes is None else self.least_bytes * count
        total = f", the total for all {count} tasks"
        return BudgetError(problem, whole, f"{total}{self.otherwise}{instead}")


class ColumnError(SemistreamError):
    """A column is missing, ambiguous or clashes. Remedy: name the columns differently."""


class KeyTypeError(SemistreamError):
    """A key column has a type that cannot be joined on. Remedy: cast it."""


class OptionError(SemistreamError):
    """An argument has a value that does not exist. Remedy: use one of the listed values."""


class RelationNotFoundError(SemistreamError):
    """The path holds no relation. Remedy: build one there, or correct the path."""


class SnapshotPrunedError(RelationNotFoundError):
    """A snapshot was pruned while it was in use. Remedy: open the relation again and start over."""


class RelationFormatError(SemistreamError):
    """The relation was written in a format this version cannot read. Remedy: upgrade or rebuild."""


class CorruptRelationError(SemistreamError):
    """Stored bytes differ from those written. Remedy: rebuild the snapshot that is named."""


class StorageError(SemistreamError):
    """The device or the operating system refused to read or write. Remedy: as the message says."""


class BuildError(SemistreamError):
    """A relation could not be built; the earlier snapshot, if any, is untouched."""


class CommitError(BuildError):
    """A snapshot was written, but the switch to it failed. Remedy: see `took_effect`.

    True: the new snapshot is current; there is nothing to do. False: the earlier one is; build
    again. None: CURRENT could not be read either; open the relation later to see. The files of
    both snapshots are kept.
    """

    def __init__(self, message: str, took_effect: bool | None) -> None:
        """Describe the failure, and whether the new snapshot is current if that is known."""
        super().__init__(message)
        self.took_effect = took_effect


class WriteConflictError(BuildError):
    """Another writer changed the relation meanwhile. Remedy: run it again; nothing was lost."""


class StaleRelationError(SemistreamError):
    """The relation is older than ``max_staleness``. Remedy: refresh it, or allow a greater age."""


class DatabaseError(SemistreamError):
    """A database refused, failed, or has no fitting index. Remedy: as the message says."""


class TableChangedError(DatabaseError):
    """A table has grown beyond what was counted when it was opened. Remedy: open it again."""


class PipelineError(SemistreamError):
    """A pipeline is not well described. Remedy: correct the lines that the message names."""


class DeadLetterError(SemistreamError):
    """Too many rows cannot be parsed or joined. Remedy: look at them, or raise the limit."""


class MissingPackageError(SemistreamError, ImportError):
    """A package is not installed. Remedy: install the extra that the message names."""


class WorkerError(SemistreamError):
    """Spark's Python workers cannot run semistream. Remedy: set their Python, or install it."""


class RoutingError(SemistreamError):
    """A task received rows of another partition. Remedy: let ``enrich`` do the partitioning."""


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return `` Did you mean 'x'?`` for the nearest known name, else an empty string.

    >>> did_you_mean("prodct_id", ["product_id", "price"])
    " Did you mean 'product_id'?"
    """
    candidates = {k.lower(): k for k in known}
    near = get_close_matches(name.lower(), candidates, n=1)
    return f" Did you mean {candidates[near[0]]!r}?" if near else ""
