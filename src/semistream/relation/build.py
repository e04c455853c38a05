"""Building a relation: rows in any order and of any source become a new snapshot.

Outside Spark a build takes two passes. The first computes key codes and distributes the rows to
their partitions, in memory, and in temporary Arrow files once they exceed `SPOOL_BYTES`; the second
sorts one partition at a time and writes it. So a build needs memory for one partition twice over:
more partitions, less memory. From a Spark DataFrame the executors build the relation instead
(`semistream.spark.build`).

In order of frequency the first pass also counts the rows of each key that occurs in the sample
(`semistream.relation.hot`), so that the hot keys are known before the first page is written.

The new snapshot becomes current as the last step (`semistream.relation.draft`). A build that fails
or is killed before that leaves the earlier snapshot unchanged.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyarrow import dataset

from semistream.columns import total_bytes
from semistream.errors import (
    ColumnError,
    CorruptRelationError,
    OptionError,
    RelationFormatError,
    RelationNotFoundError,
    did_you_mean,
)
from semistream.keys import check_same_type
from semistream.plain import plain_batches
from semistream.relation.draft import Draft
from semistream.relation.files import open_dataset, open_path
from semistream.relation.gather import Gatherer
from semistream.relation.hot import Candidates, HotKeys
from semistream.relation.layout import ORDERS, Manifest, Order, Origin, PartitionInfo
from semistream.relation.relation import Relation
from semistream.relation.spoolfiles import SpoolFiles
from semistream.relation.validity import Validity, with_whole_versions
from semistream.relation.writer import PartitionWriter, cut_pages, most_rows_of_page, row_sizes
from semistream.sources import is_spark_frame, open_reader
from semistream.units import parse_bytes

SPOOL_BYTES = 256 << 20
DEFAULT_PAGE_BYTES = 64 << 10
DEFAULT_PARTITIONS = 8
# The most rows and bytes of a sorted partition that are handed to the writer at a time.
_WRITE_ROWS = 1 << 16
_WRITE_BYTES = 32 << 20


@dataclass(frozen=True)
class BuildOptions:
    """How to build: the arguments of `semistream.build_relation`, checked."""

    key: str | Sequence[str]
    partitions: int = DEFAULT_PARTITIONS
    page_size: int | str = DEFAULT_PAGE_BYTES
    order: Order = "key"
    sample: Any = None  # rows of the stream, in any form that a source may have
    validity: Validity | Sequence[str] | None = None  # columns that say when a row is valid
    hot: HotKeys | None = None  # known hot keys, instead of a sample: a refresh keeps them
    folded: tuple[tuple[str, int], ...] = ()  # streams of changes that were folded in before
    # How the snapshot comes to be; with a parent it replaces just that one.
    origin: Origin = field(default_factory=Origin)

    def __post_init__(self) -> None:
        """Raise unless the options can be used, each alone and with the others."""
        parse_bytes(self.page_size)
        if self.partitions < 1:
            raise OptionError(f"partitions must be at least 1; got {self.partitions}")
        if self.hot is None:
            _check_order(self.order, self.sample)
        Validity.of(self.validity)

    @classmethod
    def for_place(
        cls,
        location: str | os.PathLike[str],
        key: str | Sequence[str],
        partitions: int | None = None,
        **others: Any,
    ) -> "BuildOptions":
        """Return the options of a build at a place.

        Without a number of `partitions`, a rebuild keeps those that the relation has.
        """
        if partitions is None:
            partitions = partitions_at(location) or DEFAULT_PARTITIONS
        return cls(key, partitions, **others)

    @property
    def key_columns(self) -> tuple[str, ...]:
        """The names of the key columns."""
        return (self.key,) if isinstance(self.key, str) else tuple(self.key)

    @property
    def page_bytes(self) -> int:
        """The most bytes of a page; a wider row has a page of its own."""
        return parse_bytes(self.page_size)

    def start(self, location: str | os.PathLike[str], schema: pa.Schema) -> Draft:
        """Return the draft of a snapshot with these options, for rows of this schema."""
        about = (self.key_columns, self.page_bytes, self.order, Validity.of(self.validity))
        draft = Draft.start(location, schema, *about)
        draft.manifest = replace(draft.manifest, origin=self.origin, folded=self.folded)
        draft.replaces = self.origin.parent or None
        return draft


def partitions_at(location: str | os.PathLike[str]) -> int | None:
    """Return the number of partitions of the relation at a place; None if none can be opened."""
    try:
        return Relation.open(location).partition_count
    except (RelationNotFoundError, CorruptRelationError, RelationFormatError):
        return None  # a build there makes a new one, or replaces a damaged one


def build_relation(
    source: Any,
    location: str | os.PathLike[str],
    *,
    key: str | Sequence[str],
    partitions: int = DEFAULT_PARTITIONS,
    page_size: int | str = DEFAULT_PAGE_BYTES,
) -> Relation:
    """Build a relation in key order, without Spark. `semistream.build_relation` does more."""
    return build_snapshot(source, location, BuildOptions(key, partitions, page_size))


def build_snapshot(
    source: Any,
    location: str | os.PathLike[str],
    options: BuildOptions,
    progress: Callable[[int], None] | None = None,
    writing: Callable[[int], None] | None = None,
) -> Relation:
    """Build a snapshot from any source that needs no Spark, and return it opened.

    `progress` is called with the rows read so far, then `writing` with the rows written so far.
    """
    reader = open_source(source)
    draft = options.start(location, reader.schema)
    sample = None if options.sample is None else open_sample(draft.manifest, options.sample)
    with draft:  # first: where nothing can be written, no rows need be read
        candidates = None if sample is None else count_sample(draft.manifest, sample)
        with Spool(draft.manifest, options.partitions, candidates) as spool:
            for batch in reader:
                for piece in plain_batches(batch):
                    spool.add(piece)
                if progress:
                    progress(spool.row_count)
            hot = options.hot or spool.choose_hot()
            infos: list[PartitionInfo] = []
            for partition in range(options.partitions):
                infos.append(_write_partition(draft, partition, spool.take(partition), hot))
                if writing:
                    writing(sum(info.row_count for info in infos))
            return draft.publish(infos, spool.null_keys)


def _check_order(order: str, sample: Any) -> None:
    """Raise unless the order exists, and there is a sample if and only if the order needs one."""
    if order not in ORDERS:
        raise OptionError(
            f"order must be one of {', '.join(ORDERS)}; got {order!r}."
            f"{did_you_mean(str(order), ORDERS)}"
        )
    if order == "frequency" and sample is None:
        raise OptionError(
            "order='frequency' needs a sample of the stream, to count how often each key is "
            "requested; got none. Pass sample=… (--sample), or leave order at 'key'"
        )
    if order == "key" and sample is not None:
        raise OptionError(
            "a sample of the stream is used only with order='frequency', but order is 'key'. "
            "Pass order='frequency' (--order frequency), or leave the sample out"
        )


def open_source(source: Any, name: str = "source") -> pa.RecordBatchReader:
    """Return a batch reader over any of the sources that need no Spark."""
    if isinstance(source, str | os.PathLike):
        return open_path(os.fspath(source))
    if isinstance(source, dataset.FileSystemDataset):
        return open_dataset(source)
    reader = open_reader(source)
    if reader is None:
        raise OptionError(
            f"the {name} of a relation must be a Spark DataFrame, an Arrow table or reader, an "
            f"object with an Arrow stream, or a path; got {type(source).__name__}"
        )
    return reader


def open_sample(manifest: Manifest, sample: Any) -> pa.RecordBatchReader:
    """Return a reader over a sample of the stream that needs no Spark, once it is checked."""
    if is_spark_frame(sample):
        raise OptionError(
            "the sample is a Spark DataFrame, but the source is not; pass the sample as an Arrow "
            f"table: sample=….select({', '.join(map(repr, manifest.key))}).toArrow()"
        )
    reader = open_source(sample, "sample")
    check_sample(manifest, reader.schema.names, lambda name: reader.schema.field(name).type)
    return reader


def count_sample(manifest: Manifest, sample: pa.RecordBatchReader) -> Candidates:
    """Count the key codes in a sample of the stream."""
    return Candidates.from_sample(_codes_with_key(manifest, batch) for batch in sample)


def check_sample(
    manifest: Manifest, names: Sequence[str], type_of: Callable[[str], pa.DataType]
) -> None:
    """Raise unless the sample has the relation's key columns, in types that can be compared."""
    for name in manifest.key:
        count = list(names).count(name)
        if count != 1:
            raise ColumnError(
                f"the sample of the stream needs the relation's key ({', '.join(manifest.key)}), "
                f"but {count or 'none'} of its columns {', '.join(names)} are named {name!r}; "
                "rename its key columns to the relation's names"
            )
        check_same_type(manifest.schema.field(name).type, type_of(name), name, name)


