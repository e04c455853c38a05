"""A table in a database is joined in place: every algorithm agrees with DuckDB."""

import pickle
from collections.abc import Iterator
from datetime import date, datetime

import numpy as np
import pyarrow as pa
import pytest

import semistream as ss
from semistream.errors import (
    BudgetError,
    ColumnError,
    DatabaseError,
    KeyTypeError,
    OptionError,
    TableChangedError,
)
from semistream.joins.registry import ALGORITHMS
from semistream.testing import same_rows
from tests.databases.fill import Filled
from tests.oracle import duckdb_join

ROWS = 3_000
_count = iter(range(10_000))


def _name() -> str:
    return f"t{next(_count)}"


def _products(rows: int = ROWS, seed: int = 1) -> pa.Table:
    rng = np.random.default_rng(seed)
    keys = rng.choice(10 * rows, rows, replace=False)
    return pa.table(
        {
            "k": keys,
            "name": [None if i % 7 == 0 else f'näme "{i}",\n\\' for i in range(rows)],
            "price": [None if i % 5 == 0 else i / 8 for i in range(rows)],
            "image": [None if i % 3 == 0 else bytes([i % 256, 0, 255]) for i in range(rows)],
        }
    )


def _sales(rows: int, most: int, seed: int = 2) -> pa.Table:
    rng = np.random.default_rng(seed)
    keys = [None if i % 50 == 0 else int(k) for i, k in enumerate(rng.integers(-5, most, rows))]
    return pa.table({"k": pa.array(keys, pa.int64()), "quantity": np.arange(rows)})


def _joined(stream: pa.Table, relation: ss.Relation, **options: object) -> pa.Table:
    batches = list(ss.join(stream, relation, **options))
    return pa.Table.from_batches(batches)


def _agrees(stream: pa.Table, rows: pa.Table, relation: ss.Relation, **options: object) -> bool:
    found = _joined(stream, relation, **({"memory": "20MB"} | options))
    how = str(options.get("how", "left"))
    return same_rows(found, duckdb_join(stream, rows, on={k: k for k in relation.key}, how=how))


@pytest.fixture(scope="module")
def products(database: Filled) -> tuple[pa.Table, ss.Relation]:
    rows = _products()
    database.put(rows, "products", ["k"])
    return rows, ss.Relation.sql(database.url, "products", key="k", page_size="2KB")


@pytest.mark.parametrize("algorithm", ["auto", *ALGORITHMS])
def test_every_algorithm(products: tuple[pa.Table, ss.Relation], algorithm: str) -> None:
    rows, relation = products
    assert relation.page_count > 30
    sales = _sales(100 if algorithm in ("inlj", "cinlj") else 4_000, 10 * ROWS)
    assert _agrees(sales, rows, relation, algorithm=algorithm)


@pytest.mark.parametrize("how", ["inner", "semi", "anti"])
def test_every_kind_of_join(products: tuple[pa.Table, ss.Relation], how: str) -> None:
    rows, relation = products
    assert _agrees(_sales(4_000, 10 * ROWS), rows, relation, how=how, algorithm="hybridjoin")


def test_a_relation_in_a_database_can_be_pickled(products: tuple[pa.Table, ss.Relation]) -> None:
    rows, relation = products
    again = pickle.loads(pickle.dumps(relation))
    assert again.row_count == ROWS
    assert _agrees(_sales(500, 10 * ROWS), rows, again, algorithm="lookup")


def test_little_memory_reads_columns_one_by_one(products: tuple[pa.Table, ss.Relation]) -> None:
    rows, _ = products
    tight = ss.Relation.sql(products[1].url, "products", key="k", page_size="2KB", buffer="1KB")
    sales = _sales(2_000, 10 * ROWS)
    for algorithm in ("meshjoin", "lookup", "resident"):
        assert _agrees(sales, rows, tight, algorithm=algorithm, memory="5MB")
    with pytest.raises(BudgetError):
        _joined(sales, products[1], memory="1MB")


