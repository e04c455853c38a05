"""Removing old snapshots and the files of dead builds, but nothing that is in use.

`semistream.relation.leases` describes the protocol between prunes, readers and builds. Files that
other snapshots share stay where they are when their own snapshot goes; without its manifest it
cannot be opened any more. They go with the last snapshot that shares them.
"""

from dataclasses import dataclass, field

from semistream.errors import OptionError
from semistream.relation import leases
from semistream.relation.layout import (
    CURRENT,
    MANIFEST,
    SNAPSHOTS,
    is_snapshot_name,
    snapshot_path,
)
from semistream.relation.leases import LEASE_S, LEASES, Lease
from semistream.relation.snapshots import current_or_none, read_current, shared_files
from semistream.relation.storage import Store

GRACE_S = 3600.0


@dataclass(frozen=True, slots=True)
class Pruned:
    """The result of a prune."""

    removed: list[str] = field(default_factory=list)  # ids of snapshots
    kept: dict[str, str] = field(default_factory=dict)  # surplus ones, each with the reason
    freed_bytes: int = 0  # of the files that were removed


def prune(store: Store, keep: int, grace_s: float) -> Pruned:
    """Remove all but the newest `keep` snapshots; see `Relation.prune`."""
    if keep < 1:
        raise OptionError(f"keep must be at least 1; got {keep}")
    if grace_s < 0:
        raise OptionError(f"grace must be at least 0 seconds; got {grace_s}")
    leases.drop_idle(store)
    inventory = _Inventory.of(store)
    removed: list[str] = []
    kept: dict[str, str] = {}
    freed_bytes = 0
    for snapshot in inventory.surplus(keep):
        before_bytes = _size_bytes(store, snapshot)
        since, what = inventory.unused_since(snapshot)
        age_s = inventory.now - since
        if age_s < grace_s:
            kept[snapshot] = f"{what} {age_s:.0f} s ago; the grace period is {grace_s:g} s"
        elif reason := _remove_unless_used(store, snapshot, inventory.now):
            kept[snapshot] = reason
        else:
            left_bytes = _size_bytes(store, snapshot)
            freed_bytes += before_bytes - left_bytes
            if snapshot in inventory.published or not left_bytes:
                removed.append(snapshot)
    _sweep(store, inventory.now, grace_s)
    return Pruned(sorted(removed), dict(sorted(kept.items())), freed_bytes)


def _size_bytes(store: Store, snapshot: str) -> int:
    return sum(entry.size_bytes for entry in store.entries(snapshot_path(snapshot)))


def remove_leftovers(lease: Lease) -> list[str]:
    """Remove what killed builds have left; return the ids of the snapshots that were removed.

    A build calls this with its own lease. Another build that is running has a lease as well, so
    these are left over: a draft without a live lease, and a snapshot newer than the current one
    whose build died before it could make it current. Old snapshots are left to `prune`.
    """
    store, now = lease.store, lease.written_at()
    current = current_or_none(store) or ""
    names = [name for name in store.names(SNAPSHOTS) if is_snapshot_name(name)]
    found = [
        name
        for name in names
        if name not in (current, lease.snapshot) and _is_left_over(store, name, current, now)
    ]
    removed = [
        name
        for name in found
        if not _remove_unless_used(store, name, now) and not store.exists(snapshot_path(name))
    ]
    _sweep(store, now, LEASE_S)
    return removed


def _is_left_over(store: Store, snapshot: str, current: str, now: float) -> bool:
    if not store.exists(snapshot_path(snapshot, MANIFEST)):
        return True
    return snapshot > current and leases.has_dead_build(store, snapshot, now)


@dataclass(frozen=True, slots=True)
class _Inventory:
    """The snapshots and drafts of a relation, with their times."""

    store: Store
    now: float  # by the clock of the store
    current: str  # the content of CURRENT
    switched_at: float  # when CURRENT was last replaced
    published: dict[str, float]  # when each snapshot got its manifest; oldest name first
    drafts: list[str]  # without a manifest

    @classmethod
    def of(cls, store: Store) -> "_Inventory":
        """List the store."""
        names = [name for name in store.names(SNAPSHOTS) if is_snapshot_name(name)]
        manifests = {name: store.entry(snapshot_path(name, MANIFEST)) for name in names}
        switched = store.entry(CURRENT)
        return cls(
            store=store,
            now=leases.store_time(store),
            current=read_current(store),
            switched_at=0.0 if switched is None else switched.modified_at,
            published={n: entry.modified_at for n, entry in manifests.items() if entry},
            drafts=[name for name, entry in manifests.items() if not entry],
        )

    def surplus(self, keep: int) -> list[str]:
        """Return the snapshots beyond the newest `keep`, and the drafts, never the current one."""
        others = [name for name in self.published if name != self.current]
        drafts = [name for name in self.drafts if name != self.current]
        surplus = others[: max(0, len(others) - (keep - 1))]
        return surplus[::-1] + drafts  # newest first: what it shares with older ones goes with them

    def unused_since(self, snapshot: str) -> tuple[float, str]:
        """Return the last time at which a process may have opened or written it, and the event."""
        if snapshot in self.drafts:
            entries = self.store.entries(snapshot_path(snapshot))
            return max([0.0, *(e.modified_at for e in entries)]), "an unfinished build wrote to it"
        own = self.published[snapshot]
        newer = min((name for name in self.published if name > snapshot), default="")
        if snapshot > self.current or not newer:  # the current one may be newer than this list
            return max(own, self.switched_at), "CURRENT was replaced"
        return max(own, self.published[newer]), f"snapshot {newer} replaced it"


def _remove_unless_used(store: Store, snapshot: str, now: float) -> str:
    """Remove a snapshot, or return why it is in use."""
    used = leases.live_leases(store, snapshot, now, "read", "build")
    if used:
        return _in_use(used)
    lease = Lease(store, snapshot, "prune")
    try:
        lease.write()
        used = lease.others("read", "build")
        if used:
            return _in_use(used)
        if current_or_none(store) == snapshot:
            return "it has just become current"
        _remove(store, snapshot)
    finally:
        lease.remove()
    leases.remove_all(store, snapshot)
    return ""


def _remove(store: Store, snapshot: str) -> None:
    """Remove the files of a snapshot, the manifest first, but none that others share."""
    shared = shared_files(store).get(snapshot)
    if not shared:
        store.remove(snapshot_path(snapshot), first=MANIFEST)
        return
    store.remove_file(snapshot_path(snapshot, MANIFEST))
    for name in store.names(snapshot_path(snapshot)):
        if name not in shared:
            store.remove_file(snapshot_path(snapshot, name))


def _in_use(used: list[leases.Found]) -> str:
    what = "being built" if used[0].kind == "build" else "being read"
    return f"it is {what} by {', '.join(map(str, used))}"


def _sweep(store: Store, now: float, grace_s: float) -> None:
    """Remove temporary files and leases of processes that died."""
    old_s = max(grace_s, LEASE_S)
    for entry in store.entries(""):
        if entry.name.startswith(f".{CURRENT}-") and now - entry.modified_at >= old_s:
            store.remove_file(entry.name)
    for snapshot in store.names(LEASES):
        if not store.exists(snapshot_path(snapshot)):
            leases.live_leases(store, snapshot, now)
            store.remove_empty_folder(f"{LEASES}/{snapshot}")
    store.remove_empty_folder(LEASES)
