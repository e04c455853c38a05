"""Kernels are compiled when the package is set up: a micro-batch finds them in the cache."""

import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pyarrow as pa
import pytest
from numba.core.dispatcher import Dispatcher

import semistream as ss
from semistream.advice.auto import make_join
from semistream.advice.kernels import compile_kernels
from semistream.joins.keptfront import KeptFront
from semistream.relation.mapped import MappedFile
from semistream.spec import resolve


def signatures() -> dict[str, int]:
    """Return how many versions of each kernel this process has loaded or compiled."""
    modules = [m for name, m in sys.modules.items() if name.startswith("semistream.")]
    return {
        f"{module.__name__}.{name}": len(kernel.signatures)
        for module in modules
        if isinstance(module, ModuleType)
        for name, kernel in vars(module).items()
        if isinstance(kernel, Dispatcher)
    }


def test_a_micro_batch_needs_no_kernel_that_was_not_compiled(tmp_path: Path) -> None:
    compile_kernels()
    before = signatures()
    assert before["semistream.joins.lookup_kernels.match_requests"] > 0
    table = pa.table({"k": np.arange(9_000), "v": np.arange(9_000) * 2, "t": ["text"] * 9_000})
    relation = ss.build_relation(table, tmp_path, key="k", partitions=2)
    sales = pa.record_batch({"k": np.arange(0, 12_000, 3), "q": np.arange(4_000)})
    spec = resolve(relation, sales.schema, on="k", columns=["v", "t"])
    for algorithm in ("auto", "lookup"):
        for partition in (None, 0):
            rows = sales.filter(pa.array(sales["k"].to_numpy() % 2 == 0))
            front = KeptFront(100_000)
            join = make_join(algorithm, relation, spec, 120_000, partition, front=front)
            assert sum(batch.num_rows for batch in join.join([rows])) == rows.num_rows
    assert signatures() == before


def test_a_mapped_file_needs_no_kernels_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compile_kernels()
    before = signatures()
    windows = []
    window = MappedFile.window
    monkeypatch.setattr(MappedFile, "small_share", lambda *_: 0.0)
    monkeypatch.setattr(MappedFile, "window", lambda *about: windows.append(1) or window(*about))
    table = pa.table({"k": np.arange(2_000_000), "v": np.arange(2_000_000)})
    relation = ss.build_relation(table, tmp_path, key="k", partitions=1)
    sales = pa.record_batch({"k": np.arange(0, 2_000_000, 400), "q": np.arange(5_000)})
    spec = resolve(relation, sales.schema, on="k", columns=["v"])
    join = make_join("lookup", relation, spec, 40_000_000)
    assert sum(batch.num_rows for batch in join.join([sales])) == sales.num_rows
    assert windows
    assert signatures() == before
