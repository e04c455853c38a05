"""`enrich_star`: the rows of DuckDB's joins, few passes over the rows, one budget, own metrics."""

import itertools
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

import semistream as ss
from semistream.advice.division import divide
from semistream.errors import BudgetError, ColumnError, OptionError
from semistream.spark import plan_star
from semistream.spark.metrics import metric_names
from semistream.testing import same_rows
from tests.spark.frames import from_arrow
from tests.spark.pipelines import Pipeline, observed, total

RNG = np.random.default_rng(5)
PRODUCTS = pa.table(
    {
        "id": RNG.permutation(400),
        "label": [f"product {i}" for i in range(400)],
        "maker": RNG.integers(0, 60, 400),
    }
)
# Two rows for some stores, so that rows multiply.
STORES = pa.table({"store": [f"s{i % 30}" for i in range(40)], "city": [str(i) for i in range(40)]})
MAKERS = pa.table({"maker_id": range(50), "label": [f"maker {i}" for i in range(50)]})
BANNED = pa.table({"id": range(0, 400, 7)})
SALES = pa.table(
    {
        "k": pa.array(RNG.integers(0, 450, 3_000), mask=RNG.random(3_000) < 0.05),
        "store": [f"s{i}" for i in RNG.integers(0, 35, 3_000)],
        "n": range(3_000),
    }
)
ORACLE = """
    SELECT s.k, s.store, s.n, p.label, p.maker, t.city, m.label AS label_m
    FROM sales s LEFT JOIN products p ON s.k = p.id JOIN stores t ON s.store = t.store
    LEFT JOIN makers m ON p.maker = m.maker_id
    WHERE s.k IS NULL OR NOT EXISTS (SELECT 1 FROM banned b WHERE b.id = s.k)
"""


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> dict[str, ss.Relation]:
    folder = tmp_path_factory.mktemp("star")
    keys = {"products": "id", "stores": "store", "makers": "maker_id", "banned": "id"}
    tables = {"products": PRODUCTS, "stores": STORES, "makers": MAKERS, "banned": BANNED}
    return {
        name: ss.build_relation(
            table, folder / f"{name}.rel", key=keys[name], partitions=2, page_size=512
        )
        for name, table in tables.items()
    }


def relations(places: dict[str, ss.Relation], **more: Any) -> dict[Any, Any]:
    """All four: one depends on a column of another, one only removes rows."""
    return {
        places["products"]: {"on": {"k": "id"}, **more},
        places["stores"]: {"on": "store", "how": "inner"},
        places["makers"].location: {"on": {"maker": "maker_id"}, "suffix": "_m", "name": "who"},
        places["banned"]: {"on": {"k": "id"}, "how": "anti", **more},
    }


def oracle(query: str = ORACLE) -> pa.Table:
    sales, products, stores, makers, banned = SALES, PRODUCTS, STORES, MAKERS, BANNED  # noqa: F841
    return duckdb.sql(query).to_arrow_table()


def passes(frame: DataFrame) -> tuple[int, int]:
    """Return how often rows cross into Python, and how often they are shuffled."""
    plan = frame._jdf.queryExecution().executedPlan().toString()
    return plan.count("MapInArrow "), plan.count("Exchange ")


def test_rows_are_those_of_duckdb_in_one_pass(
    spark: SparkSession, places: dict[str, ss.Relation]
) -> None:
    joined = ss.enrich_star(from_arrow(spark, SALES), relations(places), memory="8MB")
    assert passes(joined) == (1, 0)
    assert same_rows(joined.toArrow(), oracle())


def test_relations_with_the_same_key_share_a_shuffle(
    spark: SparkSession, places: dict[str, ss.Relation]
) -> None:
    """Those that need none are joined in the same pass; without a join on the key there are 2."""
    sales = from_arrow(spark, SALES)
    shuffled = relations(places, routing="shuffle")
    joined = ss.enrich_star(sales, shuffled, memory="8MB")
    assert passes(joined) == (1, 1)
    assert same_rows(joined.toArrow(), oracle())
    shuffled[places["stores"]]["routing"] = "shuffle"
    joined = ss.enrich_star(sales, shuffled, memory="8MB")
    assert passes(joined) == (2, 2)
    assert same_rows(joined.toArrow(), oracle())


def test_a_shuffle_by_a_column_that_was_joined(
    spark: SparkSession, places: dict[str, ss.Relation]
) -> None:
    """The makers' rows can be shuffled only when the products have been joined."""
    asked = relations(places)
    asked[places["makers"].location]["routing"] = "shuffle"
    joined = ss.enrich_star(from_arrow(spark, SALES), asked, memory="8MB")
    assert passes(joined) == (2, 1)
    assert same_rows(joined.toArrow(), oracle())


