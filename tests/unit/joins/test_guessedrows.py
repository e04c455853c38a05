"""Rows found by a guess: exact wherever a code is on its page, and fewer bytes are read."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

import semistream as ss
from semistream.embedded import prepare
from semistream.joins import lookup_kernels as kernels
from semistream.joins.guessedrows import GuessedRows
from semistream.joins.telemetry import Telemetry
from semistream.relation.mapped import MappedFile

ROWS = 120_000
RNG = np.random.default_rng(5)
KEYS = {
    "without gaps": np.arange(ROWS),
    "with a gap of two": np.arange(ROWS) * 3,
    "at random": np.sort(RNG.choice(1 << 50, ROWS, replace=False)),
    "in clumps": np.cumsum(np.where(RNG.random(ROWS) < 0.001, 1 << 30, 1)),
    "negative, too": (np.arange(ROWS) - ROWS // 2) * (1 << 40),
}


def joined(stream: pa.Table, relation: ss.Relation) -> tuple[pa.Table, Telemetry]:
    options: dict[str, Any] = {"on": "k", "algorithm": "lookup", "memory": "2MB"}
    operator, batches = prepare(stream, relation, **options)
    assert operator is not None
    found = pa.Table.from_batches(list(operator.join(batches)))
    return found.sort_by("n"), operator.telemetry


@pytest.fixture
def guesses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The share of the requests that each guess has found a row for, or that R has none."""
    shares: list[float] = []
    find = GuessedRows.find

    def counted(self: GuessedRows, requests: Any, rows: NDArray[np.int64]) -> None:
        find(self, requests, rows)
        shares.append(float((rows != -2).mean()))

    monkeypatch.setattr(GuessedRows, "find", counted)
    # In large pages of the page cache, rows would be looked at where they lie.
    monkeypatch.setattr(MappedFile, "small_share", lambda *_: 1.0)
    return shares


@pytest.mark.parametrize("partitions", [1, 3])
@pytest.mark.parametrize("keys", KEYS)
def test_the_same_rows_as_by_whole_pages(
    tmp_path: Path, guesses: list[float], keys: str, partitions: int
) -> None:
    """Keys that R has and keys next to them, when pages have been compared with their checksums."""
    table = pa.table({"k": KEYS[keys], "v": np.arange(ROWS)})
    about: dict[str, Any] = {"key": "k", "page_size": 4_096, "partitions": partitions}
    relation = ss.build_relation(table, tmp_path / "r.rel", **about)
    rng = np.random.default_rng(6)
    some = KEYS[keys][rng.permutation(ROWS)[:60]]
    requested = np.concatenate([some, some + 1, some - 1])[rng.permutation(180)[:60]]
    stream = pa.table({"k": requested, "n": np.arange(60)})
    whole, before = joined(stream, relation)
    assert not guesses
    again, after = joined(stream, relation)
    assert guesses
    expected = dict(zip(KEYS[keys].tolist(), range(ROWS), strict=True))
    assert again["v"].to_pylist() == [expected.get(k) for k in requested.tolist()]
    assert again == whole
    assert after.bytes_read < before.bytes_read
    if keys != "in clumps":
        assert min(guesses) > 0.9


def test_codes_on_two_rows_are_not_guessed(tmp_path: Path, guesses: list[float]) -> None:
    """The second row of a key might lie behind what was read."""
    keys = np.repeat(np.arange(ROWS // 2), 2)
    table = pa.table({"k": keys, "v": np.arange(ROWS)})
    relation = ss.build_relation(table, tmp_path / "r.rel", key="k", page_size=4_096)
    stream = pa.table({"k": np.arange(0, ROWS // 2, 3_000), "n": np.arange(20)})
    for _ in range(2):
        found, _counted = joined(stream, relation)
        assert found.num_rows == 40
    assert not guesses


@given(
    st.lists(st.integers(-(2**62), 2**62), min_size=70, max_size=200, unique=True),
    st.lists(st.integers(-(2**62), 2**62), max_size=20),
    st.integers(65, 69),
)
@settings(deadline=None, max_examples=60)
def test_a_guess_is_right_or_not_known(codes: list[int], others: list[int], page: int) -> None:
    """On pages of any codes: the row, that there is none, or that more has to be read."""
    ordered = np.sort(np.array(codes, np.int64))
    bounds = np.array([0, page, len(ordered)])
    first_codes, offsets = ordered[bounds[:2]], 8 * bounds[:2]
    requested = np.array([c for c in [*codes, *others] if first_codes[0] <= c < first_codes[1]])
    if not len(requested):
        return
    indexes, rows = np.zeros(len(requested), np.int32), np.zeros(len(requested), np.int64)
    at = np.empty(len(requested), np.int64)
    about = (requested, indexes, np.array([0]))
    table = (bounds, first_codes, offsets, 64)
    kernels.guess_offsets(*about, np.array([True]), *table, at, rows)
    assert ((at >= 0) & (at // 8 + 64 <= page)).all()
    read = np.concatenate([ordered[start : start + 64] for start in (at // 8).tolist()])
    kernels.find_guessed(read, *about, *table, at, rows)
    for code, row in zip(requested.tolist(), rows.tolist(), strict=True):
        place = int(np.searchsorted(ordered, code))
        is_there = ordered[place] == code
        assert row in (-2, place if is_there else -1)


def test_more_requests_than_a_block_has(
    tmp_path: Path, guesses: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each block has its own pages, and all rows come out."""
    monkeypatch.setattr("semistream.joins.lookupwindow.BLOCK", 16)
    table = pa.table({"k": np.arange(ROWS), "v": np.arange(ROWS) * 2})
    relation = ss.build_relation(table, tmp_path / "r.rel", key="k", page_size=4_096, partitions=1)
    stream = pa.table({"k": np.arange(500, ROWS, 2_000), "n": np.arange(60)})
    for _ in range(2):
        found, _counted = joined(stream, relation)
        assert found["v"].to_pylist() == [2 * k for k in stream["k"].to_pylist()]
    assert len(guesses) == 4
