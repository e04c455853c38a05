"""Temporary files of a build: rows of each partition, appended batch by batch, read back once.

A file is open only while it is written or read, so a build needs few descriptors, for any number
of partitions. Each append is an Arrow stream of its own; a file is a sequence of them.

The folder of the files also has one that names the process. A build that is killed cannot remove
its folder, so the next one on the same machine does.
"""

import json
import logging
import tempfile
import time
from dataclasses import asdict
from uuid import uuid4

import numpy as np
import pyarrow as pa

from semistream.relation import storage
from semistream.relation.disk import Entry
from semistream.relation.leases import Holder
from semistream.relation.storage import LocalStore

_LOG = logging.getLogger(__name__)
_PREFIX = "semistream-build-"
_OWNER = "owner.json"
_UNNAMED_S = 3600.0  # a folder without an owner is older than this only if its process has ended


class SpoolFiles:
    """A folder of files in the system's temporary folder, made when there is something to write."""

    def __init__(self) -> None:
        """Make nothing yet; remove what builds that were killed have left."""
        _remove_dead_folders()
        self._folder: LocalStore | None = None  # made with the first file
        self._written: set[int] = set()  # partitions that have a file

    def holds(self, partition: int) -> bool:
        """Whether rows of this partition were written."""
        return partition in self._written

    def append(self, partition: int, rows: pa.Table) -> None:
        """Append rows to the file of a partition."""
        if self._folder is None:
            self._folder = _make_folder()
            self._folder.write_note(_OWNER, json.dumps(asdict(Holder.this_process())).encode())
        self._written.add(partition)
        file = self._folder.append(_name(partition))
        try:
            with pa.ipc.new_stream(file, rows.schema) as writer:
                writer.write_table(rows)
            file.close()
        finally:
            file.abandon()

    def take(self, partition: int) -> pa.Table:
        """Return all rows of a partition and delete its file."""
        assert self._folder is not None
        content = _read(self._folder, _name(partition))
        self._folder.remove_file(_name(partition))
        source = pa.BufferReader(content)
        tables = []
        while source.tell() < len(content):
            tables.append(pa.ipc.open_stream(source).read_all())
        return pa.concat_tables(tables)

    def close(self, quietly: bool) -> None:
        """Delete everything; `quietly` if there is another error to report already."""
        if self._folder is None:
            return
        try:
            self._folder.remove("")
        except OSError:
            if not quietly:
                raise


def _make_folder() -> LocalStore:
    path = f"{tempfile.gettempdir()}/{_PREFIX}{uuid4().hex}"
    storage.disk.mkdir(path, 0o700)
    return LocalStore(storage.disk, path)


def _remove_dead_folders() -> None:
    """Remove the folders of processes that have ended."""
    temporary = LocalStore(storage.disk, tempfile.gettempdir())
    try:
        for entry in temporary.entries(""):
            is_ours = entry.is_folder and entry.name.startswith(_PREFIX)
            if is_ours and _is_dead(temporary, entry):
                temporary.remove(entry.name)
    except OSError as error:  # this build needs none of them
        _LOG.warning("temporary files of an earlier build could not be removed: %s", error)


def _is_dead(temporary: LocalStore, folder: Entry) -> bool:
    """Whether the process that made a folder has ended; if it is not named, after an hour."""
    try:
        return Holder(**json.loads(temporary.read(f"{folder.name}/{_OWNER}"))).is_gone()
    except PermissionError:
        return False  # another user's
    except (FileNotFoundError, ValueError, TypeError):
        return time.time() - folder.modified_at > _UNNAMED_S


def _name(partition: int) -> str:
    return f"{partition}.arrow"


def _read(folder: LocalStore, name: str) -> pa.Buffer:
    entry = folder.entry(name)
    assert entry is not None, f"{folder.path(name)} was deleted while the build needed it"
    content = np.empty(entry.size_bytes, np.uint8)
    file = folder.open_pages(name)
    try:
        size = file.read_into(0, content.data)
    finally:
        file.close()
    assert size == len(content), f"{folder.path(name)} is shorter than it was written"
    return pa.py_buffer(content)
