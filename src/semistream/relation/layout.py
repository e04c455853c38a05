"""The files of a relation, and the manifest that describes a snapshot.

::

    products.rel/
      CURRENT                          the id of the snapshot that readers open
      leases/<id>/…                    processes that use a snapshot (`relation.leases`)
      snapshots/<id>/manifest.json     what this module reads and writes
      snapshots/<id>/part-….codes      key codes of a partition, 8 bytes a row
      snapshots/<id>/part-….data       extents: the parts of each column, page after page
      snapshots/<id>/part-….pages      the page table: rows, first code, offsets, checksums
      snapshots/<id>/part-….hot        only where there are hot pages: their index
      snapshots/<id>/part-….delta      only where rows were changed: the delta index, dead rows

A *page* is a run of rows of at most ``page_bytes`` (a single wider row gets a page of its own).
An *extent* is a run of pages whose columns lie together, so that reading one column of many
consecutive pages is one read.

The pages of a partition, by the relation's order::

    order="key"         │ clustered pages: all rows, sorted by key code                       │
    order="frequency"   │ hot pages, most frequent first │ clustered pages: all other rows    │
                        0                          hot_pages                          page_count

Clustered pages ascend in code from row to row and from page to page. Their first codes, in the
page table, are the sparse clustered index: a binary search finds a code's page.

*Hot pages* hold the rows of the *hot keys*, those that a sample of the stream requests most
(`semistream.relation.hot`). All rows of a hot key lie on one hot page, and no key of a page is
more frequent than one of the page before. Within a page the rows are sorted by code, and its
first code is its least; from page to page the codes do not ascend. So hot pages have an index of
their own, non-clustered: each hot code once, ascending, with the number of its page. A code that
is not in there can only be on a clustered page.

In the ``.codes`` and ``.data`` files the hot pages lie behind the clustered ones, because a build
knows them only at the end; in the page table, and wherever pages are numbered, they come first.

*Delta pages* hold rows that were changed since the other pages of a partition, its *base*, were
written (`semistream.relation.upsert`). Each upsert adds a *segment*: files like those of a
partition, with pages clustered by code. The base and the segments of a partition are numbered as
one sequence of pages and rows, the base first, the newest segment last. A segment holds *all* rows
of each of its codes. The rows of these codes in the base and in older segments are *dead*: a bitmap
says which. The *delta index* says, for each code with live rows on delta pages, on which page they
begin. So a code is looked for in the delta index, then in the hot index, then on the clustered
pages.

A snapshot shares the files that did not change with the snapshot it was made from: the manifest
names the *home* of a partition's files, the snapshot in whose folder they are.

A snapshot in order of frequency has format version 2, since a reader of version 1 would search
its pages as if all were clustered. One with deltas or shared files has version 3. All other
snapshots are still exactly version 1.
"""

import base64
import json
import re
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from functools import cached_property
from typing import Any, Literal, TypeAlias, get_args
from uuid import uuid4

import pyarrow as pa
from isal.isal_zlib import crc32

from semistream.columns import Encoding, encoding_of
from semistream.errors import CorruptRelationError, RelationFormatError
from semistream.keys import KeyCoder
from semistream.relation.validity import Validity

Order: TypeAlias = Literal["key", "frequency"]
ORDERS: tuple[Order, ...] = get_args(Order)
FORMAT_VERSIONS: dict[Order, int] = {"key": 1, "frequency": 2}
SHARING_VERSION = 3  # with deltas, or with files of other snapshots, in any order
FORMAT_VERSION = SHARING_VERSION  # the newest that this version reads
CURRENT = "CURRENT"
SNAPSHOTS = "snapshots"
MANIFEST = "manifest.json"
_SNAPSHOT_NAME = re.compile(r"\d{8}T\d{12}-[0-9a-f]{8}")  # when its build began, and a random part
_FILE_NAME = re.compile(r"part-\d{5,}-\w+\.[a-z]+")

_NO_LOADS = (0,) * 64

PARTS = {
    Encoding.FIXED: ("values", "validity"),
    Encoding.BYTES: ("lengths", "data", "validity"),
    Encoding.NESTED: ("message",),
}


def new_snapshot_name(now: datetime) -> str:
    """Return the name of a snapshot whose build begins now; names sort by that time."""
    return f"{now:%Y%m%dT%H%M%S%f}-{uuid4().hex[:8]}"


def is_snapshot_name(name: str) -> bool:
    """Whether a build could have given a snapshot this name.

    >>> is_snapshot_name("20240229T120000000000-0123abcd"), is_snapshot_name("../../other")
    (True, False)
    """
    return _SNAPSHOT_NAME.fullmatch(name) is not None


def snapshot_path(snapshot: str, name: str = "") -> str:
    """Return the path of a snapshot's file inside the relation."""
    return f"{SNAPSHOTS}/{snapshot}/{name}".rstrip("/")


def part_names(field_index: int, dtype: pa.DataType) -> dict[str, str]:
    """Return part → name in the page table, for the column at this place in the schema."""
    return {part: f"{field_index}.{part}" for part in PARTS[encoding_of(dtype)]}


