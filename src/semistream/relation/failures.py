"""Errors of the operating system, explained: which file, what happened, what to do."""

import errno
import socket
from collections.abc import Iterator
from contextlib import contextmanager

from semistream.errors import (
    CorruptRelationError,
    RelationNotFoundError,
    SemistreamError,
    SnapshotPrunedError,
    StorageError,
)
from semistream.relation.layout import MANIFEST, snapshot_path
from semistream.relation.storage import Store

_FULL = "free some space on that device, or call prune() on a relation to delete old snapshots"
_TOO_MANY_FILES = "too many files are open: raise the limit (ulimit -n), or open fewer at a time"
_FORBIDDEN = "give this user the right to do so, or choose another place"
_IN_THE_WAY = "a file has the name of a folder: move it away, or choose another place"
_REMEDIES = {
    errno.EIO: "the device failed; the stored bytes may be intact: check the disk, its "
    "connection and the kernel's log, then try again",
    errno.ENOSPC: _FULL,
    errno.EDQUOT: _FULL,
    errno.EFBIG: _FULL,
    errno.EMFILE: _TOO_MANY_FILES,
    errno.ENFILE: _TOO_MANY_FILES,
    errno.EACCES: _FORBIDDEN,
    errno.EPERM: _FORBIDDEN,
    errno.EROFS: _FORBIDDEN,
    errno.ENOTDIR: _IN_THE_WAY,
    errno.EEXIST: _IN_THE_WAY,
}
_ANY = "check that the device or service can be reached, then try again"


def remedy(error: OSError) -> str:
    """Return what to do about an error of the operating system."""
    return _REMEDIES.get(error.errno or 0, _ANY)


def said(error: OSError, path: str = "") -> str:
    """Return what an error says, with the path if it does not name one itself."""
    return f"{error}" if error.filename or not path else f"{error}: {path!r}"


@contextmanager
def explained(what: str, path: str = "") -> Iterator[None]:
    """Raise errors of the operating system as `StorageError`, with the action and a remedy."""
    try:
        yield
    except OSError as error:
        raise StorageError(f"{what} failed: {said(error, path)}; {remedy(error)}") from error


def pruned(store: Store, snapshot: str, refusal: str = "") -> SnapshotPrunedError:
    """Return the error that says that a snapshot was pruned while it was in use.

    `refusal` is why the user of the snapshot had no lease, if it had none.
    """
    unprotected = (
        f" No lease protected it, since none could be written ({refusal}); then only the grace "
        "period of prune() does, so raise that."
        if refusal
        else ""
    )
    return SnapshotPrunedError(
        f"snapshot {snapshot} of the relation {store.root!r} was pruned while it was in use."
        f"{unprotected} Open the relation again, which gives its current snapshot, and start over"
    )


def check_is_seen(store: Store, name: str) -> None:
    """Raise if a file or folder of a relation that was opened is not there for this process.

    On a cluster that is the mistake of a local path: only the driver has the folder.
    """
    with explained(f"looking for the relation {store.root!r}"):
        is_missing = store.is_local and not store.exists(name)
    if is_missing:
        raise RelationNotFoundError(
            f"the relation {store.root!r} is not on this machine ({socket.gethostname()}), though "
            f"it was opened or built elsewhere. {_SHARED}. If this is the same machine, the folder "
            "was deleted or moved: build the relation again, or correct the path"
        )


_SHARED = (
    "On a cluster every executor needs to see the folder: use one that all machines mount at the "
    "same path, or an object store such as s3://bucket/products.rel"
)


def reading_failed(
    store: Store, snapshot: str, name: str, error: OSError, refusal: str
) -> SemistreamError:
    """Return the error to raise where a file of a snapshot could not be opened or read."""
    path = store.path(name)
    if _is_pruned(store, snapshot):
        return pruned(store, snapshot, refusal)
    if isinstance(error, FileNotFoundError):
        return CorruptRelationError(f"{path} is missing ({error}); rebuild snapshot {snapshot}")
    return StorageError(f"{path} could not be read: {said(error)}; {remedy(error)}")


def _is_pruned(store: Store, snapshot: str) -> bool:
    try:
        return not store.exists(snapshot_path(snapshot, MANIFEST))
    except OSError:
        return False  # it is not known
