"""Devices: how R is read, and emulated disks to read it from.

A `Reading` says how a join reads R's pages. Its `device` may be an `EmulatedDevice`: the bytes
still come from the real files, and the time that the named device would need is added to its clock
instead of being waited for. So a run needs CPU time only, can be repeated, and gives the same
result everywhere. Without one the machine's own device is read. A comparison may exclude its page
cache: then every read is followed by dropping the bytes from the cache.

The model: a request costs its overhead; a seek, unless it starts where the one before ended, in
the same file; and its bytes at the device's bandwidth. One request is served at a time. A request
that was announced is served while the join computes; only the remaining time is charged.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass, field

from semistream.errors import OptionError, did_you_mean
from semistream.relation.disk import RequestFile
from semistream.relation.storage import PageFile

# What a request costs, in bytes that could be read instead: from the page cache, and from a store
# that serves several requests at a time.
_LOCAL_GAP_BYTES = 8 << 10
_REMOTE_GAP_BYTES = 256 << 10


@dataclass(frozen=True, slots=True)
class Reading:
    """How pages are read. The default performs best; the other settings are for comparisons.

    ``read_ahead``: the next pages are announced to the device while the current ones are probed.
    ``whole_pages``: all columns of every page are read, as in the papers, instead of the key codes
    first and the requested columns only where a key matched.
    ``as_rows``: an emulated device charges as if keys were stored in their rows, not in a file of
    their own, so a run of whole pages is one request.
    ``uncached``: bytes that were read are dropped from the operating system's page cache.
    ``in_place``: rows may be looked at where they lie in the page cache, without a copy.
    """

    device: "EmulatedDevice | None" = None
    read_ahead: bool = False
    whole_pages: bool = False
    as_rows: bool = False
    uncached: bool = False
    in_place: bool = True

    def most_gap_bytes(self, is_local: bool) -> int:
        """Return how many bytes are read as well because another request would cost more."""
        if self.device is not None:
            seek_s, request_s, bytes_per_s = self.device.costs
            return int((seek_s + request_s) * bytes_per_s)
        return _LOCAL_GAP_BYTES if is_local else _REMOTE_GAP_BYTES

    def open(self, file: PageFile, path: str) -> PageFile:
        """Return the file to read from: this one, or one that emulates or bypasses a cache."""
        if self.device is None:
            return UncachedPageFile(file) if self.uncached else file
        is_free = self.as_rows and path.endswith(".codes")
        return file if is_free else EmulatedPageFile(self.device, file, path)


@dataclass(slots=True)
class EmulatedDevice:
    """A model of a disk, with the clock that its time is charged to."""

    name: str
    seek_s: float  # of a request that does not start where the one before ended
    bytes_per_s: float
    request_s: float = 0.0  # overhead of every request
    # Returns the computing time so far, in seconds; without it the clock counts reads only.
    computed_s: Callable[[], float] | None = None

    waited_s: float = field(default=0.0, init=False)  # for the device, in total
    requests: int = field(default=0, init=False)
    seeks: int = field(default=0, init=False)
    bytes_read: int = field(default=0, init=False)
    pool: "BufferPool | None" = None  # what is in it costs nothing
    _busy_until_s: float = field(default=0.0, init=False)  # by the clock `now_s`
    _head: tuple[str, int] = field(default=("", 0), init=False)  # file and offset after a request
    # Requests announced but not made: by file and offset, their size and when they are done.
    _announced: dict[tuple[str, int], tuple[int, float]] = field(
        default_factory=dict, init=False, repr=False
    )

    @classmethod
    def named(cls, name: str, computed_s: Callable[[], float] | None = None) -> "EmulatedDevice":
        """Return a new device of a known kind, its clock at zero.

        A name that ends in ``:seek=2ms`` is the device with another seek time.

        >>> [EmulatedDevice.named(name).seek_s for name in ("hdd-2007", "hdd-2007:seek=2ms")]
        [0.008, 0.002]
        """
        kind, _, changed = name.partition(":")
        seek = re.fullmatch(r"seek=(\d+(?:\.\d+)?)ms", changed) if changed else None
        if kind not in DEVICES or (changed and seek is None):
            raise OptionError(
                f"device must be one of {', '.join(DEVICES)}, with another seek time if it ends in "
                f":seek=2ms; got {name!r}.{did_you_mean(kind, list(DEVICES))}"
            )
        seek_s, bytes_per_s, request_s = DEVICES[kind]
        seek_s = float(seek[1]) / 1e3 if seek else seek_s
        return cls(name, seek_s, bytes_per_s, request_s, computed_s)

    @property
    def costs(self) -> tuple[float, float, float]:
        """Seconds per seek, seconds per request, bytes per second, as the cost model needs them."""
        return self.seek_s, self.request_s, self.bytes_per_s

    def shrunk(self, times: float) -> "EmulatedDevice":
        """Return a model of this device for data that is `times` smaller.

        The cost of a request besides its bytes shrinks with the data. So with relation, budget and
        device all `times` smaller, a join needs a fraction 1/`times` of the time for that fraction
        of the tuples: its service rate is the one at full size.
        """
        return EmulatedDevice(
            self.name, self.seek_s / times, self.bytes_per_s, self.request_s / times
        )

    def slowed(self, times: float) -> "EmulatedDevice":
        """Return a device with 1/`times` of the bandwidth, for data that is `times` smaller.

        Reads then last as long as at full size. Use it where times, and the number of tuples that
        arrive during a read, must be as at full size; use `shrunk` where rates must be.
        """
        return EmulatedDevice(self.name, self.seek_s, self.bytes_per_s / times, self.request_s)

    @property
    def now_s(self) -> float:
        """The time of the clock: time waited for the device plus computing time."""
        return self.waited_s + (self.computed_s() if self.computed_s else 0.0)

    def announce(self, file: str, offset: int, size: int) -> None:
        """Begin to serve a request that will be made soon."""
        if len(self._announced) > _MOST_ANNOUNCED:
            self._announced.clear()  # requests that were never made
        if size and (file, offset) not in self._announced:
            self._announced[file, offset] = (size, self._serve(file, offset, size))

    def idle(self, seconds: float) -> None:
        """Let time pass without requests."""
        self.waited_s += seconds

    def read(self, file: str, offset: int, size: int) -> None:
        """Serve a request, and charge the time until it is done."""
        if self.pool is not None and self.pool.has(file, offset, size):
            return
        announced, done_s = self._announced.pop((file, offset), (0, 0.0))
        if size > announced:
            done_s = self._serve(file, offset + announced, size - announced)
        self.waited_s += max(0.0, done_s - self.now_s)

    def _serve(self, file: str, offset: int, size: int) -> float:
        """Return when a request is done that is made now."""
        seeks = self._head != (file, offset)
        cost_s = self.request_s + seeks * self.seek_s + size / self.bytes_per_s
        self._head = (file, offset + size)
        self._busy_until_s = max(self._busy_until_s, self.now_s) + cost_s
        self.requests += 1
        self.seeks += seeks
        self.bytes_read += size
        return self._busy_until_s


class BufferPool:
    """The requests that were served last, up to a size in bytes; the oldest is evicted first.

    For a join that reads one page at a time, as the first paper's index nested loops did: a request
    is found again if it is the same one.
    """

    def __init__(self, size_bytes: int) -> None:
        """Start empty."""
        self._left = size_bytes
        self._held: dict[tuple[str, int], int] = {}  # sizes, the least recently used first

    def has(self, file: str, offset: int, size: int) -> bool:
        """Return whether a request is held; from now on it is."""
        was_held = self._held.pop((file, offset), 0)
        self._held[file, offset] = size
        self._left += was_held - size
        while self._left < 0 and len(self._held) > 1:
            self._left += self._held.pop(next(iter(self._held)))
        return was_held >= size


_MOST_ANNOUNCED = 4096

# Seek, bandwidth, overhead of a request. The first ones are disks of the papers' time; round
# figures of their kind, not of a product. `hdd-one-cost` is `hdd-papers` with a seek charged for
# every request, also one that continues where the last one ended: HYBRIDJOIN's paper has one c_I/O
# for all algorithms, which all send their queries to MySQL. The overhead of `hdd-papers` is what
# makes 0.93 MB the best disk buffer of a 20 MB budget, as in `meshjoin-default-settings.txt`: with
# c_I/O = a + b/β it is best at b² = aβ·(M − 2b), so aβ = 48 kB, and the optima at 40, 80 and 160 MB
# then follow.
DEVICES: dict[str, tuple[float, float, float]] = {
    "hdd-papers": (0.008, 80e6, 0.0006),
    "hdd-one-cost": (0.0, 80e6, 0.0086),
    "hdd-2007": (0.008, 80e6, 0.0),
    "hdd-2011": (0.008, 130e6, 0.0),
    "ssd": (0.0, 500e6, 0.0001),
    "object-store": (0.0, 100e6, 0.02),
}


class UncachedPageFile(RequestFile):
    """A file whose bytes are dropped from the page cache after each read."""

    def __init__(self, file: PageFile) -> None:
        """Take over an open file."""
        self._file = file

    def read_into(self, offset: int, out: memoryview) -> int:
        """Fill `out` from `offset`, then drop those bytes from the page cache."""
        count = self._file.read_into(offset, out)
        self._file.forget(offset, len(out))
        return count

    def announce(self, offset: int, size: int) -> None:
        """Let the device begin."""
        self._file.announce(offset, size)

    def forget(self, offset: int, size: int) -> None:
        """Drop bytes from the page cache."""
        self._file.forget(offset, size)

    def close(self) -> None:
        """Close the file."""
        self._file.close()


class EmulatedPageFile(RequestFile):
    """A file whose reads are charged to a device."""

    def __init__(self, device: EmulatedDevice, file: PageFile, path: str) -> None:
        """Take over an open file."""
        self._device = device
        self._file = file
        self._path = path

    def read_into(self, offset: int, out: memoryview) -> int:
        """Fill `out` from `offset` and charge it."""
        self._device.read(self._path, offset, len(out))
        return self._file.read_into(offset, out)

    def announce(self, offset: int, size: int) -> None:
        """Let the device begin."""
        self._device.announce(self._path, offset, size)

    def forget(self, offset: int, size: int) -> None:
        """Nothing to do: an emulated device has no cache."""

    def close(self) -> None:
        """Close the file."""
        self._file.close()
