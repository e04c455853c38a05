"""Generated workloads for the contract suite: a relation, a stream, and how to join them."""

from __future__ import annotations

import datetime
import decimal
import uuid
from dataclasses import dataclass
from functools import lru_cache
from typing import Any
from unittest.mock import patch

import numpy as np
import pyarrow as pa
from hypothesis import strategies as st

import semistream as ss
from semistream.embedded import prepare
from semistream.testing import nested_loop_join, same_rows
from tests.oracle import duckdb_join
from tests.scratch import new_folder

_MOST_PAIRS = 60_000  # that the nested loop looks at
EPOCH = datetime.datetime(2020, 1, 1)

# From a small integer to a key of each kind; distinct integers give distinct keys.
KEY_KINDS: dict[str, tuple[pa.DataType, Any]] = {
    "int64": (pa.int64(), lambda i: i * 3 - 50),
    "int32": (pa.int32(), lambda i: i),
    "clumped": (pa.int64(), lambda i: (i % 5) * 2**58 + i),
    "string": (pa.string(), lambda i: f"key-{i}" * (1 + i % 9)),
    "uuid": (pa.string(), lambda i: str(uuid.UUID(int=i * 2**70 + i))),
    "binary": (pa.binary(), lambda i: i.to_bytes(3, "big")),
    "date": (pa.date32(), lambda i: EPOCH.date() + datetime.timedelta(days=i)),
    "timestamp": (pa.timestamp("us"), lambda i: EPOCH + datetime.timedelta(milliseconds=i)),
    "timestamp_ms": (pa.timestamp("ms"), lambda i: EPOCH + datetime.timedelta(milliseconds=i)),
    "decimal": (pa.decimal128(12, 2), lambda i: decimal.Decimal(i) / 4),
    "big_decimal": (pa.decimal128(30, 3), lambda i: decimal.Decimal(-i) * 10**15),
    "bool": (pa.bool_(), lambda i: bool(i % 2)),
}


