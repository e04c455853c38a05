"""Which snapshot a micro-batch of a streaming query reads, written down before it reads.

::

    products.rel/pins/<query>/<batch>     the id of a snapshot

The first task of a micro-batch pins the snapshot that is current then; all other tasks of it, on
all hosts, and all that repeat it, also after a restart from the checkpoint, read the same. So a
refresh is taken up between micro-batches, and a replayed one gives the same rows. The query's id is
Spark's, which stays the same as long as the checkpoint does.

In a local folder a pin is made by an exclusive link to a file that is complete. Elsewhere, where no
such step exists, the tasks take turns by leases (`semistream.relation.leases.turn`).

A snapshot that turns out to be damaged cannot be read again, and one that lacks too many keys
should not be. Whoever finds that leaves a mark with the run of the query (``<batch>.damaged``).
When the query is started again, the first task that sees the mark of another run pins the snapshot
that is current by then, and removes the mark; the micro-batch has not been committed.

`prune` keeps the snapshots of the last `REPLAYED` pins of each query, because a replay may need
them, for `PIN_S` seconds: a query that was stopped longer ago does not hold its snapshot for ever.
Pins of older micro-batches are removed by those that follow.
"""

import os
from uuid import uuid4

from semistream.relation.leases import turn
from semistream.relation.snapshots import read_current
from semistream.relation.storage import LocalStore, Store

PINS = "pins"
PIN_S = 7 * 86_400.0  # a query that was stopped for longer may find its snapshot pruned
REPLAYED = 2  # the last micro-batches of a query that may be repeated
_KEPT = 10  # pins of a query
_DAMAGED = ".damaged"


def pin_path(query: str, batch: int) -> str:
    """Return the path of a pin inside the relation."""
    return f"{PINS}/{query}/{batch:012d}"


def pin_snapshot(store: Store, query: str, batch: int, run: str = "") -> str:
    """Return the snapshot that a micro-batch reads; the first call decides."""
    name = pin_path(query, batch)
    mark = _read(store, name + _DAMAGED)
    if mark is not None and mark != run:
        _pin_again(store, query, name, run)
    found = _read(store, name)
    if found is not None:
        return found
    if isinstance(store, LocalStore):
        _link(store, name)
    else:
        with turn(store, f"pin-{query}"):
            if _read(store, name) is None:
                store.replace(name, read_current(store).encode())
    found = _read(store, name)
    assert found is not None, "the pin was just made"
    _remove_old(store, query, batch)
    return found


def mark_damaged(store: Store, query: str, batch: int, run: str) -> None:
    """Note that a micro-batch cannot end with its snapshot: the next run is to read another."""
    store.replace(pin_path(query, batch) + _DAMAGED, run.encode())


def _pin_again(store: Store, query: str, name: str, run: str) -> None:
    """Let a micro-batch read the snapshot that is current now; one task does it for all."""
    with turn(store, f"pin-{query}"):
        mark = _read(store, name + _DAMAGED)
        if mark is not None and mark != run:
            store.replace(name, read_current(store).encode())
            store.remove_file(name + _DAMAGED)


def _read(store: Store, name: str) -> str | None:
    try:
        return store.read(name).decode().strip()
    except FileNotFoundError:
        return None


def _link(store: LocalStore, name: str) -> None:
    """Make a pin unless there is one: complete from the start, and durable."""
    folder, current = name.rpartition("/")[0], read_current(store)
    store.make_folder(folder)
    draft = f"{folder}/.{uuid4().hex}"
    store.replace(draft, current.encode())
    try:
        os.link(store.path(draft), store.path(name))
    except FileExistsError:
        pass  # another task was faster
    finally:
        store.remove_file(draft)
    store.sync_folder(folder)


def _remove_old(store: Store, query: str, batch: int) -> None:
    for name in store.names(f"{PINS}/{query}"):
        if name.isdigit() and int(name) < batch - _KEPT:
            store.remove_file(f"{PINS}/{query}/{name}")


def pinned_snapshots(store: Store, now: float) -> dict[str, str]:
    """Return the snapshots that a replay may need, each with the query; forgotten pins go."""
    found: dict[str, str] = {}
    for query in store.names(PINS):
        folder = f"{PINS}/{query}"
        entries = sorted((e for e in store.entries(folder) if e.name.isdigit()), reverse=True)
        for entry in entries[:REPLAYED]:
            snapshot = _read(store, f"{folder}/{entry.name}")
            if snapshot is not None and now - entry.modified_at < PIN_S:
                found[snapshot] = query
        if entries and now - entries[0].modified_at >= PIN_S:
            store.remove(folder)
    return found
