"""Fetches what tests need from Maven Central with Spark's own Ivy, once for an environment."""

import fcntl
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.spark.services import JVM_FOR_SHORT_LIVES, PATIENCE_SECONDS, SPARK_HOME

JAVA = (shutil.which("java") or "java", *JVM_FOR_SHORT_LIVES.split())
CACHE = Path(sys.prefix) / "ivy"
_ATTEMPTS = 3


def fetch(listed: Path, folder: Path) -> None:
    """Put the jars that a file lists into the folder, each under the name of its configuration."""
    (ivy,) = (SPARK_HOME / "jars").glob("ivy-*.jar")
    pattern = f"{folder}/[conf]/[artifact]-[revision].[ext]"
    command = [*JAVA, "-jar", ivy, "-cache", CACHE, "-ivy", listed, "-retrieve", pattern]
    for attempt in range(_ATTEMPTS):
        time.sleep(attempt * 5)
        with one_at_a_time():
            done = run(*map(str, command))
        if done.returncode == 0:
            return
    raise AssertionError(
        f"Ivy could not fetch what {listed.name} names. The test needs Maven Central once; "
        f"after that the jars are in {CACHE}. Ivy says:\n{done.stdout[-4000:]}"
    )


@contextmanager
def one_at_a_time() -> Iterator[None]:
    """Let no other process use the cache meanwhile: Ivy does not lock it."""
    CACHE.mkdir(exist_ok=True)
    with (CACHE / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def run(*command: str) -> subprocess.CompletedProcess[str]:
    """Run a program to its end; what it printed is kept."""
    return subprocess.run(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=3 * PATIENCE_SECONDS,
        check=False,
    )
