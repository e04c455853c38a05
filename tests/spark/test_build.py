"""Relations built from DataFrames: by the executors, and equal to those built from Arrow."""

import os
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

import semistream as ss
from semistream.errors import (
    BuildError,
    ColumnError,
    CommitError,
    KeyTypeError,
    OptionError,
    SemistreamError,
)
from semistream.relation import hot
from semistream.relation.storage import LocalStore
from semistream.testing import nested_loop_join, same_rows
from tests.spark.frames import ALGORITHMS, conf, from_arrow, same_frames, spark_join
from tests.workloads import Workload

KEYS = {
    "long": ("int64",),
    "int": ("int32",),
    "string": ("string",),
    "decimal": ("big_decimal",),
    "composite": ("string", "date", "int64"),
}


def workload(key_kinds: tuple[str, ...], **changes: Any) -> Workload:
    settings: dict[str, Any] = {
        "seed": 7,
        "key_kinds": key_kinds,
        "relation_rows": 400,
        "stream_rows": 250,
        "domain": 150,
        "skew": 0.5,
        "null_share": 0.1,
        "unique": False,
        "partitions": 3,
        "page_bytes": 512,
        "batch_rows": 64,
        "how": "left",
        "with_nested": True,
    }
    return Workload(**{**settings, **changes})


def files_below(folder: Path) -> set[str]:
    return {str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file()}


@pytest.mark.parametrize("kinds", KEYS.values(), ids=KEYS)
def test_a_dataframe_and_the_same_arrow_table_give_the_same_relation(
    spark: SparkSession, tmp_path: Path, kinds: tuple[str, ...]
) -> None:
    work = workload(kinds)
    stream, table = work.tables()
    frame = from_arrow(spark, table).repartition(3)
    ours = ss.build_relation(
        frame, tmp_path / "spark.rel", key=work.key, partitions=3, page_size=512
    )
    theirs = work.build(table)

    assert 0 < ours.row_count == theirs.row_count < table.num_rows
    dropped = table.num_rows - ours.row_count
    assert ours.manifest.null_keys_dropped == theirs.manifest.null_keys_dropped == dropped
    assert ours.schema.equals(theirs.schema)
    assert ours.has_unique_keys == theirs.has_unique_keys
    for a, b in zip(ours.manifest.partitions, theirs.manifest.partitions, strict=True):
        assert a.row_count == b.row_count
        assert (a.distinct_codes, a.most_duplicates) == (b.distinct_codes, b.most_duplicates)
        assert (a.first_code, a.last_code) == (b.first_code, b.last_code)
        assert a.squared_loads == b.squared_loads
    expected = nested_loop_join(stream, table, on=work.on)
    for relation in (ours, theirs):
        joined = pa.Table.from_batches(ss.join(stream.to_batches(), relation, on=work.on))
        assert same_rows(joined, expected)


@pytest.mark.parametrize("name", ["the key", "schlüssel", "the.key", "the`key"])
def test_columns_of_any_name(spark: SparkSession, tmp_path: Path, name: str) -> None:
    table = pa.table({name: [1, 2, None], f"{name}'s": ["x", "y", "z"]})
    relation = ss.build_relation(from_arrow(spark, table), tmp_path / "r", key=name, partitions=2)
    assert (relation.key, relation.row_count) == ((name,), 2)
    stream = pa.table({name: [2, 1, 3]})
    joined = pa.Table.from_batches(ss.join(stream.to_batches(), relation))
    assert same_rows(joined, nested_loop_join(stream, table, on=name))


