"""The files that a reader has open: those used last, at most a fixed number of them."""

import errno
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

from semistream.relation.storage import PageFile

MOST_OPEN = 64
_TOO_MANY = (errno.EMFILE, errno.ENFILE)

Key = TypeVar("Key", bound=Hashable)


class OpenFiles(Generic[Key]):
    """Opens files when they are requested and closes the least recently used one.

    If the process may open fewer than `most`, the limit of the process applies.
    """

    def __init__(self, open_file: Callable[[Key], PageFile], most: int | None = MOST_OPEN) -> None:
        """Open nothing yet. Without `most`, as for objects in a bucket, all files stay open."""
        self._open_file = open_file
        self._most = most  # files open at a time; None: no limit
        self._files: OrderedDict[Key, PageFile] = OrderedDict()  # most recently used at the end

    def __len__(self) -> int:
        """Return how many files are open."""
        return len(self._files)

    def get(self, key: Key) -> PageFile:
        """Return a file, opened if it was not open."""
        file = self._files.get(key)
        if file is None:
            return self._open(key)
        self._files.move_to_end(key)
        return file

    def close(self) -> None:
        """Close all files."""
        self._close_down_to(0)

    def _open(self, key: Key) -> PageFile:
        if self._most is not None:
            self._close_down_to(self._most - 1)
        while True:
            try:
                file = self._files[key] = self._open_file(key)
                return file
            except OSError as error:
                if error.errno not in _TOO_MANY or not self._files:
                    raise
                self._close_down_to(len(self._files) // 2)

    def _close_down_to(self, count: int) -> None:
        while len(self._files) > count:
            _, file = self._files.popitem(last=False)
            file.close()
