"""`enrich` on batch DataFrames, against Spark's own join."""

import re
from datetime import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import DecimalType, IntegerType, LongType, StringType

import semistream as ss
from semistream.advice.auto import AUTO
from semistream.errors import (
    BudgetError,
    ColumnError,
    KeyTypeError,
    OptionError,
    RelationNotFoundError,
    SemistreamError,
)
from semistream.joins import registry
from semistream.spark.enrichment import TELEMETRY_COLUMN
from semistream.spark.failures import ERROR_COLUMN
from semistream.testing import nested_loop_join, same_rows
from tests.spark.frames import ALGORITHMS, SPARK_HOW, conf, from_arrow, same_frames, spark_join
from tests.workloads import Workload

# Dates, timestamps and the like are hashed; integers are not. One of each way to be hashed.
KEY_KINDS = {
    "int": ("int32",),
    "string": ("string",),
    "binary": ("binary",),
    "date": ("date",),
    "timestamp_ntz": ("timestamp",),
    "decimal": ("decimal",),
    "big_decimal": ("big_decimal",),
    "bool": ("bool",),
    "composite": ("string", "int32"),
    "three": ("date", "decimal", "int64"),
}


def workload(key_kinds: tuple[str, ...], how: str = "left") -> Workload:
    """Duplicates and nulls on both sides, keys that the other side lacks, nested columns."""
    return Workload(
        seed=11,
        key_kinds=key_kinds,
        relation_rows=300,
        stream_rows=400,
        domain=120,
        skew=1.0,
        null_share=0.1,
        unique=False,
        partitions=3,
        page_bytes=300,
        batch_rows=64,
        how=how,
        with_nested=True,
    )


@pytest.fixture(scope="module")
def products(spark: SparkSession) -> DataFrame:
    """300 keys, three rows each, all of the same size."""
    return spark.range(900).selectExpr("id % 300 as k", "id as v").cache()


@pytest.fixture(scope="module")
def sales(spark: SparkSession) -> DataFrame:
    """Each key but the first hundred twice, as many unknown ones, and some nulls."""
    key = "if(id % 13 = 0, null, 100 + id % 400)"
    return spark.range(800).selectExpr(f"{key} as k", "cast(id as int) as q").cache()


@pytest.fixture(scope="module")
def relation(products: DataFrame, tmp_path_factory: pytest.TempPathFactory) -> ss.Relation:
    folder = tmp_path_factory.mktemp("products")
    source = products.toArrow()
    return ss.build_relation(source, folder / "r", key="k", partitions=3, page_size=512)


@pytest.fixture(scope="module")
def expected(sales: DataFrame, products: DataFrame) -> pa.Table:
    """The left join of `sales` and `products`."""
    return spark_join(sales, products, {"k": "k"}).toArrow()


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("how", SPARK_HOW)
def test_it_is_the_join_that_spark_computes(spark: SparkSession, how: str, algorithm: str) -> None:
    work = workload(("int64",), how)
    stream, table = (from_arrow(spark, t) for t in work.tables())
    relation = work.build(table.toArrow())
    joined = ss.enrich(
        stream,
        relation,
        on=work.on,
        how=how,
        algorithm=algorithm,
        memory="600KB" if algorithm == "meshjoin" else "8MB",
    )
    wanted = spark_join(stream, table, work.on, how).toArrow()
    assert len(wanted) > 0
    assert same_rows(joined.toArrow(), wanted)


@pytest.mark.parametrize("algorithm", [AUTO, *registry.ALGORITHMS])
def test_every_algorithm_gives_the_same_rows(
    sales: DataFrame, relation: ss.Relation, expected: pa.Table, algorithm: str
) -> None:
    joined = ss.enrich(sales, relation, algorithm=algorithm, memory="8MB")
    assert same_rows(joined.toArrow(), expected)


@pytest.mark.parametrize("kinds", KEY_KINDS.values(), ids=KEY_KINDS)
def test_keys_of_every_kind(spark: SparkSession, tmp_path: Path, kinds: tuple[str, ...]) -> None:
    work = workload(kinds)
    stream, table = (from_arrow(spark, t) for t in work.tables())
    relation = ss.build_relation(table, tmp_path / "r", key=work.key, partitions=3)
    joined = ss.enrich(stream, relation, on=work.on).toArrow()
    assert same_rows(joined, spark_join(stream, table, work.on).toArrow())
    assert 0 < joined["flag"].null_count < len(joined)  # some match, some do not