SPARK_TYPES = {
    "byte": ("byte", "cast(id - 20 as byte)"),
    "short": ("short", "cast(id * 1000 - 20000 as short)"),
    "int": ("int", "cast(id * 50000000 - 1000000000 as int)"),
    "long": ("bigint", "id * 100000000000000000 - 2000000000000000000"),
    "float": ("float", "cast(id / 7 as float)"),
    "double": ("double", "if(id = 5, double('NaN'), if(id = 6, double('-Infinity'), id / 7))"),
    "small_decimal": ("decimal(10,2)", "cast(id - 20.25 as decimal(10,2))"),
    "big_decimal": (
        "decimal(38,10)",
        "cast(cast(id - 20 as decimal(38,10)) * 1000000000000000 as decimal(38,10))",
    ),
    "string": ("string", "repeat(concat('é', id), int(id % 5))"),
    "binary": ("binary", "unhex(repeat(hex(id), int(id % 3) * 2))"),
    "boolean": ("boolean", "id % 3 = 0"),
    "date": ("date", "date_add(date'1969-12-20', int(id))"),
    "timestamp": ("timestamp", "timestamp_micros(id * 1000003 - 20000000)"),
    "timestamp_ntz": (
        "timestamp_ntz",
        "timestamp_ntz'1969-12-31 23:59:50' + make_dt_interval(0, 0, 0, id)",
    ),
    "array": ("array<int>", "transform(sequence(1, int(id % 4)), x -> if(x = 2, null, int(x)))"),
    "strings": ("array<string>", "array_repeat(concat('s', id), int(id % 3))"),
    "struct": ("struct<a:int,b:string>", "named_struct('a', int(id), 'b', concat('b', id))"),
    "map": ("map<string,int>", "map(concat('k', id), int(id), 'other', null)"),
    "nested": (
        "array<struct<x:int,y:map<string,array<double>>>>",
        "array(named_struct('x', int(id), 'y', map('m', array(id / 3, null))))",
    ),
    "instants": (
        "struct<t:timestamp,d:array<date>>",
        "named_struct('t', timestamp_micros(id), 'd', array(date_add(date'2020-01-01', int(id))))",
    ),
    "interval": ("interval day to second", "make_dt_interval(int(id - 20), 1, 2, 3.456789)"),
    "void": ("void", "null"),
}


def all_types(spark: SparkSession) -> DataFrame:
    """Every type Arrow can carry, in 40 rows, every seventh value null."""
    columns = [
        f"cast(if(id % 7 = {i % 7}, null, {value}) as {dtype}) as `{name}`"
        for i, (name, (dtype, value)) in enumerate(SPARK_TYPES.items())
    ]
    return spark.range(0, 40, 1, 3).selectExpr("id as k", *columns)


