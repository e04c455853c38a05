"""Emulated devices: what they charge, and that the ways of reading differ only in effort."""

import os

import numpy as np
import pyarrow as pa
import pytest

import semistream as ss
from semistream.embedded import prepare
from semistream.errors import OptionError
from semistream.joins.registry import ALGORITHMS, BOUNDS
from semistream.relation.device import BufferPool, EmulatedDevice, Reading
from semistream.relation.disk import Disk
from semistream.testing import same_rows
from tests.oracle import duckdb_join

N_ROWS = 3_000


@pytest.fixture(scope="module")
def table() -> pa.Table:
    rng = np.random.default_rng(2)
    words = pa.array([None if i % 9 == 0 else "w" * (i % 7) for i in range(N_ROWS)])
    return pa.table({"k": rng.permutation(N_ROWS), "v": np.arange(N_ROWS), "word": words})


@pytest.fixture(scope="module")
def relation(table: pa.Table, tmp_path_factory: pytest.TempPathFactory) -> ss.Relation:
    return ss.build_relation(
        table, tmp_path_factory.mktemp("r"), key="k", partitions=1, page_size=1_000
    )


@pytest.fixture(scope="module")
def stream() -> pa.Table:
    rng = np.random.default_rng(4)
    keys = np.minimum(rng.zipf(1.1, 5_000), 2 * N_ROWS)
    return pa.table({"k": keys, "n": np.arange(len(keys))})


def test_a_request_costs_seek_and_transfer() -> None:
    device = EmulatedDevice("test", seek_s=0.01, bytes_per_s=1000, request_s=0.001)
    device.read("a", 0, 500)
    assert device.now_s == pytest.approx(0.01 + 0.5 + 0.001)
    device.read("a", 500, 100)  # goes on where it ended
    assert device.now_s == pytest.approx(0.511 + 0.1 + 0.001)
    device.read("b", 600, 100)  # another file
    device.read("b", 0, 100)  # back again
    assert (device.seeks, device.requests, device.bytes_read) == (3, 4, 800)


def test_what_was_announced_is_served_meanwhile() -> None:
    computed = 0.0
    device = EmulatedDevice("test", 0.0, 1000, computed_s=lambda: computed)
    device.announce("a", 0, 500)
    computed = 0.3
    device.read("a", 0, 500)
    assert device.waited_s == pytest.approx(0.2)
    device.announce("a", 500, 100)
    computed = 1.0
    device.read("a", 500, 300)  # more than was announced: the rest is served now
    assert device.waited_s == pytest.approx(0.4)
    assert device.bytes_read == 800


def test_unknown_device() -> None:
    with pytest.raises(OptionError, match="Did you mean 'hdd-2007'"):
        EmulatedDevice.named("hdd-2006")


@pytest.mark.parametrize("algorithm", [a for a in ALGORITHMS if a not in BOUNDS])
def test_ways_of_reading_give_the_same_rows(
    relation: ss.Relation, stream: pa.Table, table: pa.Table, algorithm: str
) -> None:
    expected = stream.join(table, "k", join_type="left outer").select(["k", "n", "word"])
    bytes_read = {}
    for whole_pages in (False, True):
        for read_ahead in (False, True):
            device = EmulatedDevice.named("hdd-2007")
            reading = Reading(device, read_ahead=read_ahead, whole_pages=whole_pages)
            operator, batches = prepare(
                stream[:600].to_batches() if algorithm.endswith("inlj") else stream.to_batches(),
                relation.read_by(reading),
                columns=["word"],
                memory=300_000,
                algorithm=algorithm,
            )
            assert operator is not None
            out = pa.Table.from_batches(operator.join(batches))
            want = expected.filter(pa.compute.less(expected["n"], out.num_rows))
            assert same_rows(out, want)
            assert operator.ledger.peak_bytes <= 300_000
            assert device.waited_s > 0
            bytes_read[whole_pages, read_ahead] = operator.telemetry.bytes_read
    if algorithm != "lookup":  # it reads what it needs in any case
        assert bytes_read[True, False] > bytes_read[False, False]


def test_a_run_on_an_emulated_device_can_be_repeated(
    relation: ss.Relation, stream: pa.Table
) -> None:
    clocks = []
    for _ in range(2):
        device = EmulatedDevice.named("hdd-2011")
        handle = relation.read_by(Reading(device))
        list(ss.join(stream.to_batches(), handle, memory=300_000, algorithm="chybridjoin"))
        clocks.append((device.now_s, device.seeks, device.bytes_read))
    assert clocks[0] == clocks[1]