def empty_partition(index: int) -> PartitionInfo:
    """Return the entry of a partition without rows; it has no files."""
    return PartitionInfo(index, "", 0, 0, 0, 0, 0, 0, -1)


def write_sorted(
    draft: Draft,
    index: int,
    batches: Iterator[tuple[NDArray[np.int64], pa.RecordBatch]],
    attempt: str,
    hot: HotKeys,
) -> PartitionInfo:
    """Write one partition from (codes, rows) that come sorted by code."""
    return write_pages(draft, index, batches, attempt, hot)[0]


def write_pages(
    draft: Draft,
    index: int,
    batches: Iterator[tuple[NDArray[np.int64], pa.RecordBatch]],
    attempt: str,
    hot: HotKeys,
) -> tuple[PartitionInfo, list[int]]:
    """Write pages from (codes, rows) that come sorted by code; return also the rows of each."""
    manifest = draft.manifest
    writer = PartitionWriter(draft.store, manifest, index, attempt, hot)
    if manifest.validity is not None:
        batches = with_whole_versions(batches, manifest.validity, manifest.key)
    try:
        for codes, batch in batches:
            writer.write(codes, batch)
        return writer.close(), writer.page_rows
    except BaseException:
        writer.abort()
        raise


def _write_partition(draft: Draft, index: int, rows: pa.Table, hot: HotKeys) -> PartitionInfo:
    if rows.num_rows == 0:
        return empty_partition(index)
    batches = rows.to_batches()
    codes = np.concatenate([key_codes(draft.manifest, batch)[0] for batch in batches])
    return write_sorted(draft, index, sorted_rows(draft.manifest, codes, batches), "0", hot)


