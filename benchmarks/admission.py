"""Which rows of R the cache before a disk-based join should keep: policies compared by key.

No rows, no pages and no clock: a stream of keys, a cache of `cached` keys, a window of `window`
waiting tuples. A tuple whose key is cached is a hit; any other waits. When the window is full, a
disk phase hands every distinct waiting key to the policy with f, the number of tuples that waited
for it, in key order, and the window empties. Figures are hit ratios over the second half of the
stream (warm) and over all of it, and admissions per thousand tuples of the second half.

Besides the rows, a policy may hold at most 8 bytes for each entry, which is what the paper's
frequency recorder takes. The policies, with what they take:

- best fixed cache: the most popular keys of the true distribution, chosen anew at each change: the
  best that a set of keys can do which changes only when the distribution does.
- paper (8 B): admits f ≥ threshold and overwrites the least frequent entry, exactly. The threshold
  starts at 2, falls by one (to no less than 1) after a phase that leaves free places, rises by one
  after a phase that evicted more than 1 % of the entries. An entry's count starts at f; "from 0"
  counts hits since admission only.
- always (2 bits): admits everything; a second-chance hand decrements counts of 0 … 3.
- space-saving (8 B): the newcomer replaces the minimum and inherits its count, plus f.
- tinylfu (8 B or, its widths being powers of two, up to twice that): a count-min sketch with 4 rows
  of 8-bit counters over all tuples, conservative update, halved every 10 h or 10 (h + W) tuples.
  The candidate must exceed the least of 5 sampled entries.
- front stage (1 B): what `semistream.joins.frontstage` does, run as it is: sets of 7 places, a
  count of up to 15 for each, f = 1 refused once a set is full, a set ages once a turn by 1 + ⌊c/8⌋
  if a candidate fails, all counts are cleared when the hit ratio breaks in.
- f+clock (1 B): see `_clock_phase`. Refuses f = 1 once full. The hand looks at up to 8 entries for
  a candidate, lowers those that are not below f, and replaces the first that is. It lowers counts
  for the length of one turn in each phase. "+ alarm": a phase whose hit ratio is under three
  quarters of the running mean clears every count. "+ ghost" (5 B): a direct-mapped table, twice as
  many places as entries, holds an 8-bit tag of a refused key and how many tuples matched it.
"""

import argparse
import heapq
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numba import njit
from numpy.typing import NDArray

from benchmarks.report import Report
from semistream.budget.frontsizes import WAYS, CachedColumns
from semistream.joins.frontstage import TupleCache
from semistream.joins.protocols import LocatedRows, Matched
from semistream.joins.telemetry import Telemetry
from semistream.workload.zipf import scatter, zipf_ranks

SETTINGS = ((300_000, 20_000), (300_000, 65_000), (300_000, 200_000), (60_000, 40_000))
STREAMS = ("Zipf 0.5", "Zipf 0.8", "Zipf 1", "Zipf 1.2", "drifting Zipf 1", "redrawn Zipf 1")
BEST_FIXED = "best fixed cache"
FRONT_STAGE = "front stage"
PIECE = 8_192  # tuples looked up at a time, and rows handed over at a time
STEPS = 8
HALVE, DECREMENT, EIGHTH = 0, 1, 2
FROM_F, FROM_ZERO, INHERIT = 0, 1, 2


def _no_columns(rows: NDArray[np.int64]) -> LocatedRows:
    raise AssertionError("keys are unique here, so no other rows are fetched")


@dataclass
class Figures:
    warm: float
    overall: float
    admissions: float


@dataclass
class Policy:
    kind: str
    mode: int = 0
    cap: int = 255
    alarm: bool = False
    ghost: bool = False
    window_share: int = 0


