"""Devices: how R is read, and emulated disks to read it from.

A `Reading` says how a join reads R's pages. Its `device` may be an `EmulatedDevice`: the bytes
still come from the real files, and the time that the named device would have taken is charged to
its clock instead of being waited for. So a run takes CPU time only, can be repeated, and is the
same everywhere.

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
    """

    device: "EmulatedDevice | None" = None
    read_ahead: bool = False
    whole_pages: bool = False

    def open(self, file: PageFile, path: str) -> PageFile:
        """Return a file as this reading sees it."""
        return file if self.device is None else EmulatedPageFile(self.device, file, path)


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

# Seek, bandwidth, overhead of a request. The first is the disk of the first paper's time; round
# figures of their kind, not of a product.
DEVICES: dict[str, tuple[float, float, float]] = {
    "hdd-2007": (0.008, 80e6, 0.0),
    "hdd-2011": (0.008, 130e6, 0.0),
    "ssd": (0.0, 500e6, 0.0001),
    "object-store": (0.0, 100e6, 0.02),
}


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

    def close(self) -> None:
        """Close the file."""
        self._file.close()
