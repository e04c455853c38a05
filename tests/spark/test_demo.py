"""Ctrl-C in the demo; `tests/install` runs it to its end."""

import logging
import os
import signal
import subprocess
import sys
from pathlib import Path
from time import sleep

import pytest

from semistream.spark.session import ended_by_interrupt
from tests.spark.services import PATIENCE_SECONDS, environment

DEMO = [sys.executable, "-m", "semistream.cli.main", "demo"]


def interrupted(tmp_path: Path, after: str, seconds: float = 0.0) -> tuple[int, list[str]]:
    """Interrupt a demo some time after it printed a line; return its exit code and what follows.

    As from a terminal, the signal goes to all processes of the demo, Spark's workers among them.
    All of them have its output, so that ends when the last of them does.
    """
    options = ["--rows", "400000", "--sales", "10000", "--batches", "3", "--out", str(tmp_path)]
    with subprocess.Popen(
        [*DEMO, *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=environment(),
        start_new_session=True,
    ) as demo:
        assert demo.stdout is not None
        next(line for line in demo.stdout if after in line)
        sleep(seconds)
        os.killpg(demo.pid, signal.SIGINT)
        lines = demo.stdout.read().splitlines()
        return demo.wait(PATIENCE_SECONDS), lines


def test_an_interrupt_is_one_line(tmp_path: Path) -> None:
    # When the rows have been written, Spark builds the relation, for some seconds.
    code, after = interrupted(tmp_path, "✓ writing 400,000 products")
    assert code == 130
    # Steps that ended before the signal came have a line each.
    assert [line for line in after if not line.startswith("✓")] == ["semistream: interrupted"]
    assert not (tmp_path / "spark-local").exists()


def test_an_interrupt_while_spark_starts_leaves_no_process(tmp_path: Path) -> None:
    code, after = interrupted(tmp_path, "semistream demo", seconds=1.0)
    assert code == 130
    assert after[-1] == "semistream: interrupted"
    assert not any("Traceback" in line for line in after)


def test_an_interrupt_in_a_finalizer_is_not_lost() -> None:
    class Interrupted:
        def __del__(self) -> None:
            signal.raise_signal(signal.SIGINT)
            sleep(0)  # the handler runs here, and Python ignores what it raises

    def block() -> None:
        with ended_by_interrupt():
            dying = Interrupted()
            del dying
            sleep(PATIENCE_SECONDS)

    with pytest.raises(KeyboardInterrupt):
        block()
    logging.disable(logging.NOTSET)
