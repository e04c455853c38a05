"""Streams in every form that Arrow rows come in, and keys that nothing in R can match."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import semistream as ss
from semistream.advice.auto import AUTO
from semistream.embedded import prepare
from semistream.errors import KeyTypeError, OptionError
from semistream.joins.registry import ALGORITHMS
from semistream.testing import nested_loop_join, same_rows

PRODUCTS = pa.table({"id": ["a", "b", "c"], "price": [1, 2, 3]})
SALES = pa.table({"id": ["b", "x", None, "b", "c"], "note": ["1", "22", None, "", "5" * 50]})
every_how = pytest.mark.parametrize("how", ["inner", "left", "semi", "anti"])
named = pytest.mark.parametrize("algorithm", ALGORITHMS)


@pytest.fixture
def products(tmp_path: Path) -> ss.Relation:
    return ss.build_relation(PRODUCTS, tmp_path / "p.rel", key="id", partitions=2)


def joined(stream: Any, relation: ss.Relation, **options: Any) -> pa.Table:
    options = {"algorithm": "meshjoin", **options}
    batches = list(ss.join(stream, relation, **options))
    for batch in batches:
        batch.validate(full=True)
    return pa.Table.from_batches(batches)


FORMS: dict[str, Callable[[], Any]] = {
    "table": lambda: SALES,
    "batch": lambda: SALES.to_batches()[0],
    "reader": lambda: SALES.to_reader(max_chunksize=2),
    "list": lambda: SALES.to_batches(max_chunksize=2),
    "generator": lambda: (batch for batch in SALES.to_batches(max_chunksize=2)),
    "polars": lambda: pl.from_arrow(SALES),
    "polars in pieces": lambda: pl.concat(
        [pl.from_arrow(SALES[:2]), pl.from_arrow(SALES[2:])], rechunk=False
    ),
    "duckdb relation": lambda: duckdb.arrow(SALES).project("id, note"),
    "duckdb reader": lambda: duckdb.arrow(SALES).to_arrow_reader(),
    "dataset": lambda: pa.dataset.dataset(SALES),
}


@pytest.mark.parametrize("form", FORMS)
@every_how
def test_forms_of_a_stream(products: ss.Relation, form: str, how: str) -> None:
    expected = nested_loop_join(SALES, PRODUCTS, on="id", how=how)
    assert same_rows(joined(FORMS[form](), products, how=how), expected)


def test_a_table_without_rows(products: ss.Relation) -> None:
    assert list(ss.join(SALES[:0], products)) == []


@pytest.mark.parametrize(
    ("stream", "got"),
    [
        ("sales.parquet", "got a str"),
        (Path("sales.parquet"), "got a pathlib"),
        (7, "got a int"),
        (None, "got a NoneType"),
        ({"id": ["b"]}, "got a dict"),
        (pa.array(["b"]), r"element 0 \(from 0\) is a pyarrow.lib.StringScalar"),
        (pa.chunked_array([["b"]]), r"element 0 \(from 0\) is a pyarrow.lib.StringScalar"),
        ([{"id": "b"}], r"element 0 \(from 0\) is a dict"),
        ([SALES], r"element 0 \(from 0\) is a pyarrow.lib.Table"),
    ],
    ids=lambda p: type(p).__name__,
)
def test_what_is_no_stream(products: ss.Relation, stream: Any, got: str) -> None:
    with pytest.raises(OptionError, match=f"RecordBatch.*{got}"):
        ss.join(stream, products)


def test_an_element_that_is_no_batch_comes_later(products: ss.Relation) -> None:
    def batches() -> Iterator[Any]:
        yield from SALES.to_batches(max_chunksize=2)
        yield SALES

    with pytest.raises(OptionError, match=r"element 3 \(from 0\) is a pyarrow.lib.Table"):
        joined(batches(), products)


NOT_PLAIN: dict[str, Callable[[pa.Array], pa.Array]] = {
    "views": lambda column: column.cast(pa.string_view()),
    "binary views": lambda column: column.cast(pa.binary()).cast(pa.binary_view()),
    "runs": pc.run_end_encode,
    "dictionary": lambda column: column.dictionary_encode(),
    "dictionary of views": lambda column: pa.DictionaryArray.from_arrays(
        column.dictionary_encode().indices,
        column.dictionary_encode().dictionary.cast(pa.string_view()),
    ),
    "large strings": lambda column: column.cast(pa.large_string()),
}


def check_not_plain(form: str, algorithm: str, tmp_path: Path) -> None:
    """Join 20 batches in which both the key and another column are not plain."""
    count = 300
    keys = [f"key {i}" for i in range(count)]
    table = pa.table({"id": keys, "price": np.arange(count)})
    if form == "binary views":
        table = table.set_column(0, "id", table.column("id").cast(pa.binary()))
    relation = ss.build_relation(table, tmp_path, key="id", page_size=1_000)
    requested = np.random.default_rng(7).zipf(1.3, 1_000) % (count + 20)
    texts = pa.array([f"key {i}" if i % 11 else None for i in requested])
    column = NOT_PLAIN[form](texts)
    batch = pa.record_batch({"id": column, "note": column})
    batches = [batch[i : i + 50] for i in range(0, 1_000, 50)]
    types = {"binary views": pa.binary(), "large strings": pa.large_string()}
    plain = texts.cast(types.get(form, pa.string()))
    expected = nested_loop_join(pa.table({"id": plain, "note": plain}), table, on="id")
    actual = joined(batches, relation, algorithm=algorithm, memory="2MB")
    assert same_rows(actual, expected)


@named
@pytest.mark.parametrize("form", NOT_PLAIN)
def test_columns_that_are_not_plain(tmp_path: Path, form: str, algorithm: str) -> None:
    check_not_plain(form, algorithm, tmp_path)


@pytest.mark.parametrize("form", NOT_PLAIN)
def test_columns_that_are_not_plain_with_auto(tmp_path: Path, form: str) -> None:
    check_not_plain(form, AUTO, tmp_path)


def test_categories_of_polars(products: ss.Relation) -> None:
    kind = pl.Enum(["a", "b", "x"])
    frame = pl.DataFrame({"id": pl.Series(["b", "x", None], dtype=kind)})
    expected = nested_loop_join(pa.table({"id": ["b", "x", None]}), PRODUCTS, on="id")
    assert same_rows(joined(frame, products), expected)


# Keys that no row of R can have


NUMBERS = pa.table({"id": pa.array([1, 2**63 - 1, -1]), "name": ["one", "most", "minus one"]})
UNSIGNED = pa.array([1, 2**63, 2**64 - 1, None, 2**63 - 1], pa.uint64())
INSTANTS = pa.table(
    {"id": pa.array([0, 1, -1], pa.timestamp("us")), "name": ["epoch", "after", "before"]}
)
FINE = pa.array([0, 1, 999, 1_000, -1, None, -1_000], pa.timestamp("ns"))
DAYS = pa.table({"id": pa.array([0, 1, -1], pa.date32()), "name": ["epoch", "after", "before"]})
MOMENTS = pa.array([0, 1, 86_400_000, -1, None], pa.int64()).view(pa.date64())
UNMATCHABLE = {
    "uint64": (NUMBERS, UNSIGNED, pa.array([1, 5, 5, None, 2**63 - 1])),
    "ns": (INSTANTS, FINE, pa.array([0, 5, 5, 1, 5, None, -1], pa.timestamp("us"))),
    "date64": (DAYS, MOMENTS, pa.array([0, 5, 1, 5, None], pa.date32())),
}


@named
@every_how
@pytest.mark.parametrize("name", UNMATCHABLE)
def test_a_key_that_r_cannot_have_is_a_miss(
    tmp_path: Path, name: str, how: str, algorithm: str
) -> None:
    """As if the row had a key of the relation's type that is not there: 5 stands for these."""
    table, keys, stand_ins = UNMATCHABLE[name]
    relation = ss.build_relation(table, tmp_path, key="id", partitions=3)
    stream = pa.record_batch({"id": keys, "row": np.arange(len(keys))})
    operator, batches = prepare(
        [stream, stream[1:]], relation, how=how, algorithm=algorithm, memory="30MB"
    )
    assert operator is not None
    actual = pa.Table.from_batches(list(operator.join(batches)))
    stood_in = pa.table({"id": stand_ins, "row": np.arange(len(keys))})
    expected = nested_loop_join(pa.concat_tables([stood_in, stood_in[1:]]), table, on="id", how=how)
    assert same_rows(actual.drop_columns("id"), expected.drop_columns("id"))
    assert operator.telemetry.null_key_rows == 2
    assert operator.telemetry.stream_rows == 2 * len(keys) - 1


