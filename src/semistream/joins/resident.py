"""Resident: all of R in memory. The ceiling for every other operator, and the choice when R fits.

::

    R ──(once)──► hash table over its codes + the columns asked for
    stream ─────► probed batch by batch ──► output at once, nothing waits

The hash table is the window's, with the roles exchanged: R's rows sit in the slots and the
stream's codes probe. The ordered buckets serve here as well: R is loaded in code order.

Memory: for every row of R its code (8), a chain link (4), its share of the buckets (4), and the
columns; plus the output buffer. All of it is reserved before anything is loaded.

Degenerate cases: R that does not fit, a `BudgetError` with what would do.
"""

from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from semistream.errors import BudgetError
from semistream.joins import kernels
from semistream.joins.buckets import Buckets
from semistream.joins.diskbuffer import Slab, slab_bytes
from semistream.joins.spec import JoinSpec
from semistream.joins.stream import Routing, StreamBuffer
from semistream.joins.telemetry import Telemetry
from semistream.joins.window import HashTable
from semistream.memory import MemoryLedger
from semistream.relation.reader import PageReader
from semistream.relation.relation import Relation
from semistream.units import format_bytes

_TABLE_BYTES_PER_ROW = 8 + 4 + 4
_OUTPUT_ROWS = 16_384
_OUTPUT_ROW_BYTES = 64


def least_memory_bytes(reader: PageReader, columns: tuple[str, ...]) -> int:
    """Return what it takes to hold all of R's rows with these columns."""
    columns_bytes = sum(slab_bytes(reader, c, reader.page_count) for c in columns)
    table = reader.row_count * _TABLE_BYTES_PER_ROW
    return reader.table_bytes + table + columns_bytes + _OUTPUT_ROWS * _OUTPUT_ROW_BYTES


def read_columns(relation: Relation, spec: JoinSpec) -> tuple[str, ...]:
    """Return the columns a join reads: those it adds and, for hashed keys, the key's."""
    key = () if relation.coder.is_exact else relation.key
    return tuple(dict.fromkeys([*key, *spec.columns]))


class ResidentJoin:
    """Joins a stream with a relation, or one partition of it, that is held in memory whole."""

    def __init__(
        self, relation: Relation, spec: JoinSpec, budget_bytes: int, partition: int | None = None
    ) -> None:
        """Check that R fits; it is loaded when the first rows arrive."""
        self.ledger = MemoryLedger(budget_bytes)
        self.telemetry = Telemetry()
        self._relation = relation
        self._spec = spec
        self._routing = None if partition is None else Routing(partition, relation.partition_count)
        self._columns = read_columns(relation, spec)
        self._reader = relation.reader(list(self._columns), partition)
        least = least_memory_bytes(self._reader, self._columns)
        if least > budget_bytes:
            raise BudgetError(
                f"resident needs {format_bytes(least)} to hold {self._reader.row_count:,} rows "
                f"with {len(self._columns)} columns, but the budget is "
                f"{format_bytes(budget_bytes)}. Raise memory to {least} bytes, or use "
                "algorithm='meshjoin', which reads R from disk",
                least,
            )
        self.ledger.reserve("relation", least)

    def join(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Join the stream; see `Operator.join`."""
        stream = StreamBuffer(
            batches, self._spec, self._relation.coder, self._reader.may_hold, self._routing
        )
        try:
            self._load()
            while not stream.is_exhausted:
                if stream.pull():
                    for batch in self._join_batch(stream):
                        yield self._counted(batch)
                for batch in stream.take_hopeless():
                    yield self._counted(self._spec.assemble(batch.columns, None, batch.num_rows))
        finally:
            self._reader.close()
            self.telemetry.stream_rows = stream.row_count
            self.telemetry.null_key_rows = stream.null_key_rows
            self.telemetry.missed_rows += stream.hopeless_rows
            self.telemetry.memory_bytes_peak = self.ledger.peak_bytes

    def _counted(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        self.telemetry.output_rows += batch.num_rows
        return batch

    def _load(self) -> None:
        """Read all of R and build the hash table."""
        reader = self._reader
        if not reader.row_count:
            return  # then no stream row has hope, and none is ever looked up
        whole = [(0, reader.page_count)]
        self._codes = np.empty(reader.row_count, np.int64)
        self.telemetry.bytes_read += 8 * reader.read_codes(0, reader.page_count, self._codes)
        self._table = HashTable(Buckets.choose(reader, reader.row_count), self._codes, _OUTPUT_ROWS)
        self._table.insert(self._codes)
        self._slabs = {}
        for column in self._columns:
            arena = np.empty(slab_bytes(reader, column, reader.page_count), np.uint8)
            slab = Slab(reader, column, arena)
            if not slab.is_implied:
                self.telemetry.bytes_read += slab.load(whole)
            self._slabs[column] = slab
        self.telemetry.pages_scanned += reader.page_count

    def _join_batch(self, stream: StreamBuffer) -> Iterator[pa.RecordBatch]:
        waiting = stream.peek()
        assert waiting is not None
        tuples = stream.take(waiting.num_rows)
        matched = np.zeros(len(tuples), np.uint8)
        for probes, rows in self._table.matches(tuples.codes):
            self.telemetry.iterations += 1
            yield from self._emit(tuples.batch, matched, probes, rows)
        missed = np.flatnonzero(matched == 0)
        self.telemetry.missed_rows += len(missed)
        if self._spec.keeps_misses and len(missed):
            columns = tuples.batch.take(pa.array(missed)).columns
            yield self._spec.assemble(columns, None, len(missed))

    def _emit(
        self,
        batch: pa.RecordBatch,
        matched: NDArray[np.uint8],
        probes: NDArray[np.int64],
        rows: NDArray[np.int64],
    ) -> Iterator[pa.RecordBatch]:
        if not self._relation.coder.is_exact:
            same = self._same_keys(batch, probes, rows)
            probes, rows = probes[same], rows[same]
        self.telemetry.matched_pairs += len(rows)
        if self._spec.how == "semi":
            probes = probes[kernels.first_matches(matched, probes)]
        else:
            kernels.mark_matched(matched, probes)
        if len(probes) and self._spec.how != "anti":
            added = [self._gather(column, rows) for column in self._spec.columns]
            stream_columns = batch.take(pa.array(probes)).columns
            yield self._spec.assemble(stream_columns, added, len(probes))

    def _same_keys(
        self, batch: pa.RecordBatch, probes: NDArray[np.int64], rows: NDArray[np.int64]
    ) -> NDArray[np.bool_]:
        coder = self._relation.coder
        ours = coder.canonical([self._gather(column, rows) for column in self._relation.key])
        keys = batch.select(list(self._spec.stream_key)).take(pa.array(probes))
        return coder.same_keys(ours, coder.canonical(keys.columns))

    def _gather(self, column: str, rows: NDArray[np.int64]) -> pa.Array:
        slab = self._slabs[column]
        return slab.from_codes(self._codes[rows]) if slab.is_implied else slab.gather(rows)
