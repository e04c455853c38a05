"""Shedding, for every algorithm: the rows that are kept are joined, with the right weights."""

import warnings
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import semistream as ss
from semistream.embedded import prepare
from semistream.errors import BudgetError, ColumnError, OptionError
from semistream.joins.shedding import POLICIES, KeepRare, Numbers, Uniform, thinning
from semistream.relation.device import EmulatedDevice, Reading
from semistream.testing import same_rows
from tests.contract.pressure import skewed, tight
from tests.oracle import duckdb_join
from tests.scratch import new_folder


def test_the_rows_that_are_kept_are_joined(algorithm: str) -> None:
    if algorithm == "offline":
        pytest.skip("it reads the whole stream before it joins")
    cases = [
        ("uniform", replace(tight(0), how="left", run_rows=0, stream_rows=300), 1.0),
        ("uniform", replace(tight(1), how="anti", run_rows=0, stream_rows=300), 2.0),
        ("keep-rare", replace(skewed(1), how="inner", run_rows=0, stream_rows=2_500), 1.5),
    ]
    for policy, work, factor in cases:
        stream, table = work.tables()
        relation = work.build(table)
        aside: list[pa.RecordBatch] = []
        shed = ss.shedding(policy, capacity=50, seed=7, weight="w", aside=aside.append)
        options = {"on": work.on, "how": work.how, "algorithm": algorithm, "rate": 100}
        options |= {"shed": shed}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with pytest.raises(BudgetError) as raised:
                list(ss.join(stream, relation, memory=1, **options))
        assert raised.value.least_bytes is not None
        memory = int(raised.value.least_bytes * factor)
        aside.clear()
        operator, batches = prepare(work.batches(stream), relation, memory=memory, **options)
        assert operator is not None
        with pytest.warns(UserWarning, match="50% of the rows are shed"):
            out = pa.Table.from_batches(operator.join(batches))
        gone = pa.Table.from_batches(aside)["quantity"]
        kept = stream.filter(pc.invert(pc.is_in(stream["quantity"], gone)))
        assert kept.num_rows + len(gone) == stream.num_rows
        if policy == "uniform":
            kept = kept.append_column("w", pa.array([2.0] * kept.num_rows))
        else:
            assert out["w"].to_numpy().min() == 1 < out["w"].to_numpy().max()
            out = out.drop_columns("w")
        assert same_rows(out, duckdb_join(kept, table, on=work.on, how=work.how))
        counted = operator.telemetry
        assert (counted.shed_rows, counted.stream_rows) == (len(gone), kept.num_rows)
        assert operator.ledger.peak_bytes <= memory
        assert counted.memory_bytes_peak <= memory


@pytest.mark.parametrize("policy", POLICIES)
def test_sums_and_counts_are_unbiased(policy: str) -> None:
    """Over many seeds; and the usual interval of each run has the truth as often as it says."""
    rng = np.random.default_rng(5)
    shares = 1 / np.arange(1, 3_001)
    keys = rng.choice(3_000, 20_000, p=shares / shares.sum()).astype(np.int64)
    values = rng.integers(1, 100, len(keys)).astype(float)
    rare = np.bincount(keys, minlength=3_000)[keys] <= 5
    truths = np.array([len(keys), values.sum(), values[rare].sum()])
    runs = []
    within = 0
    for seed in range(150):
        weights = thinning(ss.shedding(policy), 2 << 20).weights(
            Numbers(seed).next(len(keys)), keys, 0.25
        )
        sums = [weights.sum(), (weights * values).sum(), (weights * values)[rare].sum()]
        runs.append(sums)
        kept = weights[weights > 0]
        deviation = np.sqrt((kept * (kept - 1) * values[weights > 0] ** 2).sum())
        within += abs(sums[1] - truths[1]) <= 1.96 * deviation
    means, errors = np.mean(runs, axis=0), np.std(runs, axis=0) / np.sqrt(len(runs))
    assert (np.abs(means - truths) <= 4 * errors + 1e-9).all(), (means, truths, errors)
    assert 0.88 <= within / len(runs) <= 0.99


