"""Local files that are written in blocks: the same bytes, in calls that begin at whole blocks."""

from pathlib import Path

import numpy as np
import pytest

from semistream.relation.disk import Bytes, Disk, LocalOutput

BLOCK_BYTES = 64


class _Counting(Disk):
    """Notes the size of each write."""

    def __init__(self) -> None:
        self.sizes: list[int] = []

    def write(self, descriptor: int, data: Bytes) -> int:  # type: ignore[override]
        self.sizes.append(len(data))
        return Disk.write(descriptor, data)


@pytest.mark.parametrize(
    "sizes", [[], [0], [1], [63, 1], [64], [65], [200, 3, 61, 0, 64, 7], [5] * 40]
)
@pytest.mark.parametrize("end", ["commit", "close"])
def test_a_file_in_blocks_has_all_bytes(tmp_path: Path, sizes: list[int], end: str) -> None:
    disk, path = _Counting(), tmp_path / "file"
    pieces = [np.random.default_rng(size).integers(0, 256, size, np.uint8) for size in sizes]
    file = LocalOutput(disk, str(path), block_bytes=BLOCK_BYTES)
    assert [file.write(piece) for piece in pieces] == sizes
    getattr(file, end)()
    assert path.read_bytes() == b"".join(piece.tobytes() for piece in pieces)
    assert all(size % BLOCK_BYTES == 0 for size in disk.sizes[:-1])


def test_an_abandoned_file_is_closed(tmp_path: Path) -> None:
    disk = _Counting()
    file = LocalOutput(disk, str(tmp_path / "file"), block_bytes=BLOCK_BYTES)
    file.write(b"begun")
    file.abandon()
    file.abandon()
    assert file.closed
    assert not disk.sizes
