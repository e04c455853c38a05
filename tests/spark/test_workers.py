"""Workers that cannot run semistream are found on the driver; `configure_spark` makes them able."""

import json
import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import semistream as ss
from semistream.errors import OptionError
from semistream.spark import workers
from semistream.spark.workers import _reason
from tests.spark.services import environment, run_driver

PACKAGE = Path(ss.__file__).parent
ARROW = "spark.sql.execution.arrow.pyspark.enabled"


@pytest.fixture
def bare(tmp_path: Path) -> Path:
    """A virtual environment with nothing in it."""
    folder = tmp_path / "bare"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    return folder / "bin" / "python"


@pytest.fixture
def other(tmp_path: Path, bare: Path) -> Path:
    """A virtual environment with all that we have, but another version of semistream."""
    folder = tmp_path / "other"
    shutil.copytree(bare.parents[1], folder, symlinks=True)
    site = folder / "lib" / f"python{sys.version_info.major}.{sys.version_info.minor}"
    site /= "site-packages"
    shutil.copytree(PACKAGE, site / "semistream", ignore=shutil.ignore_patterns("__pycache__"))
    (site / "semistream" / "version.py").write_text('__version__ = "0.0.9"\n')
    (site / "ours.pth").write_text(f"{sysconfig.get_path('purelib')}\n")
    return folder / "bin" / "python"


def test_what_the_driver_says_about_its_workers(tmp_path: Path, bare: Path, other: Path) -> None:
    env = environment(PYTHONPATH="", SOURCES=str(PACKAGE.parent))
    del env["PYSPARK_PYTHON"], env["PYSPARK_DRIVER_PYTHON"], env["PYTHONPATH"]
    env["PATH"] = f"{bare.parent}:{env['PATH']}"
    arguments = (str(tmp_path), str(bare), str(other))
    found = json.loads(run_driver("workers_driver.py", *arguments, env=env))
    problems = {
        "bare": f"No module named 'pyarrow' in {bare}",
        "other": f"{other} has semistream 0.0.9, the driver {ss.__version__}",
        "missing": 'Cannot run program "/no/python"',
    }
    for name, problem in problems.items():
        for said in found[name].values():
            assert said.startswith(
                f"WorkerError: Spark's Python workers cannot run semistream: {problem}"
            )
            assert f"PYSPARK_PYTHON={sys.executable} before it starts" in said
            assert "configure_spark(" in said
            assert "--archives" in said
            assert "cluster libraries" in said
    assert found["configured"] == {"enrich": "10", "build": "10"}
    assert found["same_builder"]
    assert found["python"] == sys.executable
    assert found["cache"] == str(tmp_path / "cache")
    assert found["later"]["jobs"] == 0


def test_settings_that_are_there_are_respected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYSPARK_PYTHON", "./environment/bin/python")
    builder = ss.configure_spark(SparkSession.Builder())
    assert builder._options["spark.pyspark.python"] == "./environment/bin/python"
    builder = SparkSession.Builder().config("spark.pyspark.python", "python-a")
    assert ss.configure_spark(builder)._options["spark.pyspark.python"] == "python-a"
    assert os.environ["PYSPARK_PYTHON"] == "python-a"
    ss.configure_spark(builder, python="python-b")
    assert os.environ["PYSPARK_PYTHON"] == builder._options["spark.pyspark.python"] == "python-b"
    assert builder._options[ARROW] == "true"
    assert ss.configure_spark(builder.config(ARROW, "false"))._options[ARROW] == "false"


def test_packages_are_those_of_this_spark_unless_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYSPARK_PYTHON", "python-a")
    monkeypatch.setattr(workers, "pyspark_version", "4.2.7")
    builder = SparkSession.Builder().config("spark.jars", "/jars/spark-avro_2.13-4.1.1.jar")
    builder = ss.configure_spark(builder, uses=["kafka", "avro", "delta"])
    assert builder._options["spark.jars.packages"].split(",") == [
        "org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.7",
        "io.delta:delta-spark_4.2_2.13:4.4.0",
    ]
    assert "delta" in builder._options["spark.sql.catalog.spark_catalog"]
    with pytest.raises(OptionError, match=r"got 'kafca'.*Did you mean 'kafka'"):
        ss.configure_spark(SparkSession.Builder(), uses=["kafca"])


def test_a_connect_server_has_its_own_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYSPARK_PYTHON", "python-a")
    builder = SparkSession.Builder().remote("sc://127.0.0.1:1")
    before = dict(builder._options)
    assert ss.configure_spark(builder, python="python-b")._options == before
    assert os.environ["PYSPARK_PYTHON"] == "python-a"


def test_a_driver_without_pandas_is_told_the_extra(tmp_path: Path) -> None:
    (tmp_path / "pandas.py").write_text("raise ModuleNotFoundError(name='pandas')")
    code = (
        "import semistream.spark.workers as workers, sys\n"
        f"sys.path.insert(0, {str(tmp_path)!r}); sys.modules.pop('pandas', None)\n"
        "workers.check_workers(None)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stderr.endswith("not installed. Install it: pip install 'semistream[spark]'\n")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('x: Cannot run program "p": error=2\n\tat a.b', 'Cannot run program "p": error=2'),
        ("x\nError from python worker:\n  p: not found\n  more", "p: not found"),
        ("a\n[X] Python in worker has 3.9 not 3.11, see", "Python in worker has 3.9 not 3.11"),
        ("a\nlast line.\n", "last line"),
    ],
)
def test_why_a_worker_did_not_start(text: str, reason: str) -> None:
    assert _reason(text) == reason