@pytest.fixture(scope="module", params=ALGORITHMS)
def carried(
    request: pytest.FixtureRequest, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    """All types: what was put in, what came out of the relation, and out of the stream."""
    source = all_types(spark)
    folder = tmp_path_factory.mktemp("types")
    relation = ss.build_relation(source, folder / "r", key="k", partitions=2, page_size=300)
    stream = source.withColumnsRenamed({name: f"s_{name}" for name in SPARK_TYPES})
    enriched = ss.enrich(stream, relation, how="inner", algorithm=request.param)
    for name in SPARK_TYPES:
        wanted = source.schema[name].dataType
        assert enriched.schema[name].dataType == wanted
        assert enriched.schema[f"s_{name}"].dataType == wanted
    before = source.toArrow().sort_by("k")
    after = enriched.toArrow().sort_by("k")
    assert after["k"].to_pylist() == before["k"].to_pylist()
    return (
        {name: before[name].to_pylist() for name in SPARK_TYPES},
        {name: after[name].to_pylist() for name in SPARK_TYPES},
        {name: after[f"s_{name}"].to_pylist() for name in SPARK_TYPES},
    )


@pytest.mark.parametrize("name", SPARK_TYPES)
def test_every_type_survives_build_and_enrich(
    carried: tuple[dict[str, Any], dict[str, Any], dict[str, Any]], name: str
) -> None:
    source, relation, stream = carried
    assert None in source[name]
    assert name == "void" or any(value is not None for value in source[name])
    assert repr(relation[name]) == repr(source[name])  # NaN is equal to itself only in print
    assert repr(stream[name]) == repr(source[name])


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_variant_survives(spark: SparkSession, tmp_path: Path, algorithm: str) -> None:
    source = spark.range(6).selectExpr("id as k", "parse_json(concat('{\"a\":', id, '}')) as j")
    relation = ss.build_relation(source, tmp_path / "r", key="k", partitions=2)
    stream = source.withColumnRenamed("j", "sj")
    enriched = ss.enrich(stream, relation, algorithm=algorithm)
    rows = enriched.selectExpr("k", "to_json(j) as j", "to_json(sj) as sj").collect()
    assert sorted((r.k, r.j, r.sj) for r in rows) == [
        (i, f'{{"a":{i}}}', f'{{"a":{i}}}') for i in range(6)
    ]


def test_rows_are_kept_in_many_small_arrow_batches(spark: SparkSession, tmp_path: Path) -> None:
    # Null keys then fill whole batches at the head of a task.
    source = spark.range(200).selectExpr("nullif(id % 5, 0) as k", "id as v")
    with conf(spark, "spark.sql.execution.arrow.maxRecordsPerBatch", "7"):
        relation = ss.build_relation(source, tmp_path / "r", key="k", partitions=2)
        enriched = ss.enrich(source.selectExpr("k", "v as s"), relation, how="inner")
        assert enriched.count() == 4 * 40 * 40
    assert relation.row_count == 160
    assert relation.manifest.null_keys_dropped == 40


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_large_arrow_types_make_no_difference(
    spark: SparkSession, tmp_path: Path, algorithm: str
) -> None:
    """With useLargeVarTypes Spark hands over large_string, in lists and structs as well."""
    source = spark.range(8).selectExpr(
        "concat('k', id) as k", "id as v", "array(concat('x', id), 'y') as a", "map('m', k) as m"
    )
    stream = source.selectExpr("k", "array('t', k) as tags")
    with conf(spark, "spark.sql.execution.arrow.useLargeVarTypes", "true"):
        relation = ss.build_relation(source, tmp_path / "r", key="k", partitions=2)
        enriched = ss.enrich(stream, relation, algorithm=algorithm)
        rows = sorted((r.k, r.tags, r.v, r.a, r.m) for r in enriched.collect())
    assert rows == [(f"k{i}", ["t", f"k{i}"], i, [f"x{i}", "y"], {"m": f"k{i}"}) for i in range(8)]


def test_an_empty_dataframe_gives_an_empty_relation(spark: SparkSession, tmp_path: Path) -> None:
    source = spark.createDataFrame([], "k long, v string")
    relation = ss.build_relation(source, tmp_path / "r", key="k", partitions=3)
    assert (relation.row_count, relation.page_count, relation.partition_count) == (0, 0, 3)
    enriched = ss.enrich(spark.range(4).selectExpr("id as k"), relation)
    assert sorted((r.k, r.v) for r in enriched.collect()) == [(i, None) for i in range(4)]


def test_a_dataframe_of_null_keys_gives_an_empty_relation(
    spark: SparkSession, tmp_path: Path
) -> None:
    source = spark.range(5).selectExpr("cast(null as string) as k", "id as v")
    relation = ss.build_relation(source, tmp_path / "r", key="k", partitions=2)
    assert (relation.row_count, relation.manifest.null_keys_dropped) == (0, 5)


def test_more_partitions_than_keys(spark: SparkSession, tmp_path: Path) -> None:
    source = spark.createDataFrame([(1, "a"), (2, "b"), (2, "c")], "k long, v string")
    relation = ss.build_relation(source, tmp_path / "r", key="k", partitions=13)
    assert [p.row_count for p in relation.manifest.partitions] == [0, 1, 2, *[0] * 10]
    stream = spark.range(20).selectExpr("id as k")
    assert same_frames(ss.enrich(stream, relation), spark_join(stream, source, {"k": "k"}))


def test_many_partitions_on_both_sides(spark: SparkSession, tmp_path: Path) -> None:
    source = spark.range(0, 5000, 1, 16).selectExpr("id % 1700 as k", "id as v")
    relation = ss.build_relation(source, tmp_path / "r", key="k", partitions=24)
    assert relation.partition_count == 24
    assert relation.row_count == 5000
    assert all(p.row_count for p in relation.manifest.partitions)
    stream = pa.table({"k": pa.array(range(1700))})
    joined = pa.Table.from_batches(ss.join(stream.to_batches(), relation))
    assert sorted(joined["v"].to_pylist()) == list(range(5000))


def test_a_rebuild_switches_the_snapshot_and_keeps_the_old_one(
    spark: SparkSession, tmp_path: Path
) -> None:
    old = spark.createDataFrame([(1, "old")], "k long, v string")
    new = spark.createDataFrame([(1, "new"), (2, "two")], "k long, v string")
    first = ss.build_relation(old, tmp_path / "r", key="k", partitions=2)
    stream = spark.range(1, 3).selectExpr("id as k")
    planned = ss.enrich(stream, first)
    second = ss.build_relation(new, tmp_path / "r", key="k", partitions=2)
    assert first.snapshot != second.snapshot
    assert ss.Relation.open(tmp_path / "r").snapshot == second.snapshot
    assert second.snapshots() == [first.snapshot, second.snapshot]
    # A query keeps the snapshot it was planned with; a new one takes the new.
    assert sorted((r.k, r.v) for r in planned.collect()) == [(1, "old"), (2, None)]
    again = ss.enrich(stream, str(tmp_path / "r"))
    assert sorted((r.k, r.v) for r in again.collect()) == [(1, "new"), (2, "two")]


def test_a_failing_build_leaves_the_old_snapshot_and_nothing_else(
    spark: SparkSession, tmp_path: Path
) -> None:
    good = spark.range(50).selectExpr("id as k", "id * 2 as v")
    before = ss.build_relation(good, tmp_path / "r", key="k", partitions=2)
    files = files_below(tmp_path)

    def fail(value: int) -> int:
        if value == 33:
            raise ValueError("row 33 is bad")
        return value

    bad = good.withColumn("v", F.udf(fail, "long", useArrow=False)("k"))
    with pytest.raises(PySparkException, match="row 33 is bad"):
        ss.build_relation(bad, tmp_path / "r", key="k", partitions=2)
    assert files_below(tmp_path) == files
    assert ss.Relation.open(tmp_path / "r") == before
    assert before.snapshots() == [before.snapshot]


@pytest.mark.parametrize("error", [OSError("timed out"), KeyboardInterrupt()], ids=repr)
def test_a_build_that_fails_after_the_switch_keeps_the_new_snapshot(
    spark: SparkSession, tmp_path: Path, error: BaseException, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = ss.build_relation(spark.range(5), tmp_path / "r", key="id", partitions=2)
    replace = LocalStore.replace

    def failing(store: LocalStore, name: str, content: bytes) -> None:
        replace(store, name, content)
        if name == "CURRENT":
            raise error

    monkeypatch.setattr(LocalStore, "replace", failing)
    with pytest.raises(KeyboardInterrupt if isinstance(error, KeyboardInterrupt) else CommitError):
        ss.build_relation(spark.range(7), tmp_path / "r", key="id", partitions=2)
    after = ss.Relation.open(tmp_path / "r")
    assert after.snapshot != before.snapshot
    joined = ss.enrich(spark.range(9), after, columns={"id": "found"}, how="inner")
    assert sorted(row.found for row in joined.collect()) == list(range(7))


def test_what_a_query_was_planned_with_is_not_pruned(spark: SparkSession, tmp_path: Path) -> None:
    """Between micro-batches no worker need be alive: the driver holds on to the snapshot."""
    first = ss.build_relation(spark.range(5), tmp_path / "r", key="id", partitions=2)
    planned = ss.enrich(spark.range(9), first, columns={"id": "found"}, how="inner")
    second = ss.build_relation(spark.range(7), tmp_path / "r", key="id", partitions=2)
    assert f"process {os.getpid()}" in second.prune(grace=0).kept[first.snapshot]
    assert sorted(row.found for row in planned.collect()) == list(range(5))


def test_a_failing_first_build_leaves_no_relation(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "r").mkdir()
    (tmp_path / "r" / "snapshots").write_text("in the way")  # so that no draft can be made
    with pytest.raises(BuildError, match="snapshots"):
        ss.build_relation(spark.range(9), tmp_path / "r", key="id", partitions=2)
    assert files_below(tmp_path) == {"r/snapshots"}


def test_a_streaming_dataframe_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    stream = spark.readStream.format("rate").load()
    with pytest.raises(BuildError, match="streaming"):
        ss.build_relation(stream, tmp_path / "r", key="value")
    assert files_below(tmp_path) == set()


def test_wrong_keys_are_refused_before_anything_runs(spark: SparkSession, tmp_path: Path) -> None:
    source = spark.range(3).selectExpr("id as product_id", "double(id) as price")
    with pytest.raises(ColumnError, match="Did you mean 'product_id'"):
        ss.build_relation(source, tmp_path / "r", key="product_ids")
    with pytest.raises(KeyTypeError, match="price"):
        ss.build_relation(source, tmp_path / "r", key="price")
    assert files_below(tmp_path) == set()


def test_a_column_type_that_arrow_lacks_is_named(spark: SparkSession, tmp_path: Path) -> None:
    source = spark.range(3).selectExpr("id as k", "make_ym_interval(1, 2) as term")
    with pytest.raises(ColumnError, match="term"):
        ss.build_relation(source, tmp_path / "r", key="k")


@pytest.mark.parametrize("name", ["__semistream_code", "__SEMISTREAM_CODE"])
def test_a_column_may_have_the_name_of_an_inner_one_or_is_refused(
    spark: SparkSession, tmp_path: Path, name: str
) -> None:
    source = spark.range(30).selectExpr("id as k", f"id * 3 as {name}", "id as v")
    try:
        relation = ss.build_relation(source, tmp_path / "r", key="k", partitions=2)
    except SemistreamError as refusal:
        message = str(refusal)
    else:
        enriched = ss.enrich(spark.range(30).selectExpr("id as k"), relation)
        assert same_frames(enriched, source)
        return
    assert name in message


# Order of frequency


def sample_of(work: Workload, stream: pa.Table) -> pa.Table:
    """Return the keys of a stream under the relation's names, and a column of no interest."""
    keys = stream.select(list(work.on)).rename_columns(work.key)
    return keys.append_column("other", pa.array(range(len(stream)), pa.int64()))


SAMPLES: dict[str, Any] = {
    "dataframe": lambda spark, table, _: from_arrow(spark, table).repartition(2),
    "arrow": lambda _, table, __: table,
    "path": lambda _, table, folder: written(table, folder / "sample.parquet"),
}


def written(table: pa.Table, path: Path) -> str:
    parquet.write_table(table, path)
    return str(path)


def same_index(ours: ss.Relation, theirs: ss.Relation) -> bool:
    """Whether the same keys are hot and lie on the same pages."""
    a, b = ours.reader([]), theirs.reader([])
    return np.array_equal(a.hot_codes, b.hot_codes) and np.array_equal(a.hot_pages, b.hot_pages)


@pytest.mark.parametrize("kind", SAMPLES)
@pytest.mark.parametrize("kinds", KEYS.values(), ids=KEYS)
def test_a_dataframe_and_the_same_arrow_table_have_the_same_hot_pages(
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    kinds: tuple[str, ...],
    kind: str,
) -> None:
    monkeypatch.setattr(hot, "HOT_SHARE", 0.4)
    work = workload(kinds, with_nested=False, skew=1.0)
    stream, table = work.tables()
    sample = sample_of(work, stream)
    options: dict[str, Any] = {"key": work.key, "partitions": 3, "page_size": 512}
    options["order"] = "frequency"
    theirs = ss.build_relation(table, tmp_path / "arrow.rel", sample=sample, **options)
    ours = ss.build_relation(
        from_arrow(spark, table).repartition(3),
        tmp_path / "spark.rel",
        sample=SAMPLES[kind](spark, sample, tmp_path),
        **options,
    )
    assert ours.order == theirs.order == "frequency"
    assert ours.hot_page_count > 3
    assert same_index(ours, theirs)
    for a, b in zip(ours.manifest.partitions, theirs.manifest.partitions, strict=True):
        assert (a.row_count, a.hot_pages) == (b.row_count, b.hot_pages)
        assert a.squared_loads == b.squared_loads
        assert (a.first_code, a.last_code) == (b.first_code, b.last_code)
    joined = pa.Table.from_batches(
        ss.join(stream.to_batches(), ours, on=work.on, algorithm="resident")
    )
    assert same_rows(joined, nested_loop_join(stream, table, on=work.on))


def test_hot_keys_in_many_small_arrow_batches(spark: SparkSession, tmp_path: Path) -> None:
    """The rows of a key then come in several batches, and still lie on one page."""
    source = spark.range(2000).selectExpr("id % 100 as k", "id as v")
    sample = spark.range(90).selectExpr("id % 7 as k")
    with conf(spark, "spark.sql.execution.arrow.maxRecordsPerBatch", "7"):
        relation = ss.build_relation(
            source, tmp_path / "r", key="k", partitions=2, order="frequency", sample=sample
        )
    reader = relation.reader(["v"])
    assert reader.hot_codes.tolist() == [0, 1, 2, 3, 4, 5, 6]
    assert relation.hot_page_count == 2
    assert relation.row_count == 2000
    codes = np.empty(reader.row_count, np.int64)
    for page in set(reader.hot_pages.tolist()):
        on_page = codes[: reader.read_codes(page, page + 1, codes)].tolist()
        assert on_page == sorted(reader.hot_codes[reader.hot_pages == page].tolist() * 20)


@pytest.mark.parametrize("is_frame", [True, False], ids=["dataframe", "arrow"])
def test_a_sample_that_says_nothing(spark: SparkSession, tmp_path: Path, is_frame: bool) -> None:
    source = spark.range(50).selectExpr("id as k", "id as v")
    nothing = pa.table({"k": pa.array([], pa.int64())})
    sample = from_arrow(spark, nothing) if is_frame else nothing
    relation = ss.build_relation(
        source, tmp_path / "r", key="k", partitions=2, order="frequency", sample=sample
    )
    assert (relation.order, relation.row_count, relation.hot_page_count) == ("frequency", 50, 0)


def test_keys_that_r_lacks_are_not_hot(spark: SparkSession, tmp_path: Path) -> None:
    source = spark.createDataFrame([(1, "a"), (2, "b"), (None, "c")], "k long, v string")
    sample = spark.createDataFrame([(9,), (9,), (9,), (None,), (None,), (2,), (2,)], "k int")
    relation = ss.build_relation(
        source, tmp_path / "r", key="k", partitions=3, order="frequency", sample=sample
    )
    assert relation.reader([]).hot_codes.tolist() == [2]
    empty = ss.build_relation(
        source.limit(0), tmp_path / "e", key="k", order="frequency", sample=sample
    )
    assert (empty.row_count, empty.hot_page_count) == (0, 0)


def test_columns_of_any_name_and_type_in_a_sample(spark: SparkSession, tmp_path: Path) -> None:
    source = spark.range(50).selectExpr("id as `the.key`", "id as __semistream_code")
    sample = spark.range(50).selectExpr("id % 5 as `the.key`", "make_ym_interval(1, 2) as term")
    relation = ss.build_relation(
        source, tmp_path / "r", key="the.key", partitions=2, order="frequency", sample=sample
    )
    assert relation.reader([]).hot_codes.tolist() == [0, 1, 2, 3, 4]


def test_samples_that_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    source = spark.range(3).selectExpr("id as k", "string(id) as s")

    def build(sample: Any, key: str = "k", source: Any = source) -> None:
        ss.build_relation(source, tmp_path / "r", key=key, order="frequency", sample=sample)

    with pytest.raises(BuildError, match=r"the sample .* streaming"):
        build(spark.readStream.format("rate").load().selectExpr("value as k"))
    with pytest.raises(ColumnError, match=r"key \(k\), but none of its columns id are named 'k'"):
        build(spark.range(3))
    with pytest.raises(ColumnError, match="none of its columns id"):
        build(pa.table({"id": [1]}))
    with pytest.raises(KeyTypeError, match="'k' of the stream has type string"):
        build(spark.range(3).selectExpr("string(id) as k"))
    with pytest.raises(KeyTypeError, match="collation"):
        build(spark.sql("select 'a' collate UTF8_LCASE as s"), key="s")
    with pytest.raises(OptionError, match="needs a sample"):
        build(None)
    with pytest.raises(OptionError, match=r"the source is not.*select\('k'\)\.toArrow"):
        build(spark.range(3), source=pa.table({"k": [1]}))
    assert files_below(tmp_path) == set()
