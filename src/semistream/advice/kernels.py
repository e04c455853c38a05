"""Compile the kernels now, so that the first micro-batch of a query need not.

``python -m semistream.advice.kernels`` joins a few small streams with a few small relations, in a
temporary folder. What Numba compiles for that is kept in its cache, in the package or where
``NUMBA_CACHE_DIR`` says, and later processes load it. ``make setup`` runs it; run it where an image
for executors is made.
"""

import tempfile
from pathlib import Path
from time import perf_counter

import numpy as np
import pyarrow as pa

from semistream.advice.auto import make_join
from semistream.advice.history import History
from semistream.errors import BudgetError
from semistream.joins.column_kernels import look_and_gather
from semistream.joins.keptfront import KeptFront
from semistream.relation.build import build_relation
from semistream.relation.pagetable import CODES
from semistream.relation.read_kernels import UNIT_BYTES
from semistream.relation.relation import Relation
from semistream.spec import resolve

_ROWS = 2_000
_FRONT_BYTES = 100_000
_BUDGETS = (150_000, 8_000_000)  # bytes: R does not fit, and it does
_ALGORITHMS = ("lookup", "chybridjoin", "cmeshjoin", "auto", "auto")


def compile_kernels() -> None:
    """Compile what streams of common types need, unless it is in the cache."""
    numbers = np.arange(_ROWS)
    texts = pa.array([f"key-{i}" for i in numbers])
    some = pa.array(numbers, mask=numbers % 9 == 0)
    values = {"n": some, "f": numbers / 7, "t": pa.array([f"{i}" for i in numbers])}
    with tempfile.TemporaryDirectory(prefix="semistream-kernels-") as folder:
        for name, keys in (("numbers", pa.array(numbers)), ("texts", texts)):
            _join(pa.table({"k": keys, **values}), Path(folder) / name, 2)
        _join(pa.table({"k": pa.array(numbers // 2), **values}), Path(folder) / "duplicates", 1)


def _join(table: pa.Table, path: Path, partitions: int) -> None:
    """Build a relation, and join a stream with it by each algorithm."""
    relation = build_relation(table, path, key="k", partitions=partitions, page_size=4_000)
    stream = pa.table({"k": table["k"], "q": np.arange(_ROWS), "s": table["t"]})
    batches = [batch for _ in range(2) for batch in stream.to_batches(_ROWS // 2)]
    for budget_bytes in _BUDGETS:
        for algorithm in _ALGORITHMS:
            _join_with(relation, batches, algorithm, budget_bytes)
    _map(relation)


def _map(relation: Relation) -> None:
    """Look at rows in a mapped file, and let go of it; small relations are not mapped by joins."""
    reader = relation.reader([])
    codes = reader.part(CODES)
    assert codes is not None, "every page has codes"
    mapped = reader.map_cached([codes], np.zeros(1, np.int64))
    if mapped is not None:
        window, place = mapped.window(UNIT_BYTES), np.zeros(1, np.int64)
        table = (np.array([codes.offsets.ctypes.data]), reader.page_count, np.array([1]))
        out = np.empty(1, np.uint8)
        look_and_gather(mapped.data, window, place, 0, place, place, *table, place, out)
        mapped.release(window)
    reader.close()


def _join_with(
    relation: Relation, batches: list[pa.RecordBatch], algorithm: str, budget_bytes: int
) -> None:
    spec, history, saved = resolve(relation, batches[0].schema, on="k"), History(), None
    for _ in range(2):
        front = KeptFront(_FRONT_BYTES, saved)
        about = (relation, spec, budget_bytes)
        try:
            join = make_join(algorithm, *about, front=front, history=history)
            for _ in join.join(batches):
                pass
        except BudgetError:
            return
        saved = front.saved


if __name__ == "__main__":
    started_s = perf_counter()
    compile_kernels()
    print(f"the kernels are compiled ({perf_counter() - started_s:.0f} s)")