def test_in_a_stream_each_relation_has_its_own_metrics(
    pipeline: Pipeline, products: pa.Table, tmp_path: Path
) -> None:
    numbers = pa.table({"q": pa.array(range(0, 300, 2), pa.int32()), "even": [True] * 150})
    first = ss.build_relation(products, tmp_path / "products.rel", key="k", partitions=2)
    second = ss.build_relation(numbers, tmp_path / "evens.rel", key="q", partitions=3)
    star = {first: "k", second: {"how": "inner"}}
    query = pipeline.run(ss.enrich_star(pipeline.source(), star, memory="4MB"))
    sales = pa.concat_tables(pipeline.arrived)
    expected = duckdb.sql(
        "SELECT s.*, p.v, n.even FROM sales s LEFT JOIN products p USING (k) "
        "JOIN numbers n ON s.q = n.q"
    ).to_arrow_table()
    assert same_rows(pipeline.written(), expected.cast(pipeline.written().schema))
    one, two = (observed(query, f"semistream:{name}") for name in ("products", "evens"))
    assert all(tuple(each) == metric_names() for each in one + two)
    assert total(one, "stream_rows") == sales.num_rows
    assert total(one, "output_rows") == total(two, "stream_rows") > sales.num_rows
    assert total(two, "output_rows") == expected.num_rows
    assert {m["snapshot"] for m in one} == {first.snapshot}
    assert {m["snapshot"] for m in two} == {second.snapshot}
    assert all(m["memory_bytes_peak"] <= 4_000_000 for m in one + two)


def test_one_relation_in_two_roles_and_conditions(
    spark: SparkSession, places: dict[str, ss.Relation]
) -> None:
    sales = from_arrow(spark, SALES)
    pairs = [
        (places["products"], {"on": {"k": "id"}, "columns": {"label": "bought"}}),
        (
            places["products"],
            {"on": {"n": "id"}, "columns": {"label": "other"}, "condition": "r.maker > s.k / 9"},
        ),
    ]
    expected = oracle(
        "SELECT s.*, p.label AS bought, o.label AS other FROM sales s "
        "LEFT JOIN products p ON s.k = p.id "
        "LEFT JOIN products o ON s.n = o.id AND o.maker > s.k / 9"
    )
    assert same_rows(ss.enrich_star(sales, pairs, memory="8MB").toArrow(), expected)


def test_the_memory_is_divided_and_never_exceeded(
    spark: SparkSession, places: dict[str, ss.Relation]
) -> None:
    sales = from_arrow(spark, SALES)
    for memory in (2_000_000, 8_000_000, 64_000_000):
        plan = plan_star(sales, relations(places), memory=memory)
        shares = [each.memory_bytes for one in plan.passes for each in one]
        assert len(shares) == 4
        assert sum(shares) <= memory
        assert min(shares) > 0
        assert str(plan).count("\n") == 4
    assert all(each.fits for one in plan.passes for each in one)
    fixed = relations(places)
    fixed[places["stores"]]["memory"] = "1MB"
    plan = plan_star(sales, fixed, memory=8_000_000)
    assert {p.member.label: p.memory_bytes for p in plan.passes[0]}["stores"] == 1_000_000


def test_what_is_wrong_is_said_at_once(spark: SparkSession, places: dict[str, ss.Relation]) -> None:
    sales = from_arrow(spark, SALES)
    with pytest.raises(BudgetError, match=r"4 relations, which need .* for makers.*Raise memory"):
        ss.enrich_star(sales, relations(places), memory=100_000)
    with pytest.raises(OptionError, match=r"no option 'colums'.*columns"):
        ss.enrich_star(sales, {places["stores"]: {"colums": ["city"]}})
    one, two = places["products"], places["makers"]
    with pytest.raises(ColumnError, match="'label' would appear twice"):
        ss.enrich_star(sales, {one: {"on": {"k": "id"}}, two: {"on": {"maker": "maker_id"}}})
    with pytest.raises(OptionError, match="at least one relation"):
        ss.enrich_star(sales, {})
    with pytest.raises(OptionError, match="either memory"):
        ss.enrich_star(sales, {places["stores"]: None}, memory=1, memory_per_task=2)


def test_the_division_is_the_best_of_all() -> None:
    """Every combination is tried; one share in a thousand may be given away."""
    rng = np.random.default_rng(3)
    for _ in range(50):
        options = [
            [(int(rng.integers(1, 60)) * 1_000, float(rng.integers(1, 100))) for _ in range(6)]
            for _ in range(int(rng.integers(1, 5)))
        ]
        found = divide(100_000, options)
        fitting = [
            (sum(time for _, time in each), each)
            for each in itertools.product(*options)
            if sum(size for size, _ in each) <= 100_000
        ]
        if found is None:
            assert not fitting
            continue
        assert sum(found) <= 100_000
        taken = sum(
            min(time for size, time in each if size == share)
            for share, each in zip(found, options, strict=True)
        )
        assert taken == min(time for time, _ in fitting)
