"""Pipelines on Spark against oracles that share no code with them: Python loops and DuckDB."""

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import SparkSession

import semistream as ss
from semistream.errors import ColumnError, DeadLetterError, OptionError, PipelineError
from semistream.relation.relation import Relation
from semistream.spark import surrogates
from semistream.testing import same_rows
from tests.arriving import arriving
from tests.services.session import driver_environment
from tests.spark.services import PATIENCE_SECONDS, free_port, service

COMMAND = (sys.executable, "-m", "semistream.cli.main")
PRODUCTS = 50
COUNTED = re.compile(r'semistream_dead_letters_total\{.*query="sales".*\} [1-9]')
SCHEMA = "product_id string, quantity int, price double"


@pytest.fixture(scope="module")
def relation(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("products")
    products = pa.table({"id": range(PRODUCTS), "name": [f"p{i}" for i in range(PRODUCTS)]})
    pq.write_table(products, folder / "products.parquet")
    return folder


def line(i: int) -> str:
    """Return a sale as JSON; some are broken, some have a key of the wrong form or none of R's."""
    if i % 11 == 3:
        return f'{{"product_id": "{i}", "quantity": '
    key = "x7" if i % 13 == 5 else str(i % 60)
    return json.dumps({"product_id": key, "quantity": i, "price": i / 2})


def arrive(folder: Path, number: int, rows: range) -> None:
    folder.mkdir(exist_ok=True)
    path = folder / f"{number:03d}.json"
    with arriving(path, number) as unfinished:
        unfinished.write_text("".join(f"{line(i)}\n" for i in rows))


def oracle(rows: range) -> tuple[list[dict[str, Any]], dict[str, int]]:
    """Return the joined rows, and how many dead letters there are of each reason."""
    joined, reasons = [], {"JSON": 0, "x7": 0, "no row": 0}
    for i in rows:
        if i % 11 == 3:
            reasons["JSON"] += 1
        elif i % 13 == 5:
            reasons["x7"] += 1
        elif i % 60 >= PRODUCTS:
            reasons["no row"] += 1
        elif i >= 5:
            sale = {"product_id": i % 60, "quantity": i, "price": i / 2, "name": f"p{i % 60}"}
            joined.append({**sale, "revenue": i * i / 2})
    return joined, reasons


def a_pipeline(folder: Path, relation: Path, **changes: Any) -> ss.Pipeline:
    given = {
        "name": "sales",
        "storage": str(folder / "storage"),
        "source": {"format": "files", "path": str(folder / "in"), "max_files_per_trigger": 1},
        "parse": {"format": "json", "schema": SCHEMA},
        "relations": {
            "products": {
                "location": str(folder / "products.rel"),
                "source": str(relation / "products.parquet"),
                "key": "id",
            }
        },
        "steps": [
            {
                "enrich": {
                    "relation": "products",
                    "on": {"product_id": "id"},
                    "on_missing": "dead_letters",
                }
            },
            {"add_columns": {"revenue": "price * quantity"}},
            {"where": "quantity >= 5"},
        ],
        "sink": {"format": "parquet", "path": str(folder / "out")},
        "memory": "8MB",
        "trigger": "available now",
        "dead_letters": {"limit": "60%"},
    }
    return ss.Pipeline(**{**given, **changes})


def forget(storage: Path, batch: int) -> None:
    """Let Spark not know that a micro-batch has ended, so that it is repeated."""
    for name in (str(batch), f".{batch}.crc"):
        (storage / "checkpoint" / "commits" / name).unlink()


def count_letters(folder: Path) -> int:
    return int(pq.read_table(folder / "storage" / "dead-letters").num_rows)


def sorted_rows(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(rows, key=lambda row: row["quantity"])


def written(spark: SparkSession, folder: Path) -> list[dict[str, Any]]:
    rows = spark.read.parquet(str(folder / "out")).drop("batch").collect()
    return sorted_rows([row.asDict() for row in rows])


def scrape(port: int, ended: threading.Event) -> str:
    """Return what Prometheus would get, once dead letters are counted, or at the end."""
    text = ""
    while not ended.is_set() and not COUNTED.search(text):
        with suppress(OSError), urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
            text = answer.read().decode()
        time.sleep(0.02)
    return text


def test_files_to_parquet_with_dead_letters_and_a_restart(
    spark: SparkSession, tmp_path: Path, relation: Path
) -> None:
    arrive(tmp_path / "in", 0, range(150))
    arrive(tmp_path / "in", 1, range(150, 300))
    port = free_port()
    ended = threading.Event()
    with ThreadPoolExecutor(1) as pool:
        scraped = pool.submit(scrape, port, ended)
        try:
            query = ss.run_pipeline(a_pipeline(tmp_path, relation, metrics_port=port), spark=spark)
        finally:
            ended.set()
    assert COUNTED.search(scraped.result()), scraped.result()
    with pytest.raises(OSError, match="refused"):
        urlopen(f"http://127.0.0.1:{port}/metrics")
    arrive(tmp_path / "in", 2, range(300, 400))
    ss.run_pipeline(a_pipeline(tmp_path, relation), spark=spark)

    joined, reasons = oracle(range(400))
    assert written(spark, tmp_path) == sorted_rows(joined)
    letters = spark.read.parquet(str(tmp_path / "storage" / "dead-letters")).collect()
    found = {name: [r for r in letters if name in r.reason] for name in reasons}
    assert {name: len(rows) for name, rows in found.items()} == reasons
    assert len(letters) == sum(reasons.values())
    assert {r.value for r in found["JSON"]} == {line(i) for i in range(400) if i % 11 == 3}
    assert all(r.source.endswith(".json") and r.time is not None for r in letters)
    counted = [p.observedMetrics["semistream:dead_letters"] for p in query.recentProgress]
    first, dead = oracle(range(300))
    assert sum(c.rows for c in counted) == len(first) + sum(dead.values())
    assert sum(c.dead_letters for c in counted) == sum(dead.values())


def test_a_batch_that_is_repeated_is_written_once(
    spark: SparkSession, tmp_path: Path, relation: Path
) -> None:
    """The driver died after the sinks were written, before Spark noted that."""
    arrive(tmp_path / "in", 0, range(100))
    delta = {"format": "delta", "path": str(tmp_path / "lake")}
    pipeline = a_pipeline(tmp_path, relation, sink=delta)
    ss.run_pipeline(pipeline, spark=spark)
    forget(tmp_path / "storage", 0)
    ss.run_pipeline(pipeline, spark=spark)
    table = pa.table(ss.delta_table(tmp_path / "lake").open())
    joined, reasons = oracle(range(100))
    assert sorted_rows(table.to_pylist()) == sorted_rows(joined)
    assert count_letters(tmp_path) == sum(reasons.values())


def test_a_delta_table_as_a_source(spark: SparkSession, tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    pipeline = ss.Pipeline(
        name="appended",
        storage=str(tmp_path / "storage"),
        source={"format": "delta", "path": str(lake)},
        sink={"format": "parquet", "path": str(tmp_path / "out")},
        trigger="available now",
    )
    at = pa.array([1_700_000_000_000_000] * 3, pa.timestamp("us", "UTC"))
    rows = [pa.table({"day": ["mo", "tu", "mo"], "n": [i, None, 7], "at": at}) for i in range(4)]
    for each in rows[:2]:
        write_deltalake(lake, each, partition_by=["day"], mode="append")
    ss.run_pipeline(pipeline, spark=spark)
    write_deltalake(lake, rows[2], mode="append")
    DeltaTable(lake).optimize.compact()  # rearranges rows, which do not come again
    write_deltalake(lake, rows[3], mode="append")
    ss.run_pipeline(pipeline, spark=spark)
    written = pq.read_table(tmp_path / "out").select(["day", "n", "at"])
    expected = pa.concat_tables(rows)
    assert same_rows(written.cast(expected.schema), expected)
    DeltaTable(lake).delete("n = 7")
    with pytest.raises(OptionError, match=r"^version \d .*DELETE.* only what is appended"):
        ss.run_pipeline(pipeline, spark=spark)


def test_too_many_dead_letters_stop_the_query_and_nothing_is_written(
    spark: SparkSession, tmp_path: Path, relation: Path
) -> None:
    arrive(tmp_path / "in", 0, range(200))
    strict = a_pipeline(tmp_path, relation, dead_letters={"limit": 0.05})
    with pytest.raises(DeadLetterError, match=r"of 196 rows .* more than the limit of 5%"):
        ss.run_pipeline(strict, spark=spark)
    assert not (tmp_path / "out").exists()
    assert count_letters(tmp_path) == sum(oracle(range(200))[1].values())
    ss.run_pipeline(a_pipeline(tmp_path, relation), spark=spark)  # with a greater limit: goes on
    assert written(spark, tmp_path) == sorted_rows(oracle(range(200))[0])
    assert count_letters(tmp_path) == sum(oracle(range(200))[1].values())


def test_a_refresh_brings_the_keys_of_too_many_dead_letters(
    spark: SparkSession, tmp_path: Path, relation: Path
) -> None:
    """The micro-batch that was refused reads the new snapshot when it is repeated."""
    arrive(tmp_path / "in", 0, range(50, 53))
    strict = a_pipeline(tmp_path, relation, dead_letters={"limit": 0.0, "least_rows": 1})
    with pytest.raises(DeadLetterError, match="refresh the relation if it lacks keys"):
        ss.run_pipeline(strict, spark=spark)
    more = pa.table({"id": range(60), "name": [f"p{i}" for i in range(60)]})
    ss.build_relation(more, tmp_path / "products.rel", key="id")
    ss.run_pipeline(strict, spark=spark)
    assert [row["name"] for row in written(spark, tmp_path)] == ["p50", "p51", "p52"]


def test_a_new_checkpoint_does_not_overwrite_what_is_there(
    spark: SparkSession, tmp_path: Path, relation: Path
) -> None:
    arrive(tmp_path / "in", 0, range(100))
    ss.run_pipeline(a_pipeline(tmp_path, relation), spark=spark)
    before = written(spark, tmp_path)
    anew = a_pipeline(tmp_path, relation, storage=str(tmp_path / "anew"))
    with pytest.raises(PipelineError, match="another stream, which this one would overwrite"):
        ss.run_pipeline(anew, spark=spark)
    assert written(spark, tmp_path) == before
    # Another name is the same stream: what is repeated is written once.
    forget(tmp_path / "storage", 0)
    ss.run_pipeline(a_pipeline(tmp_path, relation, name="renamed"), spark=spark)
    assert written(spark, tmp_path) == before


def test_a_row_too_wide_for_the_memory_is_a_dead_letter(
    spark: SparkSession, tmp_path: Path, relation: Path
) -> None:
    ss.build_relation(relation / "products.parquet", tmp_path / "r.rel", key="id")
    rows = [(i, "w" * (300_000 if i == 7 else 5), None) for i in range(100)]
    stream = spark.createDataFrame(rows, "id long, text string, why string")
    joined = ss.enrich(stream, tmp_path / "r.rel", how="inner", memory="2MB", reason="why")
    found = {r.id: r for r in joined.collect()}
    assert sorted(found) == [*range(PRODUCTS)]  # the one with a reason passes the join by
    assert "wider than" in found[7].why
    assert (found[7].name, len(found[7].text)) == (None, 300_000)
    assert all((r.name, r.why) == (f"p{i}", None) for i, r in found.items() if i != 7)
    with pytest.raises(ColumnError, match="no column 'wy' for reasons"):
        ss.enrich(stream, tmp_path / "r.rel", reason="wy")


def test_duplicates_and_new_tuples_are_marked(
    spark: SparkSession, tmp_path: Path, relation: Path
) -> None:
    known = tmp_path / "known.rel"
    several = pa.table({"k": [1, 1, 2], "name": ["ann", "anna", "bob"]})
    ss.build_relation(several, known, key="k")
    rows = pa.table({"k": [1, 2, 3, 3, None, 4], "n": range(6)})
    frame = spark.createDataFrame(rows)
    new = {r.n: r.is_new for r in ss.mark_new(frame, known).collect()}
    assert new == {0: False, 1: False, 2: True, 3: True, 4: True, 5: True}
    marked = ss.mark_duplicates(frame, known, order="n").collect()
    assert {r.n: r.is_duplicate for r in marked} == {n: n in (0, 1, 3) for n in range(6)}
    alone = ss.mark_duplicates(frame, on="k", order="n").collect()
    assert {r.n for r in alone if r.is_duplicate} == {3}
    names = spark.createDataFrame([("anne",), ("zoe",)], "name string")
    similar = ss.similar("name", by="edit", least=0.7)
    alike = ss.mark_duplicates(names, known, on=[], condition=similar)
    assert {r.name: r.is_duplicate for r in alike.collect()} == {"anne": True, "zoe": False}


def test_surrogate_keys_of_several_sources_are_given_once(
    spark: SparkSession, tmp_path: Path
) -> None:
    place = tmp_path / "keys.rel"
    first = pa.table({"source": ["shop"], "code": ["a"], "skey": [41], "name": ["old"]})
    ss.build_relation(first, place, key=["source", "code"])
    (tmp_path / "in").mkdir()
    for number in range(3):
        # Codes come again in later files and from another source; some rows have no code.
        codes = [None if i % 9 == 0 else f"{chr(97 + (i * 7 + number) % 20)}" for i in range(40)]
        sources = ["shop" if i % 3 else "web" for i in range(40)]
        rows = pa.table({"source": sources, "code": pa.array(codes), "n": range(40)})
        pq.write_table(rows, tmp_path / "in" / f"{number}.parquet")
    step = {"relation": str(place), "to": "skey"}
    pipeline = ss.Pipeline(
        name="keys",
        storage=str(tmp_path / "storage"),
        source={"format": "files", "path": str(tmp_path / "in"), "max_files_per_trigger": 1},
        parse={"format": "parquet"},
        steps=[{"surrogate_key": step}, {"add_columns": {"text": "concat(source, '-', skey)"}}],
        sink={"format": "parquet", "path": str(tmp_path / "out")},
        trigger="available now",
    )
    ss.run_pipeline(pipeline, spark=spark)
    forget(tmp_path / "storage", 2)
    ss.run_pipeline(pipeline, spark=spark)
    out = duckdb.sql(f"SELECT * FROM '{tmp_path}/out/*/*.parquet'")
    check = "SELECT source, code, count(DISTINCT skey) n, min(skey) k FROM out GROUP BY ALL"
    pairs = duckdb.sql(check).fetchall()
    keyed = [p for p in pairs if p[1] is not None]
    assert len(out.fetchall()) == 120
    assert all(n == 1 for _, _, n, _ in keyed)  # one warehouse key for each source key
    numbers = sorted(k for *_, k in keyed)
    assert len(set(numbers)) == len(numbers)  # and no key twice
    assert next(k for s, c, _, k in keyed if (s, c) == ("shop", "a")) == 41
    assert numbers == [*range(41, 41 + len(numbers))]  # without a gap
    assert {k for _, c, _, k in pairs if c is None} == {None}
    assert Relation.open(place).row_count == len(numbers)


def test_of_two_writers_of_surrogate_keys_the_slower_looks_again(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another writer publishes its keys, some the same, just before this one does."""
    place = tmp_path / "keys.rel"
    ss.build_relation(pa.table({"code": ["a"], "skey": [1]}), place, key="code")
    others = iter([["b", "x"], ["c", "y"]])
    upsert = surrogates.change.upsert

    def overtaken(current: Relation, rows: pa.Table, **about: Any) -> Relation:
        codes = next(others, None)
        if codes is not None:
            assign(codes)
        return upsert(current, rows, **about)

    def assign(codes: list[str]) -> dict[str, int]:
        rows = spark.createDataFrame(pa.table({"code": codes}))
        keyed = ss.surrogate_key(rows, str(place), on="code", to="skey", memory="4MB")
        return {row.code: row.skey for row in keyed.collect()}

    monkeypatch.setattr(surrogates.change, "upsert", overtaken)
    ours = assign(["a", "b", "c", "d"])
    known = assign([*"abcdxy"])
    assert Relation.open(place).row_count == len(known) == 6
    assert sorted(known.values()) == [1, 2, 3, 4, 5, 6]  # no number twice, without a gap
    assert ours == {code: known[code] for code in "abcd"}


def test_a_star_of_relations(spark: SparkSession, tmp_path: Path) -> None:
    stores = pa.table({"store": range(7), "city": [f"c{i}" for i in range(7)]})
    ss.build_relation(stores, tmp_path / "stores.rel", key="store")
    products = pa.table({"id": range(50), "name": [f"p{i}" for i in range(50)]})
    ss.build_relation(products, tmp_path / "products.rel", key="id")
    star = {"relations": {"stores.rel": "store", "products.rel": {"on": {"k": "id"}}}}
    pipeline = ss.Pipeline(
        name="star",
        storage="storage",
        source={"format": "files", "path": "in"},
        parse={"format": "parquet"},
        steps=[{"enrich_star": star}],
        sink={"format": "parquet", "path": "out"},
        trigger="available now",
    ).placed(tmp_path)
    (tmp_path / "in").mkdir()
    sales = pa.table({"k": [str(i) for i in range(60)], "store": [i % 9 for i in range(60)]})
    pq.write_table(sales.set_column(0, "k", [[*map(str, range(59)), "x"]]), tmp_path / "in" / "0")
    ss.run_pipeline(pipeline, spark=spark)
    expected = [
        {
            "k": k,
            "store": k % 9,
            "city": f"c{k % 9}" if k % 9 < 7 else None,
            "name": f"p{k}" if k < 50 else None,
        }
        for k in range(59)
    ]
    written = pq.read_table(tmp_path / "out").drop_columns(["batch"]).to_pylist()
    assert sorted(written, key=lambda row: row["k"]) == expected
    (letter,) = pq.read_table(tmp_path / "storage" / "dead-letters").to_pylist()
    assert letter["reason"] == "the key k is x, not bigint"


def test_what_is_wrong_is_said_before_a_row_is_read(
    spark: SparkSession, tmp_path: Path, relation: Path
) -> None:
    arrive(tmp_path / "in", 0, range(3))
    wrong = {"parse": {"format": "json", "schema": "a lonk"}}
    with pytest.raises(PipelineError, match=r"parse.schema: expected columns .* 'a lonk'"):
        ss.start_pipeline(a_pipeline(tmp_path, relation, **wrong), spark=spark)
    steps = [{"enrich": {"relation": "productss"}}]
    with pytest.raises(PipelineError, match=r"steps\[1\].enrich: .*Did you mean 'products'"):
        ss.start_pipeline(a_pipeline(tmp_path, relation, steps=steps), spark=spark)
    bad = a_pipeline(tmp_path, relation, steps=[{"add_columns": {"a": "prize + 1"}}])
    with pytest.raises(PipelineError, match=r"^steps\[1\].add_columns: .*`prize`.*`price`"):
        ss.start_pipeline(bad, spark=spark)


def test_sigterm_ends_the_micro_batch_and_the_next_start_goes_on(
    spark: SparkSession, tmp_path: Path, relation: Path
) -> None:
    """The command in a process of its own; a micro-batch is cut by nothing, and none is lost."""
    for number in range(3):
        arrive(tmp_path / "in", number, range(100 * number, 100 * number + 100))
    pipeline = a_pipeline(tmp_path, relation).model_dump(by_alias=True, exclude_defaults=True)
    pipeline["trigger"] = "2 seconds"
    pipeline["configuration"] = {
        "spark.master": "local[2]",
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.local.dir": str(tmp_path / "local"),
        "spark.sql.warehouse.dir": str(tmp_path / "warehouse"),
    }
    path = tmp_path / "pipeline.yml"
    path.write_text(json.dumps(pipeline))  # JSON is YAML, too
    first, log = tmp_path / "out" / "batch=0" / "_SUCCESS", tmp_path / "log"
    with service([*COMMAND, "run", str(path)], log, driver_environment()) as process:
        wait_for(first, process, log)
        os.kill(process.pid, signal.SIGTERM)
        assert process.wait(PATIENCE_SECONDS) == 0, log.read_text()[-3000:]
    assert "ended in order" in log.read_text()
    storage = tmp_path / "storage" / "checkpoint"
    ended = {p.name for p in (storage / "commits").iterdir() if p.name.isdigit()}
    assert {p.name.partition("=")[2] for p in (tmp_path / "out").glob("batch=*")} == ended
    assert "0" in ended
    path.write_text(json.dumps({**pipeline, "trigger": "available now"}))
    ss.run_pipeline(path, spark=spark)
    rows = pq.read_table(tmp_path / "out").drop_columns(["batch"]).to_pylist()
    assert sorted_rows(rows) == sorted_rows(oracle(range(300))[0])
    assert count_letters(tmp_path) == sum(oracle(range(300))[1].values())


def wait_for(path: Path, process: "subprocess.Popen[bytes]", log: Path) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < deadline and not path.exists() and process.poll() is None:
        time.sleep(0.1)
    assert path.exists(), log.read_text()[-4000:]
