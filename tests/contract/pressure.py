"""Workloads for which memory is short, and what was seen to happen while they ran.

A budget is drawn relative to the least one that the algorithm's own error names: then R takes
several reads, the stream several windows, and a cache holds a part of R, whatever the structures
of a version take. `seen` names what happened, from the telemetry and the plan, so that the suite
can insist on it: a workload under which nothing happens tests little.
"""

from dataclasses import dataclass, replace
from typing import Any

import semistream as ss
from semistream.advice.auto import AUTO, SelfTuningJoin
from semistream.errors import BudgetError
from semistream.joins.registry import ALGORITHMS
from tests.workloads import Workload

TIGHT_COUNT, SKEWED_COUNT, CHANGING_COUNT = 18, 6, 4
TIGHT_FACTORS = (1.05, 1.3, 2.0, 1.0, 1.1, 5.0)
ROOMY_FACTORS = (4.0, 6.0, 9.0)
CHANGING_FACTORS = (3.0, 4.0, 5.0)
_SIZED_BY = 200  # stream rows, by which a join has sized everything

READS = "R is read in several pieces"
CYCLES = "R is read more than once"
WINDOWS = "the stream is several times as long as the window"
RUNS = "the rows of a key lie on several pages"
LONG_RUNS = "the rows of a key take more pages than the disk buffer has"
HITS = "the front stage finds matches"
EVICTIONS = "the front stage evicts"
WIDE_KEYS = "keys of several wide rows are cached"
PINNED = "pages are pinned"
REPINNED = "a pinned page is evicted"
RETUNED = "another algorithm or split is chosen in the course of the stream"

_INDEX_JOINS = {name for name, about in ALGORITHMS.items() if about.family == "index"}
_CACHED = {"offline"} | {name for name, about in ALGORITHMS.items() if about.has_front}


def expected_of(algorithm: str) -> set[str]:
    """Return what must have been seen of an algorithm over all workloads."""
    if algorithm == "resident":
        return {RUNS}
    if algorithm == AUTO:
        return {RUNS, CYCLES, RETUNED}
    expected = {RUNS, READS, CYCLES, WINDOWS}
    if algorithm in _INDEX_JOINS:
        expected |= {LONG_RUNS}
    if algorithm in _CACHED:
        expected |= {HITS, WIDE_KEYS}
    if algorithm in _CACHED - {"offline", "cinlj"}:
        # The offline bound admits only what stays; with one waiting tuple no row matches twice.
        expected |= {EVICTIONS}
    if algorithm == "xhybridjoin":
        expected |= {HITS, PINNED, REPINNED}
    return expected


