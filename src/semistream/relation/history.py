"""The snapshots of a relation over time: when each was published, from what, what it changed."""

from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any

from semistream.errors import CorruptRelationError, OptionError, RelationNotFoundError
from semistream.relation.layout import Origin
from semistream.relation.snapshots import current_or_none, read_manifests
from semistream.relation.storage import Store


@dataclass(frozen=True, slots=True)
class Recorded:
    """One snapshot in the history of a relation."""

    snapshot: str  # its id
    published_at: str  # when it was complete, ISO 8601
    is_current: bool
    row_count: int
    delta_rows: int  # of them and of dead rows, on delta pages
    origin: Origin

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain values."""
        return asdict(self)


def read_history(store: Store) -> list[Recorded]:
    """Return all snapshots that are kept, oldest first."""
    current = current_or_none(store)
    return [
        Recorded(
            manifest.snapshot,
            manifest.published_at or manifest.created_at,
            manifest.snapshot == current,
            sum(p.live_rows for p in manifest.partitions),
            sum(p.delta_rows for p in manifest.partitions),
            manifest.origin,
        )
        for manifest in read_manifests(store)
    ]


def snapshot_as_of(store: Store, where: str, snapshot: str | None, as_of: str | datetime) -> str:
    """Return the id of the snapshot that was current at a time."""
    if snapshot is not None:
        raise OptionError("give either snapshot=… or as_of=…, not both")
    when = _time(as_of)
    try:
        known = read_history(store)
    except CorruptRelationError as error:
        raise CorruptRelationError(f"{error}. Or open a snapshot by its id: snapshot=…") from error
    before = [s for s in known if _time(s.published_at) <= when]
    if not before:
        oldest = f"; the oldest that is kept is from {known[0].published_at}" if known else ""
        raise RelationNotFoundError(
            f"{where!r} has no snapshot that was current at {when.isoformat()}{oldest}. Choose a "
            "later time, or build the relation"
        )
    return max(before, key=lambda s: _time(s.published_at)).snapshot


def _time(value: str | datetime) -> datetime:
    try:
        when = value if isinstance(value, datetime) else datetime.fromisoformat(value)
    except ValueError as error:
        raise OptionError(
            f"as_of must be a time such as '2026-11-16 08:00' or a datetime; got {value!r}"
        ) from error
    return when.astimezone(UTC)
