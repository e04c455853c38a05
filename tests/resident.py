"""What this process holds in memory, by the kernel's own account."""

import re
from pathlib import Path


def mapped_bytes() -> int:
    """Return how many bytes of a relation's files this process has in its memory."""
    smaps = Path("/proc/self/smaps").read_text()
    found = re.findall(r"\.(?:codes|data)\nSize:.*?\nRss: +(\d+) kB", smaps, re.DOTALL)
    return 1024 * sum(map(int, found))


def resident_bytes(of: str) -> int:
    """Return the resident size of this process: ``VmRSS`` now, or ``VmHWM``, the peak."""
    found = re.search(rf"{of}:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert found is not None
    return 1024 * int(found[1])
