"""Changing a relation without Spark: refresh, upsert, compact, restore.

Each makes a new snapshot from the current one and replaces just that one: if another writer is
faster, a `WriteConflictError` says so, and nothing was changed (`semistream.relation.draft`). While
it works, a read lease keeps the snapshot whose files it shares.
"""

import os
import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from semistream.columns import plain_schema
from semistream.errors import ColumnError, did_you_mean
from semistream.plain import plain_batches
from semistream.relation.build import BuildOptions, Spool, build_snapshot, key_codes, open_source
from semistream.relation.draft import Draft
from semistream.relation.hot import HotKeys
from semistream.relation.layout import Manifest, Origin, PartitionInfo
from semistream.relation.relation import Relation
from semistream.relation.upsert import Changed, Changes, apply_changes, fold

DELETED = "__semistream_deleted"  # the column that marks deletions, while changes are spooled
_PASSWORD = re.compile(r"(?<=//)[^/@]*@|\?.*$")


def source_name(source: Any) -> str:
    """Return what to write down as the source of rows: never a password or an option of a URI.

    >>> source_name("s3://key:secret@bucket/a.parquet?region=x"), source_name([1])
    ('s3://bucket/a.parquet', 'list')
    """
    if isinstance(source, str | os.PathLike):
        return _PASSWORD.sub("", os.fspath(source))
    return type(source).__name__


def refresh_options(current: Relation, source: Any, sample: Any = None) -> BuildOptions:
    """Return how to build a relation anew from a source: as it was built before."""
    keeps_hot = current.order == "frequency" and sample is None
    return BuildOptions(
        key=current.key,
        partitions=current.partition_count,
        page_size=current.manifest.page_bytes,
        order=current.order,
        sample=sample,
        hot=_hot_keys(current) if keeps_hot else None,
        origin=Origin("refresh", source_name(source), current.snapshot),
        folded=current.manifest.folded,
        validity=current.manifest.validity,
    )


def _hot_keys(current: Relation) -> HotKeys:
    reader = current.reader([])
    try:
        return HotKeys.from_index(reader.hot_codes, reader.hot_pages)
    finally:
        reader.close()


def refresh(
    current: Relation,
    source: Any,
    sample: Any = None,
    progress: Callable[[int], None] | None = None,
) -> Relation:
    """Replace all rows by those of a source that needs no Spark."""
    options = refresh_options(current, source, sample)
    return build_snapshot(source, current.location, options, progress)


def upsert(
    current: Relation,
    changes: Any,
    deletes: str | None = None,
    progress: Callable[[int], None] | None = None,
    folded: tuple[str, int] | None = None,
) -> Relation:
    """Replace the rows of some keys by those of a source that needs no Spark.

    `folded` is the stream and the micro-batch that the changes are of.
    """
    reader = open_source(changes, "changes")
    base = current.manifest
    columns = change_columns(base, reader.schema, deletes)
    partitions = len(base.partitions)
    hold = current.hold()
    try:
        origin = Origin("upsert", source_name(changes), base.snapshot)
        with (
            Draft.derive(
                current.location, base.with_folded(*folded) if folded else base, origin
            ) as draft,
            Spool(base, partitions) as spool,
        ):
            for batch in reader:
                for piece in plain_batches(batch):
                    spool.add(ordered_changes(piece, base.schema, columns, deletes))
                if progress:
                    progress(spool.row_count)
            changed = [
                _change(draft, base, index, spool.take(index)) for index in range(partitions)
            ]
            return publish_changed(draft, base, changed, spool.null_keys)
    finally:
        hold.release()


def _change(draft: Draft, base: Manifest, index: int, rows: pa.Table) -> Changed:
    if not rows.num_rows:
        return Changed(base.partitions[index].seen_from(base.snapshot))
    return apply_changes(draft, base, index, changes_of(base, rows.to_batches()))


def changes_of(base: Manifest, batches: list[pa.RecordBatch]) -> Changes:
    """Return the changes of a partition from rows whose last column marks deletions."""
    marks = [batch.column(batch.num_columns - 1) for batch in batches]
    rows = [pa.RecordBatch.from_arrays(batch.columns[:-1], schema=base.schema) for batch in batches]
    codes = np.concatenate([key_codes(base, batch)[0] for batch in rows])
    deleted = np.concatenate([mark.to_numpy(zero_copy_only=False) for mark in marks])
    return Changes(codes, rows, deleted.astype(np.bool_))