@pytest.mark.parametrize("how", ["inner", "semi", "anti"])
def test_hashed_keys_in_every_kind_of_join(spark: SparkSession, tmp_path: Path, how: str) -> None:
    work = workload(("string", "int32"), how)
    stream, table = (from_arrow(spark, t) for t in work.tables())
    relation = ss.build_relation(table, tmp_path / "r", key=work.key, partitions=2)
    joined = ss.enrich(stream, relation, on=work.on, how=how, algorithm="meshjoin")
    assert same_frames(joined, spark_join(stream, table, work.on, how))


def test_a_narrower_key_of_the_stream_meets_a_wider_one(
    spark: SparkSession, tmp_path: Path
) -> None:
    table = (
        spark.range(60)
        .selectExpr("cast(id - 30 as decimal(25,4)) / 4 as price", "id as number", "id as v")
        .withColumn("price", F.col("price").cast("decimal(25,4)"))
    )
    stream = spark.range(80).selectExpr(
        "cast((id - 25) / 4 as decimal(9,2)) as p", "cast(id + 5 as short) as n"
    )
    relation = ss.build_relation(table, tmp_path / "r", key=["price", "number"], partitions=3)
    on = {"p": "price", "n": "number"}
    joined = ss.enrich(stream, relation, on=on)
    wanted = spark_join(stream, table, on)
    assert wanted.filter("v is not null").count() > 0
    assert same_frames(joined, wanted)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_timestamps_meet_across_time_zones(
    spark: SparkSession, tmp_path: Path, algorithm: str
) -> None:
    source = spark.range(40).selectExpr(
        "timestamp_micros(id * 3600000003 - 50000000000) as t", "id as v", "array(t) as ts"
    )
    with conf(spark, "spark.sql.session.timeZone", "America/New_York"):
        relation = ss.build_relation(source, tmp_path / "r", key="t", partitions=2)
    with conf(spark, "spark.sql.session.timeZone", "Asia/Kolkata"):
        joined = ss.enrich(source.select("t"), relation, algorithm=algorithm)
        assert same_frames(joined, source)


def test_keys_compare_as_spark_compares_them_or_are_refused(
    spark: SparkSession, tmp_path: Path
) -> None:
    """A collated string equals others than itself; ours compare bytes."""
    table = spark.createDataFrame([("Pen", 1), ("ink", 2)], "k string, v int")
    table = table.selectExpr("k collate UTF8_LCASE as k", "v")
    stream = spark.createDataFrame([("pen",), ("ink",), ("x",)], "k string")
    stream = stream.selectExpr("k collate UTF8_LCASE as k")
    try:
        relation = ss.build_relation(table, tmp_path / "r", key="k", partitions=3)
        joined = ss.enrich(stream, relation).toArrow()
    except KeyTypeError:
        return
    assert same_rows(joined, spark_join(stream, table, {"k": "k"}).toArrow())


def test_on_is_a_name_a_list_or_a_mapping(
    sales: DataFrame, relation: ss.Relation, expected: pa.Table
) -> None:
    assert same_rows(ss.enrich(sales, relation).toArrow(), expected)
    assert same_rows(ss.enrich(sales, relation, on="k").toArrow(), expected)
    assert same_rows(ss.enrich(sales, relation, on=["k"]).toArrow(), expected)
    renamed = sales.withColumnRenamed("k", "product")
    joined = ss.enrich(renamed, relation, on={"product": "k"})
    assert joined.columns == ["product", "q", "v"]
    assert same_rows(joined.toArrow().rename_columns(["k", "q", "v"]), expected)


