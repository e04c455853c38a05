"""A snapshot in the making, and how it becomes the current one.

The new snapshot becomes current by one atomic replacement of ``CURRENT``, as the last step. Before
that, all its files and the folders that hold their names are durable. A build that fails before
that step removes its files. From that step on no file is removed, even after an error: the
snapshot may be the current one.

A snapshot that was made from another one, by a refresh, an upsert or a compaction, replaces just
that one: if another writer was faster, the switch is refused (`WriteConflictError`). Writers look
at ``CURRENT`` and replace it one after the other (`semistream.relation.leases.turn`).
"""

import logging
import os
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType

import pyarrow as pa

from semistream.columns import plain_schema
from semistream.errors import (
    BuildError,
    ColumnError,
    CommitError,
    RelationFormatError,
    WriteConflictError,
    did_you_mean,
)
from semistream.keys import KeyCoder
from semistream.relation import leases
from semistream.relation.failures import check_is_seen, remedy, said
from semistream.relation.info import format_snapshots, list_snapshots
from semistream.relation.layout import (
    CURRENT,
    MANIFEST,
    Manifest,
    Order,
    Origin,
    PartitionInfo,
    new_snapshot_name,
    snapshot_path,
)
from semistream.relation.prune import remove_leftovers
from semistream.relation.relation import Relation
from semistream.relation.snapshots import current_or_none, read_current
from semistream.relation.storage import Store
from semistream.relation.validity import Validity

_LOG = logging.getLogger(__name__)