def publish_changed(
    draft: Draft, base: Manifest, changed: list[Changed], null_keys: int
) -> Relation:
    """Publish the new snapshot of an upsert."""
    origin = replace(
        draft.manifest.origin,
        rows_added=sum(change.added for change in changed),
        rows_changed=sum(change.changed for change in changed),
        rows_deleted=sum(change.deleted for change in changed),
    )
    infos = [change.info for change in changed]
    return draft.publish(infos, base.null_keys_dropped + null_keys, origin)


def change_columns(base: Manifest, schema: pa.Schema, deletes: str | None) -> list[str]:
    """Return the relation's columns, after checking that changes of this schema have them."""
    names = [name for name in schema.names if name != deletes or name in base.schema.names]
    if deletes is not None:
        _check_marks(schema, deletes)
    doubled = sorted({name for name in names if names.count(name) > 1})
    missing = [name for name in base.schema.names if name not in names]
    unknown = [name for name in names if name not in base.schema.names]
    problems = [f"{name!r} occurs several times" for name in doubled]
    problems += [f"{name!r} is missing" for name in missing]
    problems += [f"{name!r} is not a column of the relation" for name in unknown]
    plain = plain_schema(pa.schema([schema.field(name) for name in names if name not in doubled]))
    for field in base.schema:
        if field.name in plain.names and plain.field(field.name).type != field.type:
            found = plain.field(field.name).type
            problems.append(f"{field.name!r} is {found} where the relation has {field.type}")
    if problems:
        raise ColumnError(
            f"the changes do not have the relation's columns: {'; '.join(problems)}. Rename or "
            "cast them, or change the schema of the relation with refresh()"
        )
    return list(base.schema.names)


def _check_marks(schema: pa.Schema, deletes: str) -> None:
    if deletes not in schema.names:
        raise ColumnError(
            f"the changes have no column {deletes!r} that marks deletions; they have "
            f"{', '.join(schema.names)}.{did_you_mean(deletes, schema.names)}"
        )
    found = schema.field(deletes).type
    if not pa.types.is_boolean(found):
        raise ColumnError(
            f"the column {deletes!r} marks deletions and must be boolean; it is {found}. Compare "
            "it with the value that means deleted first"
        )


def ordered_changes(
    batch: pa.RecordBatch, schema: pa.Schema, columns: list[str], deletes: str | None
) -> pa.RecordBatch:
    """Return the relation's columns in its order, and behind them the mark, without nulls."""
    count = batch.num_rows
    marks = pa.array(np.zeros(count, np.bool_))
    if deletes is not None:
        marks = batch.column(deletes).fill_null(False)
    arrays = [*(batch.column(name) for name in columns), marks]
    return pa.RecordBatch.from_arrays(arrays, schema=schema.append(pa.field(DELETED, pa.bool_())))


def to_compact(base: Manifest) -> list[int]:
    """Return the partitions that have delta pages or dead rows."""
    return [info.index for info in base.partitions if info.delta is not None]


def compact_origin(base: Manifest) -> Origin:
    """Return how a compacted snapshot comes to be."""
    return Origin("compact", "", base.snapshot, 0, 0, 0)


def compact(current: Relation, progress: Callable[[int, int], None] | None = None) -> Relation:
    """Fold all deltas in; `progress` is called with the partitions done, and of how many."""
    base = current.manifest
    which = to_compact(base)
    if not which:
        return current
    hold = current.hold()
    try:
        with Draft.derive(current.location, base, compact_origin(base)) as draft:
            done: dict[int, PartitionInfo] = {}
            for index in which:
                done[index] = fold(draft, base, index)
                if progress:
                    progress(len(done), len(which))
            return draft.publish(folded(base, done), base.null_keys_dropped)
    finally:
        hold.release()


def folded(base: Manifest, done: dict[int, PartitionInfo]) -> list[PartitionInfo]:
    """Return the entries of all partitions, of which some were written anew."""
    return [
        done[info.index] if info.index in done else info.seen_from(base.snapshot)
        for info in base.partitions
    ]


def restore(old: Relation, current: Relation) -> Relation:
    """Make an old snapshot current again, as a new one that shares its files."""
    base = old.manifest
    hold = old.hold()
    try:
        origin = Origin("restore", base.snapshot, current.snapshot)
        with Draft.derive(old.location, base, origin) as draft:
            return draft.publish(folded(base, {}), base.null_keys_dropped)
    finally:
        hold.release()