@dataclass(frozen=True, slots=True)
class PartitionInfo:
    """The manifest's entry of one partition."""

    index: int
    files: str  # the common prefix of its file names; empty if it has no rows
    row_count: int
    page_count: int
    size_bytes: int  # of the .codes and .data files
    distinct_codes: int
    most_duplicates: int  # rows of the code that has most
    first_code: int  # the least
    last_code: int  # the greatest
    # For each shift 0 … 63: the sum, over all values v of (code >> shift), of (rows with v)².
    squared_loads: tuple[int, ...] = _NO_LOADS
    page_table_checksum: int = 0  # CRC-32 of the .pages file
    hot_pages: int = 0  # number of hot pages; they come first
    hot_index_checksum: int = 0  # CRC-32 of the .hot file; there is none without hot pages
    home: str = ""  # the snapshot in whose folder its files are; empty: the manifest's own
    delta: "Delta | None" = None  # what was changed since

    def file_names(self) -> list[str]:
        """Return the names of its files in its home; it has none without rows."""
        kinds = ["codes", "data", "pages", *(["hot"] if self.hot_pages else [])]
        return [f"{self.files}.{kind}" for kind in kinds] if self.files else []

    @property
    def segments(self) -> tuple["PartitionInfo", ...]:
        """The base and the delta pages, the newest last, as far as they have rows."""
        if not self.row_count:
            return ()
        return (self,) if self.delta is None else (self, *self.delta.segments)

    @property
    def stored_rows(self) -> int:
        """The number of rows in all segments, dead ones among them."""
        return sum(segment.row_count for segment in self.segments)

    @property
    def live_rows(self) -> int:
        """The number of rows of R in this partition."""
        return self.stored_rows - (0 if self.delta is None else self.delta.dead_rows)

    @property
    def delta_rows(self) -> int:
        """The number of rows on delta pages, dead ones among them."""
        return self.stored_rows - self.row_count

    def all_files(self, own: str) -> list[tuple[str, str]]:
        """Return the home and the name of every file; `own` is the manifest's snapshot."""
        found = [(s.home or own, name) for s in self.segments for name in s.file_names()]
        if self.delta is not None:
            found.append((self.delta.home or own, f"{self.delta.files}.delta"))
        return found

    def seen_from(self, snapshot: str) -> "PartitionInfo":
        """Return the entry in another manifest, of the same files at home in `snapshot`."""
        delta = None if self.delta is None else self.delta.seen_from(snapshot)
        return replace(self, home=self.home or snapshot, delta=delta)

    @classmethod
    def from_body(cls, body: dict[str, Any]) -> "PartitionInfo":
        """Return the entry that `asdict` made a dictionary of."""
        delta, loads = body.get("delta"), body.get("squared_loads", _NO_LOADS)
        changed = None if delta is None else Delta.from_body(delta)
        return cls(**{**body, "squared_loads": tuple(loads), "delta": changed})


@dataclass(frozen=True, slots=True)
class Delta:
    """What was changed in a partition since its base was written."""

    segments: tuple[PartitionInfo, ...]  # of delta pages, oldest first
    files: str  # the name of the .delta file, without its ending
    code_count: int  # codes in the delta index
    dead_rows: int  # rows of the base and of all segments that are not rows of R any more
    checksum: int  # CRC-32 of the .delta file
    home: str = ""  # the snapshot in whose folder that file is; empty: the manifest's own

    def seen_from(self, snapshot: str) -> "Delta":
        """Return the same as another manifest names it."""
        segments = tuple(segment.seen_from(snapshot) for segment in self.segments)
        return replace(self, home=self.home or snapshot, segments=segments)

    @classmethod
    def from_body(cls, body: dict[str, Any]) -> "Delta":
        """Return what `asdict` made a dictionary of."""
        segments = tuple(PartitionInfo.from_body(segment) for segment in body["segments"])
        return cls(**{**body, "segments": segments})


@dataclass(frozen=True, slots=True)
class Origin:
    """How a snapshot came to be."""

    operation: str = "build"  # build, refresh, upsert, compact or restore
    source: str = ""  # of the rows, for people
    parent: str = ""  # the snapshot that it was made from; empty for a build
    rows_added: int | None = None  # against the parent; None if they were not compared
    rows_changed: int | None = None
    rows_deleted: int | None = None