@pytest.mark.parametrize("rows", [0, 1])
def test_tables_of_no_row_and_of_one(database: Filled, rows: int) -> None:
    name, stored = _name(), _products(10)[:rows]
    database.put(stored, name, ["k"])
    relation = ss.Relation.sql(database.url, name, key="k")
    assert relation.row_count == rows
    sales = pa.table({"k": [1, None, *stored.column("k").to_pylist()]})
    for algorithm in ("meshjoin", "hybridjoin", "lookup", "resident"):
        assert _agrees(sales, stored, relation, algorithm=algorithm)


def test_duplicate_keys_and_texts(database: Filled) -> None:
    name = _name()
    keys = [f"customer {i % 400:05}" for i in range(1_500)] + ["", "Ä", "a", "A", "z\t", "z", "z "]
    stored = pa.table({"k": keys, "v": [i % 900 for i in range(len(keys))]})
    database.put(stored, name, ["k"], unique=False)
    relation = ss.Relation.sql(database.url, name, key="k", page_size="1KB")
    assert relation.page_count > 5
    sales = pa.table({"k": [*keys[:600], *keys[-7:], None, "customer", "zz", "ä"]})
    for algorithm in ("meshjoin", "hybridjoin", "xhybridjoin", "lookup", "resident"):
        assert _agrees(sales, stored, relation, algorithm=algorithm)


