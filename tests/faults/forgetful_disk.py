"""A disk in memory that forgets everything not synced, and fails at a call if told to.

It takes the place of `semistream.relation.storage.disk`. What survives a loss of power is modelled
as POSIX has it: the content of a file as of its last fsync, and a name as of the last fsync of its
folder. Real file systems often keep more, so besides that worst case (`"synced"`) there are disks
that keep all names (`"names"`) and disks that keep any part of what was not synced (`"some"`).
"""

import copy
import errno
import os
import random
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Literal

from semistream.relation.disk import Disk, Entry

Kept = Literal["synced", "names", "some"]


class PowerLoss(BaseException):
    """The machine stopped; nothing that is called from here on happens."""


@dataclass(eq=False)
class File:
    content: bytearray = field(default_factory=bytearray)
    synced: bytes = b""
    modified_at: float = field(default_factory=time.time)


@dataclass(eq=False)
class Folder:
    entries: "dict[str, File | Folder]" = field(default_factory=dict)
    synced: "dict[str, File | Folder]" = field(default_factory=dict)
    modified_at: float = field(default_factory=time.time)


@dataclass
class Faults:
    """What goes wrong, and from which call on; calls are counted from 0."""

    power_loss_at: int | None = None
    fail_at: int | None = None
    code: int = errno.EIO
    short_at: int | None = None  # a read or write of one byte only
    goes_on: bool = False  # all later calls fail as well


