"""Files that arrive in a folder which a streaming query reads."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def arriving(path: Path, number: int) -> Iterator[Path]:
    """Yield where to write a file, which then arrives whole; its time is that of its number.

    Spark takes the oldest file first. A query that runs must not see a file while it is empty, or
    it takes it without its rows; nor before its time is set, or it ignores later files as too old.
    """
    unfinished = path.parents[1] / f"{path.name}.unfinished"
    yield unfinished
    os.utime(unfinished, (1_700_000_000 + number,) * 2)
    unfinished.rename(path)
