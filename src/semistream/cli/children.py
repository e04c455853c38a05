"""Processes that a command starts, and that do not outlive it.

If the command is interrupted, or gets SIGTERM, it ends them and removes its files. If it is killed,
they notice that themselves.
"""

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import active_children, parent_process
from types import FrameType

_KILLED_BY = 128  # a shell adds the signal's number


def end_with_parent() -> None:
    """Let this process end as soon as the one that started it has; call it when it begins."""
    parent = parent_process()
    assert parent is not None, "a process that multiprocessing has started"

    def watch() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


@contextmanager
def children_end_on_errors() -> Iterator[None]:
    """End the processes that the block has started if it ends with an error, or by SIGTERM."""
    before = set(active_children())
    try:
        with _sigterm_raises():
            yield
    except BaseException:
        for child in set(active_children()) - before:
            child.terminate()
        raise


@contextmanager
def _sigterm_raises() -> Iterator[None]:
    """Let SIGTERM raise `SystemExit`, so that whatever is open is closed."""
    if threading.current_thread() is not threading.main_thread():
        yield  # no signal comes here
        return

    def leave(number: int, frame: FrameType | None) -> None:
        raise SystemExit(_KILLED_BY + number)

    before = signal.signal(signal.SIGTERM, leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
