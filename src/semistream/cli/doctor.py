"""``semistream doctor``: is this machine ready, and if not, what to do.

Each check returns findings: what was found, whether that is fine, and the remedy. Nothing is
changed; files that a check writes are removed again. Spark is started in a process of its own
(`semistream.spark.probe`), as a user's job would be.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from importlib import metadata
from itertools import chain
from pathlib import Path
from time import perf_counter
from typing import Any, Literal, TypeAlias
from uuid import uuid4

import numpy as np

from semistream.cli.java import java_problem
from semistream.errors import RelationNotFoundError, SemistreamError
from semistream.memory import MEMINFO, host_memory
from semistream.relation.disk import LocalPageFile
from semistream.relation.relation import Relation
from semistream.relation.storage import Store
from semistream.units import format_bytes

State: TypeAlias = Literal["ok", "note", "wrong"]
WRONG = 1  # exit code
# The lines of a log that name an error, of Python or of Spark, without its class in the JVM.
_TELLING = re.compile(r"(Caused by: |\s*)(\w+|pyspark\S+|java\.io\.\w+)(Error|Exception): \S")
_SPARK_S = 180  # a session that takes longer to start is wrong
_LEAST_MEMORY = 1 << 30
_LEAST_SHARED = 64 << 20  # what a container has by default is not more
_LEAST_FREE = 1 << 30
_FILE_BYTES = 64 << 20
_PAGE_BYTES = 64 << 10
_RANDOM_READS = 200
_SLOW_READ = 50e6  # bytes/s
_SLOW_PAGE_S = 0.02


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was checked."""

    what: str
    state: State
    found: str
    remedy: str = ""


def run_doctor(place: str | None, master: str | None, as_json: bool) -> int:
    """Check everything, and print what was found and what to do."""
    findings: list[Finding] = []
    checks = chain(
        check_python(),
        check_java(),
        check_spark(master, place),
        check_memory(),
        check_disk(place),
        check_place(place),
    )
    for finding in checks:
        findings.append(finding)
        if not as_json:
            print(_text(finding), flush=True)
    wrong = [finding for finding in findings if finding.state == "wrong"]
    if as_json:
        body = {"is_ready": not wrong, "findings": [asdict(finding) for finding in findings]}
        print(json.dumps(body, indent=1))
    else:
        print(f"\nWrong: {', '.join(f.what for f in wrong)}" if wrong else "\nNothing is wrong.")
    return WRONG if wrong else 0


def _text(finding: Finding) -> str:
    remedy = "".join(f"\n{'':21}{line}" for line in finding.remedy.splitlines())
    return f"{finding.state:6} {finding.what:13} {finding.found}{remedy}"


def check_python() -> Iterator[Finding]:
    """Check the versions of Python and the packages against those that we need."""
    version = ".".join(map(str, sys.version_info[:3]))
    yield Finding("Python", "ok", f"{version}, {sys.executable}")
    try:
        requirements = metadata.requires("semistream") or []
    except metadata.PackageNotFoundError:
        requirements = []
        yield Finding("packages", "note", "not compared: semistream is not installed by pip here")
    for requirement in requirements:
        needed, _, marker = requirement.partition(";")
        if not marker or 'extra == "spark"' in marker:
            yield check_package(needed, is_optional=bool(marker))


def check_package(requirement: str, is_optional: bool) -> Finding:
    """Compare an installed package with a requirement such as ``numpy>=1.26``."""
    end = min((requirement.find(c) for c in "<>=!~[ " if c in requirement), default=None)
    name, ranges = requirement[:end], requirement[end:].strip() if end else ""
    try:
        version = metadata.version(name)
    except metadata.PackageNotFoundError:
        if is_optional:
            remedy = "without it there is no Spark: pip install 'semistream[spark]'"
            return Finding(name, "note", "is not installed", remedy)
        return Finding(name, "wrong", "is not installed", f"pip install '{requirement}'")
    if all(_is_within(version, part) for part in ranges.split(",") if part):
        return Finding(name, "ok", version)
    return Finding(
        name, "wrong", f"{version}, but {ranges} is needed", f"pip install '{requirement}'"
    )


def _is_within(version: str, part: str) -> bool:
    """Whether a version is within one bound; bounds that are not ours are not judged.

    >>> _is_within("2.10.1", ">=2.9"), _is_within("3.0", "<3")
    (True, False)
    """
    part = part.strip()
    if part.startswith(">="):
        return _numbers(version) >= _numbers(part[2:])
    return _numbers(version) < _numbers(part[1:]) if part.startswith("<") else True


def _numbers(version: str) -> list[int]:
    leading = (piece for piece in version.strip().split("."))
    return [int(piece) for piece in leading if piece.isdigit()]


