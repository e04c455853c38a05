"""What users get wrong: an error that says so, or a join that copes."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import semistream as ss
from semistream.advice.auto import AUTO
from semistream.embedded import prepare
from semistream.errors import (
    BudgetError,
    ColumnError,
    CorruptRelationError,
    KeyTypeError,
    OptionError,
    RelationFormatError,
    RelationNotFoundError,
    SemistreamError,
)
from semistream.joins.registry import ALGORITHMS
from semistream.relation.layout import FORMAT_VERSION
from semistream.testing import nested_loop_join, same_rows

PRODUCTS = pa.table({"id": [1, 2, 3], "name": ["a", "b", "c"]})
SALES = pa.table({"id": [2, 4, None], "quantity": [5, 6, 7]})
every_algorithm = pytest.mark.parametrize("algorithm", [AUTO, *ALGORITHMS])
every_how = pytest.mark.parametrize("how", ["inner", "left", "semi", "anti"])


@pytest.fixture
def products(tmp_path: Path) -> ss.Relation:
    return ss.build_relation(PRODUCTS, tmp_path / "p.rel", key="id", partitions=2)


def join(relation: ss.Relation, stream: pa.Table, **options: Any) -> pa.Table | None:
    """Return the joined rows, or None if there is not even a batch."""
    batches = list(ss.join(stream.to_batches(max_chunksize=2), relation, **options))
    return pa.Table.from_batches(batches) if batches else None


def check(relation: ss.Relation, table: pa.Table, stream: pa.Table, **options: Any) -> None:
    expected = nested_loop_join(stream, table, on="id", how=options.get("how", "left"))
    actual = join(relation, stream, **options)
    assert same_rows(expected.schema.empty_table() if actual is None else actual, expected)


# Paths and manifests


def test_a_path_with_nothing_there(tmp_path: Path) -> None:
    with pytest.raises(RelationNotFoundError, match=r"x\.rel' is not a relation.*build_relation"):
        ss.Relation.open(tmp_path / "x.rel")


def test_a_folder_that_is_no_relation(tmp_path: Path) -> None:
    (tmp_path / "some.csv").write_text("a,b\n")
    with pytest.raises(RelationNotFoundError, match=r"has no CURRENT file.*in another folder"):
        ss.Relation.open(tmp_path)


def test_a_file_that_is_no_relation(tmp_path: Path) -> None:
    (tmp_path / "some.csv").write_text("a,b\n")
    with pytest.raises(
        RelationNotFoundError, match=r"not a relation but a file\. Build a relation"
    ):
        ss.Relation.open(tmp_path / "some.csv")


@pytest.mark.parametrize("content", [b"", b"no such snapshot", b"\xff\xfe\x00"], ids=repr)
def test_current_that_names_no_snapshot(products: ss.Relation, content: bytes) -> None:
    (Path(products.location) / "CURRENT").write_bytes(content)
    with pytest.raises(SemistreamError, match=products.snapshot):
        ss.Relation.open(products.location)


def manifest(relation: ss.Relation) -> Path:
    return Path(relation.location) / "snapshots" / relation.snapshot / "manifest.json"


@pytest.mark.parametrize("version", [FORMAT_VERSION + 1, 99])
def test_a_newer_format(products: ss.Relation, version: int) -> None:
    body = json.loads(manifest(products).read_text()) | {"format_version": version}
    manifest(products).write_text(json.dumps(body))
    with pytest.raises(RelationFormatError, match=f"has format {version}.*upgrade"):
        ss.Relation.open(products.location)


def test_a_newer_format_may_look_quite_different(products: ss.Relation) -> None:
    manifest(products).write_text(f'{{"format_version": {FORMAT_VERSION + 1}}}')
    with pytest.raises(RelationFormatError):
        ss.Relation.open(products.location)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"not JSON",
        b"[]",
        b"7",
        b"null",
        b"{}",
        b'{"format_version": 1}',
        b'{"format_version": "one"}',
        b'{"format_version": null}',
        b"\xff\xfe\x00\x01",
    ],
    ids=repr,
)
def test_a_manifest_that_is_none(products: ss.Relation, content: bytes) -> None:
    manifest(products).write_bytes(content)
    with pytest.raises(CorruptRelationError, match=r"manifest\.json is not a valid manifest"):
        ss.Relation.open(products.location)


def test_a_manifest_that_is_cut_off(products: ss.Relation) -> None:
    manifest(products).write_bytes(manifest(products).read_bytes()[:-20])
    with pytest.raises(CorruptRelationError, match="rebuild it"):
        ss.Relation.open(products.location)


# Keys


def test_a_key_that_is_not_in_the_source(tmp_path: Path) -> None:
    with pytest.raises(ColumnError, match=r"'nam' is not in the source.*Did you mean 'name'"):
        ss.build_relation(PRODUCTS, tmp_path, key="nam")
    assert list(tmp_path.iterdir()) == []


def test_no_key(tmp_path: Path) -> None:
    with pytest.raises(ColumnError, match="at least one key column"):
        ss.build_relation(PRODUCTS, tmp_path, key=[])


@pytest.mark.parametrize(
    ("column", "hint"),
    [([0.5], "cast to decimal or to string"), ([[1]], "leaf fields"), ([{"a": 1}], "leaf fields")],
    ids=["float", "list", "struct"],
)
def test_a_key_that_cannot_be_compared(tmp_path: Path, column: list[Any], hint: str) -> None:
    with pytest.raises(KeyTypeError, match=f"'id' has type.*{hint}"):
        ss.build_relation(pa.table({"id": column}), tmp_path, key="id")
    assert list(tmp_path.iterdir()) == []


def test_a_key_too_large_for_a_code(tmp_path: Path) -> None:
    table = pa.table({"id": pa.array([1, 2**64 - 1], pa.uint64())})
    with pytest.raises(KeyTypeError, match="does not fit int64"):
        ss.build_relation(table, tmp_path, key="id")


def test_columns_of_the_same_name(tmp_path: Path) -> None:
    table = pa.Table.from_arrays([pa.array([1])] * 3, names=["id", "x", "x"])
    with pytest.raises(ColumnError, match=r"several columns named \['x'\]"):
        ss.build_relation(table, tmp_path, key="id")


@every_algorithm
@pytest.mark.parametrize(
    "column", [pa.array(["2"]), pa.array([2.0]), pa.array([[2]])], ids=["string", "float", "list"]
)
def test_a_stream_key_of_another_type(
    products: ss.Relation, column: pa.Array, algorithm: str
) -> None:
    with pytest.raises(KeyTypeError, match="'id'"):
        join(products, pa.table({"id": column}), algorithm=algorithm)


@every_algorithm
@every_how
def test_keys_that_are_null(tmp_path: Path, how: str, algorithm: str) -> None:
    table = pa.table({"id": [None, 1, None], "name": ["a", "b", "c"]})
    relation = ss.build_relation(table, tmp_path, key="id")
    stream = pa.table({"id": [None, 1, None, 2], "q": [1, 2, 3, 4]})
    check(relation, table, stream, how=how, algorithm=algorithm)


@every_algorithm
def test_a_stream_of_null_keys_only(products: ss.Relation, algorithm: str) -> None:
    stream = pa.table({"id": pa.nulls(5, pa.int64())})
    check(products, PRODUCTS, stream, algorithm=algorithm)


# Budgets and options


def test_a_budget_too_small_says_what_would_do(products: ss.Relation) -> None:
    with pytest.raises(BudgetError, match=r"at least .*Raise memory to \d+ bytes") as error:
        join(products, SALES, algorithm="meshjoin", memory=1_000)
    least = error.value.least_bytes
    assert least is not None
    with pytest.raises(BudgetError):
        join(products, SALES, algorithm="meshjoin", memory=least - 1)
    check(products, PRODUCTS, SALES, algorithm="meshjoin", memory=least)


def test_a_relation_too_big_to_be_resident(products: ss.Relation) -> None:
    with pytest.raises(BudgetError, match="use algorithm='meshjoin'") as error:
        join(products, SALES, algorithm="resident", memory=1_000)
    assert error.value.least_bytes is not None
    check(products, PRODUCTS, SALES, algorithm="resident", memory=error.value.least_bytes)


@pytest.mark.parametrize("memory", ["", "lots", "64 MBytes", "-1MB", 0, -5, "0MB", None, 1.5e-9])
def test_memory_that_is_no_size(products: ss.Relation, memory: Any) -> None:
    with pytest.raises(OptionError, match=f"memory must be a size or a share .*; got {memory!r}"):
        join(products, SALES, memory=memory)


@pytest.mark.parametrize("page_size", ["huge", 0])
def test_page_size_that_is_no_size(tmp_path: Path, page_size: Any) -> None:
    with pytest.raises(OptionError, match="a size must be"):
        ss.build_relation(PRODUCTS, tmp_path, key="id", page_size=page_size)


@pytest.mark.parametrize(
    ("algorithm", "hint"), [("meshjion", "Did you mean 'meshjoin'"), ("nested_loop", "")]
)
def test_unknown_algorithm(products: ss.Relation, algorithm: str, hint: str) -> None:
    with pytest.raises(OptionError, match=f"one of auto, .*got '{algorithm}'.*{hint}"):
        join(products, SALES, algorithm=algorithm)


def test_unknown_how(products: ss.Relation) -> None:
    with pytest.raises(OptionError, match="inner, left, semi, anti; got 'outer'"):
        join(products, SALES, how="outer")


def test_errors_come_with_the_call_not_with_the_first_row(products: ss.Relation) -> None:
    """`join` is lazy, but what can be known at once is said at once."""
    for options in ({"how": "outer"}, {"memory": "x"}, {"algorithm": "x"}, {"columns": ["x"]}):
        with pytest.raises(SemistreamError):
            ss.join(SALES.to_reader(), products, **options)  # type: ignore[arg-type]


# Rows: none, too wide, of another shape


@every_algorithm
@every_how
def test_a_stream_without_rows(products: ss.Relation, how: str, algorithm: str) -> None:
    options = {"how": how, "algorithm": algorithm}
    empty = SALES[:0]
    assert join(products, empty, **options) is None
    assert list(ss.join(empty.to_reader(), products, **options)) == []  # type: ignore[arg-type]
    assert list(ss.join(SALES[:0].to_batches(), products, **options)) == []  # type: ignore[arg-type]
    batches = [pa.RecordBatch.from_pylist([], SALES.schema)] * 3
    assert list(ss.join(batches, products, **options)) == []  # type: ignore[arg-type]


@every_algorithm
@every_how
def test_a_relation_without_rows(tmp_path: Path, how: str, algorithm: str) -> None:
    table = PRODUCTS[:0]
    relation = ss.build_relation(table, tmp_path, key="id")
    check(relation, table, SALES, how=how, algorithm=algorithm)


@every_algorithm
def test_a_wide_row_first(products: ss.Relation, algorithm: str) -> None:
    """It counts into the sample that sizes the window."""
    stream = pa.table({"id": [1, 2, 3], "note": ["x" * 50_000, "", "y"]})
    check(products, PRODUCTS, stream, algorithm=algorithm, memory="4MB")


@pytest.mark.parametrize("nested", [False, True], ids=["text", "list"])
def test_a_wide_row_later(products: ss.Relation, nested: bool) -> None:
    """Wider than anything sampled, but it fits the window once that has emptied."""
    texts = ["s"] * 100 + ["x" * 60_000] + ["s"] * 100
    notes = [[text] for text in texts] if nested else texts
    stream = pa.table({"id": [1, 2, 3] * 67, "note": notes})
    check(products, PRODUCTS, stream, algorithm="meshjoin", memory="4MB")


@pytest.mark.parametrize("nested", [False, True], ids=["text", "list"])
def test_a_row_too_wide_for_the_window(products: ss.Relation, nested: bool) -> None:
    texts = ["s"] * 100 + ["x" * 3_000_000]
    notes = [[text] for text in texts] if nested else texts
    stream = pa.table({"id": [1] * 101, "note": notes})
    with pytest.raises(BudgetError, match=r"a stream row of 3\.0 MB does not fit.*Raise memory"):
        join(products, stream, algorithm="meshjoin", memory="1MB")


@every_algorithm
def test_a_wide_row_in_the_relation(tmp_path: Path, algorithm: str) -> None:
    table = pa.table({"id": [1, 2, 3], "name": ["a", "b" * 200_000, None]})
    relation = ss.build_relation(table, tmp_path, key="id", page_size=1_000)
    check(relation, table, SALES, algorithm=algorithm, memory="30MB")


@every_algorithm
def test_columns_in_another_order_later(products: ss.Relation, algorithm: str) -> None:
    """Batches need one schema; mixing up columns of one type would go unnoticed otherwise."""
    first = pa.record_batch({"id": [1], "quantity": [2]})
    second = pa.record_batch({"quantity": [2], "id": [1]})
    with pytest.raises(SemistreamError):
        list(ss.join([first, second], products, algorithm=algorithm))


@every_algorithm
def test_columns_of_another_type_later(products: ss.Relation, algorithm: str) -> None:
    first = pa.record_batch({"id": [1], "quantity": [2]})
    second = pa.record_batch({"id": [1], "quantity": ["two"]})
    with pytest.raises(SemistreamError):
        list(ss.join([first, second], products, algorithm=algorithm))


@every_algorithm
def test_the_stream_breaks(products: ss.Relation, algorithm: str) -> None:
    def batches() -> Any:
        yield from SALES.to_batches()
        raise RuntimeError("the source broke")

    with pytest.raises(RuntimeError, match="the source broke"):
        list(ss.join(batches(), products, algorithm=algorithm))


@every_algorithm
def test_a_join_that_is_left_early(tmp_path: Path, algorithm: str) -> None:
    """The files are closed and the counters are right, though the rest was not requested."""
    table = pa.table({"id": np.arange(5_000)})
    relation = ss.build_relation(table, tmp_path, key="id", page_size=1_000)
    batches = table.to_batches(max_chunksize=100)
    operator, source = prepare(batches, relation, algorithm=algorithm, memory="4MB")
    assert operator is not None
    running = operator.join(source)
    first = next(running)
    running.close()  # type: ignore[attr-defined]
    assert operator.telemetry.output_rows == first.num_rows
    assert operator.telemetry.stream_rows >= first.num_rows
