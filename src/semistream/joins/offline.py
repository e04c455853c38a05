"""The offline bound: CMESHJOIN with the best fixed cache. To compare with, not for use.

It reads the whole stream beforehand, counts its keys, and gives each set of the front stage the
seven that will be requested most; no other key may enter. So its hit ratio is a bound for every
front stage of this size and shape on this stream that does not change its set as it goes. Charts
draw it as a ceiling.

Memory: CMESHJOIN's. The stream and the counts are held besides, and not counted: that is the
cheating.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from semistream.budget.rules import RULES
from semistream.joins import front_kernels as kernels
from semistream.joins.frontstage import TupleCache
from semistream.joins.meshjoin import MeshJoin
from semistream.joins.protocols import Codes, Matched
from semistream.joins.scanjoin import ScanJoin
from semistream.joins.streamjoin import JoinTask
from semistream.joins.telemetry import Telemetry
from semistream.relation.reader import PageReader


class FixedCache(TupleCache):
    """A front stage that admits a set of keys which was chosen beforehand, and no others."""

    chosen: Codes = np.zeros(0, np.int64)  # ascending

    def choose(self, codes_by_demand: Codes) -> None:
        """Give each set the keys that come first."""
        self.chosen = np.sort(kernels.first_of_each_set(codes_by_demand, len(self._table)))

    def observe_matches(self, matched: Matched) -> None:
        """Let chosen keys in; if each has one row, there is room for all of them."""
        codes = matched.page_codes[matched.rows]
        which = np.flatnonzero(self._is_chosen(codes))
        super().observe_matches(
            replace(
                matched,
                rows=matched.rows[which],
                tallies=matched.tallies[which],
                sizes=None if matched.sizes is None else matched.sizes[which],
                take=lambda some: matched.take(which[some]),
            )
        )

    def observe_missing(self, codes: Codes) -> None:
        """Let chosen keys in that R does not have."""
        super().observe_missing(codes[self._is_chosen(codes)])

    def _is_chosen(self, codes: Codes) -> NDArray[np.bool_]:
        if not len(self.chosen):
            return np.zeros(len(codes), np.bool_)
        at = np.minimum(np.searchsorted(self.chosen, codes), len(self.chosen) - 1)
        is_chosen: NDArray[np.bool_] = self.chosen[at] == codes
        return is_chosen


class OfflineJoin(ScanJoin):
    """MESHJOIN behind the best fixed cache."""

    def __init__(self, task: JoinTask) -> None:
        """Open the relation's page table."""
        super().__init__(task, RULES["cmeshjoin"], MeshJoin, self._make_cache)
        self._codes_by_demand: Codes = np.zeros(0, np.int64)  # the stream's, most frequent first

    def join(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Look at the whole stream, then join it."""
        stream = list(batches)
        codes = [np.zeros(0, np.int64), *map(self._codes_that_may_match, stream)]
        unique, counts = np.unique(np.concatenate(codes), return_counts=True)
        self._codes_by_demand = unique[np.argsort(-counts, kind="stable")].astype(np.int64)
        return super().join(stream)

    def _codes_that_may_match(self, batch: pa.RecordBatch) -> Codes:
        columns = [batch.column(i) for i in self._spec.stream_key_indexes]
        codes, has_key = self._relation.coder.codes(columns)
        return codes[has_key & self._reader.may_hold(codes)]

    def _make_cache(
        self, reader: PageReader, columns: Sequence[str], budget_bytes: int, telemetry: Telemetry
    ) -> TupleCache | None:
        cache = FixedCache.for_budget(reader, columns, budget_bytes, telemetry)
        if cache is not None:
            cache.choose(self._codes_by_demand)
        return cache
