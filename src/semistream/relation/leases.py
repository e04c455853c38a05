"""Leases: small files that name the processes that use a snapshot, so that `prune` keeps it.

::

    products.rel/leases/<snapshot>/<random>.read     a process whose joins read the snapshot
    products.rel/leases/<snapshot>/<random>.build    a build that is writing it
    products.rel/leases/<snapshot>/<random>.prune    a prune that is about to remove it
    products.rel/leases/<what>/<random>.commit       one of several that do something in turn

The protocol, the same in a local folder, in one that several hosts mount, and in an object store:

1.  A process writes one read lease for each snapshot it has open, shared by all its readers. A
    build writes a build lease before its first file. Both are written anew every `RENEW_S` seconds
    and removed when they are not needed any more. A read lease stays for `LINGER_S` after the last
    reader was closed, so that the micro-batches of a Spark worker share one.
2.  A lease is *dead* `LEASE_S` seconds after it was last written, or as soon as its process is gone
    if that ran on the same machine. A process that finds a dead lease removes it. Its age is the
    difference of two files' times of modification, so it is measured by the one clock of the file
    system, and differing clocks of hosts do not matter.
3.  `prune` skips every snapshot that has a live lease, that was current within the grace
    period, or that is current. For each of the others it writes a prune lease, and only then looks
    again. If another process wrote a lease in between, it removes its own lease and keeps the
    snapshot; else it removes the manifest first, then the other files, then the leases.
4.  A reader writes its lease, and only then looks for prune leases. While there is a live one it
    waits: either the prune withdraws, or the manifest is removed and the reader reports that the
    snapshot was pruned. A build does the same before it makes its snapshot current.

5.  A writer that is about to replace ``CURRENT`` waits for its `turn`: it writes a commit lease,
    and only then looks for those of others. If there is a live one it removes its own, waits for a
    random moment and begins again. So at most one is between its look and the replacement.

So each side writes before it looks, and no order of steps lets both continue. This needs a file
system where a file that one process has written is listed for the next, which local ones and object
stores are. NFS clients may list a folder as it was up to a minute ago; there the grace period makes
up for it, and should be at least a few minutes.

A process that may not write there, because the relation is read-only for it, reads without a lease.
Then only the grace period protects the snapshot.
"""

import atexit
import json
import os
import random
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Literal, TypeAlias
from uuid import uuid4
from weakref import WeakSet

from semistream.errors import BuildError
from semistream.relation.failures import check_is_seen, explained, pruned
from semistream.relation.layout import CURRENT, MANIFEST, snapshot_path
from semistream.relation.storage import Store

LEASES = "leases"
LEASE_S = 600.0  # a lease that was not written for this long is dead
RENEW_S = 120.0  # leases are written again after this time
LINGER_S = 60.0  # a read lease is kept for this long after its last reader
_TICK_S = 30.0  # between two checks by the thread
_POLL_S = 0.05  # between two looks for a prune lease

_MOST_WAIT_S = 60.0  # for others that do the same

Kind: TypeAlias = Literal["read", "build", "prune", "commit"]


@dataclass(frozen=True, slots=True)
class Holder:
    """The process that a lease belongs to."""

    host: str
    machine: str  # the same only for processes that see each other's process ids; may be unknown
    pid: int
    started: str  # when it began, since process ids are used again

    @classmethod
    def this_process(cls) -> "Holder":
        """Return the process that calls."""
        return cls.of(os.getpid())

    @classmethod
    def of(cls, pid: int) -> "Holder":
        """Return a process of this machine."""
        return cls(socket.gethostname(), _machine(), pid, _started(pid))

    def is_gone(self) -> bool:
        """Whether the process certainly has ended."""
        return self.machine == _machine() != "" and _started(self.pid) != self.started


def _machine() -> str:
    """Return what identifies the running kernel and its table of processes; empty if unknown."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot} {Path('/proc/self/ns/pid').readlink()}"
    except OSError:
        return ""


def _started(pid: int) -> str:
    """Return when a process began, in ticks since the machine did; empty if it has ended."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return ""
    return "" if fields[0] in "ZX" else fields[19]


