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

A snapshot in order of frequency has format version 2, since a reader of version 1 would search
its pages as if all were clustered. All other snapshots are still exactly version 1.
"""

import base64
import json
import re
import zlib
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any, Literal, TypeAlias, get_args
from uuid import uuid4

import pyarrow as pa

from semistream.columns import Encoding, encoding_of
from semistream.errors import CorruptRelationError, RelationFormatError
from semistream.keys import KeyCoder
from semistream.relation.validity import Validity

Order: TypeAlias = Literal["key", "frequency"]
ORDERS: tuple[Order, ...] = get_args(Order)
FORMAT_VERSIONS: dict[Order, int] = {"key": 1, "frequency": 2}
FORMAT_VERSION = max(FORMAT_VERSIONS.values())  # the newest that this version reads
CURRENT = "CURRENT"
SNAPSHOTS = "snapshots"
MANIFEST = "manifest.json"
_SNAPSHOT_NAME = re.compile(r"\d{8}T\d{12}-[0-9a-f]{8}")  # when its build began, and a random part
_FILES_NAME = re.compile(r"(part-\d{5,}-\w+)?")

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
    squared_loads: tuple[int, ...] = (0,) * 64
    page_table_checksum: int = 0  # CRC-32 of the .pages file
    hot_pages: int = 0  # number of hot pages; they come first
    hot_index_checksum: int = 0  # CRC-32 of the .hot file; there is none without hot pages

    def file_names(self) -> list[str]:
        """Return the names of its files; it has none without rows."""
        kinds = ["codes", "data", "pages", *(["hot"] if self.hot_pages else [])]
        return [f"{self.files}.{kind}" for kind in kinds] if self.files else []


@dataclass(frozen=True, slots=True)
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
    validity: Validity | None = None  # of relations with versions: when a row is valid

    @property
    def coder(self) -> KeyCoder:
        """The coder that made the stored key codes."""
        return KeyCoder.for_columns([self.schema.field(k).type for k in self.key], self.key)

    @property
    def stored_fields(self) -> list[int]:
        """Indexes of the columns that are stored; a lone integer key is kept as its code only."""
        implied = self.key[0] if self.coder.is_exact else None
        return [i for i, field in enumerate(self.schema) if field.name != implied]

    def to_json(self) -> str:
        """Return the manifest as text."""
        body = {
            "format_version": FORMAT_VERSIONS[self.order],
            "snapshot": self.snapshot,
            "created_at": self.created_at,
            "key": list(self.key),
            "page_bytes": self.page_bytes,
            "null_keys_dropped": self.null_keys_dropped,
            "columns": {field.name: str(field.type) for field in self.schema},
            "arrow_schema": base64.b64encode(self.schema.serialize().to_pybytes()).decode(),
            "order": self.order,
            "partitions": [self._partition_body(p) for p in self.partitions],
        }
        if self.validity is not None:
            body["validity"] = self.validity.to_dict()
        return json.dumps({**body, "checksum": _checksum(body)}, indent=1)

    def _partition_body(self, info: PartitionInfo) -> dict[str, Any]:
        """Return a partition's entry; readers of version 1 refuse fields they do not know."""
        body = asdict(info)
        if self.order == "key":
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
        partitions = tuple(PartitionInfo(**p) for p in body["partitions"])
        if not all(_FILES_NAME.fullmatch(p.files) for p in partitions):
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
            validity=Validity(**body["validity"]) if "validity" in body else None,
        )


def _checksum(body: dict[str, Any]) -> int:
    return zlib.crc32(json.dumps(body).encode())


def _damaged(where: str, error: Exception) -> str:
    return f"{where} is not a valid manifest ({error}); rebuild it"
