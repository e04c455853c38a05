import pickle
import tempfile
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pyarrow import csv, dataset, parquet

import semistream as ss
from semistream.budget.pagesizes import slab_bytes
from semistream.embedded import prepare
from semistream.errors import BuildError, OptionError, RelationNotFoundError
from semistream.joins.pagereads import RequestedPages
from semistream.joins.registry import ALGORITHMS
from semistream.joins.slab import Slab
from semistream.relation import build, writer
from semistream.relation.keystatistics import KeyStatistics
from semistream.relation.layout import part_names
from semistream.relation.prune import Pruned
from semistream.relation.writer import cut_pages
from semistream.testing import nested_loop_join, same_rows
from tests.unit.samples import PLAIN, column

PRODUCTS = pa.table(
    {"id": [3, 1, 2, 1], "name": ["c", "a", None, "aa"], "price": [3.5, 1.5, 2.5, 1.25]}
)


def read_back(relation: ss.Relation) -> pa.Table:
    """Return all rows that a relation holds, read column by column."""
    if not relation.row_count:
        return relation.schema.empty_table()
    reader = relation.reader(relation.schema.names)
    codes = np.empty(reader.row_count, np.int64)
    assert reader.read_codes(0, reader.page_count, codes) == relation.row_count
    columns = []
    for name in relation.schema.names:
        slab = Slab(reader, name, np.empty(slab_bytes(reader, name, reader.page_count), np.uint8))
        if slab.is_implied:
            columns.append(slab.from_codes(codes))
        else:
            slab.load(RequestedPages.all_of(reader, 0, reader.page_count))
            columns.append(slab.gather(np.arange(reader.row_count)))
    reader.close()
    return pa.Table.from_arrays(columns, schema=relation.schema)


def bytes_read(
    relation: ss.Relation, columns: list[str], keys: list[int], algorithm: str = "meshjoin"
) -> int:
    stream = [pa.record_batch({relation.key[0]: keys})]
    operator, batches = prepare(
        stream, relation, columns=columns, memory="2MB", algorithm=algorithm
    )
    assert operator is not None
    for _ in operator.join(batches):
        pass
    return operator.telemetry.bytes_read


def parquet_file(folder: Path) -> Path:
    parquet.write_table(PRODUCTS, folder / "p.parquet")
    return folder / "p.parquet"


def parquet_folder(folder: Path) -> Path:
    (folder / "parts").mkdir()
    for i in range(PRODUCTS.num_rows):
        parquet.write_table(PRODUCTS[i : i + 1], folder / "parts" / f"{i}.parquet")
    return folder / "parts"


def csv_file(folder: Path) -> str:
    csv.write_csv(PRODUCTS, folder / "p.csv")
    return str(folder / "p.csv")


def csv_folder(folder: Path) -> Path:
    (folder / "texts").mkdir()
    for i in range(PRODUCTS.num_rows):
        csv.write_csv(PRODUCTS[i : i + 1], folder / "texts" / f"{i}.csv")
    return folder / "texts"


SOURCES: dict[str, Any] = {
    "table": lambda _: PRODUCTS,
    "chunked table": lambda _: pa.concat_tables([PRODUCTS[:1], PRODUCTS[1:]]),
    "reader": lambda _: PRODUCTS.to_reader(max_chunksize=1),
    "batch": lambda _: PRODUCTS.to_batches()[0],
    "parquet file": parquet_file,
    "parquet folder": parquet_folder,
    "csv file": csv_file,
    "csv folder": csv_folder,
    "dataset": lambda folder: dataset.dataset(parquet_folder(folder)),
    "polars": lambda _: pl.from_arrow(PRODUCTS),
}


@pytest.mark.parametrize("name", SOURCES)
def test_sources(tmp_path: Path, name: str) -> None:
    source = SOURCES[name](tmp_path)
    relation = ss.build_relation(source, tmp_path / "p.rel", key="id", partitions=2)
    back = read_back(relation)
    if name.startswith("csv"):  # a missing text is an empty one there
        filled = PRODUCTS["name"].fill_null("")
        assert same_rows(back, PRODUCTS.set_column(1, "name", filled))
    else:
        assert same_rows(back, PRODUCTS)


