"""What a relation consists of: schema, key, sizes, how evenly its rows are spread, snapshots.

Everything is read; nothing is written. Sizes of snapshots are those of all their files.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any

import numpy as np
from numpy.typing import NDArray

from semistream.relation.layout import (
    MANIFEST,
    SNAPSHOTS,
    Manifest,
    is_snapshot_name,
    snapshot_path,
)
from semistream.relation.leases import readers_of
from semistream.relation.reader import PageReader
from semistream.relation.snapshots import current_or_none, shared_files
from semistream.relation.storage import Store
from semistream.units import format_bytes

_NAME_TIME = "%Y%m%dT%H%M%S%f"


@dataclass(frozen=True, slots=True)
class Spread:
    """How evenly something is spread: over the pages of a relation, or over its partitions."""

    least: int
    mean: float
    most: int

    @classmethod
    def of(cls, values: Sequence[int] | NDArray[np.int64]) -> "Spread":
        """Describe some values; all are 0 if there are none."""
        if not len(values):
            return cls(0, 0.0, 0)
        return cls(int(min(values)), float(np.mean(values)), int(max(values)))

    @property
    def skew(self) -> float:
        """The greatest value by the mean: 1 if all are equal.

        >>> Spread.of([10, 10, 40]).skew
        2.0
        """
        return self.most / self.mean if self.mean else 1.0


@dataclass(frozen=True, slots=True)
class SnapshotInfo:
    """One snapshot that takes space, complete or not."""

    snapshot: str  # its id
    created_at: str  # when its build began, ISO 8601
    age_s: float
    size_bytes: int  # of all its files
    is_current: bool
    is_complete: bool  # False while it is built, and for what a build that died has left
    shared_bytes: int  # of its files, those of which other snapshots consist as well
    readers: tuple[str, ...]  # processes that read it now


@dataclass(frozen=True, slots=True)
class RelationInfo:
    """What a relation consists of. ``print`` shows it; `to_dict` is for programs."""

    location: str
    snapshot: str  # the one that is open
    format_version: int
    key: tuple[str, ...]
    columns: dict[str, str]  # name → Arrow type
    row_count: int
    null_keys_dropped: int  # rows of the source without a key, which are not stored
    most_duplicates: int  # rows of the key that has most
    size_bytes: int  # of the rows, without page tables
    delta_rows: int  # rows on delta pages, dead ones among them
    dead_rows: int  # rows that were replaced or deleted, and stay until `compact`
    order: str
    partition_count: int
    page_count: int
    delta_page_count: int
    hot_page_count: int
    page_limit_bytes: int  # the most bytes of a page, unless a single row is larger
    partition_rows: Spread
    page_rows: Spread
    page_bytes: Spread
    snapshots: tuple[SnapshotInfo, ...]  # oldest first

    @property
    def old_snapshots(self) -> list[SnapshotInfo]:
        """The snapshots that are not the current one."""
        return [snapshot for snapshot in self.snapshots if not snapshot.is_current]

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain values, with the skews."""
        body = asdict(self)
        for name in ("partition_rows", "page_rows", "page_bytes"):
            body[name]["skew"] = round(getattr(self, name).skew, 3)
        return body

    def __str__(self) -> str:
        """Return the text that ``semistream info`` prints."""
        return "\n".join(_lines(self))


def describe(location: str, store: Store, manifest: Manifest) -> RelationInfo:
    """Read what there is to know about a relation and its open snapshot."""
    rows, sizes = _pages(store, manifest)
    partitions, segments = manifest.partitions, manifest.segments
    return RelationInfo(
        location=location,
        snapshot=manifest.snapshot,
        format_version=manifest.format_version,
        key=manifest.key,
        columns={field.name: str(field.type) for field in manifest.schema},
        row_count=sum(p.live_rows for p in partitions),
        null_keys_dropped=manifest.null_keys_dropped,
        most_duplicates=max((s.most_duplicates for s in segments), default=0),
        size_bytes=sum(s.size_bytes for s in segments),
        delta_rows=sum(p.delta_rows for p in partitions),
        dead_rows=sum(p.stored_rows - p.live_rows for p in partitions),
        order=manifest.order,
        partition_count=len(partitions),
        page_count=sum(s.page_count for s in segments),
        delta_page_count=sum(s.page_count for p in partitions for s in p.segments[1:]),
        hot_page_count=sum(p.hot_pages for p in partitions),
        page_limit_bytes=manifest.page_bytes,
        partition_rows=Spread.of([p.live_rows for p in partitions]),
        page_rows=rows,
        page_bytes=sizes,
        snapshots=tuple(list_snapshots(store)),
    )


