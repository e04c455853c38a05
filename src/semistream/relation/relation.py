"""A relation: the master table R, prepared once and opened by every join."""

import os
import socket
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import cached_property
from pathlib import Path
from typing import Self

import pyarrow as pa

from semistream.errors import CorruptRelationError, RelationNotFoundError
from semistream.keys import KeyCoder
from semistream.relation.device import Reading
from semistream.relation.failures import explained
from semistream.relation.history import Recorded, read_history, snapshot_as_of
from semistream.relation.info import RelationInfo, describe
from semistream.relation.layout import (
    CURRENT,
    MANIFEST,
    SNAPSHOTS,
    Manifest,
    Order,
    is_snapshot_name,
    snapshot_path,
)
from semistream.relation.leases import Hold, hold_for_reading
from semistream.relation.pagetable import page_table_bound
from semistream.relation.prune import GRACE_S, Pruned, prune
from semistream.relation.reader import PageReader
from semistream.relation.snapshots import published, read_current
from semistream.relation.storage import Store
from semistream.relation.verify import Progress, Verification, verify
from semistream.units import format_bytes


@dataclass(frozen=True)
class Relation:
    """One snapshot of a relation. Cheap to open, safe to pickle: it holds only the manifest.

    `semistream.Relation` is this class with `explain`, which needs the layers above.
    """

    location: str  # a path or a URI, as given to `open`
    manifest: Manifest  # what the snapshot consists of
    reading: Reading = field(default_factory=Reading)  # how pages are read
    # Whether it was opened at a named snapshot, which streaming queries then keep to.
    is_fixed: bool = field(default=False, compare=False)

    @classmethod
    def open(
        cls,
        location: str | os.PathLike[str],
        snapshot: str | None = None,
        *,
        as_of: str | datetime | None = None,
    ) -> Self:
        """Open the current snapshot of the relation at a path or URI, or an old one.

        An old one is named by its id (`snapshot`), or by a time at which it was current (`as_of`):
        a datetime, or a text such as ``"2026-11-16 08:00"``, in the local time zone unless it says
        another.
        """
        store = Store.at(location)
        where = store.root if store.is_local else os.fspath(location)
        with explained(f"opening the relation {where!r}"):
            if as_of is not None:
                snapshot = snapshot_as_of(store, where, snapshot, as_of)
            name = snapshot_path(_snapshot_to_open(store, where, snapshot), MANIFEST)
            try:
                text = store.read(name)
            except FileNotFoundError as error:
                raise _no_snapshot(store, where, name.split("/")[1]) from error
        manifest = Manifest.from_json(text, store.path(name))
        if snapshot_path(manifest.snapshot, MANIFEST) != name:
            raise CorruptRelationError(
                f"{store.path(name)} is the manifest of another snapshot, "
                f"{manifest.snapshot!r}; rebuild it"
            )
        return cls(where, manifest, is_fixed=snapshot is not None)

    @property
    def schema(self) -> pa.Schema:
        """All columns of R, the key among them."""
        return self.manifest.schema

    @property
    def key(self) -> tuple[str, ...]:
        """The names of the key columns."""
        return self.manifest.key

    @property
    def order(self) -> Order:
        """The order of the rows: by ``key``, or by ``frequency`` with the hot pages first."""
        return self.manifest.order

    @property
    def snapshot(self) -> str:
        """The id of the snapshot that is open."""
        return self.manifest.snapshot

    @property
    def published_at(self) -> datetime:
        """When the snapshot was complete; of old relations, when its build began."""
        return datetime.fromisoformat(self.manifest.published_at or self.manifest.created_at)

    @property
    def age(self) -> timedelta:
        """The time since the snapshot was published."""
        return datetime.now(UTC) - self.published_at

    @property
    def partition_count(self) -> int:
        """P: the number of hash partitions of R."""
        return len(self.manifest.partitions)

    @property
    def row_count(self) -> int:
        """The number of rows of R; rows without a key are not stored and not counted."""
        return sum(p.live_rows for p in self.manifest.partitions)

    @property
    def page_count(self) -> int:
        """The number of pages of R, delta pages among them."""
        return sum(s.page_count for s in self.manifest.segments)

    @property
    def delta_share(self) -> float:
        """The rows on delta pages, as a share of all rows that are stored; 0 after `compact`."""
        stored = sum(p.stored_rows for p in self.manifest.partitions)
        return sum(p.delta_rows for p in self.manifest.partitions) / max(1, stored)

    @property
    def hot_page_count(self) -> int:
        """The number of hot pages; 0 unless R is ordered by frequency."""
        return sum(p.hot_pages for p in self.manifest.partitions)

    @property
    def size_bytes(self) -> int:
        """Size of R on disk in bytes, without page tables and indexes; with dead rows."""
        return sum(s.size_bytes for s in self.manifest.segments)

    @property
    def has_unique_keys(self) -> bool:
        """Whether no two rows of R have the same key."""
        return all(s.most_duplicates <= 1 for s in self.manifest.segments)

    @cached_property
    def coder(self) -> KeyCoder:
        """Turns key columns, of R or of a stream, into key codes."""
        return self.manifest.coder

    @property
    def store(self) -> Store:
        """The files of the relation."""
        return Store.at(self.location)

    def reader(self, columns: list[str], partition: int | None = None) -> PageReader:
        """Return a reader of some columns, over one partition or over all."""
        partitions = range(self.partition_count) if partition is None else [partition]
        return PageReader(self.store, self.manifest, partitions, columns, self.reading)

    def page_table_bytes(self, columns: list[str], partition: int | None = None) -> int:
        """Return the most memory, in bytes, of a reader of these columns while it loads."""
        partitions = range(self.partition_count) if partition is None else [partition]
        return page_table_bound(self.store, self.manifest, partitions, columns)

    def hold(self) -> Hold:
        """Keep `prune` from removing this snapshot until the result is released or collected.

        Joins do so themselves while they read; call this if a join will read it later.
        """
        return hold_for_reading(self.store, self.snapshot)

    def read_by(self, reading: Reading) -> Self:
        """Return the same relation, read in another way: from an emulated disk, for example."""
        return replace(self, reading=reading)

    def snapshots(self) -> list[str]:
        """Return the ids of all snapshots that are kept, oldest first."""
        with explained(f"listing the snapshots of {self.location!r}"):
            return published(self.store)

    def history(self) -> list[Recorded]:
        """Return all snapshots that are kept, oldest first: when, from what, what changed."""
        with explained(f"reading the history of {self.location!r}"):
            return read_history(self.store)

    def info(self) -> RelationInfo:
        """Return schema, key, sizes, skew of pages and partitions, and all snapshots.

        ``print(relation.info())`` shows it; ``relation.info().to_dict()`` is for programs.
        """
        with explained(f"reading about the relation {self.location!r}"):
            return describe(self.location, self.store, self.manifest)

    def verify(self, progress: Progress | None = None) -> Verification:
        """Read all of the snapshot, and check every checksum and the order of the key codes.

        The result is true if nothing is wrong; else ``problems`` has a sentence for each place.
        `progress` is called with the bytes that were verified, and the bytes of all.
        """
        return verify(self.store, self.manifest, progress)

    def prune(self, keep: int = 1, *, grace: float | timedelta = GRACE_S) -> Pruned:
        """Delete all but the newest `keep` snapshots, as far as they are not in use.

        The current one always stays. So does one that a join in any process reads, and one that
        was current within the `grace` period (seconds, or a timedelta): a process may have opened
        it just before, or may read it without a lease because the relation is read-only for it.
        Files of builds that died are removed as well, after the same period; a build that is
        running is not disturbed. `semistream.relation.leases` has the details.

        The result lists the snapshots ``removed``, and those ``kept``, each with the reason, and
        has the ``freed_bytes``.
        """
        grace_s = grace.total_seconds() if isinstance(grace, timedelta) else float(grace)
        with explained(f"pruning the relation {self.location!r}"):
            return prune(self.store, keep, grace_s)

    def __repr__(self) -> str:
        """Describe the relation in one line."""
        return (
            f"<Relation {self.location!r}: {self.row_count:,} rows, "
            f"{format_bytes(self.size_bytes)}, key {', '.join(self.key)}, "
            f"{self.partition_count} partitions, {self.page_count:,} pages>"
        )


