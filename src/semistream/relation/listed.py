"""The non-clustered index of a reader: codes on hot pages and on delta pages, and dead rows.

The hot index is small and is read at once. The delta index, 12 bytes for each code that was changed,
is read when a page is first looked for by its code: joins that scan R never need it.
"""

from collections.abc import Callable, Sequence
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from semistream.relation.deltas import copy_bits, dead_bits, delta_path, index_of, merge_listed
from semistream.relation.hot import HotKeys, find
from semistream.relation.layout import Delta, PartitionInfo, snapshot_path
from semistream.relation.pagetable import StoredColumns, dead_bytes
from semistream.relation.storage import Store

_Run = tuple[NDArray[np.int64], NDArray[np.int32]]  # codes, ascending, and the page of each
ENTRY_BYTES = 12
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
        self.starts: list[int] = np.cumsum([0, *pages])[:-1].tolist()  # first page of each
        self._hot = [self._read_hot(at, p) for at, p in zip(self.starts, partitions, strict=True)]
        self.hot_bytes = ENTRY_BYTES * sum(len(codes) for codes, _ in self._hot)
        deltas = [p.delta for p in partitions if p.delta is not None]
        self.delta_bytes = ENTRY_BYTES * sum(delta.code_count for delta in deltas)
        self.most_codes = (self.hot_bytes + self.delta_bytes) // ENTRY_BYTES

    @cached_property
    def merged(self) -> _Run:
        """All codes, ascending and each once, with their pages; delta pages before hot ones."""
        runs: list[_Run] = []
        for at, info, hot in zip(self.starts, self._partitions, self._hot, strict=True):
            if info.delta is None:
                runs.append(hot)
                continue
            codes, pages = self._read_index(info.delta)
            still = find(codes, hot[0]) < 0  # hot keys that were changed are on delta pages
            runs.append((hot[0][still], hot[1][still]))
            runs.append((codes, pages + np.int32(at + info.page_count)))
        self._hot = []
        return merge_listed(runs)

    def hot_keys(self) -> HotKeys:
        """Return the hot keys, ranked by their pages."""
        runs = [self._read_hot(at, p) for at, p in zip(self.starts, self._partitions, strict=True)]
        codes, pages = merge_listed(runs)
        return HotKeys(codes, pages.astype(np.int64))

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

    def _read_hot(self, at: int, info: PartitionInfo) -> _Run:
        if not info.hot_pages:
            return np.zeros(0, np.int64), np.zeros(0, np.int32)
        path = snapshot_path(info.home or self._snapshot, f"{info.files}.hot")
        found = self._read_table("hot index", path, info.hot_index_checksum, ["code", "page"])
        return found["code"], found["page"] + np.int32(at)

    def _read_index(self, delta: Delta) -> _Run:
        return index_of(self._read_delta(delta, "code", "page"), delta)

    def _read_delta(self, delta: Delta, *columns: str) -> StoredColumns:
        path = delta_path(self._snapshot, delta)
        return self._read_table("delta index", path, delta.checksum, list(columns))
