"""Files of a relation in a local folder, and the calls of the operating system they are made of.

`Disk` has one method for each call and is the only way from here to the file system. So a test can
replace it with one that fails at a given call, or that forgets everything that was not synced
(`tests/faults/forgetful_disk.py`).

A file survives a loss of power once its content was synced (`LocalOutput.commit`) and the folder it
lies in as well, which holds its name (`sync_folder`).
"""

import mmap
import os
import stat
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from semistream.relation.mapped import MappedFile
from semistream.relation.read_kernels import count_cached, read_requests

_KERNEL_PAGE = os.sysconf("SC_PAGE_SIZE")
_OPEN_FOLDER = os.O_RDONLY | os.O_DIRECTORY
NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL
SAME_FILE = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
LONGER_FILE = os.O_WRONLY | os.O_CREAT | os.O_APPEND
_SAMPLED_OFFSETS = 32  # that tell whether a file is in the page cache
# Page files are written in blocks of this size. File systems that can keep such a block in the page
# cache as one large page do so, and a large page is mapped by one page fault instead of many.
BLOCK_BYTES = 2 << 20

Bytes: TypeAlias = bytes | memoryview | NDArray[np.uint8]


class Entry(NamedTuple):
    """A file or folder as its folder lists it."""

    name: str
    size_bytes: int
    modified_at: float  # seconds since 1970, by the clock of the file system
    is_folder: bool


class Disk:
    """The calls themselves. All raise `OSError` and leave it to the caller to explain it."""

    open = staticmethod(os.open)
    close = staticmethod(os.close)
    read = staticmethod(os.read)
    preadv = staticmethod(os.preadv)
    write = staticmethod(os.write)
    fsync = staticmethod(os.fsync)
    advise = staticmethod(os.posix_fadvise)
    replace = staticmethod(os.replace)
    mkdir = staticmethod(os.mkdir)
    unlink = staticmethod(os.unlink)
    rmdir = staticmethod(os.rmdir)

    def read_requests(
        self, descriptor: int, requests: NDArray[np.int64], out: NDArray[np.uint8]
    ) -> int:
        """Read (offset, size, place in `out`) requests; return which failed first, or -1."""
        return int(read_requests(descriptor, requests, out))

    def count_cached(self, descriptor: int, offsets: NDArray[np.int64]) -> int:
        """Return at how many offsets a byte is in the page cache."""
        return int(count_cached(descriptor, offsets))

    def map(self, path: str) -> mmap.mmap:
        """Map a whole file into memory, to be read only."""
        with Path(path).open("rb") as file:
            return mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)

    def stat(self, path: str) -> Entry:
        """Return the entry of a file or folder."""
        return _entry(os.path.basename(path), os.stat(path))  # noqa: PTH116, PTH119

    def scan(self, path: str) -> list[Entry]:
        """Return the entries of a folder."""
        with os.scandir(path) as found:
            return [_entry(f.name, f.stat(follow_symlinks=False)) for f in found]


def _entry(name: str, found: os.stat_result) -> Entry:
    return Entry(name, found.st_size, found.st_mtime, stat.S_ISDIR(found.st_mode))


@contextmanager
def naming(path: str) -> Iterator[None]:
    """Let errors of calls that know only a descriptor name the file."""
    try:
        yield
    except OSError as error:
        if error.filename is None:
            error.filename = path
        raise


class RequestFile(ABC):
    """A file that is read request after request."""

    @abstractmethod
    def read_into(self, offset: int, out: memoryview) -> int:
        """Fill `out` from `offset`; short only at the end of the file."""

    def read_all(self, requests: NDArray[np.int64], out: NDArray[np.uint8]) -> bool:
        """Read (offset, size, place in `out`) requests; False if the file ends before one does."""
        view = out.data
        return all(
            self.read_into(offset, view[place : place + size]) == size
            for offset, size, place in requests.T.tolist()
        )

    def map_cached(self, offsets: NDArray[np.int64], end: int) -> MappedFile | None:
        """Map the file, if that can be done and what is at these offsets is in memory."""
        return None

    def count_cached(self, offsets: NDArray[np.int64]) -> int:
        """Return at how many offsets a byte can be read without waiting for a device."""
        return 0


