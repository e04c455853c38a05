"""The joins that the Spark benchmarks compare: ours, plain Spark's, a key-value store, the floor.

Plain Spark can shuffle R, with a sort or a hash table; broadcast R; keep R bucketed and sorted by
the key, so that only the stream is shuffled; or broadcast the micro-batch, which is the smaller
side: in an inner join by a hint, in a left join with `foreachBatch`. The floor is what any join in
Python costs at least: the same source through `mapInArrow`, with a shuffle and without.
"""

import functools
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import LongType, StructField, StructType

import semistream as ss
from benchmarks.sparkdata import KEY, SparkData
from semistream.spark.demo import broadcast_batch

Join = Callable[[DataFrame], DataFrame]
MEMORY_SHARE = 0.05
FLOOR = "floor: shuffle and mapInArrow, no join"
BARE_FLOOR = "floor: mapInArrow, no join"
AUTO = "semistream: auto"
NAMED = {  # ours, by algorithm and routing
    "semistream: lookup": {"algorithm": "lookup"},
    "semistream: hybridjoin, shuffle": {"algorithm": "hybridjoin", "routing": "shuffle"},
    "semistream: chybridjoin, shuffle": {"algorithm": "chybridjoin", "routing": "shuffle"},
}
# These use a micro-batch several times, in foreachBatch: a stream cannot be joined with itself.
BY_BATCH = ("plain: batch broadcast, inner and anti", "plain: batch broadcast, left")
BUCKETS = 8
ROCKSDB = "rocksdb: look-ups in mapInArrow"


def contestants_of(
    data: SparkData, relation: ss.Relation, columns: list[str], budget: int
) -> dict[str, Join]:
    """Return the joins by name. All keys of the stream are in R, so inner and left are the same."""
    r = data.relation().select(KEY, *columns)
    ours = partial(ss.enrich, relation=relation, on=KEY, columns=columns, memory=budget)
    code = F.pmod(KEY, F.lit(relation.partition_count)).cast("int")
    return {
        AUTO: ours,
        **{name: partial(ours, **options) for name, options in NAMED.items()},
        "plain: batch broadcast, inner": lambda s: F.broadcast(s).join(r, KEY),
        "plain: batch broadcast, inner and anti": lambda s: _inner_and_anti(s, r),
        "plain: batch broadcast, left": lambda s: broadcast_batch(s, r, KEY),
        "plain: R bucketed and sorted": lambda s: s.join(_bucketed(data, columns), KEY, "left"),
        "plain: shuffled hash join": lambda s: s.join(r.hint("shuffle_hash"), KEY, "left"),
        "plain: sort-merge join": lambda s: s.join(r.hint("merge"), KEY, "left"),
        "plain: broadcast hash join": lambda s: s.join(F.broadcast(r), KEY, "left"),
        BARE_FLOOR: lambda s: s.mapInArrow(identity, s.schema),
        FLOOR: lambda s: s.repartitionById(relation.partition_count, code).mapInArrow(
            identity, s.schema
        ),
    }


def _inner_and_anti(batch: DataFrame, r: DataFrame) -> DataFrame:
    """Return the left join as the rows that match, and those that do not."""
    matched = F.broadcast(batch).join(r, KEY)
    missed = batch.join(F.broadcast(matched.select(KEY)), KEY, "left_anti")
    return matched.unionByName(missed, allowMissingColumns=True)


def _bucketed(data: SparkData, columns: list[str]) -> DataFrame:
    """Return R from a table that is bucketed and sorted by the key; it is written once."""
    name = f"r_{data.relation_rows}_{data.columns}"
    if not data.spark.catalog.tableExists(name):
        writer = data.relation().repartition(BUCKETS, KEY).write
        writer.bucketBy(BUCKETS, KEY).sortBy(KEY).saveAsTable(name)
    return data.spark.table(name).select(KEY, *columns).hint("merge")


def identity(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Hand rows on."""
    yield from batches


def steady_seconds(stream: DataFrame, join: Join, by_batch: bool, skipped: int = 1) -> list[float]:
    """Return the seconds of the first micro-batch, and of each after the skipped ones."""

    def write(batch: DataFrame, number: int) -> None:
        batch.persist()  # it is used several times
        join(batch).write.format("noop").mode("append").save()
        batch.unpersist()

    if by_batch:
        writer = stream.writeStream.foreachBatch(write)
    else:
        writer = join(stream).writeStream.format("noop")
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    times = [
        p.durationMs["triggerExecution"] / 1000 for p in query.recentProgress if p.numInputRows
    ]
    return [times[0], *times[skipped:]]


class RocksJoin:
    """Look-ups in RocksDB, on local disk, from `mapInArrow`: what a key-value store costs here.

    Keys are big-endian, values the columns back to back; each worker opens the store read-only,
    once. A real service would add the network.
    """

    def __init__(self, data: SparkData, columns: list[str], name: str) -> None:
        """Fill the store beside R, unless it is there."""
        path = data.folder / name
        self._path, self._columns = str(path), columns
        if not path.exists():
            _fill(path, data, columns)

    def __call__(self, stream: DataFrame) -> DataFrame:
        """Return the join."""
        added = [StructField(name, LongType()) for name in self._columns]
        return stream.mapInArrow(self._join, StructType([*stream.schema.fields, *added]))

    def _join(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        store = _opened(self._path)
        for batch in batches:
            image = batch.column(KEY).to_numpy().astype(">i8").tobytes()
            found = store.get([image[i : i + 8] for i in range(0, len(image), 8)])
            values = np.frombuffer(b"".join(found), np.int64).reshape(-1, len(self._columns))
            for i, name in enumerate(self._columns):
                batch = batch.append_column(name, pa.array(np.ascontiguousarray(values[:, i])))
            yield batch


@functools.cache
def _opened(path: str) -> Any:
    from rocksdict import AccessType, Options, Rdict

    return Rdict(path, Options(raw_mode=True), access_type=AccessType.read_only())


def _fill(path: Path, data: SparkData, columns: list[str]) -> None:
    from rocksdict import Options, Rdict, WriteBatch

    store = Rdict(str(path), Options(raw_mode=True))
    width = 8 * len(columns)
    for file in sorted(data.relation_folder.glob("*.parquet")):
        for piece in pq.ParquetFile(file).iter_batches(100_000, columns=[KEY, *columns]):
            keys = piece.column(KEY).to_numpy().astype(">i8").tobytes()
            values = np.column_stack([piece.column(c).to_numpy() for c in columns]).tobytes()
            batch = WriteBatch(raw_mode=True)
            for i in range(piece.num_rows):
                batch.put(keys[8 * i : 8 * i + 8], values[width * i : width * i + width])
            store.write(batch)
    store.compact_range(None, None)
    store.close()


def fingerprint(joined: DataFrame) -> object:
    """Return the columns, the row count and the sum of the rows' hashes, over all columns.

    A null does not change a hash, so whether each value is one is hashed as well.
    """
    names = sorted(joined.columns)
    are_null = [F.isnull(name) for name in names]
    row_hash = F.xxhash64(*names, *are_null).cast("decimal(38,0)")
    types = [(name, joined.schema[name].dataType) for name in names]
    return types, joined.agg(F.count("*"), F.sum(row_hash)).collect()[0]


def check(name: str, actual: object, expected: object) -> None:
    """Raise unless a fingerprint is the right one."""
    if actual != expected:
        raise AssertionError(f"{name} gave a wrong answer: {actual}, not {expected}")