def _snapshot_to_open(store: Store, where: str, snapshot: str | None) -> str:
    """Return the name of a snapshot that a build can have made: the given one, or the current."""
    if snapshot is not None:
        if not is_snapshot_name(snapshot):
            raise _no_snapshot(store, where, snapshot)
        return snapshot
    try:
        current = read_current(store)
    except (FileNotFoundError, NotADirectoryError) as error:
        raise _no_relation(store, where) from error
    if not is_snapshot_name(current):
        raise CorruptRelationError(
            f"{store.path(CURRENT)} names {current!r}, which is not the name of a snapshot; write "
            f"one of these into it, or rebuild the relation: {_listed(store)}"
        )
    return current


def _no_relation(store: Store, where: str) -> RelationNotFoundError:
    advice = "Build one there with semistream.build_relation(source, path, key=…)"
    if store.is_local and not store.exists(""):
        return RelationNotFoundError(
            f"{where!r} is not a relation: there is no such folder on this machine "
            f"({socket.gethostname()}). If it is on another machine, use a path that both mount, "
            f"or an object store. {advice}"
        )
    if store.is_local and Path(store.root).is_file():
        return RelationNotFoundError(
            f"{where!r} is not a relation but a file. Build a relation from it first: "
            "semistream.build_relation(file, folder, key=…)"
        )
    return RelationNotFoundError(
        f"{where!r} is not a relation: it has no {CURRENT} file. If it has Parquet or CSV files, "
        "build a relation from it in another folder: semistream.build_relation(source, folder, "
        "key=…)"
    )


def _no_snapshot(store: Store, where: str, snapshot: str) -> RelationNotFoundError:
    return RelationNotFoundError(f"{where!r} has no snapshot {snapshot!r}; it has {_listed(store)}")


def _listed(store: Store) -> str:
    return ", ".join(store.names(SNAPSHOTS)) or "none"