@pytest.mark.parametrize(
    ("keys", "shown"),
    [
        (UNSIGNED, "9223372036854775808"),
        (FINE, "1970-01-01 00:00:00.000000001"),
        (MOMENTS, "1970-01-01 00:00:00.001"),
    ],
    ids=["uint64", "ns", "date64"],
)
def test_in_r_such_a_key_is_an_error(tmp_path: Path, keys: pa.Array, shown: str) -> None:
    with pytest.raises(KeyTypeError, match=f"key column 'id' has a value that .*: {shown}"):
        ss.build_relation(pa.table({"id": keys}), tmp_path, key="id")
    assert not list(tmp_path.glob("snapshots/*"))


def test_a_sample_may_have_keys_that_r_cannot_have(tmp_path: Path) -> None:
    sample = pa.table({"id": pa.array([1, 1, 2**63, 2**63], pa.uint64())})
    relation = ss.build_relation(NUMBERS, tmp_path, key="id", order="frequency", sample=sample)
    assert relation.row_count == 3


@every_how
def test_uuids_as_keys(tmp_path: Path, how: str) -> None:
    def uuids(values: list[bytes | None]) -> pa.Array:
        return pa.ExtensionArray.from_storage(pa.uuid(), pa.array(values, pa.binary(16)))

    ids = [bytes([i]) * 16 for i in range(9)]
    table = pa.table({"id": uuids(ids), "name": [f"{i}" for i in range(9)]})
    relation = ss.build_relation(table, tmp_path, key="id")
    stream = pa.table({"id": uuids([ids[3], b"x" * 16, None, ids[3], ids[8]])})
    expected = nested_loop_join(stream, table, on="id", how=how)
    assert same_rows(joined(stream, relation, how=how), expected)