def test_columns_are_chosen_and_renamed(spark: SparkSession, tmp_path: Path) -> None:
    table = pa.table({"k": [1, 2], "a": ["x", "y"], "b": [1.5, None], "c": [True, False]})
    relation = ss.build_relation(table, tmp_path / "r", key="k", partitions=2)
    stream = spark.createDataFrame([(1,), (3,)], "k long")

    def rows(**options: Any) -> tuple[list[str], list[tuple[Any, ...]]]:
        joined = ss.enrich(stream, relation, **options)
        return joined.columns, sorted(tuple(row) for row in joined.collect())

    assert rows(columns=["c", "a"]) == (["k", "c", "a"], [(1, True, "x"), (3, None, None)])
    assert rows(columns={"b": "bee"}) == (["k", "bee"], [(1, 1.5), (3, None)])
    assert rows(columns={"k": "found", "a": "a"}) == (
        ["k", "found", "a"],
        [(1, 1, "x"), (3, None, None)],
    )
    assert rows(columns=[]) == (["k"], [(1,), (3,)])
    with pytest.raises(ColumnError, match="'d'"):
        rows(columns=["d"])


def test_names_on_both_sides_are_an_error_or_get_a_suffix(
    spark: SparkSession, tmp_path: Path
) -> None:
    table = pa.table({"k": [1, 2], "name": ["x", "y"], "size": [7, 8]})
    relation = ss.build_relation(table, tmp_path / "r", key="k", partitions=2)
    stream = spark.createDataFrame([(1, "sale")], "k long, name string")
    with pytest.raises(ColumnError, match="'name' would appear twice"):
        ss.enrich(stream, relation)
    joined = ss.enrich(stream, relation, suffix="_product")
    assert joined.columns == ["k", "name", "name_product", "size"]
    assert [tuple(row) for row in joined.collect()] == [(1, "sale", "x", 7)]
    # A join that adds no columns has nothing to clash.
    assert ss.enrich(stream, relation, how="semi").columns == ["k", "name"]


def test_names_fold_case_as_sparks_do(spark: SparkSession, tmp_path: Path) -> None:
    table = pa.table({"Key": [1, 2], "Name": ["x", "y"]})
    relation = ss.build_relation(table, tmp_path / "r", key="Key", partitions=2)
    stream = spark.createDataFrame([(1, "s"), (5, "t")], "KEY long, note string")
    for on in (None, "key", {"kEY": "kEy"}):
        joined = ss.enrich(stream, relation, on=on, columns=["NAME"])
        assert joined.columns == ["KEY", "note", "NAME"]
        assert sorted(tuple(r) for r in joined.collect()) == [(1, "s", "x"), (5, "t", None)]
    with pytest.raises(ColumnError, match="twice"):
        ss.enrich(stream.withColumnRenamed("note", "nAmE"), relation)


def test_names_are_exact_where_spark_is_case_sensitive(spark: SparkSession, tmp_path: Path) -> None:
    table = pa.table({"Key": [1, 2], "Name": ["x", "y"]})
    relation = ss.build_relation(table, tmp_path / "r", key="Key", partitions=2)
    stream = spark.createDataFrame([(1, "s", 9), (5, "t", 8)], "Key long, name string, key int")
    with conf(spark, "spark.sql.caseSensitive", "true"):
        joined = ss.enrich(stream, relation)
        assert joined.columns == ["Key", "name", "key", "Name"]
        rows = sorted(tuple(r) for r in joined.collect())
        assert rows == [(1, "s", 9, "x"), (5, "t", 8, None)]
        with pytest.raises(ColumnError, match="NAME"):
            ss.enrich(stream, relation, columns=["NAME"])
    with pytest.raises(ColumnError, match="ambiguous"):
        ss.enrich(stream, relation)


@pytest.mark.parametrize("name", ["the key", "schlüssel", "the.key", "the`key"])
def test_columns_of_any_name(spark: SparkSession, tmp_path: Path, name: str) -> None:
    table = pa.table({name: [1, 2, 2], f"{name} r": ["x", "y", "z"]})
    stream = pa.table({name: [2, 1, 3, None], f"{name} s": [5, 6, 7, 8]})
    relation = ss.build_relation(table, tmp_path / "r", key=name, partitions=2)
    joined = ss.enrich(from_arrow(spark, stream), relation)
    assert joined.columns == [name, f"{name} s", f"{name} r"]
    assert same_rows(joined.toArrow(), nested_loop_join(stream, table, on=name))


