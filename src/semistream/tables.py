"""Delta and Iceberg tables as sources of rows, and changes folded to the last one of each key.

What is here yields Arrow streams, which `build_relation`, `refresh` and `upsert` take like any
other. On Spark, a DataFrame that Spark's own reader makes of such a table does as well.
"""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from semistream.columns import plain_schema
from semistream.errors import ColumnError, OptionError, did_you_mean
from semistream.extras import needs_extra

DELETED = "_deleted"  # the column that marks deletions in what this module returns
_POSITION = "__semistream_position"
_REARRANGING = ("OPTIMIZE", "VACUUM START", "VACUUM END", "SET TBLPROPERTIES")
_SHORT = {pa.large_string(): pa.string(), pa.large_binary(): pa.binary()}


@dataclass(frozen=True)
class Rows:
    """Rows that are read when somebody asks for them."""

    name: str
    open: Callable[[], pa.RecordBatchReader]

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """Return a capsule with the rows."""
        return self.open().__arrow_c_stream__(requested_schema)


def delta_table(
    location: str | os.PathLike[str],
    *,
    version: int | None = None,
    columns: Sequence[str] | None = None,
    options: Mapping[str, str] | None = None,
) -> Rows:
    """Return the rows of a Delta table, of its newest version or of another.

    `options` are for the storage; keys of an object store are better left to its environment
    variables.
    """
    where = os.fspath(location)

    def read() -> pa.RecordBatchReader:
        dataset = _dataset(where, version, options)
        wanted = None if columns is None else list(columns)
        return _plain(dataset.scanner(columns=wanted).to_reader())

    return Rows(where, read)


def delta_version(
    location: str | os.PathLike[str], options: Mapping[str, str] | None = None
) -> int:
    """Return the newest version of a Delta table."""
    return int(_delta(os.fspath(location), None, options).version())


def delta_changes(
    location: str | os.PathLike[str],
    *,
    key: str | Sequence[str],
    since: int,
    until: int | None = None,
    columns: Sequence[str] | None = None,
    options: Mapping[str, str] | None = None,
) -> Rows:
    """Return what changed in a Delta table after version `since`, by its change data feed.

    Of each key only the last change: its row, or a row whose column ``_deleted`` is true. The key
    must be unique in the table, and the feed enabled (``delta.enableChangeDataFeed``).

    ::

        relation.upsert(ss.delta_changes(path, key="id", since=7), deletes="_deleted")
    """
    where = os.fspath(location)
    keys = [key] if isinstance(key, str) else list(key)

    def read() -> pa.RecordBatchReader:
        table = _delta(where, None, options)
        if until is None and table.version() <= since:
            fields = [pa.field(f.name, f.type) for f in pa.schema(table.schema().to_arrow())]
            return pa.schema([*fields, pa.field(DELETED, pa.bool_())]).empty_table().to_reader()
        feed = table.load_cdf(starting_version=since + 1, ending_version=until)
        changes = _folded_feed(pa.table(_plain(pa.RecordBatchReader.from_stream(feed))), keys)
        return changes.select([*columns, DELETED] if columns else changes.column_names).to_reader()

    return Rows(where, read)


def iceberg_table(
    table: Any,
    *,
    snapshot: int | None = None,
    columns: Sequence[str] | None = None,
) -> Rows:
    """Return the rows of an Iceberg table, of its current snapshot or of another.

    `table` is a table of PyIceberg (``load_catalog(…).load_table(…)``), or the location of a
    table's metadata file.
    """
    with needs_extra("iceberg", "an Iceberg table"):
        from pyiceberg.table import StaticTable

    opened = StaticTable.from_metadata(table) if isinstance(table, str) else table
    if snapshot is not None and opened.snapshot_by_id(snapshot) is None:
        known = ", ".join(str(s.snapshot_id) for s in opened.snapshots()) or "none"
        raise OptionError(f"the Iceberg table has no snapshot {snapshot}; it has {known}")

    def read() -> pa.RecordBatchReader:
        fields = ("*",) if columns is None else tuple(columns)
        scan = opened.scan(selected_fields=fields, snapshot_id=snapshot)
        return _plain(scan.to_arrow_batch_reader())

    return Rows(str(table), read)


