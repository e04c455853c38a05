"""Numba's `njit` for this package's kernels, with a cache in a writable folder.

Kernels are compiled once and kept on disk. Numba looks for a folder in ``NUMBA_CACHE_DIR``, then in
the package itself, then in the user's cache folder, and raises at import if it can write to none of
them, as on an executor whose image and home are read-only. Here the search continues:

1. ``$SEMISTREAM_CACHE``, the folder for all files that Semistream keeps between runs;
2. a folder in the system's temporary folder that belongs to this user alone. What Numba loads
   from its cache is code, so a folder that others could have written to is not used;
3. no cache: every process compiles its kernels again, and says so once.

The folder is set for the time of each decoration only: other packages that use Numba keep theirs.

What is compiled includes the kernels of other modules that a kernel calls, but Numba looks at the
kernel's own file only. So here a kernel is compiled again when any file of kernels has changed.
"""

import os
import stat
import tempfile
import warnings
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, TypeAlias

import numba

CACHE_VARIABLE = "SEMISTREAM_CACHE"
_KERNEL_FILES = ("*kernels.py", "moves.py")
_Function: TypeAlias = Callable[..., Any]


def njit(**options: Any) -> Callable[[_Function], Any]:
    """Return Numba's decorator; with ``cache=True`` it copes with folders that are read-only."""

    def decorate(function: _Function) -> Any:
        try:
            return _stamped(numba.njit(**options)(function))
        except RuntimeError:  # there is no folder that Numba can write to
            if not options.get("cache"):
                raise
            return _stamped(_compile_with_own_cache(function, options))

    return decorate


def _stamped(kernel: Any) -> Any:
    """Let a kernel's cache be valid only as long as no file of kernels changes."""
    index: Any = getattr(getattr(kernel, "_cache", None), "_cache_file", None)
    if hasattr(index, "_source_stamp"):  # Numba's own name; without it, only its own file counts
        index._source_stamp = (index._source_stamp, _stamp_of_kernels())
    return kernel


@cache
def _stamp_of_kernels() -> tuple[int, int]:
    """Return the time of the last change of a file of kernels, and the size of all of them."""
    package = Path(__file__).parent
    found = [path.stat() for name in _KERNEL_FILES for path in package.rglob(name)]
    return max((s.st_mtime_ns for s in found), default=0), sum(s.st_size for s in found)


def _compile_with_own_cache(function: _Function, options: dict[str, Any]) -> Any:
    folder = _own_folder()
    if folder is None:
        return numba.njit(**{**options, "cache": False})(function)
    config: Any = numba.config
    theirs, config.CACHE_DIR = config.CACHE_DIR, folder
    try:
        return numba.njit(**options)(function)
    finally:
        config.CACHE_DIR = theirs


@cache
def _own_folder() -> str | None:
    """Return the folder to cache in where Numba finds none; None, after a warning, without one."""
    given = os.environ.get(CACHE_VARIABLE)
    if given and _can_write(Path(given) / "numba"):
        return str(Path(given) / "numba")
    private = Path(tempfile.gettempdir()) / f"semistream-{os.getuid()}" / "numba"
    if is_private(private.parent) and _can_write(private):
        return str(private)
    warnings.warn(
        "semistream found no writable folder for its compiled kernels, so every process compiles "
        "them again, which takes seconds; set NUMBA_CACHE_DIR to a folder that can be written",
        RuntimeWarning,
        stacklevel=2,
    )
    return None


def _can_write(folder: Path) -> bool:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()
    except OSError:
        return False
    return True


def is_private(folder: Path) -> bool:
    """Make a folder unless it exists; return whether it is ours and closed to all others."""
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        found = folder.lstat()
    except OSError:
        return False
    is_closed = not found.st_mode & (stat.S_IRWXG | stat.S_IRWXO)
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and is_closed
