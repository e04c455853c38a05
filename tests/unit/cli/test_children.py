"""Processes of `semistream lab run` end with it, whether it is asked to end or killed."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from tests.scratch import new_folder

PATIENCE_S = 60


def wait_for(condition: Callable[[], bool], about: str) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, about
        time.sleep(0.05)


def workers(folder: Path, command: subprocess.Popen[bytes]) -> list[psutil.Process]:
    """Return the command's processes, once both papers are being made."""
    wait_for(
        lambda: len(list(folder.glob("semistream-lab-*/*"))) == 2 or command.poll() is not None,
        "no figure is being made",
    )
    found: list[psutil.Process] = psutil.Process(command.pid).children(recursive=True)
    return found


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_the_processes_of_a_command_end_with_it(how: signal.Signals) -> None:
    folder = new_folder()  # its path is short, as that of a socket must be
    out = str(folder / "out")
    asked = ["lab", "run", "hybridjoin-6", "meshjoin-6b", "--jobs", "2", "--out", out]
    command = subprocess.Popen(
        [sys.executable, "-m", "semistream.cli.main", *asked],
        env={**os.environ, "TMPDIR": str(folder)},
        stdout=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        started = workers(folder, command)
        assert len(started) > 2  # two papers, and what carries their news
        command.send_signal(how)
        assert command.wait(PATIENCE_S) == (128 + how if how is signal.SIGTERM else -how)
        wait_for(lambda: not psutil.wait_procs(started, 0)[1], "processes are left behind")
    finally:
        with suppress(ProcessLookupError):
            os.killpg(command.pid, signal.SIGKILL)
    if how is signal.SIGTERM:
        assert not list(folder.glob("semistream-lab-*")), "files are left behind"
