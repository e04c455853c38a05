"""Sdist and wheel are built, and every extra is installed outside the repository and used.

All extras go into one environment, one or two at a time. Each adds packages that were not there
before it, which its command is then seen to need and to find; that takes less time than an
environment for each.
"""

import re
import shutil
import subprocess
import tarfile
import zipfile
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.install.environments import ROOT, Environment

BUILD = """
from setuptools import build_meta
build_meta.build_sdist("dist")
build_meta.build_wheel("dist")
"""
JOB = """
from pyspark.sql import SparkSession
import semistream as ss

builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
spark = ss.configure_spark(builder).getOrCreate()
products = ss.build_relation(spark.range(1000).selectExpr("id", "id * 2 as v"), "p.rel", key="id")
joined = ss.enrich(spark.range(1500), products, memory="2MB")
print("joined", joined.count(), joined.where("v is not null").count())
spark.stop()
"""
EXPLAIN = ("explain", "r.rel", "--memory", "1MB", "--sample", "sales")
PLOT = (*EXPLAIN, "--plot", "chart.png")
LAB = ("lab", "run", "meshjoin-5a", "--out", "lab-out")
KAFKA = ("generate", "retail", "--rows", "10", "--out", "kafka://127.0.0.1:1/sales")
UNCONFIGURED = JOB.replace("ss.configure_spark(builder)", "builder")


@dataclass(frozen=True)
class Built:
    """What is published."""

    sdist: Path
    wheel: Path

    def with_extra(self, extra: str) -> str:
        return f"{self.wheel}[{extra}]"


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    """The distributions, built from a copy of the sources."""
    folder = tmp_path_factory.mktemp("built")
    maker = Environment.make(folder)
    maker.install("setuptools>=77")
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, folder)
    unwanted = shutil.ignore_patterns("__pycache__", "*.egg-info")
    shutil.copytree(ROOT / "src", folder / "src", ignore=unwanted)
    done = maker.script(BUILD)
    assert done.returncode == 0, done.stderr
    (sdist,), (wheel,) = (list((folder / "dist").glob(kind)) for kind in ("*.tar.gz", "*.whl"))
    return Built(sdist, wheel)


def sources(built: Built) -> tuple[set[str], set[str]]:
    """Return the files of the package that the sdist and the wheel have."""
    with tarfile.open(built.sdist) as sdist, zipfile.ZipFile(built.wheel) as wheel:
        in_sdist = {n.partition("/src/")[2] for n in sdist.getnames() if "/src/semistream/" in n}
        in_wheel = {n for n in wheel.namelist() if n.startswith("semistream/")}
    return {n for n in in_sdist if Path(n).suffix}, in_wheel


def missing(extra: str, package: str) -> str:
    """Return the end of a message that names an extra."""
    return (
        f" needs the package {package}, which is not installed. "
        f"Install it: pip install 'semistream[{extra}]'\n"
    )


def test_both_distributions_hold_the_whole_package(built: Built) -> None:
    names = [p.relative_to(ROOT / "src").as_posix() for p in (ROOT / "src").rglob("*.py")]
    in_sdist, in_wheel = sources(built)
    assert in_sdist == in_wheel == {*names, "semistream/py.typed"}


@pytest.mark.parametrize(
    ("target", "ready", "extra"),
    [
        ("demo", None, "demo"),
        ("demo", "ready", None),
        ("setup", None, "dev"),
        ("lint", None, "dev"),
    ],
)
def test_make_installs_no_more_than_it_needs(
    tmp_path: Path, target: str, ready: str | None, extra: str | None
) -> None:
    if ready is not None:
        (tmp_path / ready).touch()
    command = ["make", "--dry-run", f"VENV={tmp_path}", target]
    shown = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert re.findall(r"pip install .*'\.\[(.*)\]'", shown) == ([] if extra is None else [extra])


def check_base(here: Environment) -> None:
    """What works without an extra, and what names the extra that it needs."""
    assert here.semistream("--version").startswith("semistream 0.")
    rows = ("--relation-rows", "5000", "--relation-out", "r.parquet", "--rows", "1000")
    here.semistream("generate", "retail", *rows, "--out", "sales")
    assert "5,000 rows" in here.semistream("build", "r.parquet", "r.rel", "--key", "product_id")
    assert "stored in" in here.semistream("calibrate", "r.rel")
    assert "auto chooses" in here.semistream(*EXPLAIN)
    assert "meshjoin-5a" in here.semistream("lab", "list")

    assert here.command("demo").stderr.endswith(missing("demo", "duckdb"))
    assert here.command(*PLOT).stderr == "semistream: a chart" + missing("charts", "matplotlib")
    assert here.command(*LAB).stderr.endswith("the lab" + missing("lab", "matplotlib"))
    said = here.command(*KAFKA).stderr
    assert said == "semistream: writing to Kafka" + missing("kafka", "confluent_kafka")
    said = here.script("import semistream as ss\nss.enrich").stderr
    assert said.endswith("semistream.enrich" + missing("spark", "pyspark"))


def check_spark(here: Environment) -> None:
    done = here.script(JOB)
    assert "joined 1500 1000\n" in done.stdout, done.stderr[-3000:]
    said = here.script(UNCONFIGURED).stderr
    assert "WorkerError: Spark's Python workers cannot run semistream: No module named" in said


def check_demo(here: Environment) -> None:
    shown = here.semistream("demo", "--rows", "30000", "--sales", "30000", "--batches", "3")
    assert re.search(r"[1-9][\d,]* new products: each has one key", shown)
    assert "30,000 rows: none lost, none twice, none wrong" in shown
    assert (here.folder / "demo-out" / "demo.png").exists()


def check_lab(here: Environment) -> None:
    here.semistream(*LAB)
    assert (here.folder / "lab-out" / "meshjoin-5a.svg").exists()
    tpch = ("--set", "scale=0.001", "--rows", "100", "--out", "orders")
    here.semistream("generate", "tpch-orders", *tpch)


def test_the_base_and_every_extra(built: Built, tmp_path: Path) -> None:
    """The base from the sdist, the extras from the wheel."""
    here = Environment.make(tmp_path)
    here.install(str(built.sdist))
    check_base(here)
    here.install(built.with_extra("spark"))
    check_spark(here)
    here.install(built.with_extra("kafka,charts"))
    assert "127.0.0.1:1" in here.command(*KAFKA).stderr  # where nobody answers
    here.semistream(*PLOT)
    assert (tmp_path / "chart.png").stat().st_size > 1000
    here.install(built.with_extra("demo"))
    check_demo(here)
    here.install(built.with_extra("lab,connect"))
    check_lab(here)
    done = here.script("from pyspark.sql.connect.session import SparkSession")
    assert done.returncode == 0, done.stderr
