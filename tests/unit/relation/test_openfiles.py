import errno
from pathlib import Path

import pyarrow as pa
import pytest

import semistream as ss
from semistream.relation.openfiles import MOST_OPEN, OpenFiles


class Device:
    """Hands out files, as many at a time as it has descriptors."""

    def __init__(self, descriptors: int) -> None:
        self.free = descriptors
        self.opened: list[int] = []

    def open(self, key: int) -> "_File":
        if not self.free:
            raise OSError(errno.EMFILE, "Too many open files")
        self.free -= 1
        self.opened.append(key)
        return _File(self)


class _File:
    def __init__(self, device: Device) -> None:
        self.device = device

    def read_into(self, offset: int, out: memoryview) -> int:
        raise NotImplementedError

    def announce(self, offset: int, size: int) -> None: ...

    def forget(self, offset: int, size: int) -> None: ...

    def close(self) -> None:
        self.device.free += 1


def test_the_file_that_was_not_used_for_longest_is_closed() -> None:
    device = Device(100)
    files = OpenFiles(device.open, most=2)
    for key in (1, 2, 1, 3, 1, 2):
        files.get(key)
    assert device.opened == [1, 2, 3, 2]
    assert (len(files), device.free) == (2, 98)
    files.close()
    assert (len(files), device.free) == (0, 100)


def test_fewer_descriptors_than_wanted_will_do() -> None:
    device = Device(4)
    files = OpenFiles(device.open, most=64)
    for key in range(20):
        files.get(key)
    assert device.opened == list(range(20))
    assert 0 < len(files) <= 4


def test_no_descriptor_at_all() -> None:
    with pytest.raises(OSError, match="Too many open files"):
        OpenFiles(Device(0).open).get(1)


def test_other_errors_are_not_taken_for_too_many_files() -> None:
    def broken(key: int) -> _File:
        raise OSError(errno.EIO, "Input/output error")

    device = Device(9)
    files = OpenFiles(lambda key: device.open(key) if key else broken(key))
    files.get(1)
    with pytest.raises(OSError, match="Input/output"):
        files.get(0)
    assert len(files) == 1


def test_files_that_take_no_descriptor_stay_open() -> None:
    device = Device(1000)
    files = OpenFiles(device.open, most=None)
    for key in range(200):
        files.get(key)
    assert len(files) == 200


def test_a_reader_of_many_partitions_has_few_files_open(tmp_path: Path) -> None:
    table = pa.table({"id": list(range(400))})
    relation = ss.build_relation(table, tmp_path, key="id", partitions=200)
    before = descriptors()
    reader = relation.reader([])
    for page in range(reader.page_count):
        reader.announce("codes", page, page + 1)
    assert MOST_OPEN / 2 < descriptors() - before <= MOST_OPEN
    reader.close()
    assert descriptors() == before


def descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))