def test_composite_keys(database: Filled) -> None:
    name = _name()
    stored = pa.table(
        {
            "shop": [f"s{i % 3}" for i in range(1_200)],
            "day": [i // 3 - 100 for i in range(1_200)],
            "v": list(range(1_200)),
        }
    )
    database.put(stored, name, ["shop", "day"])
    relation = ss.Relation.sql(database.url, name, key=["shop", "day"], page_size="1KB")
    assert relation.page_count > 10
    sales = pa.table(
        {"shop": [f"s{i % 4}" for i in range(900)], "day": [i - 300 for i in range(900)]}
    )
    for algorithm in ("meshjoin", "hybridjoin", "lookup"):
        assert _agrees(sales, stored, relation, algorithm=algorithm)


@pytest.mark.parametrize("kind", ["date", "timestamp"])
def test_keys_of_time(database: Filled, kind: str) -> None:
    if database.kind == "sqlite":
        pytest.skip("SQLite has no types for time")
    name = _name()
    if kind == "date":
        keys = pa.array(
            [date.fromordinal(date(1960, 1, 1).toordinal() + 17 * i) for i in range(800)]
        )
    else:
        keys = pa.array(
            [datetime(1969, 12, 1, 0, i % 60, 0, i) for i in range(800)], pa.timestamp("us")
        )
    stored = pa.table({"k": keys, "v": list(range(800))})
    database.put(stored, name, ["k"])
    relation = ss.Relation.sql(database.url, name, key="k", page_size="1KB")
    assert relation.page_count > 5
    for algorithm in ("meshjoin", "lookup"):
        assert _agrees(stored.select(["k"])[100:400], stored, relation, algorithm=algorithm)


def test_decimals_and_small_integers(database: Filled) -> None:
    if database.kind == "sqlite":
        pytest.skip("SQLite has no such types")
    name = _name()
    stored = pa.table(
        {
            "k": pa.array(range(50), pa.int32()),
            "cost": pa.array([None, *range(49)], pa.int64())
            .cast(pa.decimal128(21, 2))
            .cast(pa.decimal128(12, 2)),
        }
    )
    database.put(stored, name, ["k"])
    relation = ss.Relation.sql(database.url, name, key="k")
    assert relation.schema.field("cost").type == pa.decimal128(12, 2)
    assert _agrees(stored.select(["k"]), stored, relation)


def test_changes_are_seen_by_the_next_join(database: Filled) -> None:
    name, stored = _name(), pa.table({"k": range(500), "v": [f"v{i}" for i in range(500)]})
    database.put(stored, name, ["k"])
    relation = ss.Relation.sql(database.url, name, key="k", page_size="1KB")
    database.run(f"DELETE FROM {name} WHERE k < 100")
    database.run(f"INSERT INTO {name} VALUES (-3, 'new'), (700, 'late')")
    database.run(f"UPDATE {name} SET v = 'other' WHERE k = 200")
    now = pa.table(
        {
            "k": [-3, *range(100, 500), 700],
            "v": ["new", *(f"v{i}" for i in range(100, 500)), "late"],
        }
    )
    now = now.set_column(
        1,
        "v",
        pa.array(
            [
                "other" if k == 200 else v
                for k, v in zip(*(c.to_pylist() for c in now.columns), strict=True)
            ]
        ),
    )
    sales = pa.table({"k": range(-10, 800)})
    for algorithm in ("meshjoin", "hybridjoin", "lookup", "resident"):
        assert _agrees(sales, now, relation, algorithm=algorithm)


def test_a_join_sees_the_table_as_it_was_when_it_began(database: Filled) -> None:
    if database.kind == "duckdb":
        pytest.skip("another process cannot write to a file of DuckDB that is being read")
    name, stored = _name(), pa.table({"k": range(2_000), "v": [f"v{i}" for i in range(2_000)]})
    if database.kind == "sqlite":
        database.run("PRAGMA journal_mode = WAL")
    database.put(stored, name, ["k"])
    relation = ss.Relation.sql(database.url, name, key="k", page_size="1KB")
    sales = [pa.record_batch({"k": list(range(i * 100, i * 100 + 100))}) for i in range(20)]

    def arriving() -> Iterator[pa.RecordBatch]:
        for number, batch in enumerate(sales):
            yield batch
            yield batch[:0]  # no more for now: the join goes on with what it has
            if number == 0:
                database.run_elsewhere(f"DELETE FROM {name} WHERE k >= 200")

    joining = ss.join(arriving(), relation, algorithm="lookup", memory="6MB")
    found = pa.Table.from_batches(list(joining))
    assert same_rows(found, duckdb_join(pa.Table.from_batches(sales), stored, on="k"))
    assert _agrees(pa.Table.from_batches(sales), stored[:200], relation)


def test_a_table_that_has_outgrown_its_pages_is_named(database: Filled) -> None:
    name, stored = _name(), pa.table({"k": [10 * i for i in range(400)], "v": ["x"] * 400})
    database.put(stored, name, ["k"])
    relation = ss.Relation.sql(database.url, name, key="k", page_size="1KB")
    more = pa.table({"k": [k for k in range(1, 1_000) if k % 10], "v": ["y"] * 900})
    database.run(f"DELETE FROM {name} WHERE k = -1", (), more, name)
    with pytest.raises(TableChangedError, match=r"has grown since it was opened.*Relation.sql"):
        _joined(pa.table({"k": range(1_000)}), relation)
    again = relation.opened_again()
    assert _agrees(pa.table({"k": range(1_000)}), pa.concat_tables([stored, more]), again)


def test_what_cannot_be_read_in_place_is_refused(database: Filled) -> None:
    name = _name()
    database.put(pa.table({"k": [1], "v": [1.5], "t": ["x"]}), name, ["k"])
    with pytest.raises(ColumnError, match="has no column 'kk'"):
        ss.Relation.sql(database.url, name, key="kk")
    with pytest.raises(ColumnError, match="Did you mean 'k'"):
        ss.Relation.sql(database.url, name, key="k", columns=["k", "K"])
    with pytest.raises(KeyTypeError, match="integers, texts, dates"):
        ss.Relation.sql(database.url, name, key="v")
    with pytest.raises(DatabaseError):
        ss.Relation.sql(database.url, "no_such_table", key="k")
    if database.kind != "duckdb":
        with pytest.raises(DatabaseError, match=r"no index.*begins with t.*CREATE INDEX"):
            ss.Relation.sql(database.url, name, key="t")
    relation = ss.Relation.sql(database.url, name, key="k")
    for call in (relation.info, relation.verify, relation.prune):
        with pytest.raises(OptionError, match="read in place"):
            call()
