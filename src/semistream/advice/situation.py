"""The inputs of the models: layout, widths and demand, read from a real relation and stream."""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from semistream.budget.rowsizes import Widths
from semistream.columns import Encoding, encoding_of, plain_batch, width_bytes
from semistream.cost.conditions import Layout
from semistream.cost.demand import Demand, Skew
from semistream.memory import stays_cached
from semistream.relation.layout import part_names
from semistream.relation.pageindex import PageIndex
from semistream.relation.pagetable import CODES
from semistream.relation.reader import PageReader
from semistream.relation.relation import Relation
from semistream.spec import JoinSpec, read_columns

_SIZED_ROWS = 4_096
_QUARTERS = 4
_SKEW_CODES = 32_768
_UNKNOWN_VALUE_BYTES = 16.0  # assumed for a text without a sample


def layout_of(reader: PageReader, columns: Sequence[str]) -> Layout:
    """Return the layout of a reader's pages, for a join that fetches some columns."""
    schema, pages = reader.manifest.schema, max(1, reader.page_count)
    indexes = [schema.get_field_index(column) for column in columns]
    stored = [i for i in indexes if i in reader.manifest.stored_fields]
    names = [name for i in stored for name in part_names(i, schema.field(i).type).values()]
    sizes = [reader.part_bytes(name, 0, reader.page_count) / pages for name in names]
    return Layout(
        page_count=reader.page_count,
        row_count=reader.row_count,
        code_bytes=reader.part_bytes(CODES, 0, reader.page_count) / pages,
        part_bytes=tuple(size for size in sizes if size),
        pages_per_stretch=reader.pages_per_stretch(columns),
        whole_pages=reader.reading.whole_pages,
        rows_per_key=reader.rows_per_key,
    )


def uncached_share(relation: Relation, reader: PageReader) -> float:
    """Return the share of R that will not be in the page cache of this host, in quarters.

    Nothing of a relation that stays there as a whole, once it was read; of a larger one, as much as
    is not there now. Emulated devices and remote stores have their own costs.
    """
    if not reader.reads_values or stays_cached(relation.size_bytes):
        return 0.0
    return round(_QUARTERS * reader.uncached_share(np.random.default_rng())) / _QUARTERS


def largest_partition(relation: Relation) -> int | None:
    """Return the partition with most rows; None if there is only one."""
    sizes = [p.row_count for p in relation.manifest.partitions]
    return sizes.index(max(sizes)) if len(sizes) > 1 else None


def reader_for(relation: Relation, spec: JoinSpec, partition: int | None = None) -> PageReader:
    """Return a reader of the columns that a join reads."""
    if relation.reading.whole_pages:
        return relation.reader(relation.schema.names, partition)
    return relation.reader(list(read_columns(relation, spec)), partition)


def stream_widths(relation: Relation, spec: JoinSpec, sample: pa.Table | None = None) -> Widths:
    """Return the width of each stream column's values: by a sample, or by R's keys."""
    if sample is not None and sample.num_rows:
        return Widths.of(plain_batch(sample[:_SIZED_ROWS].combine_chunks().to_batches()[0]))
    reader = relation.reader(list(relation.key))
    key = dict(zip(spec.stream_key, relation.key, strict=False))  # there may be none
    sizes = []
    for field in spec.stream_schema:
        if encoding_of(field.type) is Encoding.FIXED:
            sizes.append(float(width_bytes(field.type)))
        elif field.name in key:
            sizes.append(reader.average_value_bytes(key[field.name]))
        else:
            sizes.append(_UNKNOWN_VALUE_BYTES)
    return Widths.equal(sizes)


def demand_in(
    sample: pa.RecordBatch | pa.Table, relation: Relation, key: Sequence[str], reader: PageReader
) -> Demand:
    """Return the demand that a sample of the stream shows, by key and by page.

    `key` names the sample's columns in the order of the relation's key.
    """
    columns = (
        [pa.chunked_array([sample.column(name)]) for name in key]
        if isinstance(sample, pa.RecordBatch)
        else [sample.column(name) for name in key]
    )
    codes, has_key = relation.coder.codes([column.combine_chunks() for column in columns])
    return demand_of(codes[has_key], reader)


def demand_of(
    codes: NDArray[np.int64], reader: PageReader, index: PageIndex | None = None
) -> Demand:
    """Return the demand that a sample of key codes shows, by key and by page."""
    keys, counts = _counted(codes, reader)
    if not len(keys):
        return Demand.zipf(0.0, max(1, reader.row_count))
    pages = (index or PageIndex(reader)).pages(keys)
    return Demand.from_counts(counts, reader.row_count, pages, reader.page_count)


def skew_of(codes: NDArray[np.int64], reader: PageReader) -> Skew:
    """Return the skew that a sample of key codes shows; that needs no index, and a part of them."""
    _, counts = _counted(codes[:: -(-len(codes) // _SKEW_CODES) or 1], reader)
    return Demand.from_counts(counts, max(1, reader.row_count)).skew


def _counted(
    codes: NDArray[np.int64], reader: PageReader
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the different codes that R may have, and how often each of them is there."""
    return np.unique(codes[reader.may_hold(codes)], return_counts=True)
