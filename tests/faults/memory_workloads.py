"""Relations and streams that are hard on a memory budget, made from their names and a seed.

Row `i` of a stream requests the key number ``ids[i]``; how many rows of R have it is known from the
numbers alone, so the result of a join can be counted without one.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

MB = 1_000_000
WIDE_ID = 7  # the key that the wide rows have
KINDS = ("texts", "nested", "union", "hashed")


def _widths(shape: str, rng: np.random.Generator) -> NDArray[np.int64]:
    """Return how wide the text of each row of R is."""
    if shape == "small":
        return np.full(3_000, 40)
    if shape == "one wide row":
        widths = np.full(200_000, 100)
        widths[WIDE_ID] = MB
    elif shape == "half wide":
        widths = np.full(200_000, 100)
        widths[WIDE_ID] = 20_000
    elif shape == "heavy tail":
        widths = np.minimum(30 * (1 + rng.pareto(1.0, 120_000)), 400_000).astype(np.int64)
        widths[WIDE_ID] = 200_000
    else:
        widths = np.full(150_000, 60)
    return widths


def _ids(shape: str, rows: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Return the key number of each row of R."""
    ids = np.arange(rows)
    if shape == "duplicates":
        ids[: rows // 2] = WIDE_ID  # half of R has one key
        ids[rows // 2 : rows // 2 + 9_000] //= 3
    return ids


def rows_of_keys(shape: str) -> NDArray[np.int64]:
    """Return how many rows of R have each key number."""
    rng = np.random.default_rng(1)
    return np.bincount(_ids(shape, len(_widths(shape, rng)), rng))


def keys_of(kind: str, ids: NDArray[np.int64]) -> pa.Array:
    """Return the keys with these numbers; hashed ones are texts."""
    if kind != "hashed":
        return pa.array(ids)
    return pa.compute.binary_join_element_wise("key", pa.array(ids).cast(pa.string()), "-")


def relation_table(shape: str, kind: str) -> pa.Table:
    """Return R with its key `k`, a number, a text, and a list where the kind has one."""
    rng = np.random.default_rng(1)
    widths = _widths(shape, rng)
    ids = _ids(shape, len(widths), rng)
    texts = texts_of(widths)
    columns = {"k": keys_of(kind, ids), "n": pa.array(ids), "text": texts}
    if kind == "nested":
        offsets = pa.array(np.arange(len(ids) + 1), pa.int32())
        columns["tags"] = pa.ListArray.from_arrays(offsets, texts)
    if kind == "union":
        columns["tags"] = union_of(texts)
    return pa.table(columns)


def union_of(texts: pa.Array) -> pa.Array:
    """Return a dense union: these texts, and a number in every third row."""
    types = (np.arange(len(texts)) % 3 == 0).astype(np.int8)
    types[WIDE_ID] = 0
    rows = pa.array(np.arange(len(texts)), pa.int32())
    return pa.UnionArray.from_dense(pa.array(types), rows, [texts, rows])


def texts_of(widths: NDArray[np.int64]) -> pa.Array:
    """Return texts of these widths."""
    ends = np.zeros(len(widths) + 1, np.int32)
    np.cumsum(widths, out=ends[1:])
    data = np.full(int(ends[-1]), ord("x"), np.uint8)
    return pa.Array.from_buffers(
        pa.string(), len(widths), [None, pa.py_buffer(ends), pa.py_buffer(data)]
    )


@dataclass(frozen=True)
class Case:
    """One join: what is joined, how, and within which budget."""

    shape: str
    kind: str
    partitions: int
    stream: str
    rows: int
    batch_rows: int
    share: float  # of the stream rows that request `WIDE_ID`
    algorithm: str
    memory: int
    how: str = "left"
    seed: int = 1
    options: dict[str, str] = field(default_factory=dict)  # of the join, besides

    def batches(self) -> list[pa.RecordBatch]:
        """Return the stream."""
        rng = np.random.default_rng(self.seed)
        return list(self._batches(rng))

    def _batches(self, rng: np.random.Generator) -> Iterator[pa.RecordBatch]:
        keys = len(rows_of_keys(self.shape))
        for first in range(0, self.rows, self.batch_rows):
            count = min(self.batch_rows, self.rows - first)
            ids = rng.integers(0, keys + keys // 10, count)  # some of them R does not have
            if self.stream == "skewed":
                ids //= rng.integers(1, 300, count) ** 2
            ids[rng.random(count) < self.share] = WIDE_ID
            if self.stream == "misses first" and first < self.rows // 2:
                ids[:] = keys
            notes = texts_of(self._note_widths(rng, first, count))
            yield pa.record_batch({"k": keys_of(self.kind, ids), "i": ids, "note": notes})

    def _note_widths(self, rng: np.random.Generator, first: int, count: int) -> NDArray[np.int64]:
        if self.stream == "widening" and first >= self.rows // 2:
            return np.full(count, 10_000)
        if self.stream == "misses first":
            return np.full(count, 10_000 if first < self.rows // 2 else 10)
        if self.stream == "heavy":
            return np.minimum(5 * (1 + rng.pareto(1.0, count)), 50_000).astype(np.int64)
        return np.ones(count, np.int64)

    def expected(self, batches: list[pa.RecordBatch]) -> dict[str, int]:
        """Return how many pairs and misses a join of these batches has."""
        counts = rows_of_keys(self.shape)
        ids = np.concatenate([batch.column("i").to_numpy() for batch in batches])
        pairs = np.where(ids < len(counts), counts[np.minimum(ids, len(counts) - 1)], 0)
        return {"matched": int(pairs.sum()), "missed": int((pairs == 0).sum())}


def generated(algorithm: str, count: int) -> list[Case]:
    """Return cases for one algorithm, drawn from its name, in order of their budgets."""
    rng = np.random.default_rng(list(algorithm.encode()))
    one_by_one = algorithm in ("inlj", "cinlj")  # a page read for each tuple: few of them
    cases = []
    for _ in range(count):
        shape = _pick(rng, ["one wide row", "half wide", "heavy tail", "duplicates", "many"])
        stream = _pick(rng, ["even", "skewed", "widening", "heavy", "misses first"])
        rows = 800 if one_by_one else int(_pick(rng, [20_000, 40_000]))
        share = float(_pick(rng, [0.0, 0.01, 0.05]))
        if shape == "duplicates" or stream in ("widening", "misses first"):
            # These multiply rows, or have wide ones.
            rows, share = min(rows, 8_000), 0.0
        if algorithm == "resident":  # it only compares others with what it needs
            rows = min(rows, 8_000)
        kind = _pick(rng, KINDS)
        budgets = [20, 40] if kind in ("nested", "union") else [6, 12, 20, 40]
        cases.append(
            Case(
                shape,
                kind,
                int(_pick(rng, [1, 8, 64])),
                stream,
                rows,
                int(_pick(rng, [500, 5_000, 60_000])),
                share,
                algorithm,
                MB * int(_pick(rng, [80, 120] if algorithm == "resident" else budgets)),
                seed=int(rng.integers(1 << 30)),
            )
        )
    return sorted(cases, key=lambda case: case.memory)


def _pick(rng: np.random.Generator, choices: Any) -> Any:
    return choices[int(rng.integers(len(choices)))]