def sorted_rows(
    manifest: Manifest,
    codes: NDArray[np.int64],
    batches: Sequence[pa.RecordBatch],
    which: NDArray[np.int64] | None = None,
) -> Iterator[tuple[NDArray[np.int64], pa.RecordBatch]]:
    """Yield rows with their codes, sorted by code; all of the batches, or those at some places."""
    sizes = np.concatenate([row_sizes(manifest, batch) for batch in batches])
    order = np.argsort(codes, kind="stable")
    if which is not None:
        order = which[np.argsort(codes[which], kind="stable")]
    codes = codes[order]
    charged = np.maximum(
        sizes[order], _WRITE_BYTES // _WRITE_ROWS
    )  # so that the number of rows is bounded as well
    pieces = Gatherer(batches).pieces(order, cut_pages(charged, _WRITE_BYTES).tolist())
    return ((codes[first:last], batch) for first, last, batch in pieces)


def key_codes(
    manifest: Manifest, batch: pa.RecordBatch
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Return the key codes of rows of R, and which rows have a key."""
    return manifest.coder.codes([batch.column(k) for k in manifest.key])


def _codes_with_key(manifest: Manifest, batch: pa.RecordBatch) -> NDArray[np.int64]:
    codes, has_key = key_codes(manifest, batch)
    return codes[has_key]


class Spool:
    """Rows by partition, in memory and, past `SPOOL_BYTES`, in temporary files."""

    def __init__(
        self, manifest: Manifest, partitions: int, candidates: Candidates | None = None
    ) -> None:
        """Begin without rows."""
        self._manifest = manifest
        self._candidates = candidates  # of the hot keys; None in key order
        self._batches: list[list[pa.RecordBatch]] = [[] for _ in range(partitions)]
        self._held_bytes = 0  # size of `_batches`
        self._files = SpoolFiles()  # the rows that were spilled
        self.row_count = 0  # rows added, those without a key among them
        self.null_keys = 0  # rows without a key, which are not kept

    def __enter__(self) -> "Spool":
        """Return itself."""
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Remove the temporary files."""
        self._files.close(quietly=kind is not None)

    def add(self, batch: pa.RecordBatch) -> None:
        """Add the rows of one batch to their partitions."""
        self.row_count += batch.num_rows
        key = self._manifest.key
        coder = self._manifest.coder
        codes, has_key = coder.relation_codes([batch.column(k) for k in key], key)
        self.null_keys += int(len(has_key) - has_key.sum())
        if self._candidates is not None:
            self._candidates.count_rows(codes[has_key])
        target = np.where(has_key, codes % len(self._batches), -1)
        order = np.argsort(target, kind="stable")
        bounds = np.searchsorted(target[order], np.arange(len(self._batches) + 1))
        for p, rows in enumerate(self._batches):
            if bounds[p + 1] > bounds[p]:
                rows.append(batch.take(pa.array(order[bounds[p] : bounds[p + 1]])))
        self._held_bytes += total_bytes(batch.columns)
        if self._held_bytes > SPOOL_BYTES:
            self._spill()

    def choose_hot(self) -> HotKeys:
        """Return the hot keys, now that the rows of all candidates have been counted."""
        if self._candidates is None:
            return HotKeys.none()
        most_rows = most_rows_of_page(self._manifest)
        return self._candidates.choose(self.row_count - self.null_keys, most_rows)

    def take(self, partition: int) -> pa.Table:
        """Return all rows of a partition."""
        if not self._files.holds(partition):
            return self._table(self._batches[partition])
        self._write(partition)
        return self._files.take(partition)

    def _table(self, batches: list[pa.RecordBatch]) -> pa.Table:
        return pa.Table.from_batches(
            batches, batches[0].schema if batches else self._manifest.schema
        )

    def _spill(self) -> None:
        for partition in range(len(self._batches)):
            self._write(partition)
        self._held_bytes = 0

    def _write(self, partition: int) -> None:
        rows = self._batches[partition]
        if rows:
            self._files.append(partition, self._table(rows))
            rows.clear()
