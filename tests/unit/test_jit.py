"""Kernels that are kept compiled are compiled again when what they call may have changed."""

import importlib.util
from pathlib import Path
from typing import Any

import pytest

from semistream import jit

KERNEL = """
from semistream.jit import njit

@njit(cache=True)
def double(number):
    return 2 * number
"""


def compiled(path: Path) -> Any:
    """Return the kernel of a module that is loaded anew, after a call."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert module.double(4) == 8
    return module.double


def test_a_change_of_any_file_of_kernels_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "some_kernels.py"
    path.write_text(KERNEL)
    stamp = jit._stamp_of_kernels()
    assert stamp[0] > 0
    assert stamp[1] > 10_000
    assert not compiled(path).stats.cache_hits
    assert compiled(path).stats.cache_hits
    monkeypatch.setattr(jit, "_stamp_of_kernels", lambda: (stamp[0] + 1, stamp[1]))
    assert not compiled(path).stats.cache_hits
    assert compiled(path).stats.cache_hits
