"""Where a relation's files live: a local folder, or anything `pyarrow.fs` can reach.

Local files are read with ``preadv`` straight into the join's disk buffer; the others go through
Arrow's random-access files. Both answer to `PageFile`, which is also the seam for emulated devices
(`semistream.relation.device`).
"""

import os
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol
from uuid import uuid4

import pyarrow as pa
from pyarrow import fs

_KERNEL_PAGE = os.sysconf("SC_PAGE_SIZE")


class PageFile(Protocol):
    """A file that is read at random offsets into memory the caller owns."""

    def read_into(self, offset: int, out: memoryview) -> int:
        """Fill `out` from `offset`; return the bytes read, fewer only at the end of the file."""
        ...

    def announce(self, offset: int, size: int) -> None:
        """Say that these bytes will be read soon; the device may begin."""
        ...

    def forget(self, offset: int, size: int) -> None:
        """Say that these bytes need not be kept in any cache."""
        ...

    def close(self) -> None:
        """Give the file back."""
        ...


class LocalPageFile:
    """A local file, read by ``preadv`` without a copy in between."""

    def __init__(self, path: str) -> None:
        """Open the file for reading."""
        self._fd = -1
        self._fd = os.open(path, os.O_RDONLY)

    def read_into(self, offset: int, out: memoryview) -> int:
        """Fill `out` from `offset`; short only at the end of the file."""
        done = 0
        while done < len(out):
            count = os.preadv(self._fd, [out[done:]], offset + done)
            if count == 0:
                break
            done += count
        return done

    def announce(self, offset: int, size: int) -> None:
        """Let the kernel read them into its page cache meanwhile."""
        os.posix_fadvise(self._fd, offset, size, os.POSIX_FADV_WILLNEED)

    def forget(self, offset: int, size: int) -> None:
        """Let the kernel drop them from its page cache, in whole pages around them."""
        start = offset // _KERNEL_PAGE * _KERNEL_PAGE
        end = -(-(offset + size) // _KERNEL_PAGE) * _KERNEL_PAGE
        os.posix_fadvise(self._fd, start, end - start, os.POSIX_FADV_DONTNEED)

    def close(self) -> None:
        """Close the descriptor; safe to call twice."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def __del__(self) -> None:
        """Close on collection, since readers are cached and dropped."""
        self.close()


class ArrowPageFile:
    """A file on any Arrow file system."""

    def __init__(self, file: pa.NativeFile) -> None:
        """Take over an open random-access file."""
        self._file = file

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


@dataclass(frozen=True, slots=True)
class Store:
    """A folder on some file system; paths given to it are relative to the folder."""

    filesystem: fs.FileSystem
    root: str

    @classmethod
    def at(cls, location: str | os.PathLike[str]) -> "Store":
        """Return the store at a local path or a URI such as ``s3://bucket/products.rel``."""
        text = os.fspath(location)
        if "://" in text:
            filesystem, root = fs.FileSystem.from_uri(text)
            return cls(filesystem, root.rstrip("/"))
        return cls(fs.LocalFileSystem(), str(Path(text).expanduser().resolve()))

    @property
    def is_local(self) -> bool:
        """Whether the files are ordinary local files."""
        return isinstance(self.filesystem, fs.LocalFileSystem)

    def path(self, name: str) -> str:
        """Return the full path of a file in the folder."""
        return f"{self.root}/{name}"

    def exists(self, name: str) -> bool:
        """Whether a file or folder of this name is there."""
        found = self.filesystem.get_file_info(self.path(name)).type
        return bool(found != fs.FileType.NotFound)

    def list(self, name: str) -> list[str]:
        """Return the names in a folder of the store, sorted; empty if there is no such folder."""
        selector = fs.FileSelector(self.path(name), allow_not_found=True)
        return sorted(info.base_name for info in self.filesystem.get_file_info(selector))

    def read(self, name: str) -> bytes:
        """Return a whole (small) file."""
        with self.filesystem.open_input_file(self.path(name)) as file:
            return bytes(file.read())

    def read_checked(self, name: str, checksum: int, whole_bytes: int) -> pa.NativeFile:
        """Return a file opened for reading whose bytes have this CRC-32; `ValueError` if not.

        A file of up to `whole_bytes`, or on another device, is read into memory. Of a larger local
        one only a piece at a time is, so that a reader of some columns needs no more than these.
        """
        file = self.filesystem.open_input_file(self.path(name))
        if file.size() <= whole_bytes or not self.is_local:
            with file:
                content = file.read_buffer()
            found, file = zlib.crc32(content), pa.BufferReader(content)
        else:
            found = 0
            while piece := file.read_buffer(whole_bytes):
                found = zlib.crc32(piece, found)
            file.seek(0)
        if found != checksum:
            file.close()
            raise ValueError("its checksum does not match")
        return file

    def size_bytes(self, name: str) -> int | None:
        """Return a file's size, or None if it is not there."""
        size = self.filesystem.get_file_info(self.path(name)).size
        return None if size is None else int(size)

    def create(self, name: str) -> pa.NativeFile:
        """Open a new file for writing, making its folder where file systems have folders."""
        full = self.path(name)
        self.filesystem.create_dir(full.rpartition("/")[0], recursive=True)
        return self.filesystem.open_output_stream(full)

    def replace(self, name: str, content: bytes) -> None:
        """Write a file so that readers see the old content or the new, never a mixture."""
        if not self.is_local:
            with self.create(name) as file:  # an object store publishes an object as a whole
                file.write(content)
            return
        target = Path(self.path(name))
        target.parent.mkdir(parents=True, exist_ok=True)
        temporary = target.with_name(f".{target.name}-{uuid4().hex}")
        with temporary.open("wb") as local:
            local.write(content)
            local.flush()
            os.fsync(local.fileno())
        temporary.replace(target)

    def open_pages(self, name: str) -> PageFile:
        """Open a file for random reads."""
        if self.is_local:
            return LocalPageFile(self.path(name))
        return ArrowPageFile(self.filesystem.open_input_file(self.path(name)))

    def remove(self, name: str) -> None:
        """Delete a folder and all in it; nothing happens if it is not there."""
        if self.exists(name):
            self.filesystem.delete_dir(self.path(name))
