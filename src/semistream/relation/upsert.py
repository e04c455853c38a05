"""Changing one partition of a relation: its rows by key are replaced, and the rest stays.

::

    changes of the partition ──► codes that they touch ──► rows that have these codes now: dead
           │                                                │ rows of other keys that share a code
           └──► new rows, and those ──► a segment of delta pages ──► index, dead rows: `.delta`

All rows of a key that occurs in the changes are replaced by the rows that have it there and are not
marked as deleted. Codes lead to rows, as in the joins. Where a code is a hash, two keys may share
it: then the rows of the other key are carried over into the new segment, so that a segment holds
all rows of each of its codes, and a look-up needs one place only.

*How many segments there are.* A new segment takes up the youngest ones as long as they are not
larger than what is written anyway. So each segment is larger than the next: of n rows in deltas
there are at most about log₂ n segments, and a row is rewritten as many times. When the
delta pages of a partition hold more than `FOLD_SHARE` of the rows of its base, they are folded in:
the partition is written anew as a whole.

Memory: the changes of the partition and the rows that are taken up, two times; a byte for each row
of the partition. Folding holds the rows of the delta and hot pages, and some megabytes of others.

Degenerate cases: changes that change nothing write nothing; a partition without rows gets its first
ones as a base.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from semistream.jit import njit
from semistream.relation.build import empty_partition, sorted_rows, write_pages, write_sorted
from semistream.relation.deltas import DeltaContent, read_delta, write_delta
from semistream.relation.draft import Draft
from semistream.relation.hot import HotKeys, find
from semistream.relation.layout import Manifest, PartitionInfo
from semistream.relation.pageindex import PageIndex
from semistream.relation.pagerows import PageRows
from semistream.relation.reader import PageReader

FOLD_SHARE = 0.25  # of the rows of the base: with more on delta pages they are folded in
_CHUNK_ROWS = 1 << 20  # codes that are read at a time
_MOST_GAP_PAGES = 4  # between two pages that are read together

Codes = NDArray[np.int64]
Rows = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Changes:
    """The changes of one partition, in any order."""

    codes: Codes  # of all rows, deletions among them
    batches: Sequence[pa.RecordBatch]  # the rows, in the relation's schema
    is_deleted: NDArray[np.bool_]  # rows that only name a key to be deleted


@dataclass(frozen=True, slots=True)
class Changed:
    """The entry of a partition in the new manifest, and how many rows differ."""

    info: PartitionInfo
    added: int = 0
    changed: int = 0
    deleted: int = 0


def apply_changes(
    draft: Draft, base: Manifest, index: int, changes: Changes, attempt: str = "0"
) -> Changed:
    """Write the changes of one partition into a new snapshot; see the module's text."""
    info = base.partitions[index]
    kept = np.flatnonzero(~changes.is_deleted)
    if not info.row_count:
        if not len(kept):
            return Changed(info)
        rows = sorted_rows(base, changes.codes, changes.batches, kept)
        return Changed(write_sorted(draft, index, rows, attempt, HotKeys.none()), added=len(kept))
    reader = PageReader(draft.store, base, [index], base.schema.names)
    try:
        return _Partition(draft, reader, info, attempt).change(changes, kept)
    finally:
        reader.close()


def fold(draft: Draft, base: Manifest, index: int, attempt: str = "0") -> PartitionInfo:
    """Write a partition anew without dead rows, as one base."""
    info = base.partitions[index]
    reader = PageReader(draft.store, base, [index], base.schema.names)
    try:
        return _Partition(draft, reader, info, attempt).fold(_NO_CODES, [])
    finally:
        reader.close()


_NO_CODES: Codes = np.zeros(0, np.int64)


