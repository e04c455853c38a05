"""Virtual environments with nothing in them but what pip installs from a built distribution."""

import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.spark.services import JVM_FOR_SHORT_LIVES

ROOT = Path(__file__).parents[2]
# A test's packages come from pip's cache, in the versions that this project is tested with.
INSTALL = ("-m", "pip", "install", "--quiet", "--no-compile", "--disable-pip-version-check")
PATIENCE_SECONDS = 600


@dataclass(frozen=True)
class Environment:
    """A virtual environment, and a folder outside the repository to run its commands in."""

    folder: Path

    @classmethod
    def make(cls, folder: Path) -> "Environment":
        subprocess.run([sys.executable, "-m", "venv", str(folder / "venv")], check=True)
        return cls(folder)

    @property
    def python(self) -> Path:
        return self.folder / "venv" / "bin" / "python"

    def install(self, *packages: str) -> None:
        constraints = ("-c", str(ROOT / "constraints.txt"))
        done = self._run([str(self.python), *INSTALL, *constraints, *packages])
        assert done.returncode == 0, done.stderr[-3000:]

    def semistream(self, *words: str) -> str:
        """Run the command; return what it printed."""
        done = self.command(*words)
        assert done.returncode == 0, f"semistream {' '.join(words)}:\n{done.stderr[-3000:]}"
        return done.stdout

    def command(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run the command, whatever comes of it."""
        return self._run([str(self.python.parent / "semistream"), *words])

    def script(self, text: str) -> subprocess.CompletedProcess[str]:
        """Run a Python program with this environment's Python, as ``venv/bin/python job.py``."""
        (self.folder / "job.py").write_text(text)
        return self._run([str(self.python), "job.py"])

    def _run(self, command: Sequence[str]) -> subprocess.CompletedProcess[str]:
        names = ("PYTHON", "PYSPARK", "SPARK", "VIRTUAL_ENV")
        kept = {k: v for k, v in os.environ.items() if not k.startswith(names)}
        return subprocess.run(
            command,
            cwd=self.folder,
            env={
                **kept,
                "SPARK_LOCAL_IP": "127.0.0.1",
                "JAVA_TOOL_OPTIONS": f"{kept['JAVA_TOOL_OPTIONS']} {JVM_FOR_SHORT_LIVES}",
            },
            capture_output=True,
            text=True,
            timeout=PATIENCE_SECONDS,
            check=False,
        )