def last_changes(changes: pa.Table, key: Sequence[str]) -> pa.Table:
    """Return the last row of each key; rows without a key are left out.

    >>> changes = pa.table({"k": [1, 2, 1, None], "v": ["a", "b", "c", "d"]})
    >>> last_changes(changes, ["k"]).to_pydict()
    {'k': [2, 1], 'v': ['b', 'c']}
    """
    for name in key:
        if name not in changes.column_names:
            raise ColumnError(
                f"the changes have no key column {name!r}; they have "
                f"{', '.join(changes.column_names)}.{did_you_mean(name, changes.column_names)}"
            )
        changes = changes.filter(pc.is_valid(changes.column(name)))
    numbered = changes.select(list(key)).append_column(
        _POSITION, pa.array(np.arange(changes.num_rows))
    )
    last = numbered.group_by(list(key)).aggregate([(_POSITION, "max")])
    rows = np.sort(last.column(f"{_POSITION}_max").to_numpy())
    return changes.take(pa.array(rows))


def _plain(reader: pa.RecordBatchReader) -> pa.RecordBatchReader:
    """Return the same rows with texts and binaries in one form, whichever a library prefers."""
    fields = [f.with_type(_SHORT.get(f.type, f.type)) for f in plain_schema(reader.schema)]
    schema = pa.schema(fields)
    batches = (batch.cast(schema) for batch in reader)
    return pa.RecordBatchReader.from_batches(schema, batches)


def _delta(where: str, version: int | None, options: Mapping[str, str] | None) -> Any:
    with needs_extra("delta", "a Delta table"):
        from deltalake import DeltaTable
        from deltalake.exceptions import DeltaError
    try:
        return DeltaTable(where, version=version, storage_options=dict(options or {}) or None)
    except DeltaError as error:
        wanted = "" if version is None else f" in version {version}"
        raise OptionError(f"{where!r} cannot be read as a Delta table{wanted}: {error}") from None


def _dataset(where: str, version: int | None, options: Mapping[str, str] | None) -> Any:
    """Return the files of a Delta table."""
    table = _delta(where, version, options)
    from deltalake.exceptions import DeltaProtocolError

    try:
        return table.to_pyarrow_dataset()
    except DeltaProtocolError as error:
        raise OptionError(
            f"the Delta table {where!r} cannot be read by the package deltalake: {error} Read it "
            'with Spark: spark.read.format("delta"), spark.readStream.format("delta")'
        ) from None


def _folded_feed(feed: pa.Table, key: Sequence[str]) -> pa.Table:
    """Return the last change of each key; in one version a new row comes after a deletion."""
    kind = feed.column("_change_type")
    deleted = pc.equal(kind, "delete")
    feed = feed.append_column(DELETED, deleted)
    feed = feed.filter(pc.not_equal(kind, "update_preimage"))
    is_new = pc.cast(pc.invert(feed.column(DELETED)), pa.int8())
    numbered = feed.append_column(_POSITION, is_new)
    rows = pc.sort_indices(numbered, [("_commit_version", "ascending"), (_POSITION, "ascending")])
    hidden = ["_change_type", "_commit_version", "_commit_timestamp"]
    return last_changes(feed.take(rows).drop_columns(hidden), key)