@pytest.mark.parametrize("source", [[1, 2], 7, None, {"id": [1]}], ids=str)
def test_what_is_no_source(tmp_path: Path, source: object) -> None:
    with pytest.raises(OptionError, match=f"got {type(source).__name__}"):
        ss.build_relation(source, tmp_path / "p.rel", key="id")


@pytest.mark.parametrize("name", ["nothing.parquet", "nothing.csv", "nothing"])
def test_a_path_that_is_not_there(tmp_path: Path, name: str) -> None:
    with pytest.raises(BuildError, match=r"nothing.* does not exist"):
        ss.build_relation(tmp_path / name, tmp_path / "p.rel", key="id")
    assert not (tmp_path / "p.rel").exists()


@pytest.mark.parametrize("partitions", [0, -1])
def test_partitions_must_be_positive(tmp_path: Path, partitions: int) -> None:
    with pytest.raises(OptionError, match="at least 1"):
        ss.build_relation(PRODUCTS, tmp_path, key="id", partitions=partitions)


def test_progress(tmp_path: Path) -> None:
    seen: list[int] = []
    reader = PRODUCTS.to_reader(max_chunksize=1)
    ss.build_relation(reader, tmp_path, key="id", progress=seen.append)
    assert seen == [1, 2, 3, 4]


def test_open_finds_what_was_built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    built = ss.build_relation(PRODUCTS, tmp_path / "p.rel", key="id", partitions=3)
    monkeypatch.chdir(tmp_path)
    for location in (tmp_path / "p.rel", str(tmp_path / "p.rel"), "p.rel", Path("p.rel")):
        opened = ss.Relation.open(location)
        assert opened == built
        assert opened.location == str(tmp_path / "p.rel")
    assert opened.key == ("id",)
    assert opened.schema == PRODUCTS.schema
    assert opened.partition_count == 3


def test_a_relation_can_be_pickled(tmp_path: Path) -> None:
    relation = ss.build_relation(PRODUCTS, tmp_path, key="id")
    again = pickle.loads(pickle.dumps(relation))
    assert again == relation
    assert same_rows(read_back(again), PRODUCTS)


def test_repr_says_what_it_is(tmp_path: Path) -> None:
    relation = ss.build_relation(PRODUCTS, tmp_path / "p.rel", key="id", partitions=3)
    for part in ("p.rel", "4 rows", "key id", "3 partitions"):
        assert part in repr(relation)


def test_a_rebuild_becomes_current_and_the_old_one_stays(tmp_path: Path) -> None:
    old = ss.build_relation(PRODUCTS, tmp_path, key="id")
    new = ss.build_relation(PRODUCTS[:1], tmp_path, key="id")
    assert old.snapshot < new.snapshot
    assert (tmp_path / "CURRENT").read_text() == new.snapshot
    assert ss.Relation.open(tmp_path) == new
    assert ss.Relation.open(tmp_path, snapshot=old.snapshot) == old
    assert old.snapshots() == new.snapshots() == [old.snapshot, new.snapshot]
    assert same_rows(read_back(old), PRODUCTS)
    assert same_rows(read_back(new), PRODUCTS[:1])


def test_a_rebuild_may_change_everything(tmp_path: Path) -> None:
    ss.build_relation(PRODUCTS, tmp_path, key="id", partitions=2)
    other = pa.table({"name": ["x"], "size": [1]})
    assert ss.build_relation(other, tmp_path, key="name", partitions=5).key == ("name",)
    assert same_rows(read_back(ss.Relation.open(tmp_path)), other)


def test_a_snapshot_that_is_not_there(tmp_path: Path) -> None:
    relation = ss.build_relation(PRODUCTS, tmp_path, key="id")
    with pytest.raises(RelationNotFoundError, match=f"no snapshot 'x'; it has {relation.snapshot}"):
        ss.Relation.open(tmp_path, snapshot="x")


