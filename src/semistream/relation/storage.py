"""Where a relation's files live: a local folder, or anything `pyarrow.fs` can reach.

Local files are read with ``preadv`` straight into the join's disk buffer; the others go through
Arrow's random-access files. Both implement `PageFile`, as the files of emulated devices do
(`semistream.relation.device`).

Committed files in a local folder are durable: contents and names are synced (see
`semistream.relation.disk`). An object store publishes whole objects and has nothing to sync.
"""

import mmap
import os
from abc import ABC, abstractmethod
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol
from uuid import uuid4

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyarrow import fs

from semistream.relation import places
from semistream.relation.disk import (
    BLOCK_BYTES,
    LONGER_FILE,
    NEW_FILE,
    SAME_FILE,
    Bytes,
    Disk,
    Entry,
    LocalOutput,
    LocalPageFile,
    RequestFile,
    make_folder,
    read_file,
    remove_tree,
    sync_folder,
    write_file,
)
from semistream.relation.mapped import MappedFile

disk = Disk()  # used by local stores; tests replace it
_MOST_IN_FLIGHT = 16  # requests to a remote store at a time


class PageFile(Protocol):
    """A file that is read at random offsets into memory the caller owns."""

    def read_into(self, offset: int, out: memoryview) -> int:
        """Fill `out` from `offset`; return the bytes read, fewer only at the end of the file."""
        ...

    def read_all(self, requests: NDArray[np.int64], out: NDArray[np.uint8]) -> bool:
        """Read (offset, size, place in `out`) requests; False if the file ends before one does."""
        ...

    def map_cached(self, offsets: NDArray[np.int64], end: int) -> MappedFile | None:
        """Map the file, if that can be done and what is at these offsets is in memory."""
        ...

    def count_cached(self, offsets: NDArray[np.int64]) -> int:
        """Return at how many offsets a byte can be read without waiting for a device."""
        ...

    def announce(self, offset: int, size: int) -> None:
        """Say that these bytes will be read soon; the device may begin."""
        ...

    def forget(self, offset: int, size: int) -> None:
        """Say that these bytes need not be kept in any cache."""
        ...

    def close(self) -> None:
        """Close the file."""
        ...


class Output(Protocol):
    """A file that is being written."""

    def write(self, data: Bytes) -> int:
        """Write all of `data`; return its size in bytes."""
        ...

    def commit(self) -> None:
        """Close the file; its content is durable when this returns."""
        ...

    def abandon(self) -> None:
        """Close a file that is not needed any more; safe to call twice, or after `commit`."""
        ...


class NativePageFile(LocalPageFile):
    """A local file that kernels may read by its descriptor."""

    @property
    def descriptor(self) -> int:
        """The descriptor for planned reads, until the next file is asked for."""
        return self._planned_descriptor()


class ArrowPageFile(RequestFile):
    """A file on any Arrow file system."""

    def __init__(self, file: pa.NativeFile) -> None:
        """Take over an open random-access file."""
        self._file = file

    def read_all(self, requests: NDArray[np.int64], out: NDArray[np.uint8]) -> bool:
        """Read all requests, several at a time: a store answers many as fast as one."""
        if requests.shape[1] == 1:
            return super().read_all(requests, out)
        with ThreadPoolExecutor(_MOST_IN_FLIGHT) as threads:
            return all(threads.map(lambda r: self._read_one(out, *r), requests.T.tolist()))

    def _read_one(self, out: NDArray[np.uint8], offset: int, size: int, place: int) -> bool:
        found = self._file.read_at(size, offset)
        out[place : place + len(found)] = np.frombuffer(found, np.uint8)
        return len(found) == size

    def read_into(self, offset: int, out: memoryview) -> int:
        """Fill `out` from `offset`; short only at the end of the file."""
        size = self._file.size()
        if offset >= size:
            return 0
        self._file.seek(offset)
        return int(self._file.readinto(out[: size - offset]))

    def announce(self, offset: int, size: int) -> None:
        """Nothing to do: Arrow's files have no such request."""

    def forget(self, offset: int, size: int) -> None:
        """Nothing to do: Arrow's files have no such request."""

    def close(self) -> None:
        """Close the file."""
        self._file.close()


class ArrowOutput:
    """A file that is being written on any Arrow file system; published when it is closed."""

    def __init__(self, file: pa.NativeFile) -> None:
        """Take over an open output stream."""
        self._file = file

    def write(self, data: Bytes) -> int:
        """Write all of `data`; return its size in bytes."""
        return int(self._file.write(data))

    def commit(self) -> None:
        """Publish the file."""
        self._file.close()

    def abandon(self) -> None:
        """Close the file; Arrow publishes the part written, and its draft is removed."""
        if not self._file.closed:
            self._file.close()