POLICIES = {
    "paper": Policy("heap", FROM_F, cap=2**30),
    "paper, counts from 0": Policy("heap", FROM_ZERO, cap=2**30),
    "always": Policy("always", cap=3),
    "space-saving": Policy("heap", INHERIT, cap=2**30),
    "tinylfu, 10 h": Policy("tinylfu"),
    "tinylfu, 10 (h + W)": Policy("tinylfu", window_share=10),
    "f+clock halve": Policy("clock", HALVE),
    "f+clock −1": Policy("clock", DECREMENT),
    "f+clock −1−c/8": Policy("clock", EIGHTH),
    "f+clock −1−c/8 + ghost": Policy("clock", EIGHTH, ghost=True),
    "f+clock −1−c/8 + alarm": Policy("clock", EIGHTH, alarm=True),
}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true")
    scale = 10 if parser.parse_args().quick else 1
    domain, total = 3_500_000 // scale, 12_000_000 // scale
    settings = [(window // scale, cached // scale) for window, cached in SETTINGS]
    for name in STREAMS:
        ranks, keys = _stream(name, domain, total)
        rows = []
        report = Report(
            "admission", {"relation_rows": domain, "stream_rows": total, "stream": name}
        )
        for policy in (BEST_FIXED, *POLICIES, FRONT_STAGE):
            all_figures = []
            for window, cached in settings:
                if policy == BEST_FIXED:
                    hit = ranks <= cached
                    figures = Figures(float(hit[total // 2 :].mean()), float(hit.mean()), 0.0)
                elif policy == FRONT_STAGE:
                    figures = simulate_front_stage(keys, domain, window, cached)
                else:
                    figures = simulate(keys, domain, window, cached, POLICIES[policy])
                all_figures.append(figures)
            columns = {k: [round(vars(f)[k], 4) for f in all_figures] for k in vars(figures)}
            report.add(policy, settings=settings, **columns)
            cells = [f"{f.warm:.1%} {f.overall:.1%} {f.admissions:5.1f}" for f in all_figures]
            rows.append([policy, *cells])
        report.show(
            f"Admission, {name} keys, R {domain:,}, S {total:,}: hit ratio warm, with warm-up; "
            "admissions per 1000 tuples",
            ["policy", *(f"W {window:,} h {cached:,}" for window, cached in settings)],
            rows,
        )


def _stream(name: str, domain: int, total: int) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """Return the ranks, and the keys they have when their turn comes."""
    rng = np.random.default_rng(7)
    ranks = zipf_ranks(rng, total, domain, float(name.rsplit(" ", 1)[1]))
    key_of = scatter(np.arange(1, domain + 1), domain).astype(np.int32)
    out = np.empty(total, np.int32)
    # A tenth of the ranks exchange their keys every 3M tuples, or all of them every 4M.
    step, moving = total, 0
    if name.startswith("drifting"):
        step, moving = total // 4, domain // 10
    elif name.startswith("redrawn"):
        step, moving = total // 3, domain
    for first in range(0, total, step):
        if first:
            moved = rng.choice(domain, moving, replace=False)
            key_of[moved] = key_of[rng.permutation(moved)]
        out[first : first + step] = key_of[ranks[first : first + step] - 1]
    return ranks, out


def simulate(
    keys: NDArray[np.int32], domain: int, window: int, cached: int, policy: Policy
) -> Figures:
    cache = _Cache(domain, cached, policy, 10 * cached + policy.window_share * window)
    waiting = np.empty(window, np.int32)
    hits = np.zeros(2)
    admitted = np.zeros(2)
    half, at, filled, phase_hits, began = len(keys) // 2, 0, 0, 0, 0
    while at < len(keys):
        later = int(at >= half)
        end = min(len(keys) if later else half, at + cache.until_aging())
        start = at
        at, filled, found = cache.look_up(keys, at, end, waiting, filled)
        cache.seen(at - start)
        hits[later] += found
        phase_hits += found
        if filled == window:
            admitted[later] += cache.disk_phase(waiting, phase_hits / (at - began))
            filled, phase_hits, began = 0, 0, at
    return Figures(
        warm=float(hits[1] / (len(keys) - half)),
        overall=float(hits.sum() / len(keys)),
        admissions=float(1000 * admitted[1] / (len(keys) - half)),
    )


def simulate_front_stage(keys: NDArray[np.int32], domain: int, window: int, cached: int) -> Figures:
    """Do as `simulate` with the front stage itself, a page's worth of rows at a time."""
    columns = CachedColumns(pa.schema([]), (), None, has_unique_codes=True)
    telemetry = Telemetry()
    cache = TupleCache(columns, cached // WAYS, domain, telemetry)
    waiting: list[NDArray[np.int64]] = []
    filled, half = 0, len(keys) // 2
    hits, admissions = [0, 0], [0, 0]
    for at in range(0, len(keys), PIECE):
        codes = keys[at : at + PIECE].astype(np.int64)
        waits = np.zeros(len(codes), np.bool_)
        list(cache.matches(codes, waits))
        hits[at >= half] += int((~waits).sum())
        waiting.append(codes[waits])
        filled += len(waiting[-1])
        if filled >= window:
            found, f = np.unique(np.concatenate(waiting), return_counts=True)
            tallies = np.minimum(f, 255).astype(np.uint8)
            before = telemetry.front_admissions
            for row in range(0, len(found), PIECE):
                some = np.arange(row, min(row + PIECE, len(found)))
                cache.observe_matches(
                    Matched(found, some, tallies[some], None, lambda _: [], _no_columns)
                )
            cache.end_cycle()
            admissions[at >= half] += telemetry.front_admissions - before
            waiting, filled = [], 0
    return Figures(
        warm=hits[1] / (len(keys) - half),
        overall=sum(hits) / len(keys),
        admissions=1000 * admissions[1] / (len(keys) - half),
    )


class _Cache:
    def __init__(self, domain: int, places: int, policy: Policy, aging: int) -> None:
        self._policy = policy
        self._slot = np.full(domain, -1, np.int32)
        self._key = np.full(places, -1, np.int32)
        self._count = np.zeros(places, np.int32)
        self._size = self._hand = 0
        self._threshold = 2
        self._mean = 0.0
        self._aging, self._tuples = aging, 0
        sketched = policy.kind == "tinylfu"
        width = 1 << (2 * places - 1).bit_length()
        self._sketch = np.zeros((4, width if sketched else 0), np.uint8)
        self._ghost = np.zeros((2, width if policy.ghost else 0), np.uint8)

    def until_aging(self) -> int:
        return self._aging - self._tuples if self._sketch.size else 2**62

    def seen(self, tuples: int) -> None:
        self._tuples += tuples
        if self._sketch.size and self._tuples >= self._aging:
            self._sketch >>= 1
            self._tuples = 0

    def look_up(
        self,
        keys: NDArray[np.int32],
        at: int,
        end: int,
        waiting: NDArray[np.int32],
        filled: int,
    ) -> tuple[int, int, int]:
        found: tuple[int, int, int] = _look_up(
            keys, at, end, waiting, filled, self._slot, self._count, self._policy.cap, self._sketch
        )
        return found

    def disk_phase(self, waiting: NDArray[np.int32], ratio: float) -> int:
        """Hand the distinct waiting keys to the policy; return how many it admitted."""
        found, f = np.unique(waiting, return_counts=True)
        policy = self._policy
        entries = (found, f, self._slot, self._key, self._count, self._size)
        if policy.kind == "heap":
            self._size, admitted, evicted = _heap_phase(*entries, self._threshold, policy.mode)
            if self._size < len(self._key):
                self._threshold = max(1, self._threshold - 1)
            elif evicted > 0.01 * len(self._key):
                self._threshold += 1
        elif policy.kind == "always":
            self._size, self._hand, admitted = _always_phase(*entries, self._hand, policy.cap)
        elif policy.kind == "tinylfu":
            self._size, admitted = _tinylfu_phase(*entries, self._sketch)
        else:
            if policy.alarm and ratio < 0.75 * self._mean:
                self._count[:] = 0
                self._mean = ratio
            self._mean += (ratio - self._mean) / 4
            self._size, self._hand, admitted = _clock_phase(
                *entries, self._hand, policy.mode, policy.cap, self._ghost
            )
        return int(admitted)


def _kernel(function):  # type: ignore[no-untyped-def]
    return njit(cache=True)(function)


@_kernel
def _hash(key, row):  # type: ignore[no-untyped-def]
    x = np.uint64(key) * np.uint64(0x9E3779B97F4A7C15)
    x += np.uint64(row) * np.uint64(0xC2B2AE3D27D4EB4F)
    x ^= x >> np.uint64(32)
    x *= np.uint64(0xD6E8FEB86659FD93)
    return x ^ (x >> np.uint64(32))


@_kernel
def _estimate(sketch, key):  # type: ignore[no-untyped-def]
    mask = np.uint64(sketch.shape[1] - 1)
    least = 255
    for row in range(4):
        least = min(least, int(sketch[row, _hash(key, row) & mask]))
    return least


@_kernel
def _note(sketch, key):  # type: ignore[no-untyped-def]
    """Count a key, raising only the counters that are at the minimum."""
    mask = np.uint64(sketch.shape[1] - 1)
    raised = min(_estimate(sketch, key) + 1, 255)
    for row in range(4):
        cell = _hash(key, row) & mask
        if sketch[row, cell] < raised:
            sketch[row, cell] = raised


@_kernel
def _look_up(keys, at, end, waiting, filled, slot, count, cap, sketch):  # type: ignore[no-untyped-def]
    hits = 0
    while at < end and filled < len(waiting):
        key = keys[at]
        at += 1
        place = slot[key]
        if place >= 0:
            hits += 1
            if count[place] < cap:
                count[place] += 1
        else:
            waiting[filled] = key
            filled += 1
        if sketch.size:
            _note(sketch, key)
    return at, filled, hits


@_kernel
def _put(key, place, counted, slot, key_at, count):  # type: ignore[no-untyped-def]
    if key_at[place] >= 0:
        slot[key_at[place]] = -1
    key_at[place] = key
    slot[key] = place
    count[place] = counted


@_kernel
def _heap_phase(keys, f, slot, key_at, count, size, threshold, mode):  # type: ignore[no-untyped-def]
    """Replace the least count exactly: the paper's policy, and space-saving."""
    admitted = evicted = 0
    heap = [np.int64(count[place]) << 32 | place for place in range(size)]
    heapq.heapify(heap)
    for i in range(len(keys)):
        if mode != INHERIT and f[i] < threshold:
            continue
        counted = 0 if mode == FROM_ZERO else f[i]
        admitted += 1
        if size < len(key_at):
            place = np.int64(size)
            size += 1
            heapq.heappush(heap, np.int64(counted) << 32 | place)
        else:
            evicted += 1
            place = heap[0] & 0xFFFFFFFF
            if mode == INHERIT:
                counted += heap[0] >> 32
            heapq.heapreplace(heap, np.int64(counted) << 32 | place)
        _put(keys[i], place, counted, slot, key_at, count)
    return size, admitted, evicted


@_kernel
def _always_phase(keys, f, slot, key_at, count, size, hand, cap):  # type: ignore[no-untyped-def]
    for i in range(len(keys)):
        if size < len(key_at):
            place = size
            size += 1
        else:
            while count[hand] > 0:
                count[hand] -= 1
                hand = (hand + 1) % len(key_at)
            place = hand
            hand = (hand + 1) % len(key_at)
        _put(keys[i], place, min(f[i] - 1, cap), slot, key_at, count)
    return size, hand, len(keys)


@_kernel
def _tinylfu_phase(keys, f, slot, key_at, count, size, sketch):  # type: ignore[no-untyped-def]
    admitted = 0
    for i in range(len(keys)):
        place = size
        if size < len(key_at):
            size += 1
        else:
            least = 256
            for _ in range(5):
                sampled = np.random.randint(len(key_at))
                estimate = _estimate(sketch, key_at[sampled])
                if estimate < least:
                    least, place = estimate, sampled
            if _estimate(sketch, keys[i]) <= least:
                continue
        _put(keys[i], place, f[i], slot, key_at, count)
        admitted += 1
    return size, admitted


@_kernel
def _clock_phase(keys, f, slot, key_at, count, size, hand, mode, cap, ghost):  # type: ignore[no-untyped-def]
    admitted = 0
    left = len(key_at)
    for i in range(len(keys)):
        if size < len(key_at):
            _put(keys[i], size, min(f[i], cap), slot, key_at, count)
            size += 1
            admitted += 1
            continue
        evidence = f[i]
        cell, tag, remembered = np.uint64(0), 0, False
        if ghost.size:
            hashed = _hash(keys[i], 0)
            cell = hashed & np.uint64(ghost.shape[1] - 1)
            tag = int(hashed >> np.uint64(56))
            remembered = ghost[0, cell] == tag
            if remembered:
                evidence += ghost[1, cell]
        placed = False
        if evidence >= 2:
            for _ in range(STEPS):
                place = hand
                c = count[place]
                hand = hand + 1 if hand + 1 < len(key_at) else 0
                if c < evidence:
                    _put(keys[i], place, min(evidence, cap), slot, key_at, count)
                    admitted += 1
                    placed = True
                    break
                if left > 0:
                    left -= 1
                    if mode == HALVE:
                        count[place] = c >> 1
                    elif mode == DECREMENT:
                        count[place] = c - 1
                    else:
                        count[place] = c - 1 - (c >> 3)
        if ghost.size:
            if placed:
                if remembered:
                    ghost[1, cell] = 0
            elif remembered:
                ghost[1, cell] = min(255, evidence)
            elif ghost[1, cell] <= f[i]:
                ghost[0, cell] = tag
                ghost[1, cell] = min(255, f[i])
            else:
                ghost[1, cell] -= f[i]
    return size, hand, admitted


if __name__ == "__main__":
    main()