def test_two_columns_of_the_stream_may_have_one_name_or_are_refused(
    sales: DataFrame, relation: ss.Relation, expected: pa.Table
) -> None:
    try:
        joined = ss.enrich(sales.select("k", "q", F.col("q").alias("q")), relation)
    except SemistreamError as refusal:
        message = str(refusal)
    else:
        assert joined.columns == ["k", "q", "q", "v"]
        rows = joined.toDF("k", "q", "again", "v").toArrow()
        assert rows["q"].to_pylist() == rows["again"].to_pylist()
        assert same_rows(rows.drop_columns(["again"]), expected)
        return
    assert "'q'" in message


@pytest.mark.parametrize("name", [TELEMETRY_COLUMN, TELEMETRY_COLUMN.upper()])
@pytest.mark.parametrize("side", ["stream", "relation"])
def test_a_column_may_have_the_name_of_an_inner_one_or_is_refused(
    spark: SparkSession, tmp_path: Path, side: str, name: str
) -> None:
    mine, other = pa.table({"k": [1], name: [5]}), pa.table({"k": [1], "v": [6]})
    stream, table = (mine, other) if side == "stream" else (other, mine)
    relation = ss.build_relation(table, tmp_path / "r", key="k", partitions=2)
    try:
        joined = ss.enrich(from_arrow(spark, stream), relation)
    except SemistreamError as refusal:
        message = str(refusal)
    else:
        assert same_rows(joined.toArrow(), nested_loop_join(stream, table, on="k"))
        return
    assert name in message


def test_the_schema_says_what_comes_out(
    spark: SparkSession, relation: ss.Relation, tmp_path: Path
) -> None:
    stream = spark.range(3).select(
        F.col("id").alias("k"),
        F.lit("x").alias("note", metadata={"comment": "kept"}),
        F.lit(1).cast("decimal(7,3)").alias("amount"),
        F.array(F.lit(1)).alias("list"),
    )
    assert not stream.schema["note"].nullable
    for how in SPARK_HOW:
        joined = ss.enrich(stream, relation, how=how)
        added = {"inner": ["v"], "left": ["v"], "semi": [], "anti": []}[how]
        assert joined.columns == ["k", "note", "amount", "list", *added]
        assert joined.schema["k"].dataType == LongType()
        assert joined.schema["note"].dataType == StringType()
        assert joined.schema["note"].metadata == {"comment": "kept"}
        assert joined.schema["amount"].dataType == DecimalType(7, 3)
        assert joined.schema["list"].dataType == stream.schema["list"].dataType
        assert all(field.nullable for field in joined.schema)
    arrow = pa.table(
        {"k": [1], "i": pa.array([1], pa.int32()), "ms": pa.array([1], pa.timestamp("ms"))}
    )
    other = ss.build_relation(arrow, tmp_path / "r", key="k", partitions=1)
    schema = ss.enrich(stream, other).schema
    assert schema["i"].dataType == IntegerType()
    assert schema["ms"].dataType.simpleString() == "timestamp_ntz"


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_nested_columns_that_may_not_be_null(
    spark: SparkSession, tmp_path: Path, algorithm: str
) -> None:
    nested = [
        F.struct(F.col("id").alias("x"), F.lit("y").alias("y")).alias("pair"),
        F.array(F.col("id"), F.lit(1)).alias("list"),
        F.create_map(F.lit("a"), F.array(F.col("id"))).alias("map"),
    ]
    source = spark.range(12).select(F.col("id").alias("k"), *nested)
    assert not any(field.nullable for field in source.schema)
    relation = ss.build_relation(source, tmp_path / "r", key="k", partitions=2)
    stream = source.withColumnsRenamed({n: f"s_{n}" for n in ("pair", "list", "map")})
    joined = ss.enrich(stream, relation, algorithm=algorithm)
    assert same_frames(joined, spark_join(stream, source, {"k": "k"}))
    types = [field.dataType for field in stream.schema]
    assert [field.dataType for field in joined.schema][:4] == types