def test_on_a_seeking_disk_the_papers_order_holds(tmp_path: object) -> None:
    """Skewed stream, 5 % of R: each of the papers' steps is a gain on the disk of their time.

    Scaled down; on the device's clock alone, so the figures are the same everywhere.
    """
    rows = 200_000
    rng = np.random.default_rng(8)
    table = pa.table({"k": rng.permutation(rows), **{f"c{i}": np.arange(rows) for i in range(5)}})
    relation = ss.build_relation(table, tmp_path, key="k", partitions=1, page_size="16KB")  # type: ignore[arg-type]
    from semistream.workload.zipf import scatter, zipf_ranks

    keys = scatter(zipf_ranks(rng, 600_000, rows, 1.0), rows)
    stream = pa.table({"k": keys, "n": np.arange(len(keys), dtype=np.int32)})
    by_key = np.argsort(table["k"].to_numpy())  # where each key's row lies, which is c0
    rates = {}
    for algorithm in ("inlj", "meshjoin", "hybridjoin", "cmeshjoin", "chybridjoin"):
        device = EmulatedDevice.named("hdd-2007")
        some = stream[:500] if algorithm == "inlj" else stream
        budget = int(relation.size_bytes * 0.05)
        handle = relation.read_by(Reading(device))
        options = {"columns": ["c0"], "memory": budget, "algorithm": algorithm}
        out = pa.Table.from_batches(ss.join(some.to_batches(), handle, **options)).sort_by("n")
        assert out["k"].equals(some["k"])
        assert out["c0"].to_numpy().tolist() == by_key[some["k"].to_numpy()].tolist()
        rates[algorithm] = some.num_rows / device.now_s
    assert rates["meshjoin"] > 10 * rates["inlj"]
    assert rates["hybridjoin"] > rates["meshjoin"]
    assert rates["cmeshjoin"] > 1.5 * rates["meshjoin"]
    assert rates["chybridjoin"] > rates["hybridjoin"]


def test_a_smaller_device_reads_less_as_fast() -> None:
    """What a request costs besides its bytes shrinks with the data; or else the bandwidth does."""
    full, small = EmulatedDevice.named("hdd-papers"), EmulatedDevice.named("hdd-papers").shrunk(10)
    slow = EmulatedDevice.named("hdd-papers").slowed(10)
    full.read("f", 0, 1_000_000)
    for device in (small, slow):
        device.read("f", 0, 100_000)
    assert small.now_s == pytest.approx(full.now_s / 10)
    assert slow.now_s == pytest.approx(full.now_s)


def test_rows_are_charged_as_rows(relation: ss.Relation, stream: pa.Table) -> None:
    requests = {}
    for as_rows in (False, True):
        device = EmulatedDevice.named("hdd-2007")
        handle = relation.read_by(Reading(device, whole_pages=True, as_rows=as_rows))
        list(ss.join(stream.to_batches(), handle, memory=300_000, algorithm="meshjoin"))
        requests[as_rows] = device.requests
    assert requests[True] < requests[False]


def test_reading_past_the_page_cache_gives_the_same_rows(
    relation: ss.Relation, stream: pa.Table, table: pa.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    dropped: list[tuple[int, int]] = []
    advise = os.posix_fadvise

    def watched(fd: int, offset: int, size: int, advice: int) -> None:
        if advice == os.POSIX_FADV_DONTNEED:
            dropped.append((offset, size))
        advise(fd, offset, size, advice)

    monkeypatch.setattr(Disk, "advise", staticmethod(watched))
    handle = relation.read_by(Reading(uncached=True))
    options = {"memory": 300_000, "algorithm": "hybridjoin"}
    found = pa.Table.from_batches(ss.join(stream.to_batches(), handle, **options))
    assert same_rows(found, duckdb_join(stream, table, on="k"))
    assert dropped
    assert all(offset % 4096 == 0 and size > 0 for offset, size in dropped)


def test_a_pool_keeps_what_was_read_last() -> None:
    device = EmulatedDevice("test", seek_s=1.0, bytes_per_s=1e6)
    device.pool = BufferPool(20)
    for offset in (0, 10, 0, 20, 0, 10):  # 10 was evicted by 20, since 0 had been used after it
        device.read("r", offset, 10)
    assert device.requests == 4


def test_one_cost_for_all_requests_and_other_seek_times() -> None:
    one, two = EmulatedDevice.named("hdd-one-cost"), EmulatedDevice.named("hdd-papers")
    for device in (one, two):
        device.read("r", 0, 800)
        device.read("r", 800, 800)
    assert one.waited_s == pytest.approx(two.waited_s + 0.008)  # the second continues the first
    assert EmulatedDevice.named("hdd-papers:seek=2.5ms").seek_s == 0.0025
    with pytest.raises(OptionError, match="another seek time if it ends in :seek=2ms"):
        EmulatedDevice.named("hdd-papers:seek=2")