@dataclass(eq=False, slots=True)
class Lease:
    """One lease file of this process."""

    store: Store
    snapshot: str  # the id of the snapshot in use
    kind: Kind
    name: str = field(init=False)  # of the file, inside the store
    refusal: str = ""  # why it could not be written; empty if it was

    def __post_init__(self) -> None:
        """Choose a name that no other lease has."""
        self.name = f"{LEASES}/{self.snapshot}/{uuid4().hex}.{self.kind}"

    def write(self) -> None:
        """Write the file, new or again."""
        body = json.dumps(asdict(Holder.this_process()))
        self.store.write_note(self.name, body.encode())

    def try_write(self) -> None:
        """Write the file if that is allowed and possible; else set `refusal`."""
        try:
            self.write()
            self.refusal = ""
        except OSError as error:
            self.refusal = str(error)

    def remove(self) -> None:
        """Remove the file, and its folders if they are empty."""
        _remove_quietly(self.store, self.name)
        self.store.remove_empty_folder(f"{LEASES}/{self.snapshot}")
        self.store.remove_empty_folder(LEASES)

    def others(self, *kinds: Kind) -> list["Found"]:
        """Return the live leases of some kinds that others have on the snapshot."""
        found = live_leases(self.store, self.snapshot, self.written_at(), *kinds)
        return [lease for lease in found if lease.name != self.name]

    def written_at(self) -> float:
        """Return when it was last written, by the clock of the store's file system."""
        own = self.store.entry(self.name)
        return time.time() if own is None else own.modified_at

    def wait_for_prune(self) -> None:
        """Return once no prune is about to remove the snapshot, or raise if one has."""
        manifest = snapshot_path(self.snapshot, MANIFEST)
        while True:
            pruned_soon = not self.refusal and self.others("prune")
            if not self.store.exists(manifest):
                raise pruned(self.store, self.snapshot, self.refusal)
            if not pruned_soon:
                return
            time.sleep(_POLL_S)


@dataclass(frozen=True, slots=True)
class Found:
    """A live lease in the store."""

    name: str
    kind: str
    holder: Holder | None  # unknown if the file cannot be read

    def __str__(self) -> str:
        """Name the process that holds it."""
        if self.holder is None:
            return "a process that could not be identified"
        return f"process {self.holder.pid} on {self.holder.host}"


def live_leases(store: Store, snapshot: str, now: float, *kinds: Kind) -> list[Found]:
    """Return the live leases of some kinds on a snapshot; dead ones that are met are removed."""
    found: list[Found] = []
    for lease, is_dead in _leases(store, snapshot, now, *kinds):
        if is_dead:
            _remove_quietly(store, lease.name)
        elif lease.kind in kinds:
            found.append(lease)
    return found


def readers_of(store: Store, snapshot: str) -> tuple[str, ...]:
    """Return the other processes that read a snapshot now; nothing is written or removed."""
    found = _leases(store, snapshot, time.time(), "read")
    reading = [lease for lease, is_dead in found if lease.kind == "read" and not is_dead]
    own = Holder.this_process()
    return tuple(str(lease) for lease in reading if lease.holder != own)


def has_dead_build(store: Store, snapshot: str, now: float) -> bool:
    """Whether the process that built a snapshot has died before it could remove its lease."""
    found = _leases(store, snapshot, now, "build")
    return any(is_dead for lease, is_dead in found if lease.kind == "build")


def _leases(store: Store, snapshot: str, now: float, *kinds: Kind) -> Iterator[tuple[Found, bool]]:
    """Yield the leases on a snapshot, and whether each is dead; holders only of some kinds."""
    folder = f"{LEASES}/{snapshot}"
    for entry in store.entries(folder):
        name, kind = f"{folder}/{entry.name}", entry.name.rpartition(".")[2]
        is_old = now - entry.modified_at > LEASE_S
        holder = _read_holder(store, name) if kind in kinds and not is_old else None
        yield Found(name, kind, holder), is_old or (holder is not None and holder.is_gone())


def _read_holder(store: Store, name: str) -> Holder | None:
    try:
        return Holder(**json.loads(store.read(name)))
    except (OSError, ValueError, TypeError):
        return None


def _remove_quietly(store: Store, name: str) -> None:
    try:
        store.remove_file(name)
    except OSError:
        return


def remove_all(store: Store, snapshot: str) -> None:
    """Remove the remaining leases on a snapshot that was removed.

    A reader that writes a lease meanwhile finds the snapshot gone and removes its own lease.
    """
    try:
        store.remove(f"{LEASES}/{snapshot}")
    except OSError:
        return  # the next prune sweeps them
    store.remove_empty_folder(LEASES)


def store_time(store: Store) -> float:
    """Return the time by the clock of the store's file system."""
    name = f"{LEASES}/{uuid4().hex}.clock"
    store.write_note(name, b"")
    entry = store.entry(name)
    store.remove_file(name)
    store.remove_empty_folder(LEASES)
    return time.time() if entry is None else entry.modified_at


class Hold:
    """One use of a lease, by a reader or a build: the lease is kept while it has holds."""

    __slots__ = ("__weakref__", "_shared")

    def __init__(self, shared: "_Shared") -> None:
        """Add a use to the lease."""
        self._shared = shared
        shared.holds.add(self)

    @property
    def lease(self) -> Lease:
        """The lease that is shared."""
        return self._shared.lease

    def release(self) -> None:
        """End this use of the lease; safe to call twice."""
        self._shared.holds.discard(self)