class _Partition:
    """One partition while it is changed. Rows and pages are numbered as its reader does."""

    def __init__(self, draft: Draft, reader: PageReader, info: PartitionInfo, attempt: str) -> None:
        base = reader.manifest
        self._draft = draft  # the new snapshot
        self._reader = reader  # of the partition as it was
        self._info = info  # its entry as it was
        self._attempt = attempt  # keeps file names apart
        if info.delta is None:
            none = DeltaContent(_NO_CODES, np.zeros(0, np.int32), np.zeros(info.row_count, bool))
            self._delta = none  # what the partition's .delta file holds
        else:
            self._delta = read_delta(draft.store, base.snapshot, info)
        self._dead = self._delta.dead.copy()  # by row: those that die now as well

    def change(self, changes: Changes, kept: Rows) -> Changed:
        """Replace the rows of some keys."""
        touched = np.unique(changes.codes)
        old, old_codes = _rows_with(self._reader, touched)
        live = ~self._dead[old]
        old, old_codes = old[live], old_codes[live]
        if not len(old) and not len(kept):
            return Changed(self._seen())
        is_carried = self._are_others(changes, old, old_codes)
        codes, batches = self._new_rows(changes, kept, old[is_carried])
        counts = _count(touched, changes.codes[kept], old_codes[~is_carried])
        self._dead[old] = True
        delta_rows = self._info.delta_rows + len(codes)
        if delta_rows > FOLD_SHARE * self._info.row_count:
            return Changed(self.fold(codes, batches), *counts)
        return Changed(self._add_segment(touched, codes, batches), *counts)

    def _seen(self) -> PartitionInfo:
        return self._info.seen_from(self._reader.manifest.snapshot)

    def _are_others(self, changes: Changes, old: Rows, codes: Codes) -> NDArray[np.bool_]:
        """Return which of some rows, with these codes, have a key that the changes do not have."""
        manifest = self._reader.manifest
        if manifest.coder.is_exact or not len(old):
            return np.zeros(len(old), np.bool_)
        theirs = self._read(old, manifest.key)[1]
        order = np.argsort(changes.codes, kind="stable")
        table = pa.Table.from_batches(changes.batches).select(list(manifest.key))
        first = order[np.searchsorted(changes.codes[order], codes)]
        is_other = ~self._same(theirs, table, first)
        for i in np.flatnonzero(is_other).tolist():  # codes that keys share: hardly ever any
            ours = np.flatnonzero(changes.codes == codes[i])
            same = self._same(theirs.take(pa.array(np.full(len(ours), i))), table, ours)
            is_other[i] = not same.any()
        return is_other

    def _same(self, theirs: pa.Table, table: pa.Table, rows: Rows) -> NDArray[np.bool_]:
        coder = self._reader.manifest.coder
        ours = table.take(pa.array(rows))
        left, right = (
            coder.canonical([column.combine_chunks() for column in t.columns])
            for t in (theirs, ours)
        )
        return coder.same_keys(left, right)

    def _read(self, rows: Rows, columns: Sequence[str]) -> tuple[Codes, pa.Table]:
        """Return the codes and some columns of some rows, which ascend."""
        source = PageRows(self._reader, list(columns))
        bounds = self._reader.row_bounds
        pages = np.unique(np.searchsorted(bounds, rows, "right") - 1)
        codes: list[Codes] = [_NO_CODES]
        found: list[pa.RecordBatch] = []
        for first, last in _runs(pages):
            for a, b in source.chunks(first, last):
                begin, end = np.searchsorted(rows, (bounds[a], bounds[b])).tolist()
                places = rows[begin:end] - bounds[a]
                page_codes, batch = source.read(a, b)
                codes.append(page_codes[places])
                found.append(batch.take(pa.array(places)))
        return np.concatenate(codes), pa.Table.from_batches(found, source.schema)

    def _new_rows(
        self, changes: Changes, kept: Rows, carried: Rows
    ) -> tuple[Codes, list[pa.RecordBatch]]:
        """Return the rows that are to be written: those of the changes, and those carried over."""
        schema = self._reader.manifest.schema
        ours = [b for _, b in _taken(changes.codes, changes.batches, kept)]
        codes = changes.codes[kept]
        if len(carried):
            carried_codes, table = self._read(carried, schema.names)
            ours += table.to_batches()
            codes = np.concatenate([codes, carried_codes])
        return codes, ours

    def _add_segment(
        self, touched: Codes, codes: Codes, batches: list[pa.RecordBatch]
    ) -> PartitionInfo:
        """Write new rows as a segment, which takes up the youngest ones, and the .delta file."""
        segments = [] if self._info.delta is None else list(self._seen().segments[1:])
        pages = int(self._reader.page_count)
        kept_codes = [codes]
        count = len(codes)
        while segments and count and segments[-1].row_count <= count:
            taken = segments.pop()
            for more, batch in self._live(pages - taken.page_count, pages):
                kept_codes.append(more)
                batches.append(batch)
                count += len(more)
            pages -= taken.page_count
        codes = np.concatenate(kept_codes)
        first_page = pages - self._info.page_count  # of the new segment, among delta pages
        stays = (find(touched, self._delta.codes) < 0) & (self._delta.pages < first_page)
        index = (self._delta.codes[stays], self._delta.pages[stays])
        dead = self._dead[: int(self._reader.row_bounds[pages])]
        prefix = f"part-{self._info.index:05d}-{self._attempt}"
        if len(codes):
            rows = sorted_rows(self._reader.manifest, codes, batches)
            about = (self._draft, self._info.index, rows, self._attempt, HotKeys.none())
            info, page_rows = write_pages(*about)
            segments.append(info)
            index = _with_segment(index, np.sort(codes), page_rows, first_page)
            dead = np.concatenate([dead, np.zeros(len(codes), np.bool_)])
        store, snapshot = self._draft.store, self._draft.manifest.snapshot
        delta = write_delta(store, snapshot, prefix, segments, DeltaContent(*index, dead))
        return replace(self._seen(), delta=delta)

    def fold(self, codes: Codes, batches: list[pa.RecordBatch]) -> PartitionInfo:
        """Write the partition anew, with some more rows and without dead ones."""
        info, reader = self._info, self._reader
        hot = HotKeys.from_index(reader.hot_codes, reader.hot_pages)
        all_codes, extra = [codes], list(batches)
        for first, last in ((0, info.hot_pages), (info.page_count, reader.page_count)):
            for more, batch in self._live(first, last):
                all_codes.append(more)
                extra.append(batch)
        rows = self._merged(np.concatenate(all_codes), extra)
        first_rows = next(rows, None)
        if first_rows is None:
            return empty_partition(info.index)
        every = (piece for some in ([first_rows], rows) for piece in some)
        return write_sorted(self._draft, info.index, every, self._attempt, hot)

    def _merged(
        self, codes: Codes, batches: list[pa.RecordBatch]
    ) -> Iterator[tuple[Codes, pa.RecordBatch]]:
        """Merge rows, whose codes no clustered page has alive, with the clustered pages."""
        order = np.argsort(codes, kind="stable")
        sorted_codes = codes[order]
        done = 0
        for more, batch in self._live(self._info.hot_pages, self._info.page_count):
            end = int(np.searchsorted(sorted_codes, more[-1], "right"))
            if end == done:
                yield more, batch
            else:
                some = [(c, b) for c, b in _taken(codes, batches, order[done:end])]
                together = np.concatenate([more, *(c for c, _ in some)])
                pieces = [batch, *(b for _, b in some)]
                yield from sorted_rows(self._reader.manifest, together, pieces)
            done = end
        if done < len(order):
            yield from sorted_rows(self._reader.manifest, codes, batches, order[done:])

    def _live(self, first: int, last: int) -> Iterator[tuple[Codes, pa.RecordBatch]]:
        """Yield codes and rows of some pages without those that are dead now."""
        source = PageRows(self._reader)
        bounds = self._reader.row_bounds
        for a, b in source.chunks(first, last):
            codes, batch = source.read(a, b)
            live = np.flatnonzero(~self._dead[int(bounds[a]) : int(bounds[b])])
            if len(live) == len(codes):
                yield codes, batch
            elif len(live):
                yield codes[live], batch.take(pa.array(live))