ARROW_ONLY = {
    "large_string": pa.array(["a", None], pa.large_string()),
    "string_view": pa.array(["a", None], pa.string_view()),
    "dictionary": pa.array(["a", None]).dictionary_encode(),
    "fixed_binary": pa.array([b"abc", None], pa.binary(3)),
    "timestamp_s": pa.array([1, None], pa.timestamp("s")),
    "timestamp_ms_zone": pa.array([1, None], pa.timestamp("ms", "Europe/Paris")),
    "timestamp_ns": pa.array([1000, None], pa.timestamp("ns")),
    "timestamp_ns_cut": pa.array([1999, None], pa.timestamp("ns")),
    "duration_s": pa.array([1, None], pa.duration("s")),
    "fixed_list": pa.array([[1, 2], None], pa.list_(pa.int32(), 2)),
    "large_list": pa.array([[1, 2], None], pa.large_list(pa.int32())),
    "struct": pa.array([{"a": 1}, None], pa.struct([("a", pa.timestamp("ms"))])),
    "uint8": pa.array([255, None], pa.uint8()),
    "uint16": pa.array([2**16 - 1, None], pa.uint16()),
    "uint32": pa.array([2**32 - 1, None], pa.uint32()),
    "uint64": pa.array([2**64 - 1, None], pa.uint64()),
}


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_arrow_types_that_spark_has_another_form_of(
    spark: SparkSession, tmp_path: Path, algorithm: str
) -> None:
    table = pa.table({"k": [0, 1], **ARROW_ONLY})
    relation = ss.build_relation(table, tmp_path / "r", key="k", partitions=2)
    joined = ss.enrich(spark.range(2).toDF("k"), relation, algorithm=algorithm).toArrow()
    joined = joined.sort_by("k")
    for name, values in ARROW_ONLY.items():
        wanted = values.cast(joined.schema.field(name).type, safe=False).to_pylist()
        assert joined[name].to_pylist() == wanted, name


@pytest.mark.parametrize(
    "values",
    [pa.array([1], pa.decimal256(50, 2)), pa.array([0], pa.date64())],
    ids=["decimal256", "date64"],
)
def test_an_arrow_type_that_spark_lacks_is_named(
    spark: SparkSession, tmp_path: Path, values: pa.Array
) -> None:
    table = pa.table({"k": [1], "odd": values, "v": [2]})
    relation = ss.build_relation(table, tmp_path / "r", key="k", partitions=1)
    stream = spark.range(2).toDF("k")
    with pytest.raises(ColumnError, match="odd"):
        ss.enrich(stream, relation)
    joined = ss.enrich(stream, relation, columns=["v"])
    assert sorted(tuple(r) for r in joined.collect()) == [(0, None), (1, 2)]


@pytest.mark.parametrize("dtype", [pa.time32("s"), pa.time64("us")], ids=str)
def test_a_time_of_day_needs_a_session_that_allows_it(
    spark: SparkSession, tmp_path: Path, dtype: pa.DataType
) -> None:
    table = pa.table({"k": [1], "opens": pa.array([time(8, 30)], dtype), "v": [2]})
    relation = ss.build_relation(table, tmp_path / "r", key="k", partitions=1)
    stream, setting = spark.range(1, 2).toDF("k"), "spark.sql.timeType.enabled"
    assert spark.conf.get(setting) == "false", "Spark's default"
    try:
        with pytest.raises(ColumnError, match=f"'opens' .* a time of day.*set {setting} to true"):
            ss.enrich(stream, relation)
        assert ss.enrich(stream, relation, columns=["v"]).collect() == [(1, 2)]
        spark.conf.set(setting, "true")
        assert ss.enrich(stream, relation).collect() == [(1, time(8, 30), 2)]
    finally:
        spark.conf.unset(setting)


def test_a_stream_that_is_no_frame_of_spark(relation: ss.Relation) -> None:
    with pytest.raises(OptionError, match=r"must be a DataFrame of Spark; got a str.*readStream"):
        ss.enrich("sales", relation)  # type: ignore[arg-type]


def test_a_streaming_frame_is_enriched_not_joined(
    spark: SparkSession, relation: ss.Relation
) -> None:
    stream = spark.readStream.format("rate").load()
    with pytest.raises(OptionError, match=r"use semistream\.enrich"):
        list(ss.join(stream, relation))


def test_a_stream_column_that_arrow_lacks_is_named(sales: DataFrame, relation: ss.Relation) -> None:
    with pytest.raises(ColumnError, match="term"):
        ss.enrich(sales.withColumn("term", F.expr("make_ym_interval(1, 2)")), relation)


