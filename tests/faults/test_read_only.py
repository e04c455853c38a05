"""A hardened executor: neither the package's folder nor the home can be written to.

Each test runs a copy of the package in a process of its own. Root may write anywhere, so as root
that process gives up the capability to pass by file permissions.
"""

import os
import shutil
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import semistream
from semistream import jit

PACKAGE = Path(semistream.__file__).parent
OBEY_PERMISSIONS = ["setpriv", "--bounding-set=-dac_override,-dac_read_search,-fowner"]

# Joins two rows.
JOIN = """
import sys
import pyarrow as pa
import semistream as ss
relation = ss.build_relation(pa.table({"id": ["a"], "x": [7]}), sys.argv[1], key="id")
joined = ss.join(pa.table({"id": ["a", "b"]}), relation, algorithm="meshjoin")
assert sorted(str(row) for batch in joined for row in batch.to_pylist()) == [
    "{'id': 'a', 'x': 7}", "{'id': 'b', 'x': None}"
]
"""
# Runs one kernel, then says where Numba keeps it, and where other packages' would go.
KERNEL = """
import numba, numpy as np
from semistream.keys import _hash_longs
_hash_longs(np.arange(2, dtype=np.uint64), np.zeros(2, np.uint64))
print(_hash_longs._cache.cache_path)
assert numba.config.CACHE_DIR == ""
"""


@pytest.fixture
def package(tmp_path: Path) -> Iterator[Path]:
    """Return a folder with a copy of the package; nothing below it can be written to."""
    root = tmp_path / "read-only"
    shutil.copytree(PACKAGE, root / "semistream", ignore=shutil.ignore_patterns("__pycache__"))
    folders = [root, *(p for p in root.rglob("*") if p.is_dir())]
    for folder in folders:
        folder.chmod(0o555)
    yield root
    for folder in folders:
        folder.chmod(0o755)


def run(
    tmp_path: Path, package: Path, *, program: str = KERNEL, **variables: str
) -> subprocess.CompletedProcess[str]:
    """Run a program where neither the package nor the home can be written to."""
    home = tmp_path / "home"
    home.mkdir(exist_ok=True)
    home.chmod(0o555)
    (tmp_path / "tmp").mkdir(exist_ok=True)
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("NUMBA", "XDG", "SEMISTREAM"))}
    environment = {
        **kept,
        "HOME": str(home),
        "TMPDIR": str(tmp_path / "tmp"),
        "PYTHONPATH": str(package),
        "PYTHONDONTWRITEBYTECODE": "1",
        **variables,
    }
    command = [sys.executable, "-c", program, str(tmp_path / "r.rel")]
    if os.geteuid() == 0:
        if shutil.which("setpriv") is None:
            pytest.skip("root without setpriv cannot be kept from writing")
        command = OBEY_PERMISSIONS + command
    result = subprocess.run(
        command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stderr
    return result


def private_folder(tmp_path: Path) -> Path:
    return tmp_path / "tmp" / f"semistream-{os.getuid()}"


def test_kernels_are_kept_in_a_private_temporary_folder(tmp_path: Path, package: Path) -> None:
    result = run(tmp_path, package, program=JOIN + KERNEL)
    folder = private_folder(tmp_path)
    assert Path(result.stdout.strip()).is_relative_to(folder)
    assert list(folder.rglob("*.nbi"))
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert not result.stderr


def test_a_temporary_folder_that_others_may_write_to_is_not_used(
    tmp_path: Path, package: Path
) -> None:
    private_folder(tmp_path).mkdir(parents=True)
    private_folder(tmp_path).chmod(0o777)
    result = run(tmp_path, package)
    assert result.stdout.strip() == "None"
    assert list(private_folder(tmp_path).iterdir()) == []
    assert result.stderr.count("RuntimeWarning: semistream found no writable folder") == 1
    assert "NUMBA_CACHE_DIR" in result.stderr


def test_a_link_in_place_of_the_private_folder_is_not_followed(
    tmp_path: Path, package: Path
) -> None:
    (tmp_path / "tmp").mkdir()
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir(mode=0o700)
    private_folder(tmp_path).symlink_to(elsewhere)
    assert run(tmp_path, package).stdout.strip() == "None"
    assert list(elsewhere.iterdir()) == []


def test_the_folder_that_a_user_names_for_semistream_is_used(tmp_path: Path, package: Path) -> None:
    result = run(tmp_path, package, SEMISTREAM_CACHE=str(tmp_path / "cache"))
    assert Path(result.stdout.strip()).is_relative_to(tmp_path / "cache")
    assert not private_folder(tmp_path).exists()
    assert not result.stderr


def test_where_numba_can_write_it_keeps_its_own_folder(tmp_path: Path, package: Path) -> None:
    cache = tmp_path / "xdg"
    result = run(tmp_path, package, XDG_CACHE_HOME=str(cache))
    assert Path(result.stdout.strip()).is_relative_to(cache)
    assert not private_folder(tmp_path).exists()


def test_a_folder_of_another_user_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "getuid", lambda: 12345)
    (tmp_path / "folder").mkdir(mode=0o700)
    assert not jit.is_private(tmp_path / "folder")
