"""Spark's own processes, started on 127.0.0.1 for one test and stopped by their ids."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import pyspark

SPARK_HOME = Path(pyspark.__file__).parent
PATIENCE_SECONDS = int(os.environ.get("PATIENCE_SECONDS", "120"))  # more on a busy machine
# A test is over before the second compiler of the JVM would pay.
JVM_FOR_SHORT_LIVES = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


def free_port() -> int:
    """Return a port that no process listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def environment(**changes: str) -> dict[str, str]:
    """Return our environment without what a Spark session in this process has put there."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("SPARK_", "PYSPARK_"))}
    return kept | {
        "SPARK_HOME": str(SPARK_HOME),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_DAEMON_MEMORY": "256m",
        "JAVA_TOOL_OPTIONS": f"{os.environ['JAVA_TOOL_OPTIONS']} {JVM_FOR_SHORT_LIVES}",
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        **changes,
    }


@contextmanager
def service(
    command: Sequence[str], log: Path, env: Mapping[str, str]
) -> Iterator[subprocess.Popen]:
    """Run a process until the block ends, then stop it and all it started."""
    with log.open("wb") as out:
        process = subprocess.Popen(
            command, stdout=out, stderr=subprocess.STDOUT, env=env, start_new_session=True
        )
    try:
        yield process
    finally:
        _stop(process)


def _stop(process: subprocess.Popen) -> None:
    for how in (signal.SIGTERM, signal.SIGKILL):
        with suppress(ProcessLookupError):
            os.killpg(process.pid, how)
        with suppress(subprocess.TimeoutExpired):
            process.wait(10)


def wait_until_listening(process: subprocess.Popen, port: int, log: Path) -> None:
    """Return when the port answers; fail with the log if the process ends or takes too long."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
        except OSError:
            time.sleep(0.2)
        else:
            return
    raise AssertionError(f"nothing listens on port {port}:\n{log.read_text()[-4000:]}")


def run_driver(script: str, *arguments: str, env: Mapping[str, str]) -> str:
    """Run a driver program to its end and return what it printed."""
    path = Path(__file__).parent / script
    done = subprocess.run(
        [sys.executable, str(path), *arguments],
        capture_output=True,
        text=True,
        env=env,
        timeout=2 * PATIENCE_SECONDS,
        check=False,
    )
    assert done.returncode == 0, f"{script} failed:\n{done.stderr[-6000:]}"
    return done.stdout
