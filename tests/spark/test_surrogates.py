"""Surrogate keys that several processes assign at once: one number for a key, one key for a number.

Without a Spark session: `number_new_keys` is what `surrogate_key` calls for each micro-batch; here
it looks keys up by `ss.join`.
"""

import json
import multiprocessing
from pathlib import Path

import numpy as np
import pyarrow as pa

import semistream as ss
from semistream.relation.relation import Relation
from semistream.spark.surrogates import number_new_keys

BATCHES, WRITERS, KEYS = 8, 3, 60


def micro_batches(writer: int) -> list[pa.Table]:
    """Return the keys of a writer's micro-batches; many are those of other writers, too."""
    rng = np.random.default_rng(writer)
    codes = [np.unique(rng.integers(0, 200, KEYS)) for _ in range(BATCHES)]
    return [pa.table({"source": ["shop"] * len(c), "code": c}) for c in codes]


def assign(location: str, writer: int, ready: object, told: str) -> None:
    """Number the keys of some micro-batches; the last is repeated, as after a failure."""
    seen = []
    ready.wait(60)  # type: ignore[attr-defined]
    batches = micro_batches(writer)
    for keys in [*batches, batches[-1]]:

        def lacking(current: Relation, keys: pa.Table = keys) -> pa.Table:
            left = list(ss.join(keys, current, how="anti", memory="4MB"))
            return pa.Table.from_batches(left, keys.schema)

        current = number_new_keys(location, "product_key", lacking)
        found = ss.join(keys, current, columns=["product_key"], memory="4MB")
        seen += [row for batch in found for row in batch.to_pylist()]
    Path(told).write_text(json.dumps([[row["code"], row["product_key"]] for row in seen]))


def test_several_writers_at_once(tmp_path: Path) -> None:
    place = tmp_path / "keys.rel"
    schema = pa.schema([("source", "string"), ("code", "int64"), ("product_key", "int64")])
    first = pa.table({"source": ["shop"], "code": [-1], "product_key": [7]}, schema=schema)
    ss.build_relation(first, place, key=["source", "code"], partitions=2)
    context = multiprocessing.get_context("spawn")
    ready = context.Barrier(WRITERS)  # they begin together
    told = [tmp_path / f"{writer}.txt" for writer in range(WRITERS)]
    writers = [
        context.Process(target=assign, args=(str(place), i, ready, str(told[i])))
        for i in range(WRITERS)
    ]
    for process in writers:
        process.start()
    for process in writers:
        process.join(240)
        assert process.exitcode == 0
    table = pa.table({"source": ["shop"] * 201, "code": np.arange(-1, 200)})
    final = [
        row
        for batch in ss.join(table, str(place), how="inner", memory="4MB")
        for row in batch.to_pylist()
    ]
    codes = {int(c) for i in range(WRITERS) for b in micro_batches(i) for c in b["code"].to_numpy()}
    numbers = {row["code"]: row["product_key"] for row in final}
    assert len(final) == len(numbers) == len(codes) + 1  # each key once
    # From 8 on, without gaps: no number was given twice, and none was lost to a retry.
    assert sorted(numbers.values()) == list(range(7, 8 + len(codes)))
    for path in told:  # what a micro-batch was told holds for ever
        assert all(numbers[code] == number for code, number in json.loads(path.read_text()))