def _taken(
    codes: Codes, batches: Sequence[pa.RecordBatch], rows: Rows
) -> Iterator[tuple[Codes, pa.RecordBatch]]:
    """Take some rows out of batches, batch by batch."""
    starts = np.cumsum([0, *(batch.num_rows for batch in batches)])
    ascending = np.sort(rows)
    bounds = np.searchsorted(ascending, starts)
    for i, batch in enumerate(batches):
        some = ascending[bounds[i] : bounds[i + 1]]
        if len(some):
            yield codes[some], batch.take(pa.array(some - starts[i]))


def _with_segment(
    index: tuple[Codes, NDArray[np.int32]], codes: Codes, page_rows: list[int], first_page: int
) -> tuple[Codes, NDArray[np.int32]]:
    """Return the delta index with the codes of a new segment, which ascend from page to page."""
    is_first = np.concatenate([[True], codes[1:] != codes[:-1]])
    rows = np.flatnonzero(is_first)
    pages = np.searchsorted(np.cumsum(page_rows), rows, "right") + first_page
    every = np.concatenate([index[0], codes[rows]])
    order = np.argsort(every, kind="stable")
    return every[order], np.concatenate([index[1], pages.astype(np.int32)])[order]


def _count(touched: Codes, new: Codes, old: Codes) -> tuple[int, int, int]:
    """Return how many rows were added, changed and deleted, by code.

    >>> _count(np.array([1, 2, 3]), np.array([1, 2, 2]), np.array([2, 3]))
    (2, 1, 1)
    """
    before = np.bincount(np.searchsorted(touched, old), minlength=len(touched))
    after = np.bincount(np.searchsorted(touched, new), minlength=len(touched))
    both = np.minimum(before, after)
    return int((after - both).sum()), int(both.sum()), int((before - both).sum())