def test_it_fits_into_transform(
    sales: DataFrame, relation: ss.Relation, expected: pa.Table
) -> None:
    joined = sales.transform(ss.enrich_with(relation, on="k", memory="8MB"))
    assert same_rows(joined.toArrow(), expected)
    anti = sales.transform(ss.enrich_with(relation, how="anti"))
    assert anti.columns == ["k", "q"]
    assert anti.count() == expected["v"].null_count


def test_a_relation_may_be_given_by_its_path(
    sales: DataFrame, relation: ss.Relation, expected: pa.Table, tmp_path: Path
) -> None:
    assert same_rows(ss.enrich(sales, relation.location).toArrow(), expected)
    with pytest.raises(RelationNotFoundError, match="nowhere"):
        ss.enrich(sales, str(tmp_path / "nowhere"))


def test_two_relations_in_a_row(spark: SparkSession, tmp_path: Path) -> None:
    orders = spark.range(200).selectExpr("id % 70 as product", "id % 9 as shop", "id as n")
    goods = spark.range(60).selectExpr("id as product", "concat('p', id) as title")
    shops = spark.range(1, 8).selectExpr("id as shop", "concat('c', id) as city")
    first = ss.build_relation(goods.toArrow(), tmp_path / "goods.rel", key="product", partitions=3)
    second = ss.build_relation(shops.toArrow(), tmp_path / "shops.rel", key="shop", partitions=2)
    joined = ss.enrich(ss.enrich(orders, first), second)
    wanted = orders.join(goods, "product", "left").join(shops, "shop", "left")
    assert same_frames(joined, wanted.select(joined.columns))


@pytest.mark.parametrize("names", [(None, None), ("s", "b"), (None, "b")])
def test_one_relation_twice(
    spark: SparkSession, tmp_path: Path, names: tuple[str | None, str | None]
) -> None:
    table = pa.table({"id": [1, 2, 3], "name": ["ann", "bob", "cid"]})
    people = ss.build_relation(table, tmp_path / "people.rel", key="id", partitions=2)
    sold = spark.createDataFrame([(1, 2), (3, 1), (2, 9)], "seller long, buyer long")
    for side, name in zip(("seller", "buyer"), names, strict=True):
        columns = {"name": f"{side}_name"}
        sold = ss.enrich(sold, people, on={side: "id"}, columns=columns, name=name)
    assert sorted(tuple(r) for r in sold.collect()) == [
        (1, 2, "ann", "bob"),
        (2, 9, "bob", None),
        (3, 1, "cid", "ann"),
    ]
    plan = sold._jdf.queryExecution().analyzed().toString()  # type: ignore[operator]
    expected = {names[0] or "semistream:people"}
    expected |= {names[1] or "semistream:people#2"}
    assert set(re.findall(r"CollectMetrics (\S+),", plan)) == expected


def test_a_name_given_twice_is_refused(sales: DataFrame, relation: ss.Relation) -> None:
    with pytest.raises(PySparkException, match="not unique: same"):
        ss.enrich(ss.enrich(sales, relation, name="same"), relation, suffix="_2", name="same")


def test_a_dataframe_is_not_a_relation_yet(sales: DataFrame, products: DataFrame) -> None:
    with pytest.raises(OptionError, match=r"got a pyspark.*Build one first: build_relation"):
        ss.enrich(sales, products)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", [TELEMETRY_COLUMN, ERROR_COLUMN])
def test_names_of_inner_columns_are_refused(
    sales: DataFrame, relation: ss.Relation, name: str
) -> None:
    with pytest.raises(OptionError, match="reserved"):
        ss.enrich(sales.withColumnRenamed("q", name.upper()), relation)


@pytest.mark.parametrize("how", SPARK_HOW)
def test_an_empty_dataframe(spark: SparkSession, relation: ss.Relation, how: str) -> None:
    empty = spark.createDataFrame([], "k long, q int")
    assert ss.enrich(empty, relation, how=how).count() == 0


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_an_empty_relation(sales: DataFrame, tmp_path: Path, algorithm: str) -> None:
    table = pa.table({"k": pa.array([], pa.int64()), "v": pa.array([], pa.string())})
    relation = ss.build_relation(table, tmp_path / "r", key="k", partitions=2)
    for how, count in {"inner": 0, "anti": 800}.items():
        assert ss.enrich(sales, relation, how=how, algorithm=algorithm).count() == count
    joined = ss.enrich(sales, relation, algorithm=algorithm).toArrow()
    assert sorted(joined["q"].to_pylist()) == list(range(800))
    assert joined["v"].null_count == 800


