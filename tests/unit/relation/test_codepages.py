"""The pages of single codes, as a bitmap and sorted: both find what a dictionary finds."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import semistream as ss
from semistream.relation.codepages import CodePages, Form, Run
from semistream.relation.pageindex import PageIndex
from semistream.relation.reader import PageReader

ROWS = 4_000


def runs(codes: np.ndarray) -> list[Run]:
    """Three runs of codes that differ, each ascending, on pages that tell them apart."""
    parts = [np.sort(codes[i::3]) for i in range(3)]
    return [(part, (part % 50_000 + 7).astype(np.int32)) for part in parts]


@pytest.mark.parametrize(
    ("first", "step", "is_bitmap"),
    [
        (0, 1, True),
        (-5_000, 3, True),
        (2**40, 11, True),
        (-9, 1_000, False),
        (-(2**62), 2**49, False),
    ],
)
def test_the_smaller_form_is_taken_and_its_size_is_known(
    first: int, step: int, is_bitmap: bool
) -> None:
    codes = first + np.random.default_rng(1).permutation(ROWS) * step
    form = Form((int(codes.min()), int(codes.max())), 60_000, ROWS)
    assert form.is_bitmap == is_bitmap
    found = CodePages.merged(runs(codes), form)
    assert bool(len(found.ranks)) == is_bitmap
    size = sum(array.nbytes for array in (found.codes, found.pages, found.bits, found.ranks))
    assert size <= form.size_bytes <= 13 * ROWS
    order = np.sort(codes)
    assert found.pages.tolist() == (order % 50_000 + 7).tolist()


@pytest.mark.parametrize("order", ["key", "frequency"])
@pytest.mark.parametrize(("first", "step"), [(-100, 1), (5, 100_003), (-(2**61), 2**48)])
def test_codes_are_found_where_their_rows_are(
    tmp_path: Path, first: int, step: int, order: str
) -> None:
    """Clustered, hot and delta pages; the oracle scans all of them."""
    rng = np.random.default_rng(5)
    keys = first + np.arange(ROWS) * step
    table = pa.table({"k": keys, "v": keys})
    options: dict[str, Any] = {"partitions": 3, "page_size": 1_000}
    if order == "frequency":
        sample = pa.table({"k": np.repeat(keys[::7], 3)})
        options |= {"order": order, "sample": sample}
    built = ss.build_relation(table, tmp_path / "r.rel", key="k", **options)
    changed = rng.choice(keys[1:-1], ROWS // 5, replace=False)
    relation = built.upsert(pa.table({"k": changed, "v": changed + 1}))
    reader = relation.reader(["v"], None)
    index = PageIndex(reader)
    assert reader.listed_form.is_bitmap == (step == 1)
    pages = {}
    for page in range(reader.page_count):
        begin, end = reader.row_bounds[page : page + 2].tolist()
        codes = np.empty(end - begin, np.int64)
        reader.read_codes(page, page + 1, codes)
        for row, code in zip(range(begin, end), codes.tolist(), strict=True):
            if not len(reader.dead) or not reader.dead[row >> 3] >> (row & 7) & 1:
                pages[code] = page
    assert len(pages) == ROWS
    assert index.pages(keys).tolist() == [pages[key] for key in keys.tolist()]
    check_split(reader, pages, rng)
    around = np.array([first - 1, first - 64, keys[-1] + 1, keys[-1] + 900])
    assert (index.pages(around) < reader.page_count).all(), (
        "codes that R does not have are harmless"
    )
    reader.close()


def check_split(reader: PageReader, pages: dict[int, int], rng: np.random.Generator) -> None:
    """A code's bit says on which kind of page it is, and any range of pages is split by kind."""
    clustered = {p for a, b in reader.partition_page_bounds().tolist() for p in range(a, b)}
    bits = reader.listed_bits()
    assert (bits is not None) == reader.listed_form.is_bitmap
    if bits is not None:
        assert bits.bits.nbytes == reader.listed_form.bits_bytes
        for code, page in pages.items():
            number = code - int(bits.base)
            is_listed = int(bits.bits[number // 64]) >> number % 64 & 1
            assert is_listed == (page not in clustered)
    for _ in range(50):
        first, last = sorted(rng.choice(reader.page_count + 1, 2, replace=False).tolist())
        parts = list(reader.split_listed(first, last))
        kinds = {p: listed for a, b, listed in parts for p in range(a, b)}
        assert sum(b - a for a, b, _ in parts) == last - first
        assert kinds == {p: p not in clustered for p in range(first, last)}
