"""Warm files: what the tasks of a query keep for the next micro-batch, on one host.

::

    /dev/shm/semistream-<user>/<query>.<join>/<snapshot>-<place>-<version>.warm
                                              owner-<pid>-<started>.json

A *place* is a partition of R, or the number of a task where rows are not routed. A file never
changes. The next version is written under another name, renamed, and the version before is removed;
so any task of the host can map the newest one at any time. A task that finds none begins cold. A
file that no task has replaced for `_KEPT_VERSIONS` micro-batches is removed: its place has moved to
another host.

The folder is in shared memory; where there is none, or too little is free, in the local folder of
Spark. It belongs to the user alone, because a file has code in it (a pickle).

Owners are the processes whose workers use the folder: Spark's daemon of Python workers, which ends
with its executor. The driver removes the folder when the query stops. What a crash leaves is
removed by the next query on the host: folders whose owners are all gone, and those that were not
used for `_IDLE_S`.

Whatever fails here costs time and no row: it is logged, and the next micro-batch begins cold.
"""

import json
import logging
import mmap
import os
import shutil
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from semistream.jit import is_private
from semistream.relation.leases import Holder
from semistream.version import __version__

SHARED_MEMORY = "/dev/shm"
LOG = logging.getLogger("semistream.warm")
_MAGIC = b"SSWARM1\n"
_ALIGNMENT = 64
_KEPT_VERSIONS = 8
_IDLE_S = 3600.0
_YOUNG_S = 60.0  # a folder without owners may have been made just now
_ROOM = 4  # a folder is used if this many files of the expected size have room


@dataclass(frozen=True, slots=True)
class WarmFile:
    """What one task keeps: arrays, some bytes, and a text that says what they are of."""

    shape: str
    arrays: Sequence[NDArray[Any]]
    notes: bytes
    version: int = 0  # the micro-batch that has written it


@dataclass(frozen=True, slots=True)
class WarmFolder:
    """The folder of one join of one query, on the host that this runs on."""

    query: str
    join: str
    local_dirs: tuple[str, ...]  # of Spark, for hosts without shared memory

    @property
    def name(self) -> str:
        """The name of the folder."""
        return f"{self.query}.{self.join}"

    def load(self, place: str) -> WarmFile | None:
        """Return the newest file of a place, mapped into memory; None if there is none."""
        for base in _bases(self.local_dirs):
            versions = _versions(base / self.name, place)
            if versions:
                try:
                    return _read(versions[max(versions)])
                except (OSError, ValueError) as error:
                    LOG.info("a warm file cannot be used, the task begins cold: %s", error)
        return None

    def load_older(self, snapshot: str, place: str) -> tuple[str, WarmFile] | None:
        """Return the newest file of a place that was kept of an earlier snapshot, and that one."""
        for base in _bases(self.local_dirs):
            paths = (base / self.name).glob(f"*-{place}-*.warm")
            older = max((_snapshot_of(path, place) for path in paths), default=snapshot)
            if older < snapshot:
                file = self.load(f"{older}-{place}")
                return None if file is None else (older, file)
        return None

    def store(self, place: str, version: int, file: WarmFile) -> None:
        """Replace the file of a place, and remove files that are no longer used."""
        size_bytes = sum(array.nbytes for array in file.arrays) + len(file.notes)
        try:
            folder = self._made(size_bytes)
            if folder is not None:
                _write(folder, f"{place}-{version:012d}.warm", file)
                _remove_old(folder, place, version)
        except OSError as error:
            LOG.warning("the next micro-batch begins cold: a warm file was not written: %s", error)

    def _made(self, size_bytes: int) -> Path | None:
        """Return the folder, which is made if need be; None if there is no room anywhere."""
        for base in _bases(self.local_dirs, make=True):
            folder = base / self.name
            if not folder.exists():
                if shutil.disk_usage(base).free < _ROOM * size_bytes:
                    continue
                remove_abandoned(self.local_dirs)
                folder.mkdir(mode=0o700, exist_ok=True)
            owner = Holder.of(os.getppid())
            path = folder / f"owner-{owner.pid}-{owner.started}.json"
            if not path.exists():
                path.write_text(json.dumps(asdict(owner)))
            return folder
        LOG.info("no room for warm files: every micro-batch begins cold")
        return None


def remove(prefix: str = "", suffix: str = "", local_dirs: tuple[str, ...] = ()) -> None:
    """Remove the folders whose names begin and end so, on this host."""
    for base in _bases(local_dirs):
        for folder in base.glob(f"{prefix}*{suffix}"):
            if "." in folder.name:
                shutil.rmtree(folder, ignore_errors=True)
        with suppress(OSError):  # there are others
            base.rmdir()


