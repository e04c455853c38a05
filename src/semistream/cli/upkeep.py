"""``semistream info``, ``verify``, ``history``, ``compact`` and ``prune``: look after a relation.

Exit codes: 0 if all is well, 1 if ``verify`` finds damage, 2 if the command could not run.
"""

import json
from dataclasses import asdict
from time import monotonic

from semistream import api
from semistream.cli.progress import Progress
from semistream.relation.history import Recorded
from semistream.relation.relation import Relation
from semistream.units import format_bytes

DAMAGED = 1
_SHOWN = 20  # problems that are printed; --json has all


def run_info(location: str, snapshot: str | None, as_json: bool) -> int:
    """Print what a relation consists of."""
    info = Relation.open(location, snapshot).info()
    print(json.dumps(info.to_dict(), indent=1) if as_json else info)
    return 0


def run_verify(location: str, snapshot: str | None, as_json: bool) -> int:
    """Read all of a snapshot, and print what is wrong with it."""
    relation = Relation.open(location, snapshot)
    began = monotonic()
    with Progress(f"verifying {relation.location}", format_bytes) as progress:
        result = relation.verify(progress.update)
    seconds = monotonic() - began
    problems = result.problems
    if as_json:
        body = asdict(result) | {"is_intact": bool(result), "seconds": round(seconds, 3)}
        print(json.dumps(body, indent=1))
    elif result:
        print(
            f"snapshot {result.snapshot} is intact: {result.row_count:,} rows on "
            f"{result.page_count:,} pages, {format_bytes(result.size_bytes)} in {seconds:.1f} s"
        )
    else:
        print(f"snapshot {result.snapshot} is damaged, in {len(problems):,} places:")
        print("\n".join(f"  {problem}" for problem in problems[:_SHOWN]))
        if len(problems) > _SHOWN:
            print(f"  and {len(problems) - _SHOWN:,} more; --json prints all")
        print("Build the relation again; or, if an older snapshot is intact, use that meanwhile:")
        print(f"  semistream info {relation.location}")
    return 0 if result else DAMAGED


def run_prune(location: str, keep: int, grace_s: float, as_json: bool) -> int:
    """Remove old snapshots, and print which."""
    relation = Relation.open(location)
    pruned = relation.prune(keep, grace=grace_s)
    if as_json:
        print(json.dumps(asdict(pruned), indent=1))
        return 0
    for snapshot in pruned.removed:
        print(f"removed {snapshot}")
    for snapshot, reason in pruned.kept.items():
        print(f"kept    {snapshot}: {reason}")
    print(
        f"{len(pruned.removed)} removed, {format_bytes(pruned.freed_bytes)} freed; "
        f"{len(relation.snapshots())} left, the current one included"
    )
    if pruned.kept:
        print("Run it again when they are not needed any more; --grace sets the grace period.")
    return 0


def run_compact(location: str, as_json: bool) -> int:
    """Fold delta pages in, and print what was done."""
    before = api.Relation.open(location)
    began = monotonic()
    with Progress(f"compacting {before.location}", "{:.0f}".format, "partitions") as progress:
        after = before.compact(progress=progress.update)
    seconds = monotonic() - began
    if as_json:
        body = {
            "snapshot": after.snapshot,
            "replaced": before.snapshot if after.snapshot != before.snapshot else None,
            "row_count": after.row_count,
            "size_bytes_before": before.size_bytes,
            "size_bytes": after.size_bytes,
            "seconds": round(seconds, 3),
        }
        print(json.dumps(body, indent=1))
    elif after.snapshot == before.snapshot:
        print(f"snapshot {after.snapshot} has no delta pages; nothing to do")
    else:
        sizes = f"{format_bytes(before.size_bytes)} before, {format_bytes(after.size_bytes)} now"
        print(f"snapshot {after.snapshot}: {after.row_count:,} rows, {sizes}, in {seconds:.1f} s")
        print(f"The old one stays until it is pruned: semistream prune {after.location}")
    return 0


def run_history(location: str, as_json: bool) -> int:
    """Print the snapshots that are kept."""
    history = Relation.open(location).history()
    if as_json:
        print(json.dumps([snapshot.to_dict() for snapshot in history], indent=1))
    else:
        print("\n".join(_recorded(snapshot) for snapshot in history))
    return 0


def _recorded(snapshot: Recorded) -> str:
    origin = snapshot.origin
    marks = f"{'  (current)' if snapshot.is_current else ''}"
    source = f" from {origin.source}" if origin.source else ""
    parts = (("added", origin.rows_added), ("changed", origin.rows_changed))
    counts = [f"{n:,} {what}" for what, n in (*parts, ("deleted", origin.rows_deleted)) if n]
    changes = f" ({', '.join(counts)})" if counts else ""
    return (
        f"{snapshot.published_at[:19]}  {snapshot.snapshot}  {origin.operation}{source}: "
        f"{snapshot.row_count:,} rows{changes}{marks}"
    )