def test_rare_keys_are_kept_and_the_share_is_met() -> None:
    rng = np.random.default_rng(6)
    keys = np.where(rng.random(60_000) < 0.8, 1, rng.integers(10, 4_000, 60_000))
    made = KeepRare(2 << 20)
    weights = made.weights(Numbers(3).next(len(keys)), keys, 0.4)
    late = np.arange(len(keys)) > 2_000  # by the first rows the frequencies become known
    assert (weights[late & (keys != 1)] == 1).mean() > 0.99
    assert abs((weights[late] > 0).mean() - 0.4) < 0.02
    assert made.size_bytes <= (2 << 20) // 32 + 8_192
    uniform = Uniform().weights(Numbers(3).next(len(keys)), None, 0.4)
    assert abs((uniform[keys != 1] > 0).mean() - 0.4) < 0.02


def test_a_run_is_repeated_however_the_stream_is_cut() -> None:
    rng = np.random.default_rng(8)
    table = pa.table({"k": np.arange(500), "v": np.arange(500)})
    relation = ss.build_relation(table, new_folder(), key="k", partitions=1)
    stream = pa.table({"k": np.minimum(rng.zipf(1.3, 9_000), 500), "n": np.arange(9_000)})
    for policy in POLICIES:
        found = []
        for rows, seed in ((9_000, 1), (700, 1), (700, 2)):
            shed = ss.shedding(policy, capacity=1, seed=seed)
            with pytest.warns(UserWarning, match="67% of the rows are shed"):
                out = pa.Table.from_batches(
                    ss.join(
                        stream.to_batches(max_chunksize=rows),
                        relation,
                        rate=3,
                        shed=shed,
                        how="left",
                    )
                )
            found.append(out.select(["n", "weight"]).sort_by("n"))
        assert found[0].equals(found[1])
        assert not found[0].equals(found[2])


@pytest.mark.parametrize("factor", [0.5, 3.0])
def test_the_service_rate_is_measured(factor: float) -> None:
    """On an emulated disk, whose time is counted: rows are shed only if too many arrive."""
    rng = np.random.default_rng(9)
    table = pa.table({"k": np.arange(20_000), "v": [f"{i:050d}" for i in range(20_000)]})
    relation = ss.build_relation(table, new_folder(), key="k", partitions=1, page_size=4_096)
    stream = pa.table({"k": rng.integers(0, 20_000, 120_000), "n": np.arange(120_000)})
    options = {"algorithm": "meshjoin", "memory": "400KB"}

    def run(**more: object) -> tuple[pa.Table, float]:
        device = EmulatedDevice.named("ssd")
        read = relation.read_by(Reading(device))
        out = ss.join(stream.to_batches(max_chunksize=4_000), read, **options, **more)
        return pa.Table.from_batches(out), device.now_s

    out, seconds = run(
        shed=ss.shedding("uniform", capacity=9), rate=1
    )  # as much memory, no shedding
    rate = factor * out.num_rows / seconds
    if factor < 1:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert run(shed="uniform", rate=rate)[0].num_rows == out.num_rows
        return
    with pytest.warns(UserWarning, match="rows are shed"):
        kept, _ = run(shed="uniform", rate=rate)
    late = pc.greater(kept["n"], 60_000)  # the first tuples fill the window, without a read
    assert pc.sum(late).as_py() / 60_000 == pytest.approx(1 / factor, rel=0.2)
    assert pc.sum(kept["weight"].filter(late)).as_py() == pytest.approx(60_000, rel=0.05)


def test_what_makes_no_sense_is_refused() -> None:
    relation = ss.build_relation(pa.table({"k": [1], "v": [2]}), new_folder(), key="k")
    stream = pa.table({"k": [1], "weight": [1.0]})

    def refused(error: type[Exception], match: str, **options: object) -> None:
        with pytest.raises(error, match=match):
            ss.join(stream, relation, **options)

    refused(OptionError, "shed needs rate", shed="uniform")
    refused(OptionError, "Did you mean 'uniform'", shed="unifrom", rate=1)
    refused(OptionError, "offline reads", shed="uniform", rate=1, algorithm="offline")
    refused(ColumnError, "pass shed=semistream.shedding", shed="uniform", rate=1)
    refused(OptionError, "compares no keys", shed="keep-rare", rate=1, on=[], condition="s.k = r.v")
    refused(
        OptionError, "aside=True is for enrich", shed=ss.shedding("uniform", aside=True), rate=1
    )
    with pytest.raises(OptionError, match="capacity must be positive"):
        ss.shedding("uniform", capacity=0)
