"""Refresh, upsert, compact, restore: what each writes, and what it leaves alone."""

import logging
import os
import threading
import time
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import semistream as ss
from semistream.errors import (
    ColumnError,
    OptionError,
    RelationNotFoundError,
    StaleRelationError,
    WriteConflictError,
)
from semistream.relation import change, pins, upsert
from semistream.relation.differences import changed_codes
from semistream.relation.leases import turn
from semistream.relation.pins import pin_snapshot, pinned_snapshots
from semistream.relation.staleness import Staleness

ROWS = 2_000


def rows(ids: range | list[int], text: str = "old") -> pa.Table:
    return pa.table({"id": list(ids), "text": [f"{text} {i}" for i in ids]})


@pytest.fixture
def relation(tmp_path: Path) -> ss.Relation:
    table = rows(range(ROWS))
    return ss.build_relation(table, tmp_path / "r.rel", key="id", partitions=2, page_size=1000)


def content(relation: ss.Relation, algorithm: str = "auto") -> dict[int, str]:
    """Return what a join finds for all keys."""
    stream = pa.table({"id": range(-5, ROWS + 50)})
    about = {"how": "inner", "memory": "8MB", "algorithm": algorithm}
    found = pa.Table.from_batches(ss.join(stream, relation, **about))
    return dict(zip(found["id"].to_pylist(), found["text"].to_pylist(), strict=True))


def folder(relation: ss.Relation, snapshot: str | None = None) -> Path:
    return Path(relation.location) / "snapshots" / (snapshot or relation.snapshot)


def test_an_upsert_writes_only_what_changed(relation: ss.Relation) -> None:
    new = relation.upsert(rows([4, ROWS + 2], "new"))
    assert new.row_count == ROWS + 1
    assert content(new)[4] == "new 4"
    assert content(new)[ROWS + 2] == f"new {ROWS + 2}"
    assert content(relation)[4] == "old 4", "the old snapshot stays as it was"
    # Both keys are even: the other partition is not touched.
    names = {path.name.split("-")[1] for path in folder(new).glob("part-*")}
    assert names == {"00000"}
    assert sum(path.stat().st_size for path in folder(new).iterdir()) < 20_000
    untouched = new.manifest.partitions[1]
    assert (untouched.home, untouched.delta) == (relation.snapshot, None)
    assert new.verify()


def test_segments_stay_few_and_are_folded_in(relation: ss.Relation) -> None:
    new = relation
    for i in range(30):
        new = new.upsert(rows([2 * i, 2 * i + 1], f"new {i}"))
        sizes = [[s.row_count for s in p.segments[1:]] for p in new.manifest.partitions]
        assert all(a > b for part in sizes for a, b in pairwise(part))
        assert all(len(part) <= 6 for part in sizes)
    assert new.delta_share > 0
    many = new.upsert(rows(range(0, ROWS, 3), "many"))  # more than FOLD_SHARE of each partition
    assert many.delta_share == 0
    assert all(p.delta is None for p in many.manifest.partitions)
    assert content(many)[3] == "many 3"
    assert content(many)[1] == "new 0 1"


def test_compact(relation: ss.Relation) -> None:
    assert relation.compact().snapshot == relation.snapshot, "there is nothing to do"
    changes = rows([1, 5, 7], "new").append_column("gone", [[False, True, False]])
    new = relation.upsert(changes, deletes="gone")
    compacted = new.compact()
    assert content(compacted) == content(new)
    assert 5 not in content(new)
    assert (compacted.delta_share, compacted.row_count) == (0, ROWS - 1)
    # Keys 1, 5 and 7 are odd: the other partition is not written anew.
    assert compacted.manifest.partitions[0].home == relation.snapshot
    assert compacted.verify()