@pytest.mark.parametrize(("keep", "left"), [(1, 1), (2, 2), (4, 4), (9, 4)])
def test_prune(tmp_path: Path, keep: int, left: int) -> None:
    built = [ss.build_relation(PRODUCTS, tmp_path, key="id").snapshot for _ in range(4)]
    relation = ss.Relation.open(tmp_path)
    sizes = {old.snapshot: old.size_bytes for old in relation.info().snapshots}
    removed = built[: 4 - left]
    freed_bytes = sum(sizes[snapshot] for snapshot in removed)
    assert relation.prune(keep, grace=0) == Pruned(removed, {}, freed_bytes)
    assert relation.snapshots() == built[4 - left :]
    assert same_rows(read_back(ss.Relation.open(tmp_path)), PRODUCTS)


def test_prune_keeps_the_current_one_though_it_is_not_the_newest(tmp_path: Path) -> None:
    built = [ss.build_relation(PRODUCTS, tmp_path, key="id").snapshot for _ in range(3)]
    (tmp_path / "CURRENT").write_text(built[0])
    relation = ss.Relation.open(tmp_path)
    assert relation.prune(grace=0).removed == built[1:]
    assert same_rows(read_back(relation), PRODUCTS)


def test_prune_keeps_at_least_one(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="at least 1"):
        ss.build_relation(PRODUCTS, tmp_path, key="id").prune(0)


def test_statistics(tmp_path: Path) -> None:
    keys = [5, None, 5, 7, 5, None, 9, 9]
    table = pa.table({"id": keys, "n": np.arange(8)})
    relation = ss.build_relation(table, tmp_path, key="id", partitions=3, page_size=32)
    infos = relation.manifest.partitions
    assert relation.row_count == 6
    assert relation.manifest.null_keys_dropped == 2
    assert sum(info.distinct_codes for info in infos) == 3
    assert max(info.most_duplicates for info in infos) == 3
    assert not relation.has_unique_keys
    assert relation.page_count == sum(info.page_count for info in infos) == 4  # 2 rows a page
    files = [*tmp_path.rglob("*.data"), *tmp_path.rglob("*.codes")]
    assert relation.size_bytes == sum(file.stat().st_size for file in files)
    for info in infos:
        wanted = sorted(k for k in keys if k is not None and k % 3 == info.index)
        assert info.row_count == len(wanted)
        if wanted:
            assert (info.first_code, info.last_code) == (wanted[0], wanted[-1])


@given(st.lists(st.integers(-(2**63), 2**63 - 1) | st.integers(0, 40), min_size=1, max_size=60))
def test_crowding_is_counted_at_every_shift(keys: list[int]) -> None:
    statistics = KeyStatistics()
    codes = np.sort(np.array(keys, np.int64))
    for start in range(0, len(codes), 7):
        statistics.add(codes[start : start + 7])
    loads = [Counter(key >> shift for key in keys) for shift in range(64)]
    assert statistics.squared_loads() == tuple(sum(n * n for n in load.values()) for load in loads)
    assert statistics.distinct == len(set(keys))
    assert statistics.most_duplicates == max(Counter(keys).values())


def test_unique_keys(tmp_path: Path) -> None:
    assert ss.build_relation(pa.table({"id": [1, 2, None]}), tmp_path, key="id").has_unique_keys


@pytest.mark.parametrize("with_nulls", [True, False], ids=["nulls", "no nulls"])
@pytest.mark.parametrize("dtype", PLAIN, ids=str)
def test_every_type_comes_back(tmp_path: Path, dtype: pa.DataType, with_nulls: bool) -> None:
    table = pa.table({"id": np.arange(200), "c": column(dtype, 200, with_nulls)})
    relation = ss.build_relation(table, tmp_path, key="id", partitions=3, page_size=300)
    assert relation.page_count > 3
    assert relation.schema == table.schema
    assert same_rows(read_back(relation), table)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_every_type_on_both_sides_of_a_join(tmp_path: Path, algorithm: str) -> None:
    columns = {f"c{i}": column(dtype, 90) for i, dtype in enumerate(PLAIN)}
    table = pa.table({"id": np.arange(90), **columns})
    stream = pa.table({"id": np.arange(89, 30, -1), **columns_renamed(columns, 59)})
    relation = ss.build_relation(table, tmp_path, key="id", partitions=2, page_size=700)
    out = ss.join(stream.to_batches(max_chunksize=7), relation, memory="4MB", algorithm=algorithm)
    assert same_rows(pa.Table.from_batches(out), nested_loop_join(stream, table, on="id"))