class ForgetfulDisk(Disk):
    """Files and folders in memory, under the calls of `Disk`."""

    def __init__(self, folders: Iterable[str] = ()) -> None:
        self.root = Folder()
        self.faults = Faults()
        self.calls: list[tuple[str, str]] = []
        self.most_open = 0
        self._descriptors: dict[int, tuple[str, File | Folder, bool]] = {}
        self._next = 1000
        for folder in folders:
            self._make(folder)

    def copied(self) -> "ForgetfulDisk":
        """Return the same disk, with nothing open and nothing called."""
        other = ForgetfulDisk()
        other.root = copy.deepcopy(self.root)
        return other

    def after_power_loss(self, kept: Kept = "synced", seed: int = 0) -> "ForgetfulDisk":
        """Return the disk as it is found when the power is back."""
        other = ForgetfulDisk()
        other.root = _surviving(self.root, kept, random.Random(seed))
        return other

    # The calls

    def open(self, path: str, flags: int, mode: int = 0o777) -> int:
        self._call("open", path)
        node = self._find(path)
        if node is None:
            if not flags & os.O_CREAT:
                raise _error(errno.ENOENT, path)
            node = self._add(path, File())
        elif flags & os.O_EXCL:
            raise _error(errno.EEXIST, path)
        elif flags & os.O_TRUNC:
            assert isinstance(node, File)
            del node.content[:]
        self._next += 1
        self._descriptors[self._next] = (path, node, bool(flags & os.O_WRONLY))
        self.most_open = max(self.most_open, len(self._descriptors))
        return self._next

    def close(self, fd: int) -> None:
        path, _, _ = self._descriptors.pop(fd)  # also if it then fails, as Linux does
        self._call("close", path, on_descriptor=True)

    def read(self, fd: int, size: int) -> bytes:
        node = self._file("read", fd)
        content = node.content
        at = self._positions.setdefault(fd, 0)
        piece = bytes(content[at : at + (1 if self._is_short() else size)])
        self._positions[fd] = at + len(piece)
        return piece

    def preadv(self, fd: int, buffers: list[memoryview], offset: int) -> int:
        node = self._file("preadv", fd)
        (out,) = buffers
        wanted = 1 if self._is_short() else len(out)
        piece = node.content[offset : offset + wanted]
        out[: len(piece)] = piece
        return len(piece)

    def read_requests(self, fd: int, requests: object, out: object) -> int:
        """Refuse the first request: each is then made by `preadv`."""
        return 0

    def write(self, fd: int, data: memoryview) -> int:
        node = self._file("write", fd)
        piece = bytes(data[:1] if self._is_short() else data)
        node.content += piece
        node.modified_at = time.time()
        return len(piece)

    def fsync(self, fd: int) -> None:
        path, node, _ = self._descriptors[fd]
        self._call("fsync", path, on_descriptor=True)
        if isinstance(node, File):
            node.synced = bytes(node.content)
        else:
            node.synced = dict(node.entries)

    def advise(self, fd: int, offset: int, size: int, advice: int) -> None:
        self._call("advise", self._descriptors[fd][0], on_descriptor=True)

    def replace(self, source: str, target: str) -> None:
        self._call("replace", target)
        node = self._find(source)
        if node is None:
            raise _error(errno.ENOENT, source)
        self._add(target, node)
        self._drop(source)

    def mkdir(self, path: str, mode: int = 0o777) -> None:
        self._call("mkdir", path)
        if self._find(path) is not None:
            raise _error(errno.EEXIST, path)
        self._add(path, Folder())

    def unlink(self, path: str) -> None:
        self._call("unlink", path)
        self._drop(path)

    def rmdir(self, path: str) -> None:
        self._call("rmdir", path)
        node = self._find(path)
        if isinstance(node, Folder) and node.entries:
            raise _error(errno.ENOTEMPTY, path)
        self._drop(path)

    def stat(self, path: str) -> Entry:
        self._call("stat", path)
        node = self._find(path)
        if node is None:
            raise _error(errno.ENOENT, path)
        return _entry(path.rpartition("/")[2], node)

    def scan(self, path: str) -> list[Entry]:
        self._call("scan", path)
        node = self._find(path)
        if not isinstance(node, Folder):
            raise _error(errno.ENOENT if node is None else errno.ENOTDIR, path)
        return [_entry(name, inside) for name, inside in node.entries.items()]

    # How they work

    @property
    def _positions(self) -> dict[int, int]:
        return self.__dict__.setdefault("_read_positions", {})

    def _call(self, name: str, path: str, on_descriptor: bool = False) -> None:
        number, faults = len(self.calls), self.faults
        if faults.power_loss_at is not None and number >= faults.power_loss_at:
            raise PowerLoss
        self.calls.append((name, path))
        if _is_due(faults.fail_at, number, faults.goes_on):
            raise OSError(faults.code, os.strerror(faults.code), None if on_descriptor else path)

    def _is_short(self) -> bool:
        return _is_due(self.faults.short_at, len(self.calls) - 1, self.faults.goes_on)

    def _file(self, call: str, fd: int) -> File:
        path, node, _ = self._descriptors[fd]
        self._call(call, path, on_descriptor=True)
        assert isinstance(node, File)
        return node

    def _find(self, path: str) -> "File | Folder | None":
        node: Any = self.root
        for name in path.strip("/").split("/"):
            node = node.entries.get(name) if isinstance(node, Folder) else None
        return node

    def _parent(self, path: str) -> Folder:
        parent = path.rpartition("/")[0]
        node = self._find(parent) if parent else self.root
        if not isinstance(node, Folder):
            raise _error(errno.ENOENT, path)
        return node

    def _add(self, path: str, node: "File | Folder") -> "File | Folder":
        parent = self._parent(path)
        parent.entries[path.rpartition("/")[2]] = node
        parent.modified_at = time.time()
        return node

    def _drop(self, path: str) -> None:
        if self._parent(path).entries.pop(path.rpartition("/")[2], None) is None:
            raise _error(errno.ENOENT, path)

    def _make(self, path: str) -> None:
        node = self.root
        for name in path.strip("/").split("/"):
            node.entries.setdefault(name, Folder())
            node.synced[name] = node.entries[name]
            inside = node.entries[name]
            assert isinstance(inside, Folder)
            node = inside


def _is_due(at: int | None, number: int, goes_on: bool) -> bool:
    return at is not None and (number >= at if goes_on else number == at)


def _error(code: int, path: str) -> OSError:
    return OSError(code, os.strerror(code), path)


def _entry(name: str, node: "File | Folder") -> Entry:
    size = len(node.content) if isinstance(node, File) else 0
    return Entry(name, size, node.modified_at, isinstance(node, Folder))


def _surviving(node: Folder, kept: Kept, rng: random.Random) -> Folder:
    names = {*node.synced, *node.entries}
    choices = {name: (node.synced.get(name), node.entries.get(name)) for name in sorted(names)}
    entries: dict[str, File | Folder] = {}
    for name, (synced, now) in choices.items():
        found = {"synced": synced, "names": now, "some": rng.choice((synced, now))}[kept]
        if isinstance(found, Folder):
            entries[name] = _surviving(found, kept, rng)
        elif found is not None:
            content = _surviving_content(found, kept, rng)
            entries[name] = File(bytearray(content), content)
    return Folder(entries, dict(entries))


def _surviving_content(file: File, kept: Kept, rng: random.Random) -> bytes:
    if kept != "some" or file.content == file.synced:
        return file.synced
    return bytes(file.content[: rng.randint(0, len(file.content))])
