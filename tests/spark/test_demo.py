"""Ctrl-C in the demo; `tests/install` runs it to its end."""

import os
import signal
import subprocess
import sys
from pathlib import Path

from tests.spark.services import PATIENCE_SECONDS, environment

DEMO = [sys.executable, "-m", "semistream.cli.main", "demo"]


def test_an_interrupt_is_one_line(tmp_path: Path) -> None:
    """As from a terminal, it goes to all processes of the demo, Spark's workers among them."""
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
        # When the rows have been written, Spark builds the relation, for some seconds.
        before = next(line for line in demo.stdout if "writing 400,000 products" in line)
        os.killpg(demo.pid, signal.SIGINT)
        after = demo.stdout.read()
        code = demo.wait(PATIENCE_SECONDS)
    assert before.startswith("✓")
    assert after.splitlines() == ["semistream: interrupted"]
    assert code == 130
    assert not (tmp_path / "spark-local").exists()