def test_integers_of_any_width_meet(spark: SparkSession, relation: ss.Relation) -> None:
    for dtype in ("byte", "int"):
        stream = spark.range(90).selectExpr(f"cast(id as {dtype}) as k")
        joined = ss.enrich(stream, relation, how="inner")
        assert joined.schema["k"].dataType == stream.schema["k"].dataType
        assert joined.count() == 270


def test_a_key_of_another_type_is_refused(spark: SparkSession, relation: ss.Relation) -> None:
    with pytest.raises(KeyTypeError, match="cast"):
        ss.enrich(spark.range(3).selectExpr("string(id) as k"), relation)


def test_unknown_options_are_refused(sales: DataFrame, relation: ss.Relation) -> None:
    with pytest.raises(OptionError, match="Did you mean 'meshjoin'"):
        ss.enrich(sales, relation, algorithm="mesh_join")
    with pytest.raises(OptionError, match="how must be one of"):
        ss.enrich(sales, relation, how="outer")
    with pytest.raises(OptionError, match="size"):
        ss.enrich(sales, relation, memory="plenty")
    with pytest.raises(ColumnError, match="'q'"):
        ss.enrich(sales, relation, on="q")


def test_a_budget_too_small_for_all_of_r_is_refused_on_the_driver(
    sales: DataFrame, relation: ss.Relation
) -> None:
    with pytest.raises(BudgetError, match="Raise memory to") as refusal:
        ss.enrich(sales, relation, algorithm="resident", memory="3KB")
    assert refusal.value.least_bytes
    with pytest.raises(BudgetError, match="each of the 2 tasks that run at once"):
        ss.enrich(sales, relation, memory=2)


@pytest.mark.parametrize("algorithm", [AUTO, *registry.ALGORITHMS])
def test_a_budget_too_small_for_any_join_is_refused_when_the_plan_is_built(
    sales: DataFrame, relation: ss.Relation, algorithm: str
) -> None:
    with pytest.raises(BudgetError, match=r"Raise memory to \d+ bytes, the total for all 2 tasks"):
        ss.enrich(sales, relation, algorithm=algorithm, memory="10KB")


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_the_budget_that_the_error_asks_for_is_enough(
    sales: DataFrame, relation: ss.Relation, expected: pa.Table, algorithm: str
) -> None:
    """`memory` is the whole join's, so the advice must be as well, not one task's share."""
    with pytest.raises(BudgetError) as refusal:
        ss.enrich(sales, relation, algorithm=algorithm, memory="3KB")
    found = re.search(r"Raise memory to (\d+) bytes", str(refusal.value))
    assert found
    assert refusal.value.__cause__ is None
    assert refusal.value.__suppress_context__
    joined = ss.enrich(sales, relation, algorithm=algorithm, memory=int(found[1]))
    assert same_rows(joined.toArrow(), expected)


def test_a_smaller_budget_gives_the_same_rows(
    sales: DataFrame, relation: ss.Relation, expected: pa.Table
) -> None:
    joined = ss.enrich(sales, relation, algorithm="meshjoin", memory="160KB")
    assert same_rows(joined.toArrow(), expected)


def test_a_share_of_the_relation_and_a_join_by_the_name_that_spark_has_for_it(
    sales: DataFrame, relation: ss.Relation, expected: pa.Table
) -> None:
    joined = ss.enrich(sales, relation, how="left_anti", memory="3000%")
    assert joined.count() == expected["v"].null_count
    with pytest.raises(BudgetError, match="the total for all 2 tasks"):
        ss.enrich(sales, relation, memory="5%")


