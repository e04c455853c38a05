"""Conditions beside equal keys, for every algorithm, against DuckDB, which reads the same text."""

from dataclasses import replace
from functools import cache
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest

import semistream as ss
from semistream.relation.device import EmulatedDevice, Reading
from semistream.testing import nested_loop_join, same_rows
from tests.contract.pressure import HITS, expected_of, least_budget, seen, skewed, tight
from tests.oracle import duckdb_join
from tests.scratch import new_folder
from tests.workloads import Workload, check_against_oracle

# Each refers to columns of both sides, and holds for some candidates of most tuples only.
CONDITIONS = (
    "s.quantity >= r.number * 20",
    "s.quantity BETWEEN r.number - 100 AND r.number + 200",
    "NOT r.flag OR r.number > 3 AND s.note LIKE '%nn%'",
    "length(s.note) > length(r.word)",
    "r.number IS NULL OR r.number < -2",
    "coalesce(r.number, 0) + s.quantity / 10 > 4",
)


def cases(algorithm: str) -> list[tuple[Workload, float]]:
    small = [(tight(seed), (1.05, 1.3, 2.0)[seed % 3]) for seed in (0, 1, 4, 5)]
    large = [(skewed(seed), 4.0) for seed in (1,)]
    rows = {"cinlj": 900, "inlj": 900}.get(algorithm, 6_000)  # these read for each row
    large = [(replace(work, stream_rows=rows), factor) for work, factor in large]
    return [
        (replace(work, condition=CONDITIONS[i % len(CONDITIONS)], how=how), factor)
        for i, (work, factor) in enumerate(small + large)
        for how in [("inner", "left", "semi", "anti")[i * 7 // 3 % 4]]
    ]


def test_oracle_with_a_condition(algorithm: str) -> None:
    """Also where memory is short, and where the front stage has some rows of a key in it."""
    occurred: set[str] = set()
    for workload, factor in cases(algorithm):
        relation = workload.build(workload.tables()[1]).read_by(
            Reading(EmulatedDevice.named("ssd"))
        )
        least = least_budget(algorithm, workload, relation)
        assert least is not None
        operator = check_against_oracle(workload, relation, algorithm, int(least * factor))
        occurred |= seen(operator, relation, workload)
    assert HITS not in expected_of(algorithm) or HITS in occurred


@pytest.mark.parametrize("how", ["inner", "left", "semi", "anti"])
def test_a_tuple_is_a_miss_if_no_candidate_passes(algorithm: str, how: str) -> None:
    """Candidates on many pages, of which one passes, or none; the rest of the stream hits."""
    table = pa.table({"k": [1] * 90 + [2] * 90, "number": [*range(90)] * 2, "w": ["x"] * 180})
    stream = pa.table({"k": [1, 2, 1, 2, None, 3] * 40, "least": [89, 200, 95, 0, 1, 1] * 40})
    relation = ss.build_relation(table, new_folder(), key="k", partitions=2, page_size=200)
    condition = "s.least = r.number"
    options = {"how": how, "condition": condition, "memory": "2MB", "algorithm": algorithm}
    batches = stream.to_batches(max_chunksize=30)
    out = list(ss.join(batches, relation, **options))
    expected = nested_loop_join(
        stream, table, on="k", how=how, condition=lambda s, r: s["least"] == r["number"]
    )
    assert same_rows(pa.Table.from_batches(out, expected.schema), expected)


def test_texts_that_are_alike(algorithm: str) -> None:
    names = ["Müller", "Mueller", "Miller", "", None, "Möller GmbH", "Muller"]
    table = pa.table({"k": [1] * 7, "name": names})
    stream = pa.table({"k": [1] * 7 + [2], "customer": [*names[::-1], "Müller"]})
    relation = ss.build_relation(table, new_folder(), key="k", partitions=1)
    condition = ss.similar("customer", "name", by="edit", least=0.7)
    out = ss.join(
        stream, relation, condition=condition, how="inner", memory="2MB", algorithm=algorithm
    )
    expected = nested_loop_join(
        stream,
        table,
        on="k",
        how="inner",
        condition=lambda s, r: _likeness(s["customer"], r["name"]) >= 0.7,
    )
    assert same_rows(pa.Table.from_batches(out, expected.schema), expected)


def _likeness(a: str | None, b: str | None) -> float:
    """Edit distance by its definition."""
    if a is None or b is None:
        return 0.0

    @cache
    def distance(i: int, j: int) -> int:
        if not i or not j:
            return i + j
        changed = distance(i - 1, j - 1) + (a[i - 1] != b[j - 1])
        return min(changed, distance(i - 1, j) + 1, distance(i, j - 1) + 1)

    if abs(len(a) - len(b)) > 3:
        return 0.0
    return 1 - distance(len(a), len(b)) / max(len(a), len(b)) if a or b else 1.0


def test_the_version_that_was_valid(algorithm: str) -> None:
    """Versions with gaps and open ends, over several pages; events on every border."""
    stream, table = versions()
    validity = ("begins", "ends")
    relation = ss.build_relation(
        table, new_folder(), key="k", partitions=2, page_size=300, validity=validity
    )
    valid = "s.at IS NOT NULL AND (r.begins IS NULL OR s.at >= r.begins) "
    valid += "AND (r.ends IS NULL OR s.at < r.ends)"
    for how in ("inner", "left", "semi", "anti"):
        expected = duckdb_join(stream, table, on="k", how=how, condition=valid)
        assert expected.num_rows
        options = {"how": how, "memory": "2MB", "algorithm": algorithm}
        batches = stream.to_batches(max_chunksize=100)
        out = ss.join(batches, relation, valid_at="at", **options)
        assert same_rows(pa.Table.from_batches(out, expected.schema), expected)


def versions() -> tuple[pa.Table, pa.Table]:
    """Return events, and keys of one to nine versions; some keys have none, some events no key."""
    rng = np.random.default_rng(5)
    rows = []
    for key in range(60):
        borders = sorted(rng.choice(200, 10, replace=False).tolist())
        spans = [*pairwise(borders)][: 1 + key % 9]
        spans = [span for span in spans if rng.random() < 0.8]
        rows += [[key, *span] for span in spans]
        if spans and key % 3 == 0:
            rows[-1][2] = None
        if spans and key % 4 == 0:
            rows[-len(spans)][1] = None
    columns = list(zip(*rng.permutation(np.array(rows, object)).tolist(), strict=True))
    table = pa.table(dict(zip(("k", "begins", "ends"), columns, strict=True)))
    keys = pa.array(rng.integers(0, 64, 400), mask=rng.random(400) < 0.05)
    times = pa.array(rng.integers(-5, 205, 400), mask=rng.random(400) < 0.05)
    return pa.table({"k": keys, "at": times}), table.append_column("n", pa.array(range(len(rows))))