def check_java() -> Iterator[Finding]:
    """Check that there is a Java that Spark can run on."""
    problem = java_problem()
    if problem is None:
        home = os.environ.get("JAVA_HOME")
        java = f"{home}/bin/java" if home else shutil.which("java") or "java"
        said = subprocess.run([java, "-version"], capture_output=True, text=True, check=False)
        versions = [line for line in said.stderr.splitlines() if "version" in line]
        yield Finding("Java", "ok", f"{versions[0] if versions else ''}, {java}")
    else:
        found, _, remedy = problem.partition("\n")
        yield Finding("Java", "wrong", found, remedy)


def check_spark(master: str | None, place: str | None) -> Iterator[Finding]:
    """Start Spark and look at the Python of its workers."""
    if master is None:
        yield Finding("Spark", "note", "was not started (--no-spark)")
        return
    try:
        metadata.version("pyspark")
    except metadata.PackageNotFoundError:
        return  # said already
    if java_problem() is not None:
        yield Finding("Spark", "wrong", "was not started, because it needs Java")
        return
    local = _local_path(place)
    print(f"starting Spark on {master} …", file=sys.stderr, flush=True)
    with tempfile.TemporaryDirectory(prefix="semistream-doctor-") as folder:
        command = [sys.executable, "-m", "semistream.spark.probe", master, local or ""]
        try:
            done = subprocess.run(
                command, cwd=folder, capture_output=True, text=True, timeout=_SPARK_S, check=False
            )
        except subprocess.TimeoutExpired:
            found = f"{master} did not run a job within {_SPARK_S} s"
            yield Finding("Spark", "wrong", found, "is the master's address right, and is it busy?")
            return
    if done.returncode:
        yield _failed_job(master, done.stderr)
        return
    answer = json.loads(done.stdout.splitlines()[-1])
    yield Finding("Spark", "ok", f"{answer['spark']} ran a job on {master}")
    for worker in answer["workers"]:
        yield from check_worker(worker, local)
    if master.startswith("local"):
        yield from check_unconfigured()


def _failed_job(master: str, errors: str) -> Finding:
    """Return what went wrong in a job, by the lines of the log that say most."""
    telling = [line.strip() for line in errors.splitlines() if _TELLING.match(line)]
    telling = [line for line in telling if not line.startswith("pyspark")] or telling
    lines = list(dict.fromkeys(telling))[-2:] or errors.strip().splitlines()[-3:]
    remedy = (
        f"The workers run {os.environ.get('PYSPARK_PYTHON', 'the first python3 on the PATH')}. "
        f"If that is not the right one: export PYSPARK_PYTHON={sys.executable}"
    )
    said = "\n".join(line[:300] for line in lines)
    return Finding("Spark", "wrong", f"could not run a job on {master}", f"{said}\n{remedy}")


def check_unconfigured() -> Iterator[Finding]:
    """Note if workers of a session that `configure_spark` has not made would run another Python."""
    first = os.environ.get("PYSPARK_PYTHON") or shutil.which("python3") or "python3"
    code = "import semistream; print(semistream.__version__)"
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            [first, "-c", code], cwd=folder, capture_output=True, text=True, check=False
        )
    if done.stdout.strip() == metadata.version("semistream"):
        return
    yield Finding(
        "other sessions",
        "note",
        f"their workers run {first}, which does not have this semistream",
        "make sessions with semistream.configure_spark(SparkSession.builder), or: "
        f"export PYSPARK_PYTHON={sys.executable}",
    )


def check_worker(worker: dict[str, Any], local: str | None) -> Iterator[Finding]:
    """Check one worker: its packages against the driver's, and whether it sees a local path."""
    where = f"{worker['python_version']}, {worker['python']} on {worker['host']}"
    differing = []
    for name, version in worker["packages"].items():
        try:
            here = metadata.version(name)
        except metadata.PackageNotFoundError:
            here = ""
        if version != here:
            differing.append(f"{name} {version or 'missing'} (the driver has {here or 'none'})")
    if differing:
        remedy = (
            f"Install the same there, or let workers run the driver's Python: export "
            f"PYSPARK_PYTHON={sys.executable}"
        )
        yield Finding("worker Python", "wrong", f"{where}: {', '.join(differing)}", remedy)
    else:
        yield Finding("worker Python", "ok", where)
    if local and worker["sees_path"] is False:
        remedy = "use a folder that all machines mount at the same path, or an object store"
        yield Finding("worker", "wrong", f"{worker['host']} does not see {local}", remedy)


def check_memory() -> Iterator[Finding]:
    """Check memory, with the limit of a container, and shared memory."""
    if not MEMINFO.exists():
        yield Finding("memory", "note", f"not known: there is no {MEMINFO}")
        return
    free, total = host_memory()
    text = f"{format_bytes(free)} of {format_bytes(total)} available"
    if free < _LEAST_MEMORY:
        remedy = "Spark and its Python workers need about 1 GB: stop other processes, or add memory"
        yield Finding("memory", "wrong", text, remedy)
    else:
        yield Finding("memory", "ok", text)
    shared = Path("/dev/shm")
    if not shared.is_dir():
        yield Finding("shared memory", "note", "there is no /dev/shm")
        return
    free = shutil.disk_usage(shared).free
    remedy = "in a container: start it with --shm-size=1g" if free < _LEAST_SHARED else ""
    state: State = "note" if remedy else "ok"
    yield Finding("shared memory", state, f"{format_bytes(free)} free in /dev/shm", remedy)