@dataclass(eq=False, slots=True)
class _Shared:
    """A lease with its uses in this process."""

    lease: Lease
    renewed_at: float  # by this process's steady clock
    idle_since: float | None = None  # by the same clock; None while there are holds
    holds: "WeakSet[Hold]" = field(default_factory=WeakSet)  # one that is collected is released

    def is_for(self, store: Store, snapshot: str, kind: Kind) -> bool:
        lease = self.lease
        return (lease.snapshot, lease.kind) == (snapshot, kind) and lease.store == store

    def has_lingered(self, now: float) -> bool:
        if self.holds:
            self.idle_since = None
        elif self.idle_since is None:
            self.idle_since = now
        return self.idle_since is not None and now - self.idle_since >= LINGER_S


class _Keeper:
    """The leases of this process, and the thread that renews them while there are any."""

    def __init__(self) -> None:
        self._lock = threading.Lock()  # guards `_shared` and `_thread`
        self._shared: list[_Shared] = []  # all leases that are kept
        self._stop = threading.Event()  # set when the process ends
        self._thread: threading.Thread | None = None  # runs while there are leases

    def find(self, store: Store, snapshot: str) -> Hold | None:
        """Return a hold of the read lease that this process has already, if any."""
        with self._lock:
            for shared in self._shared:
                if shared.is_for(store, snapshot, "read"):
                    return Hold(shared)
        return None

    def add(self, lease: Lease) -> Hold:
        """Keep a lease that was written, until its holds are gone."""
        shared = _Shared(lease, time.monotonic())
        hold = Hold(shared)
        with self._lock:
            self._shared.append(shared)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, daemon=True, name="leases")
                self._thread.start()
        return hold

    def drop_idle(self, store: Store) -> None:
        """Remove those leases of a store that nothing in this process uses now."""
        self._drop(lambda shared: not shared.holds and shared.lease.store == store)

    def close(self) -> None:
        """Remove all leases, at the end of the process."""
        self._stop.set()
        self._drop(lambda _: True)

    def beat(self, now: float) -> None:
        """Remove the leases that were not used for a while, and renew the others in time."""
        self._drop(lambda shared: shared.has_lingered(now))
        with self._lock:  # so that no lease is written after it was removed
            for shared in self._shared:
                if now - shared.renewed_at >= RENEW_S:
                    shared.lease.try_write()
                    shared.renewed_at = now

    def _drop(self, is_over: Callable[[_Shared], bool]) -> None:
        with self._lock:
            over = [shared for shared in self._shared if is_over(shared)]
            self._shared = [shared for shared in self._shared if shared not in over]
        for shared in over:
            shared.lease.remove()

    def _run(self) -> None:
        while not self._stop.wait(_TICK_S):
            self.beat(time.monotonic())
            with self._lock:
                if not self._shared:
                    self._thread = None
                    return


_keeper = _Keeper()


def _forget_parent() -> None:
    """Start without leases in a forked process: they, and the thread, belong to its parent."""
    global _keeper
    _keeper = _Keeper()


os.register_at_fork(after_in_child=_forget_parent)
atexit.register(lambda: _keeper.close())


def hold_for_reading(store: Store, snapshot: str) -> Hold:
    """Register this process as a reader of a snapshot, or raise if it was pruned meanwhile."""
    hold = _keeper.find(store, snapshot)
    if hold is None:
        check_is_seen(store, CURRENT)  # before the lease, which would make the folder
        lease = Lease(store, snapshot, "read")
        lease.try_write()
        try:
            with explained(f"registering as a reader of snapshot {snapshot}", store.root):
                lease.wait_for_prune()
        except BaseException:
            lease.remove()
            raise
        hold = _keeper.add(lease)
    return hold


def hold_for_building(store: Store, snapshot: str) -> Hold:
    """Register this process as the one that builds a snapshot."""
    lease = Lease(store, snapshot, "build")
    try:
        lease.write()
    except BaseException:
        lease.remove()
        raise
    return _keeper.add(lease)


@contextmanager
def turn(store: Store, what: str = "commit") -> Iterator[None]:
    """Be the only process that does something, such as to look at ``CURRENT`` and replace it."""
    lease = Lease(store, what, "commit")
    deadline = time.monotonic() + _MOST_WAIT_S
    while True:
        lease.write()
        others = lease.others("commit")
        if not others:
            break
        lease.remove()
        if time.monotonic() > deadline:
            raise BuildError(
                f"a {what} in {store.root!r} has waited {_MOST_WAIT_S:g} s for "
                f"{', '.join(map(str, others))}, which is doing the same. Run it again later"
            )
        time.sleep(random.uniform(0.2, 2.0) * _POLL_S)
    try:
        yield
    finally:
        lease.remove()


def drop_idle(store: Store) -> None:
    """Remove those leases of a store that nothing in this process uses now."""
    _keeper.drop_idle(store)
