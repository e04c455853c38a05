"""A table in a database as a relation: joins read it in place, page by page."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, NoReturn, Self

import numpy as np
import pyarrow as pa

from semistream.databases.coder import HASH_BITS, PageCoder, check_key_types
from semistream.databases.connect import open_database
from semistream.databases.database import checked_types
from semistream.databases.directory import Directory, count_pages
from semistream.databases.pages import Table, TablePages
from semistream.databases.store import FILES, TableStore, checksum
from semistream.databases.urls import Address
from semistream.errors import ColumnError, OptionError, did_you_mean
from semistream.keys import KeyCoder, canonical_type
from semistream.relation import relation
from semistream.relation.layout import Manifest, PartitionInfo, new_snapshot_name
from semistream.relation.leases import Hold
from semistream.relation.reader import PageReader
from semistream.units import parse_bytes

DEFAULT_PAGE_BYTES = 8 << 10
DEFAULT_BUFFER_BYTES = 4 << 20


@dataclass(frozen=True, slots=True)
class TableManifest(Manifest):
    """What was found out about a table when it was opened."""

    directory: Directory | None = None
    page_coder: PageCoder | None = None

    @property
    def coder(self) -> KeyCoder:
        """The coder that orders keys as the database does."""
        assert self.page_coder is not None
        return self.page_coder


@dataclass(frozen=True, repr=False)
class TableRelation(relation.Relation):
    """A relation whose rows stay in a database. Safe to pickle: it holds no connection."""

    url: str = ""
    table: str = ""
    buffer_bytes: int = field(default=DEFAULT_BUFFER_BYTES)

    @classmethod
    def at(
        cls,
        url: str,
        table: str,
        key: str | Sequence[str],
        columns: Sequence[str] | None,
        page_size: int | str,
        buffer: int | str,
    ) -> Self:
        """Connect, check the key and its index, and count the table's pages."""
        keys = (key,) if isinstance(key, str) else tuple(key)
        if not keys:
            raise OptionError("the key has no columns; name at least one with key=…")
        database = open_database(Address.parse(url))
        try:
            chosen = None if columns is None else list(dict.fromkeys([*keys, *columns]))
            schema = database.schema(table, chosen)
            for name in keys:
                if name not in schema.names:
                    raise ColumnError(
                        f"the table {table!r} has no column {name!r}; it has "
                        f"{', '.join(schema.names)}.{did_you_mean(name, schema.names)}"
                    )
            checked_types(schema, table)
            check_key_types(schema, keys)
            database.check_key(table, keys, schema)
            page_bytes = parse_bytes(page_size)
            directory = count_pages(database, table, keys, schema, page_bytes)
        finally:
            database.close()
        manifest = _manifest(keys, schema, directory, page_bytes, table)
        return cls(
            f"{url.rstrip('/')}/{table}",
            manifest,
            url=url,
            table=table,
            buffer_bytes=parse_bytes(buffer),
        )

    @property
    def row_count(self) -> int:
        """The number of rows when the table was opened."""
        return int(self._directory.row_counts.sum())

    @property
    def store(self) -> TableStore:
        """The files that the table would have."""
        return self._store(self.schema.names)

    def reader(self, columns: list[str], partition: int | None = None) -> PageReader:
        """Return a reader of some columns; each has a transaction of its own."""
        return PageReader(self._store(columns), self.manifest, [0], columns, self.reading)

    def opened_again(self) -> Self:
        """Return the relation with its pages counted again."""
        about = (self.key, self.schema.names, self.manifest.page_bytes, self.buffer_bytes)
        return replace(type(self).at(self.url, self.table, *about), reading=self.reading)

    def seen_now(self) -> Self:
        """Return the relation for a join that begins now: what it reads is a snapshot of its own.

        So its age is that of the rows, and nothing that was kept of earlier rows is taken for them.
        """
        now = datetime.now(UTC)
        name, since = new_snapshot_name(now), now.isoformat()
        return replace(self, manifest=replace(self.manifest, snapshot=name, created_at=since))

    def hold(self) -> Hold:
        """Nothing is pruned in a database; kept so that all relations can be held."""
        return self.reader(list(self.key))._hold

    def snapshots(self) -> list[str]:
        """Return the one that is open: a database shows only its present rows."""
        return [self.snapshot]

    def info(self) -> NoReturn:
        """Raise: there are no files to describe."""
        raise self._not_here("info")

    def verify(self, *_: Any, **__: Any) -> NoReturn:
        """Raise: a database checks its own pages."""
        raise self._not_here("verify")

    def prune(self, *_: Any, **__: Any) -> NoReturn:
        """Raise: a database keeps no snapshots."""
        raise self._not_here("prune")

    @property
    def _directory(self) -> Directory:
        assert isinstance(self.manifest, TableManifest)
        assert self.manifest.directory is not None
        return self.manifest.directory

    def _store(self, columns: Sequence[str]) -> TableStore:
        coder = self.manifest.coder
        table = Table(self.table, self.key, self.schema, self._directory, coder)
        address, kept = Address.parse(self.url), self.buffer_bytes
        return TableStore(
            self.location,
            table,
            lambda: TablePages(open_database(address), table, columns, kept),
            kept,
        )

    def _not_here(self, what: str) -> OptionError:
        return OptionError(
            f"{self.location} is a table that is read in place, so there is no {what} of it; make "
            "a copy with build_relation(sql_table(url, table), path, key=…) for that"
        )


def _manifest(
    key: tuple[str, ...],
    schema: pa.Schema,
    directory: Directory,
    page_bytes: int,
    table: str,
) -> TableManifest:
    types = tuple(canonical_type(schema.field(name).type, name) for name in key)
    coder = PageCoder(types, directory.bounds)
    now = datetime.now(UTC)
    manifest = TableManifest(
        snapshot=new_snapshot_name(now),
        created_at=now.isoformat(),
        schema=schema,
        key=key,
        page_bytes=page_bytes,
        null_keys_dropped=0,
        partitions=(),
        directory=directory,
        page_coder=coder,
    )
    described = Table(table, key, schema, directory, coder)
    sizes = sum(int(described.part_sizes(name).sum()) for name in described.parts())
    rows = int(directory.room_rows.sum())
    info = PartitionInfo(
        index=0,
        files=FILES,
        row_count=rows,
        page_count=directory.page_count,
        size_bytes=sizes + 8 * rows,
        distinct_codes=max(1, int(directory.row_counts.sum())),
        most_duplicates=2,  # unknown; two keys may also share a hash
        first_code=0,
        last_code=(directory.page_count << HASH_BITS) - 1,
        squared_loads=_squared_loads(directory.row_counts),
        page_table_checksum=checksum(described),
    )
    return replace(manifest, partitions=(info,))


def _squared_loads(row_counts: np.ndarray[Any, np.dtype[np.int64]]) -> tuple[int, ...]:
    """Return the sum of (rows with one value of ``code >> shift``)², for each shift.

    Within a page codes are hashes, so the rows are spread evenly.
    """
    rows = row_counts.astype(np.float64)
    loads = []
    for shift in range(64):
        if shift < HASH_BITS:
            cells = 2.0 ** (HASH_BITS - shift)
            loads.append(int((rows + rows * np.maximum(rows - 1, 0) / cells).sum()))
        else:
            groups = np.arange(len(rows)) >> (shift - HASH_BITS)
            loads.append(int((np.bincount(groups, rows) ** 2).sum()))
    return tuple(loads)
