"""Every pair of options of `join`: it runs, exactly and in its budget, or says why it cannot."""

from datetime import date, timedelta
from itertools import combinations
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import semistream as ss
from semistream.embedded import prepare
from semistream.errors import OptionError
from tests.scratch import new_folder

START = date(2024, 1, 1)
# More than the join is told to expect: no row is shed, and every weight is 1.
KEEPS_ALL = ss.shedding("uniform", capacity=1e9)
OPTIONS: dict[str, dict[str, Any]] = {
    "condition": {"condition": "s.quantity >= r.least"},
    "valid_at": {"valid_at": "sold_on"},
    "ordered": {"ordered": "stream"},
    "shed": {"shed": KEEPS_ALL, "rate": 1_000.0},
    "rate": {"rate": 1_000.0},
    "latency": {"rate": 1_000.0, "latency": "50ms"},
    "front_stage": {"algorithm": "meshjoin", "front_stage": True},
    "settings": {"algorithm": "meshjoin", "settings": {"disk_buffer": 4_000}},
    "cache_policy": {"algorithm": "chybridjoin", "settings": {"cache_policy": "paper"}},
    "no keys": {"on": [], "condition": "s.quantity >= r.least"},
    "offline": {"algorithm": "offline"},
}
# Pairs that name two algorithms are no pair.
OTHERS = [
    pair
    for pair in combinations(OPTIONS, 2)
    if len({o["algorithm"] for o in map(OPTIONS.__getitem__, pair) if "algorithm" in o}) < 2
]
REFUSED = {
    ("ordered", "settings"): "settings and ordered cannot go together",
    ("ordered", "cache_policy"): "settings and ordered cannot go together",
    ("ordered", "no keys"): "cannot be ordered",
    ("ordered", "offline"): "its output cannot be ordered",
    ("shed", "offline"): "offline reads the whole stream",
    ("rate", "front_stage"): "for algorithm='auto'",
    ("rate", "settings"): "for algorithm='auto'",
    ("rate", "cache_policy"): "for algorithm='auto'",
    ("rate", "offline"): "for algorithm='auto'",
    ("ordered", "latency"): "latency and ordered cannot go together",
    ("shed", "latency"): "latency and shed cannot go together",
    ("latency", "front_stage"): "latency needs rate.* and algorithm='auto'",
    ("latency", "settings"): "latency needs rate.* and algorithm='auto'",
    ("latency", "cache_policy"): "latency needs rate.* and algorithm='auto'",
    ("latency", "no keys"): "leave latency out",
    ("latency", "offline"): "latency needs rate.* and algorithm='auto'",
    ("front_stage", "no keys"): "finds rows by their keys",
    ("cache_policy", "no keys"): "finds rows by their keys",
    ("no keys", "offline"): "finds rows by their keys",
}


@pytest.fixture(scope="module")
def tables() -> tuple[pa.Table, pa.Table]:
    """Two versions of each key, one after the other, and a stream with keys that R has not."""
    rng = np.random.default_rng(4)
    keys = np.repeat(np.arange(300), 2)
    since = [START if i % 2 == 0 else START + timedelta(50) for i in range(600)]
    until = [START + timedelta(50) if i % 2 == 0 else None for i in range(600)]
    least = rng.integers(0, 9, 600)
    relation = pa.table(
        {"k": keys, "v": np.arange(600), "least": least, "since": since, "until": until}
    )
    rows = 900
    sold = [START + timedelta(int(d)) for d in rng.integers(0, 100, rows)]
    stream = {"k": rng.integers(0, 330, rows), "quantity": rng.integers(0, 9, rows)}
    return pa.table({**stream, "sold_on": sold, "n": np.arange(rows)}), relation


@pytest.fixture(scope="module")
def relation(tables: tuple[pa.Table, pa.Table]) -> ss.Relation:
    about: dict[str, Any] = {"validity": ("since", "until"), "page_size": 600}
    return ss.build_relation(tables[1], new_folder(), key="k", partitions=2, **about)


def expected(tables: tuple[pa.Table, pa.Table], options: dict[str, Any]) -> list[tuple[int, Any]]:
    """Return (number of the stream row, v of R) of a left join, by two loops."""
    stream, relation = (table.to_pylist() for table in tables)
    found: list[tuple[int, Any]] = []
    for s in stream:
        matches = [
            r["v"]
            for r in relation
            if (options.get("on") == [] or s["k"] == r["k"])
            and ("condition" not in options or s["quantity"] >= r["least"])
            and (
                "valid_at" not in options
                or (
                    r["since"] <= s["sold_on"] and (r["until"] is None or s["sold_on"] < r["until"])
                )
            )
        ]
        found += [(s["n"], v) for v in matches or [None]]
    return sorted(found, key=str)


def merged(names: tuple[str, ...]) -> dict[str, Any]:
    """Return several options together."""
    options: dict[str, Any] = {}
    for name in names:
        settings = {**options.get("settings", {}), **OPTIONS[name].get("settings", {})}
        options |= OPTIONS[name] | ({"settings": settings} if settings else {})
    return options


@pytest.mark.parametrize("pair", OTHERS, ids="+".join)
def test_a_pair(
    tables: tuple[pa.Table, pa.Table], relation: ss.Relation, pair: tuple[str, str]
) -> None:
    options = merged(pair)
    memory = 2_000_000
    about: dict[str, Any] = {"columns": ["v"], "memory": memory, **options}
    if pair in REFUSED:
        with pytest.raises(OptionError, match=REFUSED[pair]):
            prepare(tables[0], relation, **about)
        return
    operator, batches = prepare(tables[0], relation, **about)
    assert operator is not None
    joined = pa.Table.from_batches(operator.join(batches))
    rows = list(zip(joined["n"].to_pylist(), joined["v"].to_pylist(), strict=True))
    assert sorted(rows, key=str) == expected(tables, options)
    if "ordered" in options:
        assert joined["n"].to_pylist() == sorted(joined["n"].to_pylist())
    if "shed" in options:
        assert set(joined["weight"].to_pylist()) == {1.0}
    assert operator.telemetry.memory_bytes_peak <= memory


def test_every_option_that_can_go_together(
    tables: tuple[pa.Table, pa.Table], relation: ss.Relation
) -> None:
    """In a budget that is little more than the least: exact, in order, and within it."""
    options = merged(("condition", "valid_at", "ordered", "shed", "front_stage"))
    memory = 600_000
    operator, batches = prepare(tables[0], relation, columns=["v"], memory=memory, **options)
    assert operator is not None
    joined = pa.Table.from_batches(operator.join(batches))
    rows = list(zip(joined["n"].to_pylist(), joined["v"].to_pylist(), strict=True))
    assert sorted(rows, key=str) == expected(tables, options)
    assert joined["n"].to_pylist() == sorted(joined["n"].to_pylist())
    assert operator.telemetry.memory_bytes_peak <= memory
