"""The papers' equations: against their own figures where they state any, and against arithmetic."""

from dataclasses import replace

import numpy as np
import pytest

from semistream.cost.demand import Demand
from semistream.lab.equations import cmeshjoin, hybridjoin, inlj, meshjoin, xhybridjoin
from semistream.lab.equations.symbols import Symbols

ROWS = 3_500_000
PAGES = ROWS * 120 / 8192


def disk(pages: float) -> float:
    """A 7200 rpm disk: 8 ms and 80 MB/s."""
    return 0.008 + pages * 8192 / 80e6


PAPER = Symbols(PAGES, disk, expire_s=1e-6, read_s=1e-6, append_s=2e-6, probe_s=1e-7, output_s=1e-6)


def test_memory_and_window_are_inverse() -> None:
    for b in (5.0, 113.5, 800.0):
        w = meshjoin.window_entry(PAPER, 20e6, b)
        assert meshjoin.memory(PAPER, w, b) == pytest.approx(20e6)


def test_the_window_is_what_memory_leaves() -> None:
    """By hand: b = 100 pages of 8192, v_S = 20, f = 4.8, pointers of 4; N_R/b = 512.7."""
    reads = PAGES / 100
    per_tuple = 20 + reads * 4 + reads * 4.8 * 20
    assert meshjoin.window_entry(PAPER, 20e6, 100) == pytest.approx((20e6 - 819_200) / per_tuple)


def test_loop_cost_adds_all_six_terms() -> None:
    rows = 10 * 8192 / 120
    expected = disk(10) + 7 * (1e-6 + 1e-6 + 2e-6) + rows * 1e-7 + rows * 1e-6
    assert meshjoin.loop_cost(PAPER, 7, 10) == pytest.approx(expected)
    assert meshjoin.service_rate(PAPER, 7, 10) == pytest.approx(7 / expected)
    assert meshjoin.pages_per_tuple(7, 10) == pytest.approx(10 / 7)
    assert meshjoin.pages_per_second(PAPER, 7, 10) == pytest.approx(10 / expected)


def test_least_window_just_keeps_up() -> None:
    w = meshjoin.least_window_entry(PAPER, 5_000, 100)
    assert meshjoin.service_rate(PAPER, w, 100) == pytest.approx(5_000)
    assert meshjoin.keeps_up(PAPER, 5_000, w * 1.001, 100)
    assert not meshjoin.keeps_up(PAPER, 5_000, w * 0.999, 100)
    assert meshjoin.least_window_entry(PAPER, 1e7, 100) == float("inf")


def test_memory_for_a_rate_has_a_minimum_inside() -> None:
    """Figure 5a."""
    sizes = [meshjoin.least_memory(PAPER, 5_000, b) for b in np.geomspace(2, 2_000, 40)]
    best = int(np.argmin(sizes))
    assert 0 < best < 39
    assert sizes[0] > 1.5 * sizes[best] < sizes[-1]


@pytest.mark.parametrize("megabytes", [20, 40, 80, 160, 320])
def test_best_disk_buffer_beats_all_others(megabytes: int) -> None:
    """Figure 5b, and figure 6 of the second paper: the optimum grows with the memory."""
    memory = megabytes * 1e6
    best = meshjoin.service_rate_for(PAPER, memory, meshjoin.best_disk_buffer(PAPER, memory))
    for b in np.geomspace(1, memory / 8192 * 0.9, 60):
        assert meshjoin.service_rate_for(PAPER, memory, b) <= best * 1.0001


def test_default_disk_buffer_loses_little() -> None:
    """`meshjoin-default-settings.txt`: within a few percent from 20 to 320 MB.

    For a scan that need not seek far: with 8 ms a request it would lose 14 % already at 40 MB.
    """
    scan = replace(PAPER, io_s=lambda pages: 0.0005 + pages * 8192 / 80e6)
    default = meshjoin.DEFAULT_DISK_BUFFER_BYTES / 8192
    for megabytes in (20, 40, 80, 160, 320):
        memory = megabytes * 1e6
        best = meshjoin.service_rate_for(scan, memory, meshjoin.best_disk_buffer(scan, memory))
        assert meshjoin.service_rate_for(scan, memory, default) > 0.95 * best


