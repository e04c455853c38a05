"""Devices: how R is read, and emulated disks to read it from.

A `Reading` says how a join reads R's pages. Its `device` may be an `EmulatedDevice`: the bytes
still come from the real files, and the time that the named device would have taken is charged to
its clock instead of being waited for. So a run takes CPU time only, can be repeated, and is the
same everywhere. Without one the machine's own device is read, whose page cache a comparison may
want to do without: then every read is followed by dropping what it left there.

The model: a request costs its overhead; a seek, unless it goes on where the one before ended, in
the same file; and its bytes at the device's bandwidth. One request is served at a time. A request
that was announced is served while the join goes on computing, and costs only the rest.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from semistream.errors import OptionError, did_you_mean
from semistream.relation.storage import PageFile


@dataclass(frozen=True, slots=True)
class Reading:
    """How pages are read. The default is what serves best; the rest is for comparisons.

    ``read_ahead``: the next pages are announced to the device while the current ones are probed.
    ``whole_pages``: all columns of every page are read, as in the papers, instead of the key codes
    first and what is asked for where a key matched.
    ``as_rows``: an emulated device is charged as if keys lay in their rows, not in a file of their
    own, so a run of whole pages is one request.
    ``uncached``: the operating system's page cache forgets what was read.
    """

    device: "EmulatedDevice | None" = None
    read_ahead: bool = False
    whole_pages: bool = False
    as_rows: bool = False
    uncached: bool = False

    def open(self, file: PageFile, path: str) -> PageFile:
        """Return a file as this reading sees it."""
        if self.device is None:
            return UncachedPageFile(file) if self.uncached else file
        is_free = self.as_rows and path.endswith(".codes")
        return file if is_free else EmulatedPageFile(self.device, file, path)


@dataclass(slots=True)
class EmulatedDevice:
    """A disk that only pretends, with the clock that its time is charged to."""

    name: str
    seek_s: float
    bytes_per_s: float
    request_s: float = 0.0
    # What has been computed so far, in seconds: without it, computing takes no time on the clock.
    computed_s: Callable[[], float] | None = None

    waited_s: float = field(default=0.0, init=False)
    requests: int = field(default=0, init=False)
    seeks: int = field(default=0, init=False)
    bytes_read: int = field(default=0, init=False)
    _busy_until_s: float = field(default=0.0, init=False)
    _head: tuple[str, int] = field(default=("", 0), init=False)
    _announced: dict[tuple[str, int], tuple[int, float]] = field(
        default_factory=dict, init=False, repr=False
    )

    @classmethod
    def named(cls, name: str, computed_s: Callable[[], float] | None = None) -> "EmulatedDevice":
        """Return a new device of a known kind, its clock at zero.

        >>> EmulatedDevice.named("hdd-2007").seek_s
        0.008
        """
        if name not in DEVICES:
            raise OptionError(
                f"device must be one of {', '.join(DEVICES)}; got {name!r}."
                f"{did_you_mean(name, list(DEVICES))}"
            )
        seek_s, bytes_per_s, request_s = DEVICES[name]
        return cls(name, seek_s, bytes_per_s, request_s, computed_s)

    @property
    def costs(self) -> tuple[float, float, float]:
        """Seconds for a seek, seconds for a request, bytes per second: what a cost model takes."""
        return self.seek_s, self.request_s, self.bytes_per_s

    def shrunk(self, times: float) -> "EmulatedDevice":
        """Return a model of this device for data so many times smaller.

        What a request costs besides its bytes shrinks with the data, so that a join of a relation,
        with a budget and from a device that are all `times` smaller takes as much less time for as
        many fewer tuples: its service rate is that of the full size.
        """
        return EmulatedDevice(
            self.name, self.seek_s / times, self.bytes_per_s, self.request_s / times
        )

    def slowed(self, times: float) -> "EmulatedDevice":
        """Return a device whose bandwidth is so many times less, for data as many times smaller.

        Reads then take as long as at full size. What is to be as at full size are times, and how
        many tuples of a given rate come during a read; see `shrunk` for where it is the rates.
        """
        return EmulatedDevice(self.name, self.seek_s, self.bytes_per_s / times, self.request_s)

    @property
    def now_s(self) -> float:
        """What the clock shows: what was waited for the device, and what was computed."""
        return self.waited_s + (self.computed_s() if self.computed_s else 0.0)

    def announce(self, file: str, offset: int, size: int) -> None:
        """Begin to serve a request that will be made soon."""
        if len(self._announced) > _MOST_ANNOUNCED:
            self._announced.clear()  # what nobody came for
        if size and (file, offset) not in self._announced:
            self._announced[file, offset] = (size, self._serve(file, offset, size))

    def idle(self, seconds: float) -> None:
        """Let time pass in which nobody asks for anything."""
        self.waited_s += seconds

    def read(self, file: str, offset: int, size: int) -> None:
        """Serve a request, and charge what is left to wait for."""
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


_MOST_ANNOUNCED = 4096

# Seek, bandwidth, overhead of a request. The first two are disks of the first papers' time; round
# figures of their kind, not of a product. The overhead of `hdd-papers` is what makes 0.93 MB the
# best disk buffer of a 20 MB budget, as `meshjoin-default-settings.txt` found: with c_I/O = a + b/β
# it is best at b² = aβ·(M − 2b), so aβ = 48 kB, and the optima at 40, 80 and 160 MB then follow.
DEVICES: dict[str, tuple[float, float, float]] = {
    "hdd-papers": (0.008, 80e6, 0.0006),
    "hdd-2007": (0.008, 80e6, 0.0),
    "hdd-2011": (0.008, 130e6, 0.0),
    "ssd": (0.0, 500e6, 0.0001),
    "object-store": (0.0, 100e6, 0.02),
}


class UncachedPageFile:
    """A file that the operating system forgets as soon as it was read."""

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


class EmulatedPageFile:
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