class LocalPageFile(RequestFile):
    """A local file, read by ``preadv`` without a copy in between, or mapped."""

    def __init__(self, path: str, disk: Disk | None = None) -> None:
        """Open the file for reading."""
        self._fd = self._planned_fd = -1
        self._mapped: MappedFile | None = None  # the whole file, once it was mapped
        self._path = path
        self._disk = disk or Disk()
        self._fd = self._disk.open(path, os.O_RDONLY)

    def read_into(self, offset: int, out: memoryview) -> int:
        """Fill `out` from `offset`; short only at the end of the file."""
        done = 0
        try:
            while done < len(out):
                count = self._disk.preadv(self._fd, [out[done:]], offset + done)
                if count == 0:
                    break
                done += count
        except OSError as error:
            error.filename = self._path
            raise
        return done

    def read_all(self, requests: NDArray[np.int64], out: NDArray[np.uint8]) -> bool:
        """Read all requests in one native loop; one that fails is repeated to find out why."""
        failed = self._disk.read_requests(self._planned_descriptor(), requests, out)
        return failed < 0 or super().read_all(requests[:, failed:], out)

    def map_cached(self, offsets: NDArray[np.int64], end: int) -> MappedFile | None:
        """Map the file if it has at least `end` bytes and a sample of the offsets is cached.

        Of a mapped file each page that is not cached would be waited for, one after the other; and
        a file that is shorter than expected would end the process.
        """
        sampled = np.ascontiguousarray(offsets[:: -(-len(offsets) // _SAMPLED_OFFSETS)])
        if self.count_cached(sampled) < len(sampled):
            return None
        if self._mapped is None:
            try:
                self._mapped = MappedFile(self._disk.map(self._path), self._path)
            except (OSError, ValueError):  # it was deleted meanwhile, or is empty
                return None
        return self._mapped if len(self._mapped.data) >= end else None

    def count_cached(self, offsets: NDArray[np.int64]) -> int:
        """Return at how many offsets a byte is in the page cache."""
        return self._disk.count_cached(self._planned_descriptor(), offsets)

    def _planned_descriptor(self) -> int:
        """Return a descriptor for planned reads, without the kernel's read-ahead.

        With read-ahead the kernel would read megabytes around each request. If there can be no
        second descriptor, the first one serves: only speed depends on it.
        """
        if self._planned_fd < 0:
            try:
                self._planned_fd = self._disk.open(self._path, os.O_RDONLY)
            except OSError:  # too many files are open, or this one was deleted meanwhile
                return self._fd
            self._hint(0, 0, os.POSIX_FADV_RANDOM, self._planned_fd)
        return self._planned_fd

    def announce(self, offset: int, size: int) -> None:
        """Let the kernel read them into its page cache meanwhile."""
        self._hint(offset, size, os.POSIX_FADV_WILLNEED)

    def forget(self, offset: int, size: int) -> None:
        """Let the kernel drop them from its page cache, in whole pages around them."""
        start = offset // _KERNEL_PAGE * _KERNEL_PAGE
        end = -(-(offset + size) // _KERNEL_PAGE) * _KERNEL_PAGE
        self._hint(start, end - start, os.POSIX_FADV_DONTNEED)

    def _hint(self, offset: int, size: int, advice: int, descriptor: int | None = None) -> None:
        descriptor = self._fd if descriptor is None else descriptor
        try:
            self._disk.advise(descriptor, offset, size, advice)
        except OSError:
            return  # only speed depends on it

    def close(self) -> None:
        """Close the descriptor; safe to call twice. Nothing was written, so nothing can be lost."""
        descriptors = (self._fd, self._planned_fd)
        self._fd = self._planned_fd = -1
        self._mapped = None
        for descriptor in descriptors:
            if descriptor >= 0:
                close_quietly(self._disk, descriptor)

    def __del__(self) -> None:
        """Close on collection, since readers are cached and dropped."""
        self.close()


def close_quietly(disk: Disk, descriptor: int) -> None:
    """Close a descriptor through which nothing was written that is still needed."""
    try:
        disk.close(descriptor)
    except OSError:
        return


class LocalOutput:
    """A local file that is being written. Only `commit` makes its content durable."""

    def __init__(
        self, disk: Disk, path: str, flags: int = NEW_FILE, block_bytes: int | None = None
    ) -> None:
        """Open the file for writing; with `block_bytes` it is written in blocks of this size."""
        self._disk = disk
        self._path = path
        self._block_bytes = block_bytes
        self._pending = bytearray()  # the beginning of the next block
        self._fd = disk.open(path, flags)

    @property
    def closed(self) -> bool:
        """Whether nothing more can be written; Arrow's writers need it."""
        return self._fd < 0

    def write(self, data: Bytes) -> int:
        """Write all of `data`; return its size in bytes."""
        view = memoryview(data)  # type: ignore[arg-type]
        rest = view.cast("B") if view.nbytes else view
        if self._block_bytes is None:
            self._hand_over(rest)
            return view.nbytes
        if self._pending:
            missing = self._block_bytes - len(self._pending)
            self._pending += rest[:missing]
            rest = rest[missing:]
        if len(self._pending) == self._block_bytes:
            self.flush()
        whole = len(rest) // self._block_bytes * self._block_bytes
        self._hand_over(rest[:whole])
        self._pending += rest[whole:]
        return view.nbytes

    def flush(self) -> None:
        """Hand what was written to the operating system."""
        self._hand_over(memoryview(bytes(self._pending)))
        self._pending.clear()

    def _hand_over(self, rest: memoryview) -> None:
        with naming(self._path):
            while rest.nbytes:
                rest = rest[self._disk.write(self._fd, rest) :]

    def commit(self) -> None:
        """Close the file and return once its content is on the device."""
        self.flush()
        with naming(self._path):
            self._disk.fsync(self._fd)
            descriptor, self._fd = self._fd, -1
            self._disk.close(descriptor)

    def close(self) -> None:
        """Close a file whose content need not be durable; safe to call twice."""
        if self._fd >= 0:
            self.flush()
            descriptor, self._fd = self._fd, -1
            with naming(self._path):
                self._disk.close(descriptor)

    def abandon(self) -> None:
        """Close a file that is not needed any more; safe to call twice."""
        if self._fd >= 0:
            descriptor, self._fd = self._fd, -1
            close_quietly(self._disk, descriptor)


def read_file(disk: Disk, path: str) -> bytes:
    """Return a whole file."""
    descriptor = disk.open(path, os.O_RDONLY)
    pieces: list[bytes] = []
    try:
        with naming(path):
            most_bytes = disk.stat(path).size_bytes + 1
            while piece := disk.read(descriptor, most_bytes):
                pieces.append(piece)
    finally:
        close_quietly(disk, descriptor)
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)


def write_file(disk: Disk, path: str, content: bytes, flags: int, *, durable: bool) -> None:
    """Write a whole file, and sync its content if it must be durable."""
    file = LocalOutput(disk, path, flags)
    try:
        file.write(content)
        if durable:
            file.commit()
        else:
            file.close()
    finally:
        file.abandon()


def sync_folder(disk: Disk, path: str) -> None:
    """Return once the names in a folder are on the device."""
    descriptor = disk.open(path, _OPEN_FOLDER)
    try:
        with naming(path):
            disk.fsync(descriptor)
    finally:
        close_quietly(disk, descriptor)


def make_folder(disk: Disk, path: str) -> None:
    """Make a folder and those it lies in, each durable in the one above."""
    parent = os.path.dirname(path)  # noqa: PTH120
    try:
        disk.mkdir(path)
    except FileExistsError:
        if not disk.stat(path).is_folder:
            raise
        return
    except FileNotFoundError:
        if parent == path:
            raise
        make_folder(disk, parent)
        with suppress(FileExistsError):  # another process was faster
            disk.mkdir(path)
    sync_folder(disk, parent)


def remove_tree(disk: Disk, path: str, first: str = "") -> None:
    """Delete a folder and all in it, the file named `first` before the others."""
    try:
        entries = disk.scan(path)
    except FileNotFoundError:
        return
    for entry in sorted(entries, key=lambda e: (e.name != first, e.name)):
        inside = f"{path}/{entry.name}"
        if entry.is_folder:
            remove_tree(disk, inside)
        else:
            _unless_gone(disk.unlink, inside)
    _unless_gone(disk.rmdir, path)


def _unless_gone(remove: Callable[[str], None], path: str) -> None:
    try:
        remove(path)
    except FileNotFoundError:
        return  # another process was faster