@dataclass(frozen=True)
class Manifest:
    """One snapshot of a relation."""

    snapshot: str  # its id
    created_at: str  # when its build began, ISO 8601
    schema: pa.Schema  # all columns, the key among them, in their plain types
    key: tuple[str, ...]
    page_bytes: int  # the most bytes of a page of more than one row
    null_keys_dropped: int  # rows of the source without a key, which are not stored
    partitions: tuple[PartitionInfo, ...]
    order: Order = "key"
    origin: Origin = field(default_factory=Origin)
    published_at: str = ""  # when it was complete, ISO 8601; empty in old relations
    # Streams of changes that were folded in: the name of each, and its last micro-batch.
    folded: tuple[tuple[str, int], ...] = ()
    validity: Validity | None = None  # of relations with versions: when a row is valid

    def with_folded(self, stream: str, batch: int) -> "Manifest":
        """Return the manifest with another last micro-batch of a stream of changes."""
        return replace(self, folded=tuple({**dict(self.folded), stream: batch}.items()))

    @property
    def format_version(self) -> int:
        """The least version of the format that can express the snapshot."""
        shares = any(p.home or p.delta is not None for p in self.partitions)
        return SHARING_VERSION if shares else FORMAT_VERSIONS[self.order]

    @property
    def segments(self) -> list[PartitionInfo]:
        """The segments of all partitions, as far as they have rows."""
        return [segment for partition in self.partitions for segment in partition.segments]

    def all_files(self) -> set[tuple[str, str]]:
        """Return the home and the name of every file that the snapshot consists of."""
        return {file for info in self.partitions for file in info.all_files(self.snapshot)}

    @cached_property
    def coder(self) -> KeyCoder:
        """The coder that made the stored key codes."""
        return KeyCoder.for_columns([self.schema.field(k).type for k in self.key], self.key)

    @cached_property
    def stored_fields(self) -> list[int]:
        """Indexes of the columns that are stored; a lone integer key is kept as its code only."""
        implied = self.key[0] if self.coder.is_exact else None
        return [i for i, field in enumerate(self.schema) if field.name != implied]

    def to_json(self) -> str:
        """Return the manifest as text."""
        body = {
            "format_version": self.format_version,
            "snapshot": self.snapshot,
            "created_at": self.created_at,
            "key": list(self.key),
            "page_bytes": self.page_bytes,
            "null_keys_dropped": self.null_keys_dropped,
            "columns": {field.name: str(field.type) for field in self.schema},
            "arrow_schema": base64.b64encode(self.schema.serialize().to_pybytes()).decode(),
            "order": self.order,
            "origin": asdict(self.origin),
            "published_at": self.published_at,
            "partitions": [self._partition_body(p) for p in self.partitions],
        }
        if self.folded:
            body["folded"] = dict(self.folded)
        if self.validity is not None:
            body["validity"] = self.validity.to_dict()
        return json.dumps({**body, "checksum": _checksum(body)}, indent=1)

    def _partition_body(self, info: PartitionInfo) -> dict[str, Any]:
        """Return a partition's entry; readers of version 1 refuse fields they do not know."""
        body = asdict(info)
        if self.format_version < SHARING_VERSION:
            del body["home"], body["delta"]
        if self.format_version < FORMAT_VERSIONS["frequency"]:
            del body["hot_pages"], body["hot_index_checksum"]
        return body

    @classmethod
    def from_json(cls, text: bytes, where: str) -> "Manifest":
        """Read a manifest, or raise an error that says why it cannot be read."""
        try:
            body: dict[str, Any] = json.loads(text)
            version = int(body["format_version"])
        except (ValueError, KeyError, TypeError) as error:
            raise CorruptRelationError(_damaged(where, error)) from error
        if version > FORMAT_VERSION:
            raise RelationFormatError(
                f"{where} has format {version}, but this version of semistream reads up to "
                f"{FORMAT_VERSION}; upgrade semistream, or rebuild the relation with this version"
            )
        try:
            if body.pop("checksum") != _checksum(body):
                raise ValueError("its checksum does not match")
            return cls._from_body(body)
        except (ValueError, KeyError, TypeError, pa.ArrowException) as error:
            raise CorruptRelationError(_damaged(where, error)) from error

    @classmethod
    def _from_body(cls, body: dict[str, Any]) -> "Manifest":
        schema = pa.ipc.read_schema(pa.py_buffer(base64.b64decode(body["arrow_schema"])))
        order = body.get("order", "key")
        if order not in ORDERS:
            raise ValueError(f"its order is {order!r}")
        partitions = tuple(map(PartitionInfo.from_body, body["partitions"]))
        for home, name in (file for p in partitions for file in p.all_files(body["snapshot"])):
            is_known = home == body["snapshot"] or is_snapshot_name(home)
            if not is_known or not _FILE_NAME.fullmatch(name):
                raise ValueError("a partition names files that no build makes")
        return cls(
            snapshot=body["snapshot"],
            created_at=body["created_at"],
            schema=schema,
            key=tuple(body["key"]),
            page_bytes=body["page_bytes"],
            null_keys_dropped=body["null_keys_dropped"],
            partitions=partitions,
            order=order,
            origin=Origin(**body.get("origin", {})),
            published_at=body.get("published_at", ""),
            folded=tuple(body.get("folded", {}).items()),
            validity=Validity(**body["validity"]) if "validity" in body else None,
        )


def _checksum(body: dict[str, Any]) -> int:
    return crc32(json.dumps(body).encode())


def _damaged(where: str, error: Exception) -> str:
    return f"{where} is not a valid manifest ({error}); rebuild it"