@dataclass
class Draft:
    """A snapshot in the making. Leaving the ``with`` block by an error removes its files."""

    location: str  # a path or a URI
    store: Store  # the files at `location`
    manifest: Manifest  # of the new snapshot; without partitions until `publish`
    replaces: str | None = None  # the snapshot that must be current; None: any, or none
    # The build lease, inside the ``with`` block; none in the tasks of a Spark build.
    _hold: leases.Hold | None = field(default=None, init=False)
    # Whether the switch to this snapshot was begun; then its files are not removed any more.
    _may_be_current: bool = field(default=False, init=False)

    @classmethod
    def start(
        cls,
        location: str | os.PathLike[str],
        schema: pa.Schema,
        key: tuple[str, ...],
        page_bytes: int,
        order: Order = "key",
        validity: Validity | None = None,
    ) -> "Draft":
        """Check the schema and the key, and choose the id of the new snapshot."""
        check_columns(schema, key)
        if validity is not None:
            validity.check(plain_schema(schema))
        now = datetime.now(UTC)
        manifest = Manifest(
            snapshot=new_snapshot_name(now),
            created_at=now.isoformat(),
            schema=plain_schema(schema),
            key=key,
            page_bytes=page_bytes,
            null_keys_dropped=0,
            partitions=(),
            order=order,
            validity=validity,
        )
        store = Store.at(location)
        if store.is_local and Path(store.root).is_file():
            raise BuildError(
                f"{os.fspath(location)!r} is a file, but a relation is a folder; name another place"
            )
        return cls(store.root if store.is_local else os.fspath(location), store, manifest)

    @classmethod
    def derive(cls, location: str, base: Manifest, origin: Origin) -> "Draft":
        """Return the draft of a snapshot that shares files with another, and replaces it."""
        now = datetime.now(UTC)
        new = replace(
            base,
            snapshot=new_snapshot_name(now),
            created_at=now.isoformat(),
            partitions=(),
            origin=origin,
        )
        return cls(location, Store.at(location), new, replaces=origin.parent)

    @classmethod
    def resume(cls, location: str, manifest: Manifest) -> "Draft":
        """Return a draft that another process started and will publish."""
        store = Store.at(location)
        check_is_seen(store, snapshot_path(manifest.snapshot))
        return cls(location, store, manifest)

    @property
    def _folder(self) -> str:
        return snapshot_path(self.manifest.snapshot)

    def publish(
        self, partitions: Sequence[PartitionInfo], null_keys: int, origin: Origin | None = None
    ) -> Relation:
        """Write the manifest, make the snapshot current, and open it."""
        manifest = replace(
            self.manifest,
            partitions=tuple(partitions),
            null_keys_dropped=null_keys,
            origin=origin or self.manifest.origin,
            published_at=datetime.now(UTC).isoformat(),
        )
        name = snapshot_path(manifest.snapshot, MANIFEST)
        text = manifest.to_json().encode()
        self.store.replace(name, text)
        self.store.sync_folder("")  # so that CURRENT is not there before the folder of snapshots
        self._check_is_whole(manifest)
        before = current_or_none(self.store) if _LOG.isEnabledFor(logging.INFO) else None
        with leases.turn(self.store):
            self._check_is_current()
            self._switch()
        if before is not None:
            self._log_replaced(before)
        return Relation(self.location, Manifest.from_json(text, self.store.path(name)))

    def __enter__(self) -> "Draft":
        """Write the lease and make the folder, so that a prune sees that a build is running.

        What builds that were killed have left is removed first.
        """
        try:
            self._hold = leases.hold_for_building(self.store, self.manifest.snapshot)
            self._remove_leftovers(self._hold.lease)
            self.store.make_folder(self._folder)
        except BaseException as error:
            self.__exit__(type(error), error, None)
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        _: TracebackType | None,
    ) -> None:
        """Remove the files if the build failed, and explain errors of the disk."""
        done = ""
        try:
            if kind is not None and not self._may_be_current:
                done = self._remove()
        finally:
            self._release()
        if isinstance(error, OSError):
            raise self._explained(error, done) from error

    def _remove_leftovers(self, lease: leases.Lease) -> None:
        try:
            removed = remove_leftovers(lease)
        except (OSError, RelationFormatError) as error:  # this build needs none of them
            _LOG.warning(
                "%s: what an earlier build left could not be removed: %s", self.location, error
            )
            return
        if removed:
            _LOG.info("%s: removed what killed builds left: %s", self.location, ", ".join(removed))

    def _explained(self, error: OSError, done: str) -> BuildError:
        if self._may_be_current:
            message, took_effect = self._outcome()
            return CommitError(
                f"the relation at {self.location!r} was built as snapshot "
                f"{self.manifest.snapshot}, but a later step failed: {said(error)}; "
                f"{remedy(error)}. The switch to the new snapshot: {message}",
                took_effect,
            )
        return BuildError(
            f"the relation at {self.location!r} could not be built: {said(error)}. {done}, and an "
            f"earlier snapshot is unchanged. What to do: {remedy(error)}"
        )

    def _remove(self) -> str:
        """Remove the draft, and return a sentence about the outcome."""
        try:
            self.store.remove(self._folder)
        except NotADirectoryError:
            return "Nothing was written"
        except OSError as error:
            path = self.store.path(self._folder)
            return f"Its files are still in {path!r} ({error}); prune() will remove them"
        return "Its files have been removed"

    def _release(self) -> None:
        if self._hold is not None:
            self._hold.release()
        leases.drop_idle(self.store)

    def _log_replaced(self, before: str) -> None:
        try:
            old = [s for s in list_snapshots(self.store) if not s.is_current]
        except OSError as error:  # the build is done all the same
            _LOG.warning("%s: the snapshots could not be listed: %s", self.location, error)
            return
        _LOG.info(
            "%s: snapshot %s is current and replaces %s; %s still on disk: prune() removes those "
            "that are not in use",
            *(self.location, self.manifest.snapshot, before, format_snapshots(old)),
        )

    def _check_is_whole(self, manifest: Manifest) -> None:
        """Raise if files are missing: pruned meanwhile, or written where this process sees none."""
        if self._hold is not None:
            self._hold.lease.write()
            self._hold.lease.wait_for_prune()
        names = set(self.store.names(self._folder))
        own = {file for home, file in manifest.all_files() if home == manifest.snapshot}
        missing = sorted(own - names)
        if missing:
            raise BuildError(
                f"the relation at {self.location!r} could not be built: {len(missing)} of its "
                f"files are not in {self.store.path(self._folder)!r}, such as {missing[0]}. Either "
                "the build was suspended until prune() removed them as abandoned, or the executors "
                "write to another place than this process sees; build again, to a path that is the "
                "same everywhere"
            )

    def _check_is_current(self) -> None:
        """Raise if the snapshot that this one was made from is not current any more."""
        if self.replaces is None:
            return
        current = current_or_none(self.store)
        if current != self.replaces:
            raise WriteConflictError(
                f"another writer was faster: snapshot {current} of {self.location!r} has replaced "
                f"{self.replaces}, from which this {self.manifest.origin.operation} began. Nothing "
                f"was changed; run it again, and it begins from {current}"
            )

    def _switch(self) -> None:
        """Make the snapshot the current one; if that fails, say whether it took effect."""
        self._may_be_current = True
        try:
            self.store.replace(CURRENT, self.manifest.snapshot.encode())
        except Exception as error:
            message, took_effect = self._outcome()
            raise CommitError(
                f"the switch of {self.location!r} to its new snapshot {self.manifest.snapshot} "
                f"failed: {error}. {message}",
                took_effect,
            ) from error
        except BaseException as error:
            error.add_note(f"{self.location}: {self._outcome()[0]}")
            raise

    def _outcome(self) -> tuple[str, bool | None]:
        """Say which snapshot is current after a switch that failed."""
        try:
            current = read_current(self.store)
        except FileNotFoundError:
            current = "none"
        except OSError as error:
            return (
                f"{CURRENT} could not be read either ({error}), so it is not known which snapshot "
                "is current. Both are kept; open the relation later to see",
                None,
            )
        if current == self.manifest.snapshot:
            return (
                "It took effect: the new snapshot is current and complete. If the switch itself "
                "reported the failure, it may not survive a loss of power; then build again",
                True,
            )
        return (
            f"It did not take effect: the current snapshot is {current}. The new one is complete "
            "and is kept until prune() removes it; build again once the cause is gone",
            False,
        )


def check_columns(schema: pa.Schema, key: tuple[str, ...]) -> None:
    """Raise unless the key columns exist, can be joined on, and all names are distinct."""
    if not key:
        raise ColumnError("a relation needs at least one key column; got none")
    duplicates = sorted({n for n in schema.names if schema.names.count(n) > 1})
    if duplicates:
        raise ColumnError(f"the source has several columns named {duplicates}; rename them")
    for name in key:
        if name not in schema.names:
            raise ColumnError(
                f"key column {name!r} is not in the source, which has "
                f"{', '.join(schema.names)}.{did_you_mean(name, schema.names)}"
            )
    KeyCoder.for_columns([schema.field(k).type for k in key], key)
