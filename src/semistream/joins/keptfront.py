"""A front stage that outlives joins: what one micro-batch has learned, the next one begins with.

A join that is given a `KeptFront` uses its cache instead of one of its own. When the join has
ended, `saved` has all that the cache holds: hot rows with their counts, and keys that R does not
have. Given to the next `KeptFront` of the same columns and size, the cache continues. Without it,
or with one that does not fit, the next cache begins empty: that costs time, and changes no row.

Memory: `size_bytes`, counted by whoever makes it. Rows with nested values are not kept.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from semistream.joins.frontstage import TupleCache
from semistream.joins.telemetry import Telemetry
from semistream.relation.reader import PageReader


@dataclass(frozen=True, slots=True)
class Saved:
    """What a cache held, and of which columns and size it was."""

    shape: str
    arrays: Sequence[NDArray[Any]]


class KeptFront:
    """Makes one cache of hot rows for the joins of a stream, one after the other."""

    def __init__(self, size_bytes: int, saved: Saved | None = None) -> None:
        """Prepare a cache of at most `size_bytes` that begins with what was saved."""
        self.size_bytes = size_bytes
        self._saved = saved
        self._shape = ""  # of the cache, once it is made
        self._cache: TupleCache | None = None

    def for_join(
        self, reader: PageReader, columns: Sequence[str], telemetry: Telemetry
    ) -> TupleCache | None:
        """Return the cache for a join over these columns; None if it cannot be kept."""
        if self._cache is None:
            self._make(reader, columns, telemetry)
        else:
            self._cache.count_in(telemetry)
        return self._cache

    def _make(self, reader: PageReader, columns: Sequence[str], telemetry: Telemetry) -> None:
        cache = TupleCache.for_budget(reader, columns, self.size_bytes, telemetry)
        if cache is None or not cache.can_be_saved:
            return
        fields = [str(reader.manifest.schema.field(name)) for name in columns]
        rows = (reader.manifest.snapshot, reader.row_count)
        self._shape = repr((rows, fields, cache.capacity))
        if self._saved is not None and self._saved.shape == self._shape:
            cache.restore(self._saved.arrays)
            telemetry.warm_rows += cache.occupied
        self._saved = None
        self._cache = cache

    @property
    def saved(self) -> Saved | None:
        """What to begin the next cache with; None if no join has used this one."""
        if self._cache is None:
            return None
        return Saved(self._shape, self._cache.saved())

    @property
    def occupied(self) -> int:
        """How many places of the cache hold a key."""
        return 0 if self._cache is None else self._cache.occupied

    def end_stream(self) -> None:
        """Note the end of a stream: a micro-batch counts as a cycle, so that old rows can leave."""
        if self._cache is not None:
            self._cache.end_cycle()