class Store(ABC):
    """A folder on some file system; paths given to it are relative to the folder."""

    root: str  # the path of the folder
    # Whether reads are queries (`semistream.databases`): many ranges cost as much as one, and there
    # are no checksums.
    is_queried = False
    buffer_bytes = 0  # memory that reading takes besides the caller's

    @staticmethod
    def at(location: str | os.PathLike[str]) -> "Store":
        """Return the store at a local path or a URI such as ``s3://bucket/products.rel``."""
        place = places.find(os.fspath(location))
        if place.filesystem is not None:
            return ArrowStore(place.filesystem, place.path)
        return LocalStore(disk, str(Path(place.path).expanduser().resolve()))

    @property
    def is_local(self) -> bool:
        """Whether the files are ordinary local files."""
        return isinstance(self, LocalStore)

    def path(self, name: str) -> str:
        """Return the full path of a file in the folder; of the folder itself for an empty name."""
        return f"{self.root}/{name}" if name else self.root

    def exists(self, name: str) -> bool:
        """Whether a file or folder of this name is there."""
        return self.entry(name) is not None

    def names(self, name: str) -> list[str]:
        """Return the names in a folder of the store, sorted; empty if there is no such folder."""
        return sorted(entry.name for entry in self.entries(name))

    @abstractmethod
    def entry(self, name: str) -> Entry | None:
        """Return the entry of a file or folder, or None if it is not there."""

    @abstractmethod
    def entries(self, name: str) -> list[Entry]:
        """Return the entries of a folder of the store; empty if there is no such folder."""

    @abstractmethod
    def read(self, name: str) -> bytes:
        """Return a whole (small) file."""

    def map(self, name: str) -> mmap.mmap | None:
        """Map a whole file into memory, to be read only; None where files are not local."""
        return None

    @abstractmethod
    def make_folder(self, name: str) -> None:
        """Make a folder, durably, where file systems have folders."""

    @abstractmethod
    def sync_folder(self, name: str) -> None:
        """Make the names in a folder durable."""

    @abstractmethod
    def create(self, name: str) -> Output:
        """Open a new file for writing in a folder that is there."""

    @abstractmethod
    def replace(self, name: str, content: bytes) -> None:
        """Write a file so that readers see the old content or the new, also after a crash.

        The content is durable when this returns, and so is the name.
        """

    @abstractmethod
    def write_note(self, name: str, content: bytes) -> None:
        """Write a small file that need not survive a crash, making its folder."""

    @abstractmethod
    def open_pages(self, name: str) -> PageFile:
        """Open a file for random reads."""

    @abstractmethod
    def remove_file(self, name: str) -> None:
        """Delete a file; nothing happens if it is not there."""

    @abstractmethod
    def remove_empty_folder(self, name: str) -> None:
        """Delete a folder if it is there and nothing is in it."""

    @abstractmethod
    def remove(self, name: str, first: str = "") -> None:
        """Delete a folder and all in it, the file `first` before the others, if it is there."""