def check_disk(place: str | None) -> Iterator[Finding]:
    """Measure the disks of the temporary folder and of the place, if that is local."""
    local = _local_path(place)
    folders = [Path(tempfile.gettempdir())]
    if local:
        folders.append(_nearest_folder(Path(local)))
    for folder in dict.fromkeys(folders):
        yield check_folder(folder)


def _local_path(place: str | None) -> str | None:
    """Return the path of a place that is local; a place that cannot be used is reported later."""
    if place is None:
        return None
    try:
        store = Store.at(place)
    except SemistreamError:
        return None
    return store.root if store.is_local else None


def _nearest_folder(path: Path) -> Path:
    return next(folder for folder in (path, *path.parents) if folder.is_dir())


def check_folder(folder: Path) -> Finding:
    """Measure how fast files in a folder are written, read, and read at random."""
    path = folder / f".semistream-doctor-{uuid4().hex}"
    try:
        write_s, read_s, page_s = _measure(path)
    except OSError as error:
        return Finding("disk", "wrong", f"{folder}: {error}", "choose a folder that can be written")
    finally:
        path.unlink(missing_ok=True)
    free = shutil.disk_usage(folder).free
    text = (
        f"{folder}: writes {format_bytes(_FILE_BYTES / write_s)}/s, reads "
        f"{format_bytes(_FILE_BYTES / read_s)}/s, a page of 64 KiB in {page_s * 1e3:.2f} ms; "
        f"{format_bytes(free)} free"
    )
    if free < _LEAST_FREE:
        return Finding("disk", "wrong", text, "free some space: semistream prune RELATION")
    if _FILE_BYTES / read_s < _SLOW_READ or page_s > _SLOW_PAGE_S:
        remedy = "slow: a relation on a local SSD is read faster than one on a network mount"
        return Finding("disk", "note", text, remedy)
    return Finding("disk", "ok", text)


def _measure(path: Path) -> tuple[float, float, float]:
    """Return the seconds of writing a file, of reading it, and of reading a page of it."""
    block = np.random.default_rng(7).bytes(1 << 20)
    began = perf_counter()
    with path.open("wb") as file:
        for _ in range(_FILE_BYTES // len(block)):
            file.write(block)
        file.flush()
        os.fsync(file.fileno())
    write_s = perf_counter() - began
    return (write_s, *_measure_reading(LocalPageFile(str(path)), len(block)))


def _measure_reading(file: LocalPageFile, block_bytes: int) -> tuple[float, float]:
    try:
        file.forget(0, _FILE_BYTES)
        buffer = memoryview(bytearray(block_bytes))
        began = perf_counter()
        for at in range(0, _FILE_BYTES, block_bytes):
            file.read_into(at, buffer)
        read_s = perf_counter() - began
        file.forget(0, _FILE_BYTES)
        places = np.random.default_rng(7).integers(0, _FILE_BYTES - _PAGE_BYTES, _RANDOM_READS)
        began = perf_counter()
        for at in places.tolist():
            file.read_into(at, buffer[:_PAGE_BYTES])
        return read_s, (perf_counter() - began) / _RANDOM_READS
    finally:
        file.close()


def check_place(place: str | None) -> Iterator[Finding]:
    """Open the relation at a place, and write, read and remove a small file there."""
    if place is None:
        yield Finding(
            "place", "note", "not checked; to check one: semistream doctor s3://bucket/folder"
        )
        return
    try:
        relation = Relation.open(place)
        yield Finding("relation", "ok", f"{relation.row_count:,} rows at {place}")
    except RelationNotFoundError:
        yield Finding("relation", "note", f"there is none at {place} yet")
    except SemistreamError as error:
        yield Finding("relation", "wrong", f"{error}")
        return
    yield check_access(place)


def check_access(place: str) -> Finding:
    """Write, read and remove a small file at a place, and say how long each took."""
    store = Store.at(place)
    if store.is_local and not store.exists(""):
        store = Store.at(_nearest_folder(Path(store.root)))
    name = f".semistream-doctor-{uuid4().hex}"
    times = []
    try:
        for step in (
            lambda: store.write_note(name, b"doctor"),
            lambda: store.read(name),
            lambda: store.remove_file(name),
        ):
            began = perf_counter()
            step()
            times.append(f"{(perf_counter() - began) * 1e3:.1f} ms")
    except OSError as error:
        what = ("written", "read", "removed")[len(times)]
        remedy = (
            "Readers need only the right to read; to build and prune, give this user the right to "
            "write and delete there. docs/guides/places.md names the variables for credentials"
        )
        return Finding("place", "wrong", f"no file can be {what} at {place}: {error}", remedy)
    took = "wrote in {}, read in {}, removed in {}".format(*times)
    return Finding("place", "ok", f"{place}: {took}")
