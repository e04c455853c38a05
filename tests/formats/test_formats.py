"""Relations that earlier releases have written are read as they were."""

import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import semistream as ss
from semistream.relation.layout import FORMAT_VERSIONS, SHARING_VERSION
from semistream.testing import nested_loop_join, same_rows
from tests.formats.build_samples import FOLDER

NAMES = sorted(path.stem for path in FOLDER.glob("*.rel"))
KEYS = {"integer": ["id"], "text": ["name", "part"]}
ALGORITHMS = ("meshjoin", "chybridjoin", "resident")


@pytest.fixture(params=NAMES)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def relation(name: str, tmp_path: Path) -> ss.Relation:
    """A copy: nothing that a reader leaves beside the files may end up in the repository."""
    return ss.Relation.open(shutil.copytree(FOLDER / f"{name}.rel", tmp_path / "old.rel"))


@pytest.fixture
def table(name: str) -> pa.Table:
    return pq.read_table(FOLDER / f"{name.split('-')[-1]}.parquet")


def stream_for(table: pa.Table, key: list[str]) -> pa.Table:
    """Return each key twice, null ones included, and some that the relation does not have."""
    keys = table.select(key)
    known = pa.concat_tables([keys, keys[::2]])
    shifted = keys.set_column(0, key[0], keys[key[0]].combine_chunks()[::-1])
    stream = pa.concat_tables([known, shifted])
    return stream.append_column("n", pa.array(range(len(stream)), pa.int64()))


def test_every_version_is_here() -> None:
    assert {int(name[0]) for name in NAMES} == {*FORMAT_VERSIONS.values(), SHARING_VERSION}
    assert {name.split("-")[-1] for name in NAMES} == set(KEYS)


def test_it_opens(relation: ss.Relation, table: pa.Table, name: str) -> None:
    version = relation.manifest.format_version
    assert version == int(name[0])
    assert relation.schema.equals(table.schema)
    assert list(relation.key) == KEYS[name.split("-")[-1]]
    assert relation.row_count + relation.manifest.null_keys_dropped == len(table)
    assert relation.manifest.null_keys_dropped == 1
    assert any(info.delta for info in relation.manifest.partitions) == (version == SHARING_VERSION)
    hot_pages = sum(info.hot_pages for info in relation.manifest.partitions)
    assert (hot_pages > 0) == (version == 2)
    assert not relation.has_unique_keys


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("how", ["left", "inner"])
def test_it_is_joined(
    relation: ss.Relation, table: pa.Table, algorithm: str, how: str, name: str
) -> None:
    stream = stream_for(table, KEYS[name.split("-")[-1]])
    expected = nested_loop_join(stream, table, on=list(relation.key), how=how)
    batches = stream.to_batches(max_chunksize=50)
    out = ss.join(batches, relation, how=how, memory="3MB", algorithm=algorithm)
    assert same_rows(pa.Table.from_batches(out), expected)
    assert expected.num_rows > len(table)


def test_a_new_snapshot_can_be_built_beside_the_old_one(
    relation: ss.Relation, table: pa.Table
) -> None:
    new = ss.build_relation(table[:5], relation.location, key=list(relation.key))
    assert new.row_count == 5
    assert ss.Relation.open(relation.location, relation.snapshot).row_count == relation.row_count
