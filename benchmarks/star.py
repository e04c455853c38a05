"""`enrich_star` against a chain of `enrich` calls: the same relations, the same memory.

Sales of a shop with products (1M rows), customers (300k) and stores (500). The chain gives each
relation an equal part of the memory. The answers must be equal before times count. The figure is
the median time of the micro-batches after the first, and the ratio of the two in this run; they
take turns, so that other load on the machine hits both.
"""

import argparse
import tempfile
from collections.abc import Callable
from pathlib import Path
from statistics import median

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

import semistream as ss
from benchmarks.report import Report
from semistream.spark.session import local_session

MEMORY_BYTES = 48_000_000
SIZES = {"product": 1_000_000, "customer": 300_000, "store": 500}
BATCHES, ROUNDS = 5, 2


def tables(scale: int) -> dict[str, pa.Table]:
    """Return the relations: an id, two numbers and a text each."""
    made = {}
    for name, rows in SIZES.items():
        rows = max(500, rows // scale)
        numbers = np.arange(rows)
        texts = pa.array([f"{name} {i:024d}" for i in range(rows)])
        made[name] = pa.table(
            {f"{name}_id": numbers, f"{name}_a": numbers * 3, f"{name}_b": -numbers}
        ).append_column(f"{name}_name", texts)
    return made


def sales(rows: int, relations: dict[str, pa.Table], seed: int) -> pa.Table:
    rng = np.random.default_rng(seed)
    keys = {f"{n}_id": rng.zipf(1.3, rows) % (t.num_rows + 9) for n, t in relations.items()}
    return pa.table({**keys, "price": rng.random(rows)})


def chain(stream: DataFrame, relations: dict[str, ss.Relation]) -> DataFrame:
    for name, relation in relations.items():
        share = MEMORY_BYTES // len(relations)
        stream = ss.enrich(stream, relation, on=f"{name}_id", memory=share, name=name)
    return stream


def star(stream: DataFrame, relations: dict[str, ss.Relation]) -> DataFrame:
    asked = {relation: {"on": f"{name}_id", "name": name} for name, relation in relations.items()}
    return ss.enrich_star(stream, asked, memory=MEMORY_BYTES)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true")
    scale = 10 if parser.parse_args().quick else 1
    with tempfile.TemporaryDirectory(prefix="semistream-bench-") as name:
        folder = Path(name)
        spark = local_session("semistream-bench", folder, memory="2g")
        made = tables(scale)
        relations = {n: ss.build_relation(t, folder / n, key=f"{n}_id") for n, t in made.items()}
        (folder / "s").mkdir()
        for i in range(2 * BATCHES):
            pq.write_table(sales(100_000 // scale, made, i), folder / "s" / f"{i:02d}.parquet")
        schema = spark.read.parquet(str(folder / "s")).schema
        reader = spark.readStream.schema(schema).option("maxFilesPerTrigger", 2)
        joins: dict[str, Callable[[DataFrame, dict[str, ss.Relation]], DataFrame]] = {
            "chain of enrich": chain,
            "enrich_star": star,
        }
        batch = spark.read.parquet(str(folder / "s"))
        answers = {n: _answer(join(batch, relations)) for n, join in joins.items()}
        assert len(set(answers.values())) == 1, f"the answers differ: {answers}"
        times: dict[str, list[float]] = {name: [] for name in joins}
        for _ in range(ROUNDS):
            for each, join in joins.items():
                joined = join(reader.parquet(str(folder / "s")), relations)
                query = joined.writeStream.format("noop").trigger(availableNow=True).start()
                query.awaitTermination()
                progress = [p for p in query.recentProgress if p.numInputRows][1:]
                times[each] += [p.durationMs["addBatch"] / 1e3 for p in progress]
        spark.stop()
    found = {each: median(seconds) for each, seconds in times.items()}
    rows = 200_000 // scale
    report = Report("star", {"batch_rows": rows, "memory_bytes": MEMORY_BYTES, "scale": scale})
    lines = []
    for each, seconds in found.items():
        ratio = found["chain of enrich"] / seconds
        report.add(each, batch_s=round(seconds, 4), ratio=round(ratio, 2))
        lines.append([each, f"{rows / seconds:,.0f}", f"{seconds:.2f} s", f"{ratio:.2f} ×"])
    title = f"three relations, micro-batches of {rows:,} rows, {MEMORY_BYTES / 1e6:.0f} MB"
    report.show(title, ["", "rows/s", "micro-batch", "speed"], lines)


def _answer(joined: DataFrame) -> tuple[int, int]:
    """Return how many rows there are, and a sum over all their values."""
    row = joined.select(F.xxhash64(*joined.columns).alias("h")).agg(
        F.count(F.lit(1)), F.sum(F.col("h").cast("decimal(38,0)"))
    ).collect()[0]  # fmt: skip
    return int(row[0]), int(row[1])


if __name__ == "__main__":
    main()
