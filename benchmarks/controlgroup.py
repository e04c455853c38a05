"""A control group that limits how much of R the page cache can hold. Needs root on Linux.

Files that are read count against the limit of the group that reads them first, beside the memory
of its processes. So in a group with a low limit, R is really too big for memory.
"""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

_CONTROLLER = Path("/sys/fs/cgroup/memory")
_ATTEMPTS = 100
NOT_POSSIBLE = "This needs root and control groups (version 1) to limit the page cache: not run."


def is_possible() -> bool:
    """Return whether this machine and user can make a control group."""
    return os.geteuid() == 0 and (_CONTROLLER / "memory.limit_in_bytes").exists()


@dataclass(frozen=True)
class ControlGroup:
    """A group of processes with a limit of memory, the files that they read included."""

    path: Path

    def enter(self) -> None:
        """Move this process into the group. Processes that it starts from now on are there too."""
        (self.path / "cgroup.procs").write_text(str(os.getpid()))

    def limit(self, limit_bytes: int) -> None:
        """Set the limit, with nothing in the page cache."""
        os.sync()
        Path("/proc/sys/vm/drop_caches").write_text("3")
        (self.path / "memory.limit_in_bytes").write_text(str(limit_bytes))

    def unlimit(self) -> None:
        """Lift the limit."""
        (self.path / "memory.limit_in_bytes").write_text("-1")

    def leave_for_page_cache(self, cache_bytes: int) -> None:
        """Set the limit to what the processes hold now, shared memory included, and this more."""
        self.unlimit()
        lines = (self.path / "memory.stat").read_text().splitlines()
        held = dict(line.split() for line in lines)
        self.limit(int(held["rss"]) + int(held.get("shmem", 0)) + cache_bytes)

    def remove(self) -> None:
        """Move all processes out and remove the group, as soon as those that end have ended."""
        for _ in range(_ATTEMPTS):
            for process in (self.path / "cgroup.procs").read_text().split():
                with suppress(ProcessLookupError):  # it has ended meanwhile
                    (_CONTROLLER / "cgroup.procs").write_text(process)
            with suppress(OSError):
                self.path.rmdir()
                return
            time.sleep(0.1)
        raise RuntimeError(f"{self.path} cannot be removed: processes in it do not end")


@contextmanager
def control_group() -> Iterator[ControlGroup]:
    """Make a group, and remove it at the end; processes that are still in it are moved out."""
    group = ControlGroup(_CONTROLLER / f"semistream-{os.getpid()}")
    group.path.mkdir(exist_ok=True)
    try:
        yield group
    finally:
        group.unlimit()
        group.remove()
