"""The size of a front stage: single rows of R in sets, or whole pages that stay in memory."""

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from semistream.budget.pagesizes import value_bytes
from semistream.budget.rowsizes import base_bytes, row_bytes
from semistream.relation.pagetable import CODES
from semistream.relation.reader import PageReader
from semistream.relation.writer import CODE_BYTES

WAYS = 7  # places in which a key can stand
MOST_ROWS_PER_KEY = WAYS // 2  # a key of more rows is not cached: all of them would have to be
PLACES_PER_ADMISSION = 64  # no more than this part of the cache is replaced at a time
# Its part of a line, and for each admission a candidate, its place, and the rows that are evicted.
_ENTRY_BYTES = 64 / WAYS + 4 * (2 + MOST_ROWS_PER_KEY) / PLACES_PER_ADMISSION
_LEAST_SETS = PLACES_PER_ADMISSION
# The paper's cache policy (`joins/thresholdcache.py`): slots of its hash table, and what it has of
# a row: code, count, the recorder's order and noted count, state, slots, and for each admission a
# candidate, its place, and the row that is evicted.
SLOTS_PER_ROW = 1.5
_RECORDED_BYTES = 8 + 4 + 4 + 4 + 1 + 4 * SLOTS_PER_ROW + 3 * 4 / PLACES_PER_ADMISSION
_BYTES_PER_PAGE = 4 + 4 + 1 + 4 + 8  # demand, place, whether chosen, a score, and their order
_BYTES_PER_PLACE = 8 + 8 + 1


@dataclass(frozen=True, slots=True)
class FrontPolicy:
    """What a front stage does, as far as a cost model must know it; see `joins/frontstage.py`."""

    least_skew: float  # a hit ratio below this multiple of the cached share of R is chance
    cycles_of_rest: int  # after which a front stage that hits by chance alone is tried again
    patience: int  # arrivals for each slot of the window before the back stage goes on


@dataclass(frozen=True, slots=True)
class CachedColumns:
    """What of each row a front stage keeps."""

    schema: pa.Schema
    value_bytes: tuple[float, ...]
    implied: int | None  # the column that is the key code
    has_unique_codes: bool

    @classmethod
    def of(cls, reader: PageReader, columns: Sequence[str]) -> "CachedColumns":
        """Describe some columns of a relation."""
        manifest = reader.manifest
        key = manifest.key[0] if manifest.coder.is_exact else None
        fields = [manifest.schema.field(name) for name in columns]
        return cls(
            pa.schema([f.with_nullable(reader.has_nulls(f.name)) for f in fields]),
            tuple(value_bytes(reader, name) for name in columns),
            columns.index(key) if key in columns else None,
            reader.has_unique_codes,
        )

    @property
    def entry_bytes(self) -> float:
        """The size of a place in the cache."""
        return _ENTRY_BYTES + row_bytes(self.schema, self.value_bytes)


def set_count(columns: CachedColumns, budget_bytes: int) -> int:
    """Return how many sets a front stage of this size has; none if it would be too small."""
    spare = budget_bytes - base_bytes(columns.schema)
    sets = int(spare / (WAYS * columns.entry_bytes)) - 1  # one to align
    return sets if sets >= _LEAST_SETS else 0


def recorded_rows(columns: CachedColumns, budget_bytes: int) -> int:
    """Return how many rows a front stage of this size has with the paper's cache policy."""
    spare = budget_bytes - base_bytes(columns.schema) - 8 * PLACES_PER_ADMISSION
    rows = int(spare / (_RECORDED_BYTES + row_bytes(columns.schema, columns.value_bytes)))
    return rows if rows >= WAYS * _LEAST_SETS else 0


def pinned_part_bytes(reader: PageReader, columns: Sequence[str], places: int) -> int:
    """Return the size of a pinned part of this many pages."""
    if not places:
        return 0
    cached = CachedColumns.of(reader, columns)
    row = CODE_BYTES + row_bytes(cached.schema, cached.value_bytes, cached.implied)
    rows = places * most_rows_of_a_page(reader)
    besides = _BYTES_PER_PAGE * reader.page_count + _BYTES_PER_PLACE * places
    return int(rows * row) + base_bytes(cached.schema) + besides


def most_rows_of_a_page(reader: PageReader) -> int:
    """Return how many rows the largest page has."""
    return reader.most_part_bytes(CODES, 1) // CODE_BYTES
