"""A front stage that outlives joins: what one micro-batch has learned, the next one begins with.

A join that is given a `KeptFront` uses its cache instead of one of its own. When the join has
ended, `saved` has all that the cache holds: hot rows with their counts, and keys that R does not
have. Given to the next `KeptFront` of the same columns and size, the cache continues. Without it,
or with one that does not fit, the next cache begins empty: that costs time, and changes no row.

What was saved of an older snapshot of R serves a newer one too, if it is known which keys differ
(`Saved.taken_up`): their rows are evicted, the others stay.

Memory: `size_bytes`, counted by whoever makes it. Rows with nested values are not kept.
"""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from semistream.budget.frontsizes import CachedColumns, set_count
from semistream.joins.frontstage import TupleCache
from semistream.joins.protocols import Codes
from semistream.joins.telemetry import Telemetry
from semistream.relation.reader import PageReader


@dataclass(frozen=True, slots=True)
class CacheShape:
    """What a cache is made from; two of equal shapes have the same arrays."""

    size_bytes: int
    fields: tuple[str, ...]
    is_unique: bool  # each key has one row
    value_bytes: tuple[float, ...]  # of each column; a newer snapshot may have other averages
    sets: int

    @classmethod
    def of(cls, columns: CachedColumns, size_bytes: int) -> "CacheShape":
        """Return the largest shape that fits; it has no sets if none does."""
        fields = tuple(f"{field} {field.nullable}" for field in columns.schema)
        sets = set_count(columns, size_bytes)
        return cls(size_bytes, fields, columns.has_unique_codes, columns.value_bytes, sets)

    @property
    def text(self) -> str:
        """The shape as JSON."""
        return json.dumps(asdict(self))

    @classmethod
    def parse(cls, text: str) -> "CacheShape":
        """Return the shape of its JSON."""
        found = json.loads(text)
        lists = {name: tuple(found[name]) for name in ("fields", "value_bytes")}
        return cls(**(found | lists))

    def fits(self, other: "CacheShape") -> bool:
        """Whether a cache of the other shape can be used where this one would be made."""
        ours = (self.size_bytes, self.fields, self.is_unique)
        return ours == (other.size_bytes, other.fields, other.is_unique)


@dataclass(frozen=True, slots=True)
class Saved:
    """What a cache held, and of which columns and size it was."""

    snapshot: str  # of R
    shape: CacheShape
    arrays: Sequence[NDArray[Any]]
    changed: Codes = field(default_factory=lambda: np.zeros(0, np.int64))  # to be evicted

    def taken_up(self, snapshot: str, changed: Codes) -> "Saved":
        """Return this for a newer snapshot, in which only these keys may have other rows."""
        return replace(self, snapshot=snapshot, changed=changed)


class KeptFront:
    """Makes one cache of hot rows for the joins of a stream, one after the other."""

    def __init__(self, size_bytes: int, saved: Saved | None = None) -> None:
        """Prepare a cache of at most `size_bytes` that begins with what was saved."""
        self.size_bytes = size_bytes
        self._saved = saved
        self._made: tuple[str, CacheShape] | None = None  # snapshot and shape of the cache
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
        cached = CachedColumns.of(reader, columns)
        snapshot, shape = reader.manifest.snapshot, CacheShape.of(cached, self.size_bytes)
        saved, self._saved = self._saved, None
        if saved is not None and (saved.snapshot != snapshot or not shape.fits(saved.shape)):
            saved = None
        if saved is not None:
            shape = saved.shape
            cached = replace(cached, value_bytes=shape.value_bytes)
        if not shape.sets:
            return
        cache = TupleCache(cached, shape.sets, reader.row_count, telemetry)
        if not cache.can_be_saved:
            return
        if saved is not None:
            cache.restore(saved.arrays)
            cache.forget(saved.changed)
            telemetry.warm_rows += cache.occupied
        self._made = (snapshot, shape)
        self._cache = cache

    @property
    def saved(self) -> Saved | None:
        """What to begin the next cache with; None if no join has used this one."""
        if self._cache is None or self._made is None:
            return None
        return Saved(*self._made, self._cache.saved())

    @property
    def occupied(self) -> int:
        """How many places of the cache hold a key."""
        return 0 if self._cache is None else self._cache.occupied

    def end_stream(self) -> None:
        """Note the end of a stream: a micro-batch counts as a cycle, so that old rows can leave."""
        if self._cache is not None:
            self._cache.end_cycle()
