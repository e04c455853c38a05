"""A relation: the master table R, prepared once and opened by every join."""

import os
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING

import pyarrow as pa

from semistream.errors import OptionError, RelationNotFoundError
from semistream.keys import KeyCoder
from semistream.relation.device import Reading
from semistream.relation.layout import CURRENT, SNAPSHOTS, Manifest, Order, snapshot_path
from semistream.relation.reader import PageReader, page_table_bound
from semistream.relation.storage import Store
from semistream.units import format_bytes

if TYPE_CHECKING:
    from semistream.advice.explain import Explanation
    from semistream.joins.spec import Columns, On


@dataclass(frozen=True)
class Relation:
    """One snapshot of a relation. Cheap to open, safe to pickle: it holds only the manifest.

    >>> products = Relation.open("products.rel")  # doctest: +SKIP
    >>> products.row_count, products.key  # doctest: +SKIP
    (3500000, ('product_id',))
    """

    location: str
    manifest: Manifest
    reading: Reading = field(default_factory=Reading)

    @classmethod
    def open(cls, location: str | os.PathLike[str], snapshot: str | None = None) -> "Relation":
        """Open the current snapshot of the relation at a path or URI, or a named one."""
        store = Store.at(location)
        if not store.exists(CURRENT):
            raise RelationNotFoundError(
                f"{os.fspath(location)!r} is not a relation: it has no {CURRENT} file. "
                "Build one there with semistream.build_relation(source, path, key=…)"
            )
        # A name that is no UTF-8, or has a NUL in it, is no snapshot's.
        snapshot = (
            snapshot or store.read(CURRENT).decode(errors="replace").replace("\0", "").strip()
        )
        name = snapshot_path(snapshot, "manifest.json")
        if not store.exists(name):
            raise RelationNotFoundError(
                f"{os.fspath(location)!r} has no snapshot {snapshot!r}; "
                f"it has {', '.join(store.list(SNAPSHOTS)) or 'none'}"
            )
        where = os.fspath(location) if "://" in os.fspath(location) else store.root
        return cls(where, Manifest.from_json(store.read(name), store.path(name)))

    @property
    def schema(self) -> pa.Schema:
        """All columns of R, the key among them."""
        return self.manifest.schema

    @property
    def key(self) -> tuple[str, ...]:
        """The names of the key columns."""
        return self.manifest.key

    @property
    def order(self) -> Order:
        """How the rows lie: by ``key``, or by ``frequency`` with the hot pages first."""
        return self.manifest.order

    @property
    def snapshot(self) -> str:
        """The id of the snapshot that is open."""
        return self.manifest.snapshot

    @property
    def partition_count(self) -> int:
        """P: how many hash partitions R has."""
        return len(self.manifest.partitions)

    @property
    def row_count(self) -> int:
        """How many rows R has; rows without a key are not among them."""
        return sum(p.row_count for p in self.manifest.partitions)

    @property
    def page_count(self) -> int:
        """How many pages R has."""
        return sum(p.page_count for p in self.manifest.partitions)

    @property
    def hot_page_count(self) -> int:
        """How many of the pages are hot; none unless R is ordered by frequency."""
        return sum(p.hot_pages for p in self.manifest.partitions)

    @property
    def size_bytes(self) -> int:
        """What R takes on disk, page tables and the hot index aside."""
        return sum(p.size_bytes for p in self.manifest.partitions)

    @property
    def has_unique_keys(self) -> bool:
        """Whether no two rows of R have the same key."""
        return all(p.most_duplicates <= 1 for p in self.manifest.partitions)

    @cached_property
    def coder(self) -> KeyCoder:
        """Turns key columns, of R or of a stream, into key codes."""
        return self.manifest.coder

    @property
    def store(self) -> Store:
        """The files of the relation."""
        return Store.at(self.location)

    def reader(self, columns: list[str], partition: int | None = None) -> PageReader:
        """Return a reader of some columns, over one partition or over all."""
        partitions = range(self.partition_count) if partition is None else [partition]
        return PageReader(self.store, self.manifest, partitions, columns, self.reading)

    def page_table_bytes(self, columns: list[str], partition: int | None = None) -> int:
        """Return what a reader of some columns takes at most while it loads the page table."""
        partitions = range(self.partition_count) if partition is None else [partition]
        return page_table_bound(self.store, self.manifest, partitions, columns)

    def read_by(self, reading: Reading) -> "Relation":
        """Return the same relation, to be read in another way: from an emulated disk, say."""
        return replace(self, reading=reading)

    def explain(
        self,
        *,
        memory: int | str,
        rate: float | None = None,
        skew: float | None = None,
        sample: pa.Table | None = None,
        on: "On | None" = None,
        columns: "Columns | None" = None,
    ) -> "Explanation":
        """Return what a budget buys: algorithms ranked by predicted rate, the split, alternatives.

        `skew` is a Zipf exponent; a `sample` of the stream, a table with its key, says more. See
        `semistream.advice.explain`.
        """
        from semistream.advice.explain import explain

        return explain(
            self, memory=memory, rate=rate, skew=skew, sample=sample, on=on, columns=columns
        )

    def snapshots(self) -> list[str]:
        """Return the ids of all snapshots that are kept, oldest first."""
        return _published(self.store)

    def prune(self, keep: int = 1) -> list[str]:
        """Delete all but the newest `keep` snapshots and return the ids deleted.

        The current one always stays. A running query must not still be reading what is deleted.
        What builds that died before the current snapshot left behind goes as well, so no build
        may be running.
        """
        if keep < 1:
            raise OptionError(f"keep must be at least 1; got {keep}")
        store = self.store
        current = store.read(CURRENT).decode().strip()
        others = [s for s in _published(store) if s != current]
        doomed = others[: max(0, len(others) - (keep - 1))]
        drafts = set(store.list(SNAPSHOTS)) - {current, *others}
        doomed += sorted(draft for draft in drafts if draft < current)
        for snapshot in doomed:
            store.remove(snapshot_path(snapshot))
        return doomed

    def __repr__(self) -> str:
        """Describe the relation in one line."""
        return (
            f"<Relation {self.location!r}: {self.row_count:,} rows, "
            f"{format_bytes(self.size_bytes)}, key {', '.join(self.key)}, "
            f"{self.partition_count} partitions, {self.page_count:,} pages>"
        )


def _published(store: Store) -> list[str]:
    """Return the snapshots that were finished, oldest first; a draft has no manifest."""
    names = store.list(SNAPSHOTS)
    return [name for name in names if store.exists(snapshot_path(name, "manifest.json"))]