def remove_abandoned(local_dirs: tuple[str, ...] = ()) -> None:
    """Remove the folders whose owners are gone, and those that were not used for long."""
    for base in _bases(local_dirs):
        for folder in base.glob("*.*"):
            if _is_abandoned(folder):
                shutil.rmtree(folder, ignore_errors=True)


def _is_abandoned(folder: Path) -> bool:
    try:
        owners = [_owner(path) for path in folder.glob("owner-*.json")]
        idle_s = time.time() - folder.stat().st_mtime
    except (OSError, ValueError, TypeError):
        return False  # being written, or removed, at this moment
    if not owners:
        return idle_s > _YOUNG_S
    return all(owner.is_gone() for owner in owners) or idle_s > _IDLE_S


def _owner(path: Path) -> Holder:
    return Holder(**json.loads(path.read_text()))


def _bases(local_dirs: tuple[str, ...], *, make: bool = False) -> Iterator[Path]:
    """Yield the private folders that there are, or can be made, shared memory first."""
    of_executor = os.environ.get("LOCAL_DIRS") or os.environ.get("SPARK_LOCAL_DIRS") or ""
    own = [place for place in of_executor.split(",") if place]
    for place in dict.fromkeys((SHARED_MEMORY, *own, *local_dirs, tempfile.gettempdir())):
        base = Path(place) / f"semistream-{os.getuid()}"
        if (make or base.is_dir()) and is_private(base):
            yield base


def _versions(folder: Path, place: str) -> dict[int, Path]:
    """Return the files of a place by version."""
    return {int(p.stem.rpartition("-")[2]): p for p in folder.glob(f"{place}-*.warm")}


def _snapshot_of(path: Path, place: str) -> str:
    return path.stem.rpartition("-")[0].removesuffix(f"-{place}")


def _remove_old(folder: Path, place: str, version: int) -> None:
    """Remove other files of this place, and those of places that have moved to another host."""
    for path in folder.glob("*.warm"):
        of, _, number = path.stem.rpartition("-")
        is_same_place = of.rpartition("-")[2] == place.rpartition("-")[2]
        is_replaced = is_same_place and path.name != f"{place}-{version:012d}.warm"
        if is_replaced or int(number) < version - _KEPT_VERSIONS:
            path.unlink(missing_ok=True)


def _write(folder: Path, name: str, file: WarmFile) -> None:
    arrays = [np.ascontiguousarray(array) for array in file.arrays]
    header = {
        "version": __version__,
        "shape": file.shape,
        "arrays": [(array.dtype.str, array.shape) for array in arrays],
        "notes": len(file.notes),
    }
    text = json.dumps(header).encode()
    first = _MAGIC + len(text).to_bytes(8, "little") + text
    data = [array.reshape(-1).view(np.uint8).data for array in arrays]
    parts = [memoryview(first), *data, memoryview(file.notes)]
    handle, temporary = tempfile.mkstemp(dir=folder)
    try:
        with os.fdopen(handle, "wb", buffering=0) as out:
            for part in parts:
                for some in (part, bytes(-len(part) % _ALIGNMENT)):
                    _write_all(out.fileno(), some)
        Path(temporary).replace(folder / name)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def _write_all(descriptor: int, data: memoryview | bytes) -> None:
    while len(data):
        data = data[os.write(descriptor, data) :]


def _read(path: Path) -> WarmFile:
    """Map a file; raise `ValueError` unless it is a whole one of this version."""
    with path.open("rb") as file:
        mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    at = len(_MAGIC) + 8
    if mapped[: len(_MAGIC)] != _MAGIC:
        raise ValueError(f"{path.name} is no warm file")
    length = int.from_bytes(mapped[len(_MAGIC) : at], "little")
    header = json.loads(mapped[at : at + length])
    if header["version"] != __version__:
        raise ValueError(f"{path.name} is of semistream {header['version']}")
    at = _aligned(at + length)
    arrays = []
    for dtype, shape in header["arrays"]:
        count = int(np.prod(shape))
        array = np.frombuffer(mapped, np.dtype(dtype), count, at) if count else np.zeros(0, dtype)
        arrays.append(array.reshape(shape))
        at = _aligned(at + array.nbytes)
    notes = mapped[at : at + header["notes"]]
    if len(notes) != header["notes"]:
        raise ValueError(f"{path.name} is too short")
    return WarmFile(header["shape"], arrays, notes, int(path.stem.rpartition("-")[2]))


def _aligned(offset: int) -> int:
    return -(-offset // _ALIGNMENT) * _ALIGNMENT
