"""Versions of a key at build time, against every instant looked at one by one."""

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import semistream as ss
from semistream.errors import BuildError, ColumnError, OptionError
from semistream.relation.validity import with_whole_versions

Version = tuple[int | None, int | None, int]  # begin, end, its row


def built(
    rows: list[tuple[Any, ...]], batch_rows: int, **policies: Any
) -> dict[Any, list[Version]]:
    """Return the corrected versions by key; the code is the key's first letter: codes collide."""
    rows = sorted(rows, key=lambda row: row[0][0])
    table = pa.table(
        {
            "k": pa.array([row[0] for row in rows]),
            "begins": pa.array([row[1] for row in rows], pa.timestamp("us")),
            "ends": pa.array([row[2] for row in rows], pa.timestamp("us")),
            "n": pa.array([row[3] for row in rows]),
        }
    )
    codes = np.array([ord(row[0][0]) for row in rows], np.int64)
    pieces = (
        (codes[i : i + batch_rows], table[i : i + batch_rows].combine_chunks().to_batches()[0])
        for i in range(0, len(rows), batch_rows)
    )
    found: dict[Any, list[Version]] = {}
    seen = []
    for some, batch in with_whole_versions(
        pieces, ss.validity("begins", "ends", **policies), ["k"]
    ):
        seen += some.tolist()
        numbers = batch.set_column(1, "begins", batch["begins"].cast(pa.int64()))
        numbers = numbers.set_column(2, "ends", numbers["ends"].cast(pa.int64()))
        for row in numbers.to_pylist():
            found.setdefault(row["k"], []).append((row["begins"], row["ends"], row["n"]))
    assert seen == sorted(seen)
    assert policies.get("overlapping") == "cut" or len(seen) == len(rows)
    return found


def valid(versions: list[Version], at: int) -> list[int]:
    return [
        n
        for begin, end, n in versions
        if (begin is None or at >= begin) and (end is None or at < end)
    ]


def generated(seed: int) -> list[tuple[Any, ...]]:
    rng = np.random.default_rng(seed)
    rows = []
    for i in range(40):
        begin, length = rng.integers(0, 30), rng.integers(-1, 12)
        ends: list[Any] = [int(begin), int(begin + length)]
        if rng.random() < 0.1:
            ends[rng.integers(0, 2)] = None
        rows.append((["ab", "ac", "b", "c"][rng.integers(0, 4)], *ends, i))
    return rows


@pytest.mark.parametrize("batch_rows", [1, 7, 100])
@pytest.mark.parametrize("seed", range(4))
def test_cut_leaves_the_version_that_began_last(seed: int, batch_rows: int) -> None:
    rows = generated(seed)
    found = built(rows, batch_rows, overlapping="cut")
    kept = built(rows, batch_rows, overlapping="keep")
    for key, versions in found.items():
        assert {n for *_, n in versions} <= {row[3] for row in rows if row[0] == key}
        ever = [v for v in kept[key] if v[0] is None or v[1] is None or v[0] < v[1]]
        began = sorted(ever, key=lambda v: -1 if v[0] is None else v[0])
        for at in range(-2, 45):
            last = [v for v in began if v[0] is None or v[0] <= at][-1:]
            assert valid(versions, at) == valid(last, at), (key, at)


@pytest.mark.parametrize("seed", range(4))
def test_extend_leaves_no_gap(seed: int) -> None:
    found = built(generated(seed), 7, overlapping="cut", missing="extend")
    for versions in found.values():
        for at in range(-2, 45):
            assert len(valid(versions, at)) == 1


def test_overlaps_are_refused_with_the_key() -> None:
    rows = [("a", 1, 5, 0), ("a", 4, 9, 1)]
    with pytest.raises(BuildError, match=r"two versions of k='a'.*overlapping='cut'"):
        built(rows, 10)
    built([("a", 1, 5, 0), ("a", 5, 9, 1), ("b", 4, 9, 1), ("a", 4, 4, 3)], 10)  # these touch


def test_a_relation_keeps_its_validity(tmp_path: Path) -> None:
    table = pa.table({"k": [1], "begins": [1], "ends": [None]})
    with pytest.raises(ColumnError, match="one type"):
        ss.build_relation(table, tmp_path / "r", key="k", validity=("begins", "ends"))
    table = table.set_column(2, "ends", pa.array([9]))
    with pytest.raises(ColumnError, match="Did you mean 'begins'"):
        ss.build_relation(table, tmp_path / "r", key="k", validity=("begin", "ends"))
    with pytest.raises(OptionError, match="two columns"):
        ss.build_relation(table, tmp_path / "r", key="k", validity=["begins"])
    with pytest.raises(OptionError, match="Did you mean 'cut'"):
        ss.validity("begins", "ends", overlapping="cutt")  # type: ignore[arg-type]
    ss.build_relation(table, tmp_path / "r", key="k", validity=("begins", "ends"))
    opened = pickle.loads(pickle.dumps(ss.Relation.open(tmp_path / "r")))
    assert opened.manifest.validity == ss.validity("begins", "ends")


def test_valid_at_needs_versions(tmp_path: Path) -> None:
    relation = ss.build_relation(pa.table({"k": [1], "v": [1]}), tmp_path / "r", key="k")
    with pytest.raises(OptionError, match="built with validity="):
        ss.join(pa.table({"k": [1], "at": [1]}), relation, valid_at="at")


def test_versions_stay_when_the_relation_changes(tmp_path: Path) -> None:
    """An upsert, a compaction and a refresh keep them, and look at the rows that they write."""
    times = pa.array([0, 5, 0], pa.timestamp("us"))
    ends = pa.array([5, None, None], pa.timestamp("us"))
    table = pa.table({"k": [1, 1, 2], "begins": times, "ends": ends, "n": [10, 11, 20]})
    relation = ss.build_relation(table, tmp_path / "r.rel", key="k", validity=("begins", "ends"))
    sales = pa.table({"k": [1, 1, 2], "at": pa.array([1, 6, 7], pa.timestamp("us"))})

    def joined(relation: ss.Relation) -> list[int]:
        found = ss.join(sales, relation, on="k", valid_at="at", columns=["n"], memory="2MB")
        return sorted(pa.Table.from_batches(found)["n"].to_pylist())

    assert joined(relation) == [10, 11, 20]
    changed = table[2:].set_column(3, "n", pa.array([21]))
    relation = relation.upsert(changed)
    assert joined(relation) == [10, 11, 21]
    assert joined(relation.compact()) == [10, 11, 21]
    twice = pa.concat_tables([changed, changed])
    with pytest.raises(BuildError, match="valid at the same time"):
        relation.upsert(twice)
    refreshed = relation.refresh(table)
    assert joined(refreshed) == [10, 11, 20]
    with pytest.raises(BuildError, match="valid at the same time"):
        refreshed.refresh(pa.concat_tables([table, table]))