def test_all_rows_of_a_partition_go_and_come_back(relation: ss.Relation) -> None:
    gone = rows(range(0, ROWS, 2)).append_column("gone", [[True] * (ROWS // 2)])
    new = relation.upsert(gone, deletes="gone")
    assert new.row_count == ROWS // 2
    empty = new.compact()
    assert empty.manifest.partitions[0].row_count == 0
    again = empty.upsert(rows([10], "back"))
    assert content(again)[10] == "back 10"
    assert again.row_count == ROWS // 2 + 1


def test_a_key_whose_rows_fill_several_delta_pages(relation: ss.Relation) -> None:
    new = relation.upsert(pa.concat_tables([rows([6] * 200, "new"), rows([8, 4])]))
    stream = pa.table({"id": [6, 6, 4, 8]})
    for algorithm in ("hybridjoin", "inlj", "lookup", "meshjoin", "xhybridjoin", "resident"):
        out = ss.join(stream, new, how="inner", memory="3MB", algorithm=algorithm)
        assert sum(batch.num_rows for batch in out) == 402, algorithm


@pytest.mark.parametrize(
    ("changes", "deletes", "said"),
    [
        ({"id": [1]}, None, "'text' is missing"),
        ({"id": [1], "text": ["a"], "n": [1]}, None, "'n' is not a column of the relation"),
        ({"id": [1], "text": [2]}, None, "'text' is int64 where the relation has string"),
        ({"id": [1], "text": ["a"], "gone": [1]}, "gone", "must be boolean; it is int64"),
        ({"id": [1], "text": ["a"]}, "gnoe", "no column 'gnoe' that marks deletions"),
    ],
)
def test_changes_that_do_not_fit(
    relation: ss.Relation, changes: dict[str, list[object]], deletes: str | None, said: str
) -> None:
    with pytest.raises(ColumnError, match=said):
        relation.upsert(pa.table(changes), deletes=deletes)
    assert relation.snapshots() == [relation.snapshot]


def test_a_null_mark_deletes_nothing(relation: ss.Relation) -> None:
    marks = pa.array([None, True, False])
    new = relation.upsert(rows([1, 2, 3], "new").append_column("gone", marks), deletes="gone")
    found = content(new)
    assert (found[1], found.get(2), found[3]) == ("new 1", None, "new 3")


def test_rows_without_a_key_are_left_out(relation: ss.Relation) -> None:
    new = relation.upsert(pa.table({"id": [None, 3], "text": ["a", "b"]}))
    assert (new.row_count, new.manifest.null_keys_dropped) == (ROWS, 1)


def test_the_slower_writer_is_refused_and_loses_nothing(
    relation: ss.Relation, monkeypatch: pytest.MonkeyPatch
) -> None:
    apply = upsert.apply_changes

    def be_slow(*args: object) -> object:
        monkeypatch.setattr(change, "apply_changes", apply)
        relation.upsert(rows([1], "faster"))
        return apply(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(change, "apply_changes", be_slow)
    with pytest.raises(WriteConflictError, match=r"another writer was faster.*run it again"):
        relation.upsert(rows([1], "slower"))
    current = ss.Relation.open(relation.location)
    assert content(current)[1] == "faster 1"
    assert len(relation.snapshots()) == len(list(folder(relation).parent.iterdir())) == 2
    assert content(current.upsert(rows([1], "slower")))[1] == "slower 1"


def test_writers_take_turns(relation: ss.Relation) -> None:
    """Threads of one process have leases of their own: they exclude each other as well."""
    inside, most = [0], [0]

    def commit() -> None:
        for _ in range(5):
            with turn(relation.store):
                inside[0] += 1
                most[0] = max(most[0], inside[0])
                time.sleep(0.002)
                inside[0] -= 1

    threads = [threading.Thread(target=commit) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == [1]
    assert not (Path(relation.location) / "leases" / "commit").exists()


def test_refresh_keeps_what_the_build_was_given(tmp_path: Path) -> None:
    sample = pa.table({"id": [7, 7, 7, 9, 9]})
    table = rows(range(100))
    options = {"order": "frequency", "sample": sample, "page_size": 700, "partitions": 3}
    old = ss.build_relation(table, tmp_path / "r.rel", key="id", **options)  # type: ignore[arg-type]
    new = old.refresh(rows(range(50), "new"))
    assert (new.order, new.partition_count, new.manifest.page_bytes) == ("frequency", 3, 700)
    assert new.reader([]).hot_codes.tolist() == old.reader([]).hot_codes.tolist() == [7, 9]
    assert new.history()[-1].origin.parent == old.snapshot
    # Changed hot rows are found on delta pages, and are hot again once they are folded in.
    # With so many changed keys their index is a bitmap, in which a key has one place.
    changed = new.refresh(table).upsert(rows([7, *range(20, 35)], "hot"))
    assert {p.delta.code_count for p in changed.manifest.partitions if p.delta} == {5, 6}
    for algorithm in ("resident", "hybridjoin", "lookup"):  # the last two look pages up by code
        assert content(changed, algorithm)[7] == "hot 7"
    assert changed.verify()
    compacted = changed.compact()
    assert compacted.reader([]).hot_codes.tolist() == [7, 9]
    assert content(compacted)[7] == "hot 7"
    assert compacted.verify()
    wider = new.refresh(rows([1]).append_column("more", [[2.5]]))
    assert wider.schema.names == ["id", "text", "more"]


def test_as_of_and_restore(relation: ss.Relation) -> None:
    between = datetime.now(UTC)
    new = relation.upsert(rows([1], "new"))
    old = ss.Relation.open(relation.location, as_of=between)
    assert old.snapshot == relation.snapshot
    assert ss.Relation.open(relation.location, as_of=str(datetime.now())).snapshot == new.snapshot
    with pytest.raises(RelationNotFoundError, match="the oldest that is kept is from"):
        ss.Relation.open(relation.location, as_of=between - timedelta(days=1))
    with pytest.raises(OptionError, match="either snapshot"):
        ss.Relation.open(relation.location, new.snapshot, as_of=between)
    with pytest.raises(OptionError, match="as_of must be a time"):
        ss.Relation.open(relation.location, as_of="yesterday")
    again = old.restore()
    assert ss.Relation.open(relation.location).snapshot == again.snapshot
    assert content(again)[1] == "old 1"
    assert [s.origin.operation for s in again.history()] == ["build", "upsert", "restore"]


def test_prune_leaves_shared_files(relation: ss.Relation) -> None:
    new = relation.upsert(rows([1], "new"))
    pruned = new.prune(grace=0)
    assert pruned.removed == [relation.snapshot]
    assert new.snapshots() == [new.snapshot]
    assert new.verify()
    assert [s.is_complete for s in new.info().snapshots] == [False, True]
    assert "pruned" in str(new.info())
    new.upsert(rows([2], "newer"))  # a writer removes what killed ones have left, but not these
    current = ss.Relation.open(relation.location).compact()
    current = current.refresh(rows([1]))
    removed = current.prune(grace=0)
    assert removed.freed_bytes > 50_000
    assert [path.name for path in folder(current).parent.iterdir()] == [current.snapshot]


def test_pins(relation: ss.Relation, monkeypatch: pytest.MonkeyPatch) -> None:
    store = relation.store
    assert pin_snapshot(store, "q", 0) == relation.snapshot
    new = relation.upsert(rows([1]))
    assert pin_snapshot(store, "q", 0) == relation.snapshot, "a repeated micro-batch"
    assert pin_snapshot(store, "q", 1) == new.snapshot
    assert pin_snapshot(store, "other", 0) == new.snapshot
    assert "q read it" in new.prune(grace=0).kept[relation.snapshot].replace("query ", "")
    for batch in range(2, 15):
        pin_snapshot(store, "q", batch)
    assert len(store.names(f"{pins.PINS}/q")) == 11
    assert set(pinned_snapshots(store, time.time())) == {new.snapshot}
    newest = new.upsert(rows([2]))
    assert new.snapshot in newest.prune(grace=0).kept
    monkeypatch.setattr(pins, "PIN_S", -1.0)  # all queries were stopped long ago
    assert set(newest.prune(grace=0).removed) == {new.snapshot}
    assert not store.names(pins.PINS)


def test_a_damaged_delta_is_found(relation: ss.Relation) -> None:
    new = relation.upsert(rows([4], "new"))
    path = next(folder(new).glob("*.delta"))
    image = bytearray(path.read_bytes())
    image[len(image) // 2] ^= 1
    path.write_bytes(image)
    problems = new.verify().problems
    assert len(problems) == 1
    assert "delta" in problems[0]


def test_staleness(relation: ss.Relation, caplog: pytest.LogCaptureFixture) -> None:
    Staleness.of("10min", "stop").check(relation)
    time.sleep(0.02)
    with pytest.raises(StaleRelationError, match=r"max_staleness allows 0 seconds. Refresh it"):
        Staleness.of(0.01, "stop").check(relation)
    with caplog.at_level(logging.WARNING):
        Staleness.of(0.01, "warn").check(relation)
        Staleness.of(0.01, "warn").check(relation)
    assert len(caplog.records) == 1, "once for each snapshot"
    with pytest.raises(OptionError, match="on_stale must be one of warn, stop"):
        Staleness.of("1h", "stopp")
    with pytest.raises(OptionError, match="such as '50ms', '30s'"):
        Staleness.of("soon", "warn")


def test_reading_again_checks_only_what_is_new(relation: ss.Relation) -> None:
    """Files that snapshots share are compared with their checksums once by a process."""
    content(relation)
    new = relation.upsert(rows([4], "new"))
    reader = new.reader(["text"])
    part = reader.part("codes")
    assert part is not None
    base_pages = relation.manifest.partitions[0].page_count
    assert part.checked[:base_pages].all()
    assert not part.checked.all()
    reader.close()


def test_a_large_upsert_is_spooled_and_read_in_pieces(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upsert, "_CHUNK_ROWS", 50)
    monkeypatch.setattr("semistream.relation.build.SPOOL_BYTES", 5_000)
    monkeypatch.setattr("semistream.relation.pagerows._CHUNK_BYTES", 3_000)
    rng = np.random.default_rng(os.getpid() % 7)
    ids = rng.permutation(ROWS).tolist()
    old = ss.build_relation(rows(ids), tmp_path / "r.rel", key="id", partitions=2, page_size=1000)
    some = ids[:300]
    new = old.upsert(rows(some, "new")).upsert(rows(some[:20], "newer"))
    found = content(new)
    assert [found[i] for i in some[:20]] == [f"newer {i}" for i in some[:20]]
    assert [found[i] for i in some[20:]] == [f"new {i}" for i in some[20:]]
    assert found == content(new.compact())


def test_which_keys_changed(relation: ss.Relation) -> None:
    """What did not change between two snapshots may be kept in caches."""
    gone = rows([8, 10, 12], "new").append_column("gone", [[True, False, False]])
    first = relation.upsert(gone, deletes="gone")
    second = first.upsert(rows([12, 90_000], "newer"))
    assert changed_codes(relation, first, 0).tolist() == [8, 10, 12]  # type: ignore[union-attr]
    assert changed_codes(relation, first, 1).tolist() == []  # type: ignore[union-attr]
    since = changed_codes(first, second, 0)
    assert since is not None
    assert {12, 90_000} <= set(since.tolist()) <= {10, 12, 90_000}, (
        "taken up with the newer segment"
    )
    both = changed_codes(relation, second, 0)
    assert both is not None
    assert both.tolist() == [8, 10, 12, 90_000]
    back = changed_codes(second, relation, 0)
    assert back is not None
    assert back.tolist() == [8, 10, 12, 90_000], "it can be compared both ways"
    assert changed_codes(relation, second.compact(), 0) is None