def test_some_of_the_columns(sales: DataFrame, relation: ss.Relation, expected: pa.Table) -> None:
    joined = ss.enrich(sales, relation)
    for names in (["v"], ["q"], ["v", "k"]):
        assert same_rows(joined.select(names).toArrow(), expected.select(names))
    assert same_rows(
        joined.filter("v > 500").select("q").toArrow(),
        expected.filter(pa.compute.greater(expected["v"], 500)).select(["q"]),
    )
    sums = joined.agg(F.count("*"), F.count("v"), F.sum("v")).first()
    known = expected["v"].drop_null()
    assert sums is not None
    assert tuple(sums) == (len(expected), len(known), sum(known.to_pylist()))


@pytest.mark.parametrize("how", SPARK_HOW)
def test_telemetry_never_leaks(sales: DataFrame, relation: ss.Relation, how: str) -> None:
    joined = ss.enrich(sales, relation, how=how)
    assert TELEMETRY_COLUMN not in joined.columns
    rows, numbered = joined.agg(F.count("*"), F.count("q")).first() or (0, 0)
    assert rows == numbered > 0  # a telemetry row would have no q


def test_taking_only_some_rows(sales: DataFrame, relation: ss.Relation, expected: pa.Table) -> None:
    joined = ss.enrich(sales, relation)
    known = {repr(row) for row in expected.to_pylist()}
    rows = joined.limit(9).collect()
    assert len(rows) == 9
    assert all(repr(row.asDict()) in known for row in rows)


def test_a_key_that_is_a_literal(spark: SparkSession, relation: ss.Relation) -> None:
    # Spark's optimizer sees that all rows go to one partition.
    assert ss.enrich(spark.range(5).select(F.lit(7).alias("k")), relation).count() == 15
    assert ss.enrich(spark.range(7, 8).toDF("k"), relation).count() == 3


def test_a_cached_join(sales: DataFrame, relation: ss.Relation, expected: pa.Table) -> None:
    joined = ss.enrich(sales, relation).cache()
    try:
        assert same_rows(joined.toArrow(), expected)
        assert same_rows(joined.toArrow(), expected)
    finally:
        joined.unpersist()


# Spark may run several partitions of the join in one task, or number its tasks otherwise.

both_routings = pytest.mark.parametrize("routing", ["shuffle", "local"])


@both_routings
def test_coalesce_after_the_join(
    sales: DataFrame, relation: ss.Relation, expected: pa.Table, tmp_path: Path, routing: str
) -> None:
    joined = ss.enrich(sales, relation, routing=routing)
    assert same_rows(joined.coalesce(2).toArrow(), expected)
    joined.coalesce(1).write.parquet(str(tmp_path / "out"))
    written = sales.sparkSession.read.parquet(str(tmp_path / "out"))
    assert same_rows(written.toArrow(), expected)


@both_routings
def test_union_with_the_join(
    sales: DataFrame, products: DataFrame, relation: ss.Relation, expected: pa.Table, routing: str
) -> None:
    joined = ss.enrich(sales, relation, routing=routing)
    before = sales.withColumn("v", F.lit(None).cast("long"))
    both = pa.concat_tables([before.toArrow(), expected]).combine_chunks()
    assert same_rows(joined.union(before).toArrow(), both)
    assert same_rows(before.union(joined).toArrow(), both)


@both_routings
def test_union_of_two_joins(
    sales: DataFrame, relation: ss.Relation, expected: pa.Table, routing: str
) -> None:
    one, two = (ss.enrich(sales, relation, routing=routing, name=n) for n in ("one", "two"))
    joined = one.union(two)
    assert same_rows(joined.toArrow(), pa.concat_tables([expected, expected]))


@both_routings
def test_except_all_with_the_join_on_either_side(
    sales: DataFrame, products: DataFrame, relation: ss.Relation, routing: str
) -> None:
    joined = ss.enrich(sales, relation, routing=routing)
    wanted = spark_join(sales, products, {"k": "k"})
    assert joined.exceptAll(wanted).count() == 0
    assert wanted.exceptAll(joined).count() == 0


@both_routings
def test_cartesian_product_with_the_join(
    spark: SparkSession, sales: DataFrame, relation: ss.Relation, expected: pa.Table, routing: str
) -> None:
    other = spark.range(0, 3, 1, 2).toDF("x")
    with conf(spark, "spark.sql.autoBroadcastJoinThreshold", "-1"):
        assert other.crossJoin(ss.enrich(sales, relation, routing=routing)).count() == 3 * len(
            expected
        )