@dataclass(frozen=True)
class Workload:
    """Everything that a join depends on. Generated from a seed, so a failure can be repeated."""

    seed: int
    key_kinds: tuple[str, ...]
    relation_rows: int
    stream_rows: int
    domain: int
    skew: float
    null_share: float
    unique: bool
    partitions: int
    page_bytes: int
    batch_rows: int
    how: str
    with_nested: bool
    by_frequency: bool = False
    skews: tuple[float, ...] = ()  # of the stream's phases, in place of `skew`; other keys in each
    rows_per_key: int = 0  # the same for all keys of R, unless 0
    run_rows: int = 0  # that one key of R has besides, over several pages
    wide_bytes: int = 0  # the text of R's first and most popular keys, unless 0
    condition: str | None = None  # that must hold beside equal keys

    @lru_cache(maxsize=64)  # noqa: B019 - one algorithm after the other asks for the same
    def tables(self) -> tuple[pa.Table, pa.Table]:
        rng = np.random.default_rng(self.seed)
        ids = self._relation_ids(rng)
        skews = self.skews or (self.skew,)
        counts = [len(part) for part in np.array_split(np.arange(self.stream_rows), len(skews))]
        wanted = np.concatenate(
            [
                (self._zipf(rng, skew, count) + phase * self.domain // len(skews)) % self.domain
                for phase, (skew, count) in enumerate(zip(skews, counts, strict=True))
            ]
        )
        # Half the domain again lies beyond R's: keys that are missing from it.
        wanted = np.where(rng.random(self.stream_rows) < 0.15, wanted + self.domain * 3, wanted)
        return self._stream(rng, wanted), self._relation(rng, ids)

    def _relation_ids(self, rng: np.random.Generator) -> Any:
        if self.rows_per_key:
            keys = rng.permutation(self.domain)[: self.relation_rows // self.rows_per_key]
            ids = np.repeat(keys, self.rows_per_key)
        elif self.unique:
            ids = rng.permutation(max(self.domain, self.relation_rows))[: self.relation_rows]
        else:
            ids = rng.integers(0, self.domain, self.relation_rows)
        return np.append(ids, np.full(self.run_rows, 1, ids.dtype))

    def _zipf(self, rng: np.random.Generator, skew: float, count: int) -> Any:
        weights = 1.0 / np.arange(1, self.domain + 1) ** skew
        return rng.choice(self.domain, count, p=weights / weights.sum())

    def _relation(self, rng: np.random.Generator, ids: Any) -> pa.Table:
        n = len(ids)
        words = ["", "a", "bee", "sea" * 7, "ü"]
        columns = self._keys(rng, ids, "r")
        columns["number"] = pa.array(rng.integers(-9, 9, n), pa.int64(), mask=rng.random(n) < 0.2)
        columns["flag"] = pa.array(rng.random(n) < 0.5)
        texts = [None if rng.random() < 0.1 else words[i] for i in rng.integers(0, 5, n)]
        if self.wide_bytes:
            wide = [chr(97 + i % 26) * self.wide_bytes for i in range(n)]
            popular = ids < self.domain // 8
            texts = [
                w if is_popular else t
                for w, t, is_popular in zip(wide, texts, popular, strict=True)
            ]
        columns["word"] = pa.array(texts, pa.string())
        if self.with_nested:
            nested = [None if i % 7 == 0 else {"x": i, "y": ["p"] * (i % 3)} for i in range(n)]
            dtype = pa.struct([("x", pa.int64()), ("y", pa.list_(pa.string()))])
            columns["nested"] = pa.array(nested, dtype)
        return pa.table(columns)

    def _stream(self, rng: np.random.Generator, ids: Any) -> pa.Table:
        n = len(ids)
        columns = self._keys(rng, ids, "s")
        columns["quantity"] = pa.array(np.arange(n), pa.int32())
        columns["note"] = pa.array(
            [None if i % 11 == 0 else "n" * int(k) for i, k in enumerate(rng.integers(0, 20, n))],
            pa.string(),
        )
        if self.with_nested:
            columns["tags"] = pa.array([["t"] * (i % 3) for i in range(n)], pa.list_(pa.string()))
        return pa.table(columns)

    def _keys(self, rng: np.random.Generator, ids: Any, side: str) -> dict[str, pa.Array]:
        keys = {}
        for position, kind in enumerate(self.key_kinds):
            dtype, make = KEY_KINDS[kind]
            nulls = rng.random(len(ids)) < self.null_share
            values = [None if no else make(int(i)) for i, no in zip(ids, nulls, strict=True)]
            keys[f"{side}{position}"] = pa.array(values, dtype)
        return keys

    @property
    def on(self) -> dict[str, str]:
        return {f"s{i}": f"r{i}" for i in range(len(self.key_kinds))}

    @property
    def key(self) -> list[str]:
        return list(self.on.values())

    def build(self, relation: pa.Table) -> ss.Relation:
        folder = new_folder()
        order: dict[str, Any] = {}
        if self.by_frequency:
            sample = self.tables()[0].select(list(self.on)).rename_columns(self.key)
            order = {"order": "frequency", "sample": sample}
        # So small a relation would have no hot pages otherwise.
        with patch("semistream.relation.hot.HOT_SHARE", 0.5):
            return ss.build_relation(
                relation,
                folder,
                key=self.key,
                partitions=self.partitions,
                page_size=self.page_bytes,
                **order,
            )

    @lru_cache(maxsize=64)  # noqa: B019
    def joined(self) -> pa.Table:
        """Return the right answer: by the nested loop if it is small, else by DuckDB."""
        stream, table = self.tables()
        if self.condition is not None:
            return duckdb_join(stream, table, on=self.on, how=self.how, condition=self.condition)
        join = nested_loop_join if len(stream) * len(table) <= _MOST_PAIRS else duckdb_join
        return join(stream, table, on=self.on, how=self.how)

    def batches(self, stream: pa.Table) -> list[pa.RecordBatch]:
        return stream.to_batches(max_chunksize=self.batch_rows)


def run(operator: Any, batches: Any) -> pa.Table | None:
    """Run an operator to its end and return all output, or None if there is no batch of it."""
    out = list(operator.join(batches))
    return pa.Table.from_batches(out) if out else None


def check_against_oracle(
    workload: Workload, relation: ss.Relation, algorithm: str, memory: int | str, **options: Any
) -> Any:
    """Join, compare with the oracle, and return the operator that ran."""
    stream, _ = workload.tables()
    operator, batches = prepare(
        workload.batches(stream),
        relation,
        on=workload.on,
        how=workload.how,
        memory=memory,
        algorithm=algorithm,
        condition=workload.condition,
        **options,
    )
    expected = workload.joined()
    if operator is None:
        assert expected.num_rows == 0
        return None
    actual = run(operator, batches)
    if actual is None:
        assert expected.num_rows == 0
    else:
        assert same_rows(actual, expected)
    assert operator.ledger.peak_bytes <= operator.ledger.budget_bytes
    assert operator.telemetry.stream_rows == stream.num_rows
    assert operator.telemetry.output_rows == expected.num_rows
    return operator


@st.composite
def workloads(draw: Any) -> Workload:
    kinds = draw(
        st.one_of(
            st.sampled_from([(k,) for k in KEY_KINDS]),
            st.sampled_from(
                [("string", "int32"), ("date", "decimal", "int64"), ("int64", "int64")]
            ),
        )
    )
    return Workload(
        seed=draw(st.integers(0, 2**32 - 1)),
        key_kinds=kinds,
        relation_rows=draw(st.sampled_from([0, 1, 2, 17, 90, 250])),
        stream_rows=draw(st.sampled_from([0, 1, 5, 40, 200])),
        domain=draw(st.sampled_from([1, 4, 60, 300])),
        skew=draw(st.sampled_from([0.0, 0.5, 1.0, 1.5])),
        null_share=draw(st.sampled_from([0.0, 0.1, 1.0])),
        unique=draw(st.booleans()),
        partitions=draw(st.sampled_from([1, 2, 5])),
        page_bytes=draw(st.sampled_from([64, 300, 4096, 65536])),
        batch_rows=draw(st.sampled_from([1, 7, 64, 100_000])),
        how=draw(st.sampled_from(["inner", "left", "semi", "anti"])),
        with_nested=draw(st.booleans()),
        by_frequency=draw(st.booleans()),
    )
