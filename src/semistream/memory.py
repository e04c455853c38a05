"""The memory ledger: every structure of a join reserves its bytes here before it allocates.

One ledger belongs to one running operator. A reservation is made in the name of a *holder*
("window", "disk buffer", …); when the budget does not cover a request, the error names the
request, every holder with its bytes, and the bytes that are left.

Memory that the ledger does not count:

=================================================================  ================================
what                                                               size
=================================================================  ================================
the interpreter with Arrow, NumPy, Numba and the compiled kernels  about 200 MB in a Spark worker
the last batch of the source                                       as large as the source makes it
an output batch that has been emitted                              at most an eighth of the budget
intermediate arrays of a read or of an output batch                at most 1 MB
first input and output of a budget below 0.5 MB                    at most 128 KB
`auto`: sampled key codes, and the demand computed from them       at most 2 MB
flags of pages whose checksums were verified, per process          a byte per page and part
freed memory that the allocators keep                              a few MB
=================================================================  ================================

A test compares the growth of the process with the budget: at most a tenth and 8 MB more.

>>> ledger = MemoryLedger(1_000)
>>> window = ledger.reserve("window", 600)
>>> ledger.reserve("disk buffer", 500)
Traceback (most recent call last):
    ...
semistream.errors.BudgetError: disk buffer needs 500 B but only 400 B of the budget of 1.0 KB \
are left (window holds 600 B). Raise memory.
>>> window.release()
>>> ledger.held_bytes, ledger.peak_bytes
(0, 600)
"""

import ctypes
import gc
import sys
from pathlib import Path

import pyarrow as pa

from semistream.errors import BudgetError
from semistream.units import format_bytes

MEMINFO = Path("/proc/meminfo")
_CACHED_SHARE = 0.4  # of the memory of a host, that its page cache will hold
_OWN_GROUPS = Path("/proc/self/cgroup")
_GROUPS = Path("/sys/fs/cgroup")
# The files of a control group that have its limit and its use: of the second version, of the first.
_LIMITS = (
    ("memory.max", "memory.current"),
    ("memory.limit_in_bytes", "memory.usage_in_bytes"),
)

_malloc_trim = getattr(ctypes.CDLL(None), "malloc_trim", None) if sys.platform == "linux" else None


class MemoryLedger:
    """Counts the bytes reserved out of a fixed budget, and their peak."""

    def __init__(self, budget_bytes: int) -> None:
        """Start with nothing held."""
        self.budget_bytes = budget_bytes
        self.peak_bytes = 0  # the most bytes that were reserved at any time
        self._held: dict[str, int] = {}  # bytes by holder; holders without bytes are left out
        self._peaks: dict[str, int] = {}  # the most that each holder held

    @property
    def held_bytes(self) -> int:
        """The bytes reserved now, over all holders."""
        return sum(self._held.values())

    @property
    def available_bytes(self) -> int:
        """The bytes that can still be reserved."""
        return self.budget_bytes - self.held_bytes

    def holders(self) -> dict[str, int]:
        """Return the bytes of each holder."""
        return dict(self._held)

    def peaks(self) -> dict[str, int]:
        """Return the most bytes that each holder held at any time."""
        return dict(self._peaks)

    def reserve(self, holder: str, size_bytes: int) -> "Reservation":
        """Reserve bytes for a holder, or raise `BudgetError`."""
        reservation = Reservation(self, holder)
        reservation.resize(size_bytes)
        return reservation

    def _change(self, holder: str, delta_bytes: int) -> None:
        if delta_bytes > self.available_bytes:
            raise BudgetError(self._shortage(holder, delta_bytes))
        self._held[holder] = self._held.get(holder, 0) + delta_bytes
        self._peaks[holder] = max(self._held[holder], self._peaks.get(holder, 0))
        if not self._held[holder]:
            del self._held[holder]
        self.peak_bytes = max(self.peak_bytes, self.held_bytes)

    def _shortage(self, holder: str, requested_bytes: int) -> str:
        held = ", ".join(f"{name} holds {format_bytes(n)}" for name, n in self._held.items())
        return (
            f"{holder} needs {format_bytes(requested_bytes)} but only "
            f"{format_bytes(self.available_bytes)} of the budget of "
            f"{format_bytes(self.budget_bytes)} are left ({held or 'nothing is held'}). "
            "Raise memory."
        )


class Reservation:
    """The bytes of one holder; grows, shrinks and is released as a whole."""

    def __init__(self, ledger: MemoryLedger, holder: str) -> None:
        """Start at zero bytes."""
        self._ledger = ledger
        self._holder = holder
        self.size_bytes = 0

    def resize(self, size_bytes: int) -> None:
        """Change the reservation to this size, or raise `BudgetError` and change nothing."""
        assert size_bytes >= 0
        self._ledger._change(self._holder, size_bytes - self.size_bytes)
        self.size_bytes = size_bytes

    def release(self) -> None:
        """Return all bytes to the budget."""
        self.resize(0)


def return_free_memory() -> None:
    """Return memory that was freed to the operating system, as far as the allocators let go of it.

    Call it after one large structure is freed and before another is allocated: memory that an
    allocator keeps of the first would add to that of the second.
    """
    gc.collect()
    return_freed_pages()


def return_freed_pages() -> None:
    """Return the free pages of Arrow's pool, and of the C library's heap if that can do it.

    glibc can, musl can not.
    """
    pa.default_memory_pool().release_unused()
    if _malloc_trim is not None:
        _malloc_trim(0)


def host_memory() -> tuple[int, int]:
    """Return available and total memory, in bytes; the limit of a container counts as its total."""
    fields = dict(line.split(":") for line in MEMINFO.read_text().splitlines())
    total, free = (1024 * int(fields[n].split()[0]) for n in ("MemTotal", "MemAvailable"))
    for group in _control_groups():
        for limit, used in _LIMITS:
            text = (group / limit).read_text().strip() if (group / limit).is_file() else "max"
            if text.isdigit() and int(text) < total:
                total = int(text)
                free = min(free, total - int((group / used).read_text()))
    return max(0, free), total


def stays_cached(size_bytes: int) -> bool:
    """Return whether files of this size will stay in the page cache of this host."""
    return MEMINFO.exists() and size_bytes < _CACHED_SHARE * host_memory()[1]


def _control_groups() -> list[Path]:
    """Return the control groups that limit this process: its own, and those that it is part of.

    In a container the group at the top is its own, whatever the path is that the host gives it.
    """
    groups = [_GROUPS, _GROUPS / "memory"]
    if not _OWN_GROUPS.exists():
        return groups
    for line in _OWN_GROUPS.read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers in ("", "memory"):  # of the second version, or of the first
            top = _GROUPS / controllers
            own = top / path.lstrip("/")
            groups += [group for group in (own, *own.parents) if group.is_relative_to(top)]
    return groups