def test_inlj_reads_a_page_for_each() -> None:
    assert inlj.service_rate(Symbols(PAGES, disk)) == pytest.approx(1 / disk(1))
    assert inlj.service_rate(Symbols(PAGES, disk), hit_ratio=0.5) == pytest.approx(2 / disk(1))


def test_hybridjoins_constant() -> None:
    """Equation 2 with k = −1.36 and e = −1 is 1.36·h_S·d/R_t."""
    w = hybridjoin.stream_input(PAPER, 100_000, 700)
    assert w == pytest.approx(1.36 * 100_000 * 700 / ROWS)
    assert hybridjoin.service_rate(PAPER, 100_000, 700 * 120 / 8192) == pytest.approx(
        w / hybridjoin.loop_cost(PAPER, w, 700 * 120 / 8192)
    )
    assert hybridjoin.stream_input(PAPER, 100_000, 700, e=0.0) == float("inf")


def test_hash_table_and_queue_share_the_memory_by_the_bytes_of_a_tuple() -> None:
    """Equation 1: 96 bytes in the hash table and a node of 12, table 2; or one of another size."""
    for node, tuples in ((12.0, 108), (4.0, 100)):
        parts = hybridjoin.memory_parts(PAPER, 1e6 + 8192, 1, node)
        assert sum(parts) == pytest.approx(1e6 + 8192)
        assert parts == pytest.approx((8192, 96e6 / tuples, node * 1e6 / tuples))
        assert hybridjoin.hash_tuples(PAPER, 1e6 + 8192, 1, node) == pytest.approx(1e6 / tuples)
        assert xhybridjoin.hash_tuples(PAPER, 1e6 + 5 * 8192, 2, 3, node) == pytest.approx(
            1e6 / tuples
        )
    assert sum(xhybridjoin.memory_parts(PAPER, 1e6, 2, 3)) == pytest.approx(1e6)


def test_equation_9_takes_variances_for_means() -> None:
    """What the paper describes, drawn: means are right, variances are far off."""
    rng = np.random.default_rng(5)
    demand = Demand.zipf(1.0, 20_000)
    d_n, d_s, h_s = 2_000, 1_000, 5_000
    old = xhybridjoin.old_probability(20_000, d_n, d_s)
    new = xhybridjoin.new_probability(demand, d_n, d_s)
    fresh, served = 0, []
    for _ in range(3_000):
        fresh = rng.binomial(h_s - fresh, old) + rng.binomial(fresh, new)
        served.append(fresh)
    w = float(np.mean(served[500:]))
    assert xhybridjoin.stream_input_of_means(demand, h_s, d_n, d_s) == pytest.approx(w, rel=0.02)
    assert xhybridjoin.stream_input_as_printed(demand, h_s, d_n, d_s) < 0.5 * w


