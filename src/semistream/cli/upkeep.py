"""``semistream info``, ``verify`` and ``prune``: look after a relation.

Exit codes: 0 if all is well, 1 if ``verify`` finds damage, 2 if the command could not run.
"""

import json
from dataclasses import asdict
from time import monotonic

from semistream.cli.progress import Progress
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