def list_snapshots(store: Store) -> list[SnapshotInfo]:
    """Return all snapshots that take space, oldest first; those of unfinished builds as well."""
    now = datetime.now(UTC)
    current = current_or_none(store)
    shared = shared_files(store)
    found = []
    for name in store.names(SNAPSHOTS):
        if is_snapshot_name(name):
            began = datetime.strptime(name.partition("-")[0], _NAME_TIME).replace(tzinfo=UTC)
            files = store.entries(snapshot_path(name))
            found.append(
                SnapshotInfo(
                    snapshot=name,
                    created_at=began.isoformat(timespec="seconds"),
                    age_s=round((now - began).total_seconds(), 1),
                    size_bytes=sum(file.size_bytes for file in files),
                    is_current=name == current,
                    is_complete=any(file.name == MANIFEST for file in files),
                    shared_bytes=sum(f.size_bytes for f in files if f.name in shared.get(name, ())),
                    readers=readers_of(store, name),
                )
            )
    return found


def _pages(store: Store, manifest: Manifest) -> tuple[Spread, Spread]:
    """Return how many rows and bytes the pages have; one partition's page table at a time."""
    rows: list[Spread] = []
    sizes: list[Spread] = []
    counts: list[int] = []
    for info in manifest.partitions:
        if info.row_count:
            reader = PageReader(store, manifest, [info.index], manifest.schema.names)
            rows.append(Spread.of(np.diff(reader.row_bounds)))
            sizes.append(Spread.of(reader.page_sizes()))
            counts.append(reader.page_count)
            reader.close()
    return _joined(rows, counts), _joined(sizes, counts)


def _joined(spreads: list[Spread], counts: list[int]) -> Spread:
    if not spreads:
        return Spread.of([])
    means = [spread.mean for spread in spreads]
    return Spread(
        min(spread.least for spread in spreads),
        float(np.average(means, weights=counts)),
        max(spread.most for spread in spreads),
    )


def format_age(seconds: float) -> str:
    """Return an age for people, in one unit.

    >>> format_age(42), format_age(5_400), format_age(200_000)
    ('42 seconds', '90 minutes', '2 days')
    """
    for unit, factor, least in (("days", 86_400, 2), ("hours", 3_600, 2), ("minutes", 60, 2)):
        if seconds >= factor * least:
            return f"{seconds / factor:.0f} {unit}"
    return f"{max(0.0, seconds):.0f} seconds"


def format_snapshots(snapshots: Sequence[SnapshotInfo]) -> str:
    """Return how many snapshots there are and what they take."""
    count = len(snapshots)
    size = format_bytes(sum(snapshot.size_bytes for snapshot in snapshots))
    return f"{count} old snapshot{'s' if count != 1 else ''} ({size})"


def _lines(info: RelationInfo) -> list[str]:
    hot = f", {info.hot_page_count:,} of them hot" if info.hot_page_count else ""
    most = info.most_duplicates
    duplicates = f"at most {most:,} rows of one key" if most > 1 else "unique"
    width = max(map(len, info.columns))
    columns = [
        f"  {name:{width}}  {kind}{'  (key)' if name in info.key else ''}"
        for name, kind in info.columns.items()
    ]
    pages, sizes, partitions = info.page_rows, info.page_bytes, info.partition_rows
    return [
        info.location,
        f"snapshot    {info.snapshot}, format {info.format_version}, order by {info.order}",
        f"key         {', '.join(info.key)} ({duplicates})",
        f"rows        {info.row_count:,}; {info.null_keys_dropped:,} without a key were left out",
        f"size        {format_bytes(info.size_bytes)}",
        *_delta_lines(info),
        f"partitions  {info.partition_count}, of {partitions.least:,} to {partitions.most:,} rows; "
        f"the largest has {partitions.skew:.2f} × the mean",
        f"pages       {info.page_count:,}{hot}, of {pages.least:,} to {pages.most:,} rows; the "
        f"largest, {format_bytes(sizes.most)}, has {sizes.skew:.2f} × the mean size",
        "columns",
        *columns,
        "snapshots",
        *(f"  {_snapshot_line(snapshot)}" for snapshot in info.snapshots),
        *_advice(info),
    ]


def _delta_lines(info: RelationInfo) -> list[str]:
    if not info.delta_rows and not info.dead_rows:
        return []
    return [
        f"deltas      {info.delta_rows:,} rows on {info.delta_page_count:,} delta pages, "
        f"{info.dead_rows:,} dead rows; semistream compact folds them in"
    ]


def _snapshot_line(snapshot: SnapshotInfo) -> str:
    size = format_bytes(snapshot.size_bytes)
    notes = [_state(snapshot)]
    if snapshot.shared_bytes:
        notes.append(f"{format_bytes(snapshot.shared_bytes)} shared with others")
    if snapshot.readers:
        notes.append(f"read by {', '.join(snapshot.readers)}")
    age = format_age(snapshot.age_s)
    return f"{snapshot.snapshot}  {size:>9}  {age:>10} ago  {', '.join(notes)}"


def _state(snapshot: SnapshotInfo) -> str:
    if snapshot.is_current:
        return "current"
    if snapshot.is_complete:
        return "old"
    return "pruned" if snapshot.shared_bytes else "unfinished"


def _advice(info: RelationInfo) -> list[str]:
    if not info.old_snapshots:
        return []
    return [
        f"{format_snapshots(info.old_snapshots)} can be removed, as far as not in use: "
        f"semistream prune {info.location}"
    ]