def simulated_input(rows: int, d_n: int, d_s: int, h_s: int, loops: int) -> float:
    """Run X-HYBRIDJOIN on keys of an R that is sorted by frequency; return the mean w.

    Nothing here is taken from the equations: keys are drawn one by one, the queue holds the
    partitions of those that are not pinned, and the oldest tuple picks the partition.
    """
    rng = np.random.default_rng(3)
    cumulated = np.cumsum(1 / np.arange(1, rows + 1))
    queue, served = np.zeros(0, np.int64), []
    for _ in range(loops):
        new = h_s - len(queue)
        keys = np.searchsorted(cumulated, rng.random(new) * cumulated[-1])
        queue = np.concatenate([queue, (keys[keys >= d_n] - d_n) // d_s])
        queue = queue[queue != queue[0]] if len(queue) else queue
        served.append(new)
    return float(np.mean(served[loops // 4 :]))


@pytest.mark.parametrize(
    ("rows", "d_n", "d_s", "h_s"),
    [(20_000, 2_000, 1_000, 5_000), (20_000, 200, 200, 3_000), (20_000, 0, 400, 4_000)],
)
def test_equation_9_corrected_is_what_the_algorithm_does(
    rows: int, d_n: int, d_s: int, h_s: int
) -> None:
    demand, w = Demand.zipf(1.0, rows), simulated_input(rows, d_n, d_s, h_s, 3_000)
    assert xhybridjoin.stream_input(demand, h_s, d_n, d_s) == pytest.approx(w, rel=0.07)
    # That popular partitions come more often is not a detail.
    assert xhybridjoin.stream_input_of_means(demand, h_s, d_n, d_s) < 0.7 * w


def test_the_partition_follows_from_the_matches_of_section_5_2_4() -> None:
    demand, symbols = Demand.zipf(1.0, 2_000_000), replace(PAPER, page_count=2e6 * 120 / 8192)
    sizes = [
        xhybridjoin.partition_rows(symbols, demand, 50e6, 100, served) * 120
        for served in (xhybridjoin.stream_input_as_printed, xhybridjoin.stream_input_of_means)
    ]
    assert sizes == pytest.approx([83e3, 63e3], rel=0.02)


def test_the_fitted_constant_is_that_of_loads_of_2_megabytes() -> None:
    """k = 1.36 is no constant: it falls with the size of a load."""
    by_size = [hybridjoin.derived_k(2e6, 462_000, size / 120) for size in (0.1e6, 2e6, 8e6)]
    assert by_size == pytest.approx([1.65, 1.36, 1.25], rel=0.01)


def test_xhybridjoin_adds_what_a_loop_costs() -> None:
    demand = Demand.zipf(1.0, ROWS)
    assert xhybridjoin.stream_input_of_means(demand, 1_000, 0.0, 100.0) == pytest.approx(
        1_000 * 100 / ROWS, rel=1e-3
    )
    assert xhybridjoin.service_rate(PAPER, 5, 2, 3) == pytest.approx(
        5 / (disk(2) + 5 * 8192 / 120 * 1e-7 + 5 * 5e-6)
    )


def test_front_stage_has_a_best_size_only_with_the_whole_derivative() -> None:
    demand = Demand.zipf(1.0, ROWS)
    memory = 20e6
    sizes = np.geomspace(10, memory / 128 * 0.99, 50)
    assert all(cmeshjoin.slope_as_printed(PAPER, demand, memory, h) > 0 for h in sizes)
    assert all(cmeshjoin.second_slope_as_printed(PAPER, demand, memory, h) > 0 for h in sizes)
    best = cmeshjoin.best_cache(PAPER, demand, memory)

    def rate(h: float) -> float:
        back = cmeshjoin.back_rate_as_printed(PAPER, memory, h)
        return cmeshjoin.service_rate(demand, h, back)

    assert all(rate(h) <= rate(best) * 1.001 for h in sizes)
    assert 0.05 < best * 128 / memory < 0.6


def test_front_stage_rate_is_a_rate_once_equation_3_is_one() -> None:
    demand = Demand.zipf(1.0, ROWS)
    back = cmeshjoin.back_rate(PAPER, 20e6, 30_000, 113)
    left = 20e6 - 128 * 30_000
    assert back == pytest.approx(meshjoin.service_rate_for(PAPER, left, 113))
    assert cmeshjoin.service_rate(demand, 30_000, back) == pytest.approx(
        back / (1 - demand.hit_ratio(30_000))
    )


def test_pinned_against_swappable() -> None:
    """Section 6.3: skew wants a pinned part, none wants none; the printed w asks for too little."""
    k, pinned = xhybridjoin.best_parts(PAPER, Demand.zipf(1.0, ROWS), 20e6)
    assert k > 1
    assert pinned > 10
    assert xhybridjoin.best_parts(PAPER, Demand.zipf(0.0, ROWS), 20e6)[1] <= 1
    rates = []
    for other in ((k, pinned), (k * 2, pinned), (k, pinned * 2), (max(1, k // 2), pinned // 2)):
        h_s = xhybridjoin.hash_tuples(PAPER, 20e6, *other)
        rows = [pages * 8192 / 120 for pages in other]
        w = xhybridjoin.stream_input(Demand.zipf(1.0, ROWS), h_s, rows[1], rows[0])
        rates.append(xhybridjoin.service_rate(PAPER, w, *other))
    assert rates[0] == max(rates)
