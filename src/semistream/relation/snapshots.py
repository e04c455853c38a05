"""Which snapshots a relation has, which is current, and which files they share."""

from collections import defaultdict

from semistream.errors import CorruptRelationError
from semistream.relation.layout import (
    CURRENT,
    MANIFEST,
    SNAPSHOTS,
    Manifest,
    is_snapshot_name,
    snapshot_path,
)
from semistream.relation.storage import Store


def read_current(store: Store) -> str:
    """Return the content of CURRENT, whether or not it is the name of a snapshot."""
    return store.read(CURRENT).decode(errors="replace").strip()


def current_or_none(store: Store) -> str | None:
    """Return the content of CURRENT; None before the first build has made its snapshot current."""
    try:
        return read_current(store)
    except FileNotFoundError:
        return None


def published(store: Store) -> list[str]:
    """Return the snapshots that were finished, oldest first; a draft has no manifest."""
    names = [name for name in store.names(SNAPSHOTS) if is_snapshot_name(name)]
    return [name for name in names if store.exists(snapshot_path(name, MANIFEST))]


def read_manifests(store: Store) -> list[Manifest]:
    """Return the manifests of all snapshots that can be opened, oldest first."""
    found = []
    for name in published(store):
        path = snapshot_path(name, MANIFEST)
        try:
            found.append(Manifest.from_json(store.read(path), store.path(path)))
        except (FileNotFoundError, CorruptRelationError):
            continue  # it is being pruned, or it is damaged: nobody can open it any more
    return found


def shared_files(store: Store) -> dict[str, set[str]]:
    """Return the files that belong to other snapshots as well, by the snapshot they are in."""
    shared: defaultdict[str, set[str]] = defaultdict(set)
    for manifest in read_manifests(store):
        for home, name in manifest.all_files():
            if home != manifest.snapshot:
                shared[home].add(name)
    return shared