def tight(seed: int) -> Workload:
    """Return a small workload whose pages are small too: many reads, runs over several pages."""
    kinds = (("int64",), ("string",), ("clumped",), ("date", "int32"), ("uuid",))
    return Workload(
        seed=seed,
        key_kinds=kinds[seed % 5],
        relation_rows=(200, 330, 500)[seed % 3],
        stream_rows=(90, 300, 450)[seed % 3],
        domain=(60, 250, 500)[seed // 2 % 3],
        skew=(0.0, 0.8, 1.3)[seed // 3 % 3],
        null_share=(0.0, 0.05)[seed % 2],
        unique=False,
        partitions=1 + seed % 3,
        page_bytes=(100, 250, 600)[seed // 2 % 3],
        batch_rows=(7, 40, 1_000)[seed // 3 % 3],
        how=("left", "inner", "semi", "anti")[seed % 4],
        with_nested=seed % 5 == 4,
        by_frequency=seed % 4 == 3,
        run_rows=(60, 0, 150)[seed // 2 % 3],
    )


def skewed(seed: int) -> Workload:
    """Return a workload of which a cache holds a part, and whose popular keys change."""
    rows_per_key = (1, 3, 2)[seed % 3]
    return Workload(
        seed=seed,
        key_kinds=(("int64",), ("string",))[seed // 3 % 2],
        relation_rows=2_400,
        stream_rows=6_000,
        domain=2_400 // rows_per_key,
        skew=0.0,
        skews=((0.9, 0.9), (1.1, 0.8, 1.1))[seed % 2],
        null_share=0.0,
        unique=False,
        partitions=1 + seed % 2,
        page_bytes=(400, 1_000)[seed // 2 % 2],
        batch_rows=(150, 400)[seed % 2],
        how=("left", "inner", "left", "semi")[seed % 4],
        with_nested=False,
        rows_per_key=rows_per_key,
        wide_bytes=(0, 400, 40)[seed % 3],
    )


def changing(seed: int) -> Workload:
    """Return a workload whose skew comes and goes."""
    skews = ((0.0, 1.5, 0.0), (1.4, 0.0, 1.4))[seed % 2]
    return replace(skewed(seed), skew=0.0, skews=skews, stream_rows=9_000, wide_bytes=0)


def workloads_of(algorithm: str) -> list[tuple[Workload, float]]:
    """Return an algorithm's workloads, each with a factor of the least budget."""
    cases = []
    for seed in range(TIGHT_COUNT):
        factor = TIGHT_FACTORS[seed % len(TIGHT_FACTORS)]
        work = tight(seed)
        # With the least of all, a scan reads R once for each row.
        cases.append((replace(work, stream_rows=60) if factor == 1.0 else work, factor))
    if algorithm == AUTO:
        cases += [(changing(seed), CHANGING_FACTORS[seed % 3]) for seed in range(CHANGING_COUNT)]
    elif algorithm in _CACHED or algorithm == "xhybridjoin":
        for seed in range(SKEWED_COUNT):
            work = skewed(seed)
            rows = 1_200 if algorithm == "cinlj" else work.stream_rows  # it reads for each row
            cases.append((replace(work, stream_rows=rows), ROOMY_FACTORS[seed % 3]))
    return cases


def least_budget(algorithm: str, workload: Workload, relation: ss.Relation) -> int | None:
    """Return the least budget that the error for one byte names; none if nothing can match.

    What `auto` names is enough for the rows that it has seen. If the first batch has no row that
    may match, its rows may be narrower than those that do, and a later error names more.
    """
    least = _named_least(algorithm, workload, relation, 1)
    while algorithm == AUTO and least is not None:
        more = _named_least(algorithm, workload, relation, least)
        if more is None:
            break
        assert more > least
        least = more
    return least


def _named_least(
    algorithm: str, workload: Workload, relation: ss.Relation, memory: int
) -> int | None:
    stream, _ = workload.tables()
    options: dict[str, Any] = {"on": workload.on, "how": workload.how, "algorithm": algorithm}
    options["condition"] = workload.condition
    first = workload.batches(stream[:_SIZED_BY])
    try:
        list(ss.join(first, relation, memory=memory, **options))
    except BudgetError as raised:
        error = raised
    else:
        return None
    assert error.least_bytes is not None
    assert f"{error.least_bytes} bytes" in str(error)
    return error.least_bytes


def seen(operator: Any, relation: ss.Relation, workload: Workload) -> set[str]:
    """Return what happened in a run."""
    counted, pages = operator.telemetry, _Pages.of(relation)
    happened = {
        RUNS: pages.run_rows > 3 * pages.most_rows,
        CYCLES: counted.pages_scanned > relation.page_count,
        RETUNED: counted.retunings > 0,
    }
    if not isinstance(operator, SelfTuningJoin) and operator.plan is not None:
        happened |= _seen_by_plan(operator, pages, workload)
    return {name for name, did in happened.items() if did}


@dataclass(frozen=True)
class _Pages:
    """How R lies: its pages, the rows of the fullest of them, and of the key that has most."""

    count: int
    most_rows: int
    run_rows: int

    @classmethod
    def of(cls, relation: ss.Relation) -> "_Pages":
        bounds = relation.reader([]).row_bounds
        run_rows = max(info.most_duplicates for info in relation.manifest.partitions)
        return cls(relation.page_count, int((bounds[1:] - bounds[:-1]).max()), run_rows)


def _seen_by_plan(operator: Any, pages: _Pages, workload: Workload) -> dict[str, bool]:
    counted, cached_rows = operator.telemetry, operator.plan.cached_rows
    settings = operator.plan.settings
    waited = counted.stream_rows - counted.null_key_rows - counted.front_hits
    pinned_rows = settings.pinned_pages * pages.most_rows
    return {
        READS: settings.pages_per_read < pages.count,
        WINDOWS: waited > 3 * settings.places,
        LONG_RUNS: pages.run_rows > (settings.pages_per_read + 1) * pages.most_rows,
        HITS: counted.front_hits > 0,
        EVICTIONS: 0 < 1.1 * cached_rows < counted.front_admissions,
        WIDE_KEYS: cached_rows > 0
        and counted.front_hits > 0
        and workload.rows_per_key > 2
        and workload.wide_bytes > 0,
        PINNED: pinned_rows > 0 and counted.front_admissions > 0,
        REPINNED: 0 < pinned_rows < counted.front_admissions,
    }
