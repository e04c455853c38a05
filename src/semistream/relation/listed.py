"""The non-clustered index of a reader: codes on hot pages and on delta pages, and dead rows.

The hot index is small and is read at once. The delta index, which grows with what was changed
(`semistream.relation.codepages`), is read when a page is first looked for by its code. Joins that
scan R need only its bitmap, if it has one: tuples of listed codes need no other pages than hot and
delta pages, and all other tuples need none of these.
"""

from collections.abc import Callable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from semistream.relation.codepages import CodeBits, CodePages, Form, Run
from semistream.relation.deltas import copy_bits, dead_bits, delta_path, index_of
from semistream.relation.hot import find
from semistream.relation.layout import Delta, PartitionInfo, snapshot_path
from semistream.relation.pagetable import StoredColumns, dead_bytes
from semistream.relation.storage import Store

# Reads columns of a file of arrays (what it is, path, checksum, columns), or explains the failure.
ReadTable = Callable[[str, str, int, list[str]], StoredColumns]


class Listed:
    """What is known of single codes and rows of some partitions, numbered as their reader does."""

    def __init__(
        self,
        store: Store,
        snapshot: str,
        partitions: Sequence[PartitionInfo],
        read_table: ReadTable,
    ) -> None:
        """Read the hot index."""
        self._store = store
        self._snapshot = snapshot  # that the manifest describes
        self._partitions = partitions  # that have rows
        self._read_table = read_table
        pages = [sum(segment.page_count for segment in p.segments) for p in partitions]
        self._page_count = sum(pages)
        self.starts: list[int] = np.cumsum([0, *pages])[:-1].tolist()  # first page of each
        # The hot index: codes, ascending and each once, and the page of each.
        self.hot_codes, self.hot_pages = self._read_hot_index()
        deltas = [p.delta for p in partitions if p.delta is not None]
        changed = sum(delta.code_count for delta in deltas)
        self.most_codes = len(self.hot_codes) + changed

    def merged(self, code_range: tuple[int, int]) -> CodePages:
        """Return all codes with their pages; a code that is on a delta page, with that."""
        runs: list[Run] = []
        is_hot = np.ones(len(self.hot_codes), np.bool_)  # hot keys that were not changed
        for at, info in zip(self.starts, self._partitions, strict=True):
            if info.delta is not None:
                codes, pages = self._read_index(info.delta)
                is_hot &= find(codes, self.hot_codes) < 0
                runs.append((codes, pages + np.int32(at + info.page_count)))
        runs.append((self.hot_codes[is_hot], self.hot_pages[is_hot]))
        return CodePages.merged(runs, self.form(code_range))

    def bits(self, code_range: tuple[int, int]) -> CodeBits:
        """Return a bit for each code of the range: whether it is on a hot or delta page."""
        return CodeBits.of(self._listed_codes(), self.form(code_range))

    def _listed_codes(self) -> Iterator[NDArray[np.int64]]:
        yield self.hot_codes
        for info in self._partitions:
            if info.delta is not None:
                yield self._read_index(info.delta)[0]

    def split(self, first: int, last: int) -> Iterator[tuple[int, int, bool]]:
        """Split pages where clustered ones begin or end; say of each part if it is of listed codes.

        Delta pages of a partition and hot pages of the next lie side by side.
        """
        at = first
        for start, info in zip(self.starts, self._partitions, strict=True):
            begin, end = start + info.hot_pages, start + info.page_count
            for part_end, are_listed in ((min(begin, last), True), (min(end, last), False)):
                if at < part_end:
                    yield at, part_end, are_listed
                    at = part_end
        if at < last:
            yield at, last, True

    def form(self, code_range: tuple[int, int]) -> Form:
        """Return the form of what `merged` returns."""
        return Form(code_range, self._page_count, self.most_codes)

    def read_dead(self) -> NDArray[np.uint8]:
        """Return a bit for each row, whether it is dead; nothing if none is."""
        dead = np.zeros(dead_bytes(self._partitions), np.uint8)
        at = 0
        for info in self._partitions:
            if info.delta is not None and info.delta.dead_rows:
                bits = np.array(dead_bits(self._read_delta(info.delta, "dead")))
                copy_bits(bits, info.stored_rows, dead, at)
            at += info.stored_rows
        return dead

    def _read_hot_index(self) -> Run:
        """Merge the partitions' indexes of hot pages; a code is in one partition only."""
        codes, pages = [np.zeros(0, np.int64)], [np.zeros(0, np.int32)]
        for at, info in zip(self.starts, self._partitions, strict=True):
            if info.hot_pages:
                path = snapshot_path(info.home or self._snapshot, f"{info.files}.hot")
                about = ("hot index", path, info.hot_index_checksum, ["code", "page"])
                table = self._read_table(*about)
                codes.append(table["code"])
                pages.append(table["page"] + np.int32(at))
        joined = np.concatenate(codes)
        order = np.argsort(joined)
        return joined[order], np.concatenate(pages)[order]

    def _read_index(self, delta: Delta) -> Run:
        return index_of(self._read_delta(delta, "code", "page"), delta)

    def _read_delta(self, delta: Delta, *columns: str) -> StoredColumns:
        path = delta_path(self._snapshot, delta)
        return self._read_table("delta index", path, delta.checksum, list(columns))
