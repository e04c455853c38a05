"""Conditions without equal keys, against DuckDB, with so little memory that R is read often."""

import numpy as np
import pyarrow as pa
import pytest

import semistream as ss
from semistream.budget.split import Split
from semistream.errors import BudgetError, OptionError
from semistream.joins.streamjoin import JoinTask
from semistream.joins.thetajoin import ThetaJoin
from semistream.spec import resolve
from semistream.testing import nested_loop_join, same_rows
from tests.oracle import duckdb_join
from tests.scratch import new_folder

CONDITIONS = (
    "s.x BETWEEN r.low AND r.low + 3",
    "s.x >= r.low AND s.x < r.high AND y > 0.9",
    "s.x = r.high",
    "y > share AND y < share + 0.01",
    "x + 1 = low",
    "r.high < s.x AND share > 0.95",
    "s.name = r.word OR low = x",  # all tuples are candidates
    "x > 990 AND low > 990",
    "s.at >= begins AND s.at < ends",
    "NOT (x < low) AND x - low < 2",
)


@pytest.fixture(scope="module")
def tables() -> tuple[pa.Table, pa.Table]:
    rng = np.random.default_rng(1)

    def column(values: object, dtype: pa.DataType | None = None) -> pa.Array:
        return pa.array(values, dtype, mask=rng.random(len(values)) < 0.07)  # type: ignore[arg-type]

    n, m = 500, 500
    days = rng.integers(0, 1000, n).astype("datetime64[D]")
    relation = pa.table(
        {
            "k": rng.integers(10**12, 10**12 + 300, n),  # far from any code that tuples get
            "low": column(rng.integers(0, 1000, n)),
            "high": column(rng.integers(0, 1200, n), pa.int32()),
            "share": column(rng.random(n)),
            "word": column([f"name{i % 97}" for i in range(n)]),
            "begins": column(days),
            "ends": column(days + rng.integers(0, 30, n)),
        }
    )
    stream = pa.table(
        {
            "x": column(rng.integers(0, 1000, m)),
            "y": column(rng.random(m)),
            "name": column([f"name{i % 89}" * (1 + i % 2) for i in range(m)]),
            "at": column(rng.integers(0, 1000, m).astype("datetime64[D]")),
        }
    )
    return stream, relation


@pytest.fixture(scope="module")
def least(tables: tuple[pa.Table, pa.Table], relation: ss.Relation) -> int:
    options = {"on": [], "condition": CONDITIONS[0], "memory": 1}
    with pytest.raises(BudgetError) as raised:
        list(ss.join(tables[0], relation, **options))
    assert raised.value.least_bytes is not None
    return raised.value.least_bytes


@pytest.fixture(scope="module")
def relation(
    tables: tuple[pa.Table, pa.Table], tmp_path_factory: pytest.TempPathFactory
) -> ss.Relation:
    place = tmp_path_factory.mktemp("keys") / "r.rel"
    return ss.build_relation(tables[1], place, key="k", partitions=3, page_size=400)


@pytest.mark.parametrize("condition", CONDITIONS)
def test_as_duckdb(
    tables: tuple[pa.Table, pa.Table], relation: ss.Relation, least: int, condition: str
) -> None:
    stream, table = tables
    for i, how in enumerate(("inner", "left", "semi", "anti")):
        expected = duckdb_join(
            stream, table, on={}, how=how, condition=condition, columns=["k", "low"]
        )
        assert expected.num_rows
        spec = resolve(
            relation, stream.schema, on=[], how=how, columns=["k", "low"], condition=condition
        )
        memory, split = int(least * (1.2, 1.5, 3.0, 40.0)[i]), Split((13, 50, None, None)[i])
        operator = ThetaJoin(JoinTask(relation, spec, memory, split=split))
        batches = stream.to_batches(max_chunksize=77)
        out = pa.Table.from_batches(operator.join(batches), expected.schema)
        assert same_rows(out, expected)
        assert operator.ledger.peak_bytes <= memory
        if i == 0:
            settings = operator.plan.settings  # type: ignore[union-attr]
            assert settings.reads_per_cycle > 5  # type: ignore[union-attr]
            assert operator.telemetry.window_rows_peak <= settings.places  # type: ignore[union-attr]


@pytest.mark.parametrize("by", ["jaccard", "edit"])
def test_names_that_are_alike(by: str) -> None:
    names = ["Müller AG", "Mueller AG", "Meier", "Meyer", "Maier", "", None, "Hofmann", "Hoffmann"]
    stream = pa.table({"name": names, "n": range(len(names))})
    table = pa.table({"name": [*names, "aaaaaaa", "aaa"], "id": range(len(names) + 2)})
    relation = ss.build_relation(table, new_folder(), key="id", partitions=2)
    condition = ss.similar("name", by=by, least=0.5)  # type: ignore[arg-type]
    out = ss.join(stream, relation, on=[], condition=condition, columns=["id"], memory="2MB")
    alike = _jaccard if by == "jaccard" else _edit
    expected = nested_loop_join(
        stream,
        table,
        on=[],
        columns=["id"],
        condition=lambda s, r: (
            None not in (s["name"], r["name"]) and alike(s["name"], r["name"]) >= 0.5
        ),
    )
    assert same_rows(pa.Table.from_batches(out, expected.schema), expected)
    assert expected.num_rows > len(names)


def _jaccard(a: str, b: str) -> float:
    x, y = ({t[i : i + 3] for i in range(max(1, len(t) - 2))} for t in (a, b))
    return len(x & y) / len(x | y)


def _edit(a: str, b: str) -> float:
    row = list(range(len(b) + 1))
    for i, x in enumerate(a):
        new = [i + 1]
        for j, y in enumerate(b):
            new.append(min(row[j] + (x != y), row[j + 1] + 1, new[j] + 1))
        row = new
    return 1 - row[-1] / max(len(a), len(b), 1)


def test_no_rows() -> None:
    stream = pa.table({"x": pa.array([1, 2], pa.int64())})
    empty = pa.table({"k": pa.array([], pa.int64()), "low": pa.array([], pa.int64())})
    relation = ss.build_relation(empty, new_folder(), key="k")
    out = ss.join(stream, relation, on=[], condition="x > low", memory="1MB")
    assert pa.Table.from_batches(out).to_pylist() == [{"x": 1, "low": None}, {"x": 2, "low": None}]


def test_what_cannot_be(relation: ss.Relation, tables: tuple[pa.Table, pa.Table]) -> None:
    with pytest.raises(OptionError, match="pass a condition"):
        ss.join(tables[0], relation, on=[])
    with pytest.raises(OptionError, match="only meshjoin"):
        ss.join(tables[0], relation, on=[], condition="x = low", algorithm="hybridjoin")
    with pytest.raises(OptionError, match="cannot be ordered"):
        ss.join(tables[0], relation, on=[], condition="x = low", ordered="stream")