def columns_renamed(columns: dict[str, pa.Array], count: int) -> dict[str, pa.Array]:
    return {f"s_{name}": values[1 : count + 1] for name, values in columns.items()}


def test_dictionaries_and_views_are_stored_plain(tmp_path: Path) -> None:
    encoded = pa.table(
        {
            "id": pa.array(["a", "b", "a"]).dictionary_encode(),
            "view": pa.array(["x", None, "y" * 40], pa.string_view()),
        }
    )
    relation = ss.build_relation(encoded, tmp_path, key="id")
    assert relation.schema == pa.schema([("id", pa.string()), ("view", pa.string())])
    assert same_rows(read_back(relation), encoded.cast(relation.schema))


@pytest.mark.parametrize("algorithm", ["meshjoin", "resident"])
def test_projection_reads_only_what_is_asked_for(tmp_path: Path, algorithm: str) -> None:
    rows = 2_000
    table = pa.table(
        {
            "id": np.arange(rows),
            "narrow": pa.array(np.arange(rows) % 100, pa.int8()),
            "wide": ["w" * 200] * rows,
        }
    )
    relation = ss.build_relation(table, tmp_path, key="id", page_size=4_096)
    none, narrow, wide = (
        bytes_read(relation, columns, list(range(rows)), algorithm)
        for columns in ([], ["narrow"], ["wide"])
    )
    assert none == 8 * rows
    assert rows <= narrow - none < 4 * rows
    assert 200 * rows <= wide - none < 230 * rows


@pytest.mark.parametrize("algorithm", ["meshjoin", "resident"])
def test_bytes_read_are_those_on_disk(tmp_path: Path, algorithm: str) -> None:
    """One scan in which every page has a match reads every byte once."""
    table = pa.table({"id": np.arange(2_000), "text": ["some text"] * 2_000})
    relation = ss.build_relation(table, tmp_path, key="id", page_size=4_096)
    assert bytes_read(relation, ["text"], list(range(2_000)), algorithm) == relation.size_bytes


def test_pages_without_a_match_are_not_read(tmp_path: Path) -> None:
    table = pa.table({"id": np.arange(10_000), "wide": ["w" * 100] * 10_000})
    relation = ss.build_relation(table, tmp_path, key="id", partitions=1, page_size=4_096)
    assert bytes_read(relation, ["wide"], [7]) < 8 * 10_000 + 2 * 4_096


def page_sizes(relation: ss.Relation) -> list[tuple[int, int]]:
    """Return (rows, bytes) of each page."""
    reader = relation.reader(relation.schema.names)
    parts = ["codes"]
    for i, field in enumerate(relation.schema):
        parts += part_names(i, field.type).values()
    return [
        (
            int(reader.row_bounds[page + 1] - reader.row_bounds[page]),
            sum(reader.part_bytes(part, page, page + 1) for part in parts),
        )
        for page in range(reader.page_count)
    ]


@pytest.mark.parametrize("page_bytes", [1, 64, 500, 4_096, 10**9])
def test_pages_keep_to_their_size(tmp_path: Path, page_bytes: int) -> None:
    rng = np.random.default_rng(1)
    count = 1_000
    table = pa.table(
        {
            "id": rng.integers(0, 500, count),
            "n": pa.array(rng.integers(0, 9, count), mask=rng.random(count) < 0.3),
            "s": ["x" * n for n in rng.integers(0, 300, count)],
        }
    )
    relation = ss.build_relation(table, tmp_path, key="id", partitions=2, page_size=page_bytes)
    sizes = page_sizes(relation)
    assert sum(rows for rows, _ in sizes) == count
    assert all(size <= page_bytes or rows == 1 for rows, size in sizes)
    assert sum(size for _, size in sizes) == relation.size_bytes
    if page_bytes == 4_096:  # pages are filled, too: two neighbours never fit into one
        one_partition = sizes[: relation.manifest.partitions[0].page_count]
        assert all(a + b > page_bytes for (_, a), (_, b) in pairwise(one_partition))