@dataclass(frozen=True)
class DeltaTarget:
    """A Delta table that micro-batches are appended to, each in one commit, exactly once.

    The commit notes the stream and the number of the micro-batch (Delta's own ``txn`` action): a
    micro-batch that is repeated finds its number there, and of two attempts at once one is refused.
    """

    location: str
    partition_by: tuple[str, ...] = ()
    options: tuple[tuple[str, str], ...] = ()

    def write(self, rows: pa.RecordBatchReader, stream: str, number: int) -> int | None:
        """Write a micro-batch of a stream, and return the rows; None if that was done before."""
        with needs_extra("delta", "a Delta table"):
            from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
            from deltalake.exceptions import CommitFailedError
        options = dict(self.options) or None
        is_there = DeltaTable.is_deltatable(self.location, storage_options=options)
        table: Any = self.location
        if is_there:
            table = DeltaTable(self.location, storage_options=options)
            done = table.transaction_version(stream)
            if done is not None and done >= number:
                return None
        counted = _Counted(rows)
        try:
            write_deltalake(
                table,
                counted.reader,
                mode="append",
                partition_by=list(self.partition_by) or None,
                storage_options=None if is_there else options,
                commit_properties=CommitProperties(app_transactions=[Transaction(stream, number)]),
            )
        except CommitFailedError:
            now = DeltaTable(self.location, storage_options=options)
            done = now.transaction_version(stream)
            if done is not None and done >= number:
                return None  # another attempt was faster
            raise
        return counted.rows


class _Counted:
    """Rows that are counted as they pass."""

    def __init__(self, rows: pa.RecordBatchReader) -> None:
        self.rows = 0
        self.reader = pa.RecordBatchReader.from_batches(rows.schema, self._batches(rows))

    def _batches(self, rows: pa.RecordBatchReader) -> Iterator[pa.RecordBatch]:
        for batch in rows:
            self.rows += batch.num_rows
            yield batch


@dataclass(frozen=True)
class Appended:
    """Files of a Delta table with rows that were appended up to a version."""

    version: int  # in which all of them are part of the table
    files: tuple[str, ...]


def appended_to_delta(
    location: str, after: int, until: int, options: Mapping[str, str] | None = None
) -> list[Appended]:
    """Return the files with the rows that were appended after one version, until another.

    After version -1 that is all of the table as it is in version `until`. What only rearranges rows
    (OPTIMIZE) or changes none has no rows; what deletes or changes rows is an error.
    """
    if after < 0:
        return [Appended(until, tuple(sorted(_files_of(location, until, options))))]
    found = []
    for commit in sorted(_delta(location, until, options).history(), key=lambda c: c["version"]):
        version, operation = int(commit["version"]), str(commit.get("operation", "")).upper()
        if version <= after or operation in _REARRANGING:
            continue
        before = _files_of(location, version - 1, options)
        now = _files_of(location, version, options)
        if before - now:
            raise OptionError(
                f"version {version} of the Delta table {location!r} ({operation}) has deleted or "
                "changed rows, but a stream takes only what is appended. Read the table from its "
                "beginning with a new checkpoint, or use ss.delta_changes"
            )
        if now - before:
            found.append(Appended(version, tuple(sorted(now - before))))
    return found


def read_appended(
    location: str, part: Appended, options: Mapping[str, str] | None = None
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of some files of a Delta table, with the columns that folders stand for."""
    dataset = _dataset(location, part.version, options)
    wanted = set(part.files)
    chosen = [f for f in dataset.get_fragments() if f.path in wanted]
    assert len(chosen) == len(wanted), "the files are part of this version"
    rows = ds.FileSystemDataset(chosen, dataset.schema, dataset.format, dataset.filesystem)
    yield from _plain(rows.scanner().to_reader())


def delta_schema(location: str, options: Mapping[str, str] | None = None) -> pa.Schema:
    """Return the columns of a Delta table."""
    dataset = _dataset(location, None, options)
    return _plain(dataset.schema.empty_table().to_reader()).schema


def _files_of(location: str, version: int, options: Mapping[str, str] | None) -> set[str]:
    dataset = _dataset(location, version, options)
    return {fragment.path for fragment in dataset.get_fragments()}