def _rows_with(reader: PageReader, touched: Codes) -> tuple[Rows, Codes]:
    """Return the rows that have one of some codes, which ascend, and the code of each.

    Some of the rows may be dead.
    """
    index = PageIndex(reader)
    first = index.pages(touched)
    last = index.ends[first] if len(index.ends) else first + 1
    steps = np.zeros(reader.page_count + 1, np.int64)
    np.add.at(steps, first, 1)
    np.add.at(steps, last, -1)
    wanted = np.flatnonzero(np.cumsum(steps[:-1]))
    found, found_codes = [_NO_CODES], [_NO_CODES]
    bounds = reader.row_bounds
    for a, b in _runs(wanted):
        for begin, end in _pieces(bounds, a, b):
            codes = np.empty(int(bounds[end] - bounds[begin]), np.int64)
            reader.read_codes(begin, end, codes)
            rows = np.empty(len(codes), np.int64)
            starts = bounds[begin : end + 1] - bounds[begin]
            count = int(_find_rows(codes, starts, touched, rows))
            found.append(rows[:count] + bounds[begin])
            found_codes.append(codes[rows[:count]])
    return np.concatenate(found), np.concatenate(found_codes)


def _runs(pages: Rows) -> Iterator[tuple[int, int]]:
    """Yield runs of pages, first and last (exclusive), with small gaps between them closed."""
    if not len(pages):
        return
    cuts = np.flatnonzero(np.diff(pages) > _MOST_GAP_PAGES) + 1
    for run in np.split(pages, cuts):
        yield int(run[0]), int(run[-1]) + 1


def _pieces(bounds: Rows, first: int, last: int) -> Iterator[tuple[int, int]]:
    """Cut a run of pages into pieces of at most `_CHUNK_ROWS` rows, or of one page."""
    while first < last:
        end = int(np.searchsorted(bounds, bounds[first] + _CHUNK_ROWS, "right")) - 1
        end = min(last, max(first + 1, end))
        yield first, end
        first = end


@njit(cache=True)
def _find_rows(codes, starts, touched, rows):  # type: ignore[no-untyped-def]
    """Find the rows whose code is among some that ascend; codes ascend within each page."""
    found = 0
    for page in range(len(starts) - 1):
        row, end = starts[page], starts[page + 1]
        if row == end:
            continue
        at = np.searchsorted(touched, codes[row])
        while row < end and at < len(touched):
            if codes[row] < touched[at]:
                row += 1
            elif codes[row] > touched[at]:
                at += 1
            else:
                rows[found] = row
                found += 1
                row += 1
    return found