@example([50, 50, 20], 100)  # a page that is exactly full
@given(st.lists(st.integers(1, 150), min_size=1, max_size=40), st.integers(1, 200))
def test_cut_pages(sizes: list[int], page_bytes: int) -> None:
    bounds = cut_pages(np.array(sizes, np.int64), page_bytes).tolist()
    assert bounds[0] == 0
    assert bounds[-1] == len(sizes)
    for first, last in pairwise(bounds):
        assert first < last
        assert last - first == 1 or sum(sizes[first:last]) <= page_bytes
        assert last == len(sizes) or sum(sizes[first : last + 1]) > page_bytes


def test_a_row_wider_than_a_page(tmp_path: Path) -> None:
    texts = ["a", "b" * 100_000, None, "c" * 5_000]
    table = pa.table({"id": [1, 2, 3, 4], "text": texts, "list": [[t] * 3 for t in texts]})
    relation = ss.build_relation(table, tmp_path, key="id", partitions=1, page_size=256)
    assert same_rows(read_back(relation), table)
    stream = pa.table({"id": [4, 2, 1, 9]})
    out = ss.join(stream.to_batches(), relation, memory="8MB", algorithm="meshjoin")
    assert same_rows(pa.Table.from_batches(out), nested_loop_join(stream, table, on="id"))


def big_table(rows: int) -> pa.Table:
    rng = np.random.default_rng(2)
    return pa.table(
        {
            "id": pa.array(rng.integers(0, rows, rows), mask=rng.random(rows) < 0.05),
            "text": [f"row {i}" if i % 5 else None for i in range(rows)],
            "list": [[i] * (i % 4) for i in range(rows)],
        }
    )


def contents(relation: ss.Relation) -> dict[str, bytes]:
    """Return the data files of a snapshot by name."""
    folder = Path(relation.location) / "snapshots" / relation.snapshot
    return {f.name: f.read_bytes() for f in folder.iterdir() if f.name != "manifest.json"}


def test_spooling_gives_the_same_relation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = big_table(5_000)
    in_memory = ss.build_relation(table.to_reader(100), tmp_path / "a", key="id", page_size=900)
    spool_folder = tmp_path / "spool"
    spool_folder.mkdir()
    monkeypatch.setattr(build, "SPOOL_BYTES", 20_000)
    monkeypatch.setattr(tempfile, "tempdir", str(spool_folder))
    most = 0

    def count(_: int) -> None:
        nonlocal most
        most = max(most, len(list(spool_folder.rglob("*.arrow"))))

    spooled = ss.build_relation(
        table.to_reader(100), tmp_path / "b", key="id", page_size=900, progress=count
    )
    assert most == build.DEFAULT_PARTITIONS
    assert list(spool_folder.iterdir()) == []
    assert spooled.manifest.partitions == in_memory.manifest.partitions
    assert spooled.manifest.null_keys_dropped == in_memory.manifest.null_keys_dropped > 0
    assert contents(spooled) == contents(in_memory)


