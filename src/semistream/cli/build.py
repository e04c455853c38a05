"""``semistream build``: a relation from files, with progress, and what it replaces."""

import json
from time import monotonic
from typing import Any

from semistream.cli.progress import Progress
from semistream.errors import CorruptRelationError, RelationFormatError, RelationNotFoundError
from semistream.relation.build import BuildOptions, build_snapshot
from semistream.relation.info import RelationInfo, format_age, format_snapshots
from semistream.relation.relation import Relation
from semistream.relation.rowcount import expected_rows
from semistream.units import format_bytes


def run_build(source: str, location: str, options: BuildOptions, as_json: bool) -> int:
    """Build a relation, and print its size and what it replaces."""
    began = monotonic()
    before = _before(location)
    relation = _build(source, location, options)
    seconds = monotonic() - began
    info = relation.info()
    if as_json:
        print(json.dumps(_body(info, before, seconds), indent=1))
    else:
        print("\n".join(_lines(info, before, seconds)))
    return 0


def _build(source: str, location: str, options: BuildOptions) -> Relation:
    rows, is_exact = expected_rows(source)
    read = Progress(f"{location}: step 1 of 2, reading", _count, "rows")
    write = Progress(f"{location}: step 2 of 2, writing", _count, "rows")
    seen = 0

    def reading(done: int) -> None:
        nonlocal seen
        seen = done
        read.update(done, rows, is_estimate=not is_exact)

    with read, write:
        return build_snapshot(
            source, location, options, reading, lambda done: write.update(done, seen)
        )


def _count(count: float) -> str:
    return f"{count:,.0f}"


def _before(location: str) -> Relation | None:
    """Return what the build will replace; None if there is nothing that can be opened."""
    try:
        return Relation.open(location)
    except (RelationNotFoundError, CorruptRelationError, RelationFormatError):
        return None


def _lines(info: RelationInfo, before: Relation | None, seconds: float) -> list[str]:
    hot = f", {info.hot_page_count:,} of them hot" if info.order == "frequency" else ""
    kept = before is not None and before.partition_count == info.partition_count
    lines = [
        f"{info.location}: {info.row_count:,} rows, {format_bytes(info.size_bytes)} in "
        f"{info.partition_count} partitions{' (as before)' if kept else ''} and "
        f"{info.page_count:,} pages{hot}; built in {seconds:.1f} s",
        f"key {', '.join(info.key)}{'' if info.most_duplicates <= 1 else ' (with duplicates)'}; "
        f"{info.null_keys_dropped:,} rows without a key left out",
        f"snapshot {info.snapshot} is current",
    ]
    if before is not None:
        ages = {s.snapshot: f"{format_age(s.age_s)} old, " for s in info.snapshots}
        lines.append(
            f"it replaces snapshot {before.snapshot} ({ages.get(before.snapshot, '')}"
            f"{before.row_count:,} rows, {format_bytes(before.size_bytes)} in "
            f"{before.partition_count} partitions)"
        )
    if info.old_snapshots:
        lines.append(
            f"{format_snapshots(info.old_snapshots)} still on disk; to remove what is not in use: "
            f"semistream prune {info.location}"
        )
    return lines


def _body(info: RelationInfo, before: Relation | None, seconds: float) -> dict[str, Any]:
    """Return what ``build --json`` prints: what ``info --json`` does, and about the build."""
    replaced = None if before is None else _replaced(before)
    old_bytes = sum(snapshot.size_bytes for snapshot in info.old_snapshots)
    return info.to_dict() | {
        "seconds": round(seconds, 3),
        "replaced": replaced,
        "old_snapshots_bytes": old_bytes,
    }


def _replaced(before: Relation) -> dict[str, Any]:
    return {
        "snapshot": before.snapshot,
        "row_count": before.row_count,
        "size_bytes": before.size_bytes,
        "partition_count": before.partition_count,
    }
