"""`Relation.verify`: damage is found wherever it is, and so are rows in a wrong place."""

import json
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import semistream as ss
from semistream.relation import layout, verify
from semistream.relation.layout import PartitionInfo

ROWS = 600
TABLE = pa.table(
    {
        "id": np.arange(ROWS) // 2,  # each key twice
        "text": [f"text {i}" if i % 5 else None for i in range(ROWS)],
        "tags": [["a"] * (i % 3) for i in range(ROWS)],
    }
)
SAMPLE = pa.table({"id": np.repeat(np.arange(20), 50)})


@pytest.fixture
def relation(tmp_path: Path) -> ss.Relation:
    return ss.build_relation(TABLE, tmp_path / "r.rel", key="id", partitions=2, page_size="1KB")


@pytest.fixture
def by_frequency(tmp_path: Path) -> ss.Relation:
    options = {"order": "frequency", "sample": SAMPLE, "page_size": "500B"}
    relation = ss.build_relation(TABLE, tmp_path / "f.rel", key="id", partitions=2, **options)
    assert relation.hot_page_count > 2
    return relation


@pytest.fixture(params=[1, 3_000, 8 << 20], ids=["page by page", "some pages", "all at once"])
def _chunks(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verify, "_CHUNK_BYTES", request.param)


@pytest.mark.usefixtures("_chunks")
@pytest.mark.parametrize("which", ["relation", "by_frequency"])
def test_intact(request: pytest.FixtureRequest, which: str) -> None:
    relation = request.getfixturevalue(which)
    seen: list[tuple[int, int]] = []
    result = relation.verify(lambda done, total: seen.append((done, total)))
    assert result
    assert result.problems == []
    assert (result.row_count, result.page_count) == (ROWS, relation.page_count)
    assert seen[-1] == (relation.size_bytes, relation.size_bytes)
    assert seen == sorted(seen)


@pytest.mark.parametrize("kind", ["codes", "data", "pages"])
def test_damage_is_named_and_the_rest_is_still_read(relation: ss.Relation, kind: str) -> None:
    assert relation.verify(), "this process has now checked all pages"
    damaged = []
    for path in (Path(relation.location) / "snapshots" / relation.snapshot).glob(f"*.{kind}"):
        content = bytearray(path.read_bytes())
        content[len(content) // 2] ^= 16
        path.write_bytes(content)
        damaged.append(path.name)
    result = relation.verify()
    assert not result
    assert len(result.problems) == len(damaged) == 2
    for name in damaged:
        assert any(name in problem for problem in result.problems), name
    assert all(f"rebuild snapshot {relation.snapshot}" in p for p in result.problems)


def test_a_missing_file_is_named(relation: ss.Relation) -> None:
    folder = Path(relation.location) / "snapshots" / relation.snapshot
    (folder / "part-00001-0.data").unlink()
    (problem, *_) = relation.verify().problems
    assert "part-00001-0.data is missing" in problem


def tampered(
    relation: ss.Relation, change: Callable[[np.ndarray, list[int]], None], **info: int
) -> ss.Relation:
    """Change the codes of partition 0 as a wrong build would: with checksums that match."""
    folder = Path(relation.location) / "snapshots" / relation.snapshot
    path = folder / "part-00000-0.codes"
    codes = np.frombuffer(path.read_bytes(), np.int64).copy()
    pages_path = folder / "part-00000-0.pages"
    pages = pa.ipc.open_file(pages_path.read_bytes()).read_all()
    hot = relation.manifest.partitions[0].hot_pages
    order = np.roll(np.arange(pages.num_rows), -hot)  # hot pages are last in the file
    rows = pages["rows"].to_numpy()
    ends = np.cumsum(rows[order])
    starts = [int(start) for start in ends - rows[order]]
    change(codes, starts)
    path.write_bytes(codes.tobytes())
    checksums = np.empty(len(rows), np.uint32)
    for place, (start, end) in enumerate(zip(starts, ends, strict=True)):
        checksums[order[place]] = zlib.crc32(codes[start:end].tobytes())
    index = pages.schema.get_field_index("codes.checksum")
    pages = pages.set_column(index, pages.schema.field(index), pa.array(checksums))
    with pa.ipc.new_file(pages_path, pages.schema) as file:
        file.write_table(pages.combine_chunks())
    return rewritten(relation, page_table_checksum=zlib.crc32(pages_path.read_bytes()), **info)


def rewritten(relation: ss.Relation, **info: int) -> ss.Relation:
    """Change the manifest's entry of partition 0, and its checksum."""
    path = Path(relation.location) / "snapshots" / relation.snapshot / "manifest.json"
    body = json.loads(path.read_text())
    body["partitions"][0] |= info
    del body["checksum"]
    path.write_text(json.dumps({**body, "checksum": layout._checksum(body)}))
    return ss.Relation.open(relation.location)


def swap_in_a_page(codes: np.ndarray, starts: list[int]) -> None:
    at = starts[1] + 2
    codes[at], codes[at + 2] = codes[at + 2], codes[at]


def swap_pages(codes: np.ndarray, starts: list[int]) -> None:
    """The last row of page 0 and the first of page 1."""
    at = starts[1]
    codes[at], codes[at - 1] = codes[at - 1], codes[at]
    assert codes[at] != codes[at - 1]


def other_partition(codes: np.ndarray, _: list[int]) -> None:
    codes[-1] += 1


def other_first_code(codes: np.ndarray, starts: list[int]) -> None:
    codes[starts[1] : starts[1] + 2] += 2


@pytest.mark.usefixtures("_chunks")
@pytest.mark.parametrize(
    ("change", "message"),
    [
        (swap_in_a_page, "page 1 of partition 0 is not in the order of its key codes"),
        (swap_pages, "page 1 of partition 0 is not in the order of its key codes"),
        (other_partition, "of partition 0 has rows of other partitions"),
        (other_first_code, "page 1 of partition 0 does not begin with the key code"),
    ],
)
def test_codes_in_a_wrong_place(
    relation: ss.Relation, change: Callable[[np.ndarray, list[int]], None], message: str
) -> None:
    result = tampered(relation, change).verify()
    assert any(message in problem for problem in result.problems), result.problems
    assert not any("checksum" in problem for problem in result.problems)


@pytest.mark.usefixtures("_chunks")
def test_rows_that_the_hot_index_does_not_find(by_frequency: ss.Relation) -> None:
    def change(codes: np.ndarray, _: list[int]) -> None:
        codes[-1] += 1_000  # on the last hot page

    problems = tampered(by_frequency, change).verify().problems
    assert any("has rows that the hot index does not find" in p for p in problems), problems


@pytest.mark.usefixtures("_chunks")
def test_hot_rows_on_a_clustered_page(by_frequency: ss.Relation) -> None:
    def change(codes: np.ndarray, _: list[int]) -> None:
        codes[0] = 0  # the key of a hot row

    problems = tampered(by_frequency, change).verify().problems
    assert any("has rows that belong on a hot page" in p for p in problems), problems


@pytest.mark.parametrize("name", ["distinct_codes", "first_code", "last_code"])
def test_numbers_that_are_not_the_manifests(relation: ss.Relation, name: str) -> None:
    info: PartitionInfo = relation.manifest.partitions[0]
    problems = rewritten(relation, **{name: getattr(info, name) - 1}).verify().problems
    assert len(problems) == 1
    assert "was written down" in problems[0]