def test_many_extents(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nulls lie in some extents only, so that validity is stored for some pages only."""
    monkeypatch.setattr(writer, "EXTENT_BYTES", 3_000)
    monkeypatch.setattr(build, "_WRITE_ROWS", 64)
    count = 2_000
    some = [None if 700 < i < 800 else i for i in range(count)]
    table = pa.table({"id": np.arange(count), "n": some, "s": pa.array(some).cast(pa.string())})
    relation = ss.build_relation(table, tmp_path, key="id", partitions=1, page_size=300)
    reader = relation.reader(["n"])
    validity = [reader.part_bytes("1.validity", p, p + 1) for p in range(reader.page_count)]
    assert 0 in validity
    assert max(validity) > 0
    assert same_rows(read_back(relation), table)
    stream = pa.table({"id": np.arange(0, 2_500, 3)})
    out = ss.join(stream.to_batches(), relation, memory="200KB", algorithm="meshjoin")
    wanted = stream.join(table, "id", join_type="left outer").select(["id", "n", "s"])
    assert same_rows(pa.Table.from_batches(out), wanted)


def test_all_rows_alike(tmp_path: Path) -> None:
    table = pa.table({"id": [7] * 3_000, "n": np.arange(3_000)})
    relation = ss.build_relation(table, tmp_path, key="id", partitions=4, page_size=200)
    assert sorted(info.most_duplicates for info in relation.manifest.partitions) == [0, 0, 0, 3_000]
    assert same_rows(read_back(relation), table)


@pytest.mark.parametrize("schema_only", [PRODUCTS.schema, pa.schema([("id", pa.string())])])
def test_no_rows(tmp_path: Path, schema_only: pa.Schema) -> None:
    relation = ss.build_relation(schema_only.empty_table(), tmp_path, key="id")
    assert (relation.row_count, relation.page_count, relation.size_bytes) == (0, 0, 0)
    assert relation.has_unique_keys
    assert same_rows(read_back(relation), schema_only.empty_table())


def test_only_rows_without_a_key(tmp_path: Path) -> None:
    table = pa.table({"id": pa.array([None, None], pa.int64()), "n": [1, 2]})
    relation = ss.build_relation(table, tmp_path, key="id")
    assert relation.row_count == 0
    assert relation.manifest.null_keys_dropped == 2


def test_one_row(tmp_path: Path) -> None:
    relation = ss.build_relation(PRODUCTS[:1], tmp_path, key="id", partitions=8)
    assert (relation.row_count, relation.page_count) == (1, 1)
    assert same_rows(read_back(relation), PRODUCTS[:1])


def test_only_a_key(tmp_path: Path) -> None:
    table = pa.table({"id": [4, 5]})
    relation = ss.build_relation(table, tmp_path, key="id")
    assert relation.size_bytes == 16
    out = ss.join([pa.record_batch({"id": [5, 6]})], relation, how="inner", algorithm="meshjoin")
    assert pa.Table.from_batches(out).to_pylist() == [{"id": 5}]


def test_composite_keys(tmp_path: Path) -> None:
    table = pa.table(
        {
            "shop": ["a", "a", "b", None, "b", "b"],
            "amount": [1, 2, 3, 4, 5, 6],
            "product": pa.array([1, 2, 1, 1, None, 1], pa.int32()),
        }
    )
    relation = ss.build_relation(table, tmp_path, key=["shop", "product"], partitions=3)
    assert relation.key == ("shop", "product")
    assert relation.manifest.null_keys_dropped == 2
    kept = table.filter(pa.array([True, True, True, False, False, True]))
    assert same_rows(read_back(relation), kept)
    stream = pa.table({"product": [1, 1, 2, None], "shop": ["a", "b", "b", "a"]})
    on = ["shop", "product"]
    out = ss.join(stream.to_batches(), relation, on=on, algorithm="meshjoin", memory="1MB")
    assert same_rows(pa.Table.from_batches(out), nested_loop_join(stream, table, on=on))


@pytest.mark.parametrize("dtype", [pa.int8(), pa.uint32(), pa.int64()], ids=str)
def test_an_integer_key_keeps_its_type(tmp_path: Path, dtype: pa.DataType) -> None:
    table = pa.table({"id": pa.array([1, 127], dtype)})
    relation = ss.build_relation(table, tmp_path, key="id")
    assert relation.schema.field("id").type == dtype
    stream = [pa.record_batch({"k": [127]})]
    out = ss.join(stream, relation, on={"k": "id"}, columns=["id"], algorithm="meshjoin")
    assert pa.Table.from_batches(out).schema.field("id").type == dtype


def test_a_source_is_read_once_and_lazily(tmp_path: Path) -> None:
    given_out = 0

    def batches() -> Iterator[pa.RecordBatch]:
        nonlocal given_out
        for i in range(5):
            given_out += 1
            yield pa.record_batch({"id": [i], "n": [i]})

    schema = pa.schema([("id", pa.int64()), ("n", pa.int64())])
    reader = pa.RecordBatchReader.from_batches(schema, batches())
    assert ss.build_relation(reader, tmp_path, key="id").row_count == 5
    assert given_out == 5
