"""Tuples on their way from one window to another keep their order, their age and their values."""

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import semistream as ss
from semistream.budget.rowsizes import Widths
from semistream.joins.handover import HandedOver
from semistream.joins.indexwindow import IndexWindow
from semistream.memory import MemoryLedger
from semistream.relation.pageindex import PageIndex

ROWS = 4_000
SCHEMA = pa.schema(
    {"k": pa.int64(), "n": pa.int64(), "text": pa.string(), "tags": pa.list_(pa.int8())}
)


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> PageIndex:
    table = pa.table({"k": np.arange(ROWS), "a": np.arange(ROWS)})
    folder = tmp_path_factory.mktemp("handover")
    relation = ss.build_relation(table, folder, key="k", partitions=1, page_size=800)
    index = PageIndex(relation.reader(["a"], None))
    assert index.page_count > 20
    return index


def rows(keys: Any) -> pa.RecordBatch:
    texts = [None if k % 7 == 0 else "x" * int(k % 50) for k in keys]
    tags = [None if k % 5 == 0 else [1] * int(k % 4) for k in keys]
    columns = {"k": keys, "n": np.arange(len(keys)), "text": texts, "tags": tags}
    return pa.RecordBatch.from_pydict(columns, schema=SCHEMA)


WIDTHS = Widths.of(rows(np.arange(350))).at_least([8, 8, 25, 12])


def window(index: PageIndex, capacity: int, b: int | None) -> IndexWindow:
    return IndexWindow(SCHEMA, capacity, WIDTHS, 0, index, 64, b)


def moved(old: IndexWindow, new: IndexWindow) -> HandedOver:
    ledger = MemoryLedger(1 << 30)
    handed_over = HandedOver.of(old, SCHEMA, WIDTHS, 0, ledger)
    copies = sum(batch.nbytes for batch in handed_over.batches)
    assert 4 * old.count + copies <= handed_over.memory.size_bytes < 3 * copies + 1_000
    handed_over.enter(new, lambda batch: batch["k"].to_numpy())
    assert new.count == old.count
    return handed_over


def pages_by_age(window: IndexWindow) -> list[int]:
    """Take the tuples of the oldest page out, until none wait; return the pages."""
    pages = []
    while window.count:
        pages.append(window.oldest_page())
        for taken in window.take(pages[-1], pages[-1] + 1):
            window.release(taken.slots)
    return pages


def test_values_and_the_order_of_pages_are_kept(index: PageIndex) -> None:
    keys = np.random.default_rng(1).permutation(ROWS)[:3_000]
    old, new = window(index, 3_500, None), window(index, 3_000, None)
    sent = rows(keys)
    assert old.room(sent) == len(sent)
    old.insert(sent, keys)
    moved(old, new)
    arrived = pa.Table.from_arrays(new.gather(new.in_order()), schema=SCHEMA)
    assert arrived.sort_by("k").equals(pa.Table.from_batches([sent]).sort_by("k"))
    assert pages_by_age(new) == pages_by_age(old)


@pytest.mark.parametrize("b", [1, 2, 3, 6])
def test_ages_are_kept_in_loads_of_any_size(index: PageIndex, b: int) -> None:
    """Loads of two pages, of which that of page 9 is the oldest by far."""
    old, new = window(index, 100, 2), window(index, 100, b)
    first = int(index.first_codes[9])
    old.insert(rows(np.array([first])), np.array([first]))
    assert old.urgent_page(10**6) == 9
    for _ in range(30):  # loads that resolve other tuples
        old.urgent_page(10**6)
    others = index.first_codes[np.repeat([1, 15, 20], 5)].astype(np.int64)
    old.insert(rows(others), others)
    old.urgent_page(10**6)  # these loads were seen now
    moved(old, new)
    assert new.urgent_page(10**6) == 9, "one tuple that has waited long, against five"
    age = new.ages.loads - int(new.ages.since[9 // b])
    assert age * b == pytest.approx(31 * 2, abs=2 * b)


def test_a_window_without_ages_gives_none(index: PageIndex) -> None:
    old, new = window(index, 100, None), window(index, 100, 2)
    old.insert(rows(np.arange(50)), np.arange(50))
    moved(old, new)
    assert not new.ages.since.any()