@dataclass(frozen=True, slots=True)
class LocalStore(Store):
    """A folder of this machine, or one that several machines mount."""

    disk: Disk
    root: str

    def entry(self, name: str) -> Entry | None:
        """Return the entry of a file or folder, or None if it is not there."""
        try:
            return self.disk.stat(self.path(name))
        except (FileNotFoundError, NotADirectoryError):
            return None

    def entries(self, name: str) -> list[Entry]:
        """Return the entries of a folder of the store; empty if there is no such folder."""
        try:
            return self.disk.scan(self.path(name))
        except (FileNotFoundError, NotADirectoryError):
            return []

    def read(self, name: str) -> bytes:
        """Return a whole (small) file."""
        return read_file(self.disk, self.path(name))

    def map(self, name: str) -> mmap.mmap:
        """Map a whole file into memory, to be read only."""
        return self.disk.map(self.path(name))

    def make_folder(self, name: str) -> None:
        """Make a folder and those it lies in, each durable in the one above."""
        make_folder(self.disk, self.path(name))

    def sync_folder(self, name: str) -> None:
        """Make the names in a folder durable."""
        sync_folder(self.disk, self.path(name))

    def create(self, name: str) -> Output:
        """Open a new file for writing in a folder that is there."""
        return LocalOutput(self.disk, self.path(name), block_bytes=BLOCK_BYTES)

    def append(self, name: str) -> LocalOutput:
        """Open a file, new or not, to write at its end."""
        return LocalOutput(self.disk, self.path(name), LONGER_FILE)

    def replace(self, name: str, content: bytes) -> None:
        """Write a file beside the old one, sync it, rename it, and sync the name."""
        folder, _, base = self.path(name).rpartition("/")
        temporary = f"{folder}/.{base}-{uuid4().hex}"
        try:
            write_file(self.disk, temporary, content, NEW_FILE, durable=True)
            self.disk.replace(temporary, f"{folder}/{base}")
        except BaseException:
            _quietly(lambda: self.disk.unlink(temporary))
            raise
        sync_folder(self.disk, folder)

    def write_note(self, name: str, content: bytes) -> None:
        """Write a small file that need not survive a crash, making its folder."""
        path = self.path(name)
        for attempt in range(_ATTEMPTS):
            try:
                if attempt:
                    make_folder(self.disk, path.rpartition("/")[0])
                write_file(self.disk, path, content, SAME_FILE, durable=False)
                return
            except FileNotFoundError:  # another process may remove folders that are empty
                if attempt == _ATTEMPTS - 1:
                    raise

    def open_pages(self, name: str) -> PageFile:
        """Open a file for random reads."""
        is_real = type(self.disk) is Disk
        return (NativePageFile if is_real else LocalPageFile)(self.path(name), self.disk)

    def remove_file(self, name: str) -> None:
        """Delete a file; nothing happens if it is not there."""
        try:
            self.disk.unlink(self.path(name))
        except FileNotFoundError:
            return

    def remove_empty_folder(self, name: str) -> None:
        """Delete a folder if it is there and nothing is in it."""
        _quietly(lambda: self.disk.rmdir(self.path(name)))

    def remove(self, name: str, first: str = "") -> None:
        """Delete a folder and all in it, the file `first` before the others, if it is there."""
        remove_tree(self.disk, self.path(name), first)


_ATTEMPTS = 20


def _quietly(call: Callable[[], None]) -> None:
    try:
        call()
    except OSError:
        return


@dataclass(frozen=True, slots=True)
class ArrowStore(Store):
    """A folder on one of Arrow's file systems, such as a prefix of a bucket."""

    filesystem: fs.FileSystem
    root: str

    def entry(self, name: str) -> Entry | None:
        """Return the entry of a file or folder, or None if it is not there."""
        found = self.filesystem.get_file_info(self.path(name))
        return None if found.type == fs.FileType.NotFound else _arrow_entry(found)

    def entries(self, name: str) -> list[Entry]:
        """Return the entries of a folder of the store; empty if there is no such folder."""
        selector = fs.FileSelector(self.path(name), allow_not_found=True)
        return [_arrow_entry(found) for found in self.filesystem.get_file_info(selector)]

    def read(self, name: str) -> bytes:
        """Return a whole (small) file."""
        with self.filesystem.open_input_file(self.path(name)) as file:
            return bytes(file.read())

    def make_folder(self, name: str) -> None:
        """Make a folder where the file system has folders."""
        self.filesystem.create_dir(self.path(name), recursive=True)

    def sync_folder(self, name: str) -> None:
        """Nothing to do: an object is durable once it is published."""

    def create(self, name: str) -> Output:
        """Open a new file for writing."""
        return ArrowOutput(self.filesystem.open_output_stream(self.path(name)))

    def replace(self, name: str, content: bytes) -> None:
        """Write a file; an object store publishes an object as a whole."""
        with self.filesystem.open_output_stream(self.path(name)) as file:
            file.write(content)

    def write_note(self, name: str, content: bytes) -> None:
        """Write a small file."""
        self.replace(name, content)

    def open_pages(self, name: str) -> PageFile:
        """Open a file for random reads."""
        return ArrowPageFile(self.filesystem.open_input_file(self.path(name)))

    def remove_file(self, name: str) -> None:
        """Delete a file; nothing happens if it is not there."""
        try:
            self.filesystem.delete_file(self.path(name))
        except FileNotFoundError:
            return

    def remove_empty_folder(self, name: str) -> None:
        """Nothing to do: a folder is a part of its objects' names."""

    def remove(self, name: str, first: str = "") -> None:
        """Delete a folder and all in it, the file `first` before the others, if it is there."""
        if first:
            self.remove_file(f"{name}/{first}")
        if self.exists(name):
            self.filesystem.delete_dir(self.path(name))


def _arrow_entry(found: fs.FileInfo) -> Entry:
    modified_at = 0.0 if found.mtime is None else found.mtime.timestamp()
    return Entry(found.base_name, found.size or 0, modified_at, found.type == fs.FileType.Directory)
