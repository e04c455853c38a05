"""The forms in which rows are accepted: an Arrow table or stream, or record batches."""

from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from typing import Any, Protocol, TypeAlias

import pyarrow as pa
from pyarrow import dataset

from semistream.errors import OptionError


class ArrowStream(Protocol):
    """An object that exports an Arrow stream, such as a Polars frame or a DuckDB result."""

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """Return a capsule with the stream."""
        ...


# A Table, a RecordBatch and a reader of pyarrow are streams as well.
Stream: TypeAlias = ArrowStream | Iterable[pa.RecordBatch]


def open_reader(source: object) -> pa.RecordBatchReader | None:
    """Return a reader over anything that holds Arrow rows; None if it holds something else."""
    if isinstance(source, pa.RecordBatchReader):
        return source
    if isinstance(source, pa.RecordBatch):
        source = pa.Table.from_batches([source])
    if isinstance(source, pa.Table):
        return source.to_reader()
    if isinstance(source, dataset.Dataset):
        return source.scanner().to_reader()
    if not hasattr(source, "__arrow_c_stream__"):
        return None
    try:
        return pa.RecordBatchReader.from_stream(source)
    except pa.ArrowInvalid:  # a single column
        return None


def is_spark_frame(source: object) -> bool:
    """Whether this is a DataFrame of Spark, classic or Connect; does not import pyspark."""
    return type(source).__module__.startswith("pyspark.")


def open_stream(source: Stream) -> tuple[pa.Schema | None, Iterable[pa.RecordBatch]]:
    """Return the stream's schema and its batches; no schema if there is no batch.

    A table or reader has a schema. Of any other iterable the first batch is taken to find it.
    """
    if is_spark_frame(source) and getattr(source, "isStreaming", False):
        raise OptionError(
            "a streaming DataFrame of Spark runs as a query: use semistream.enrich(stream, …)"
        )
    reader = open_reader(source)
    if reader is not None:
        return reader.schema, reader
    batches = _batches_of(source)
    first = next(batches, None)
    if first is None:
        return None, ()
    return first.schema, chain([first], batches)


def _batches_of(source: Any) -> Iterator[pa.RecordBatch]:
    if isinstance(source, str | bytes | Mapping) or not isinstance(source, Iterable):
        raise OptionError(
            "a stream is an Arrow Table, RecordBatch or RecordBatchReader, an object that exports "
            "an Arrow stream (a Polars DataFrame, a DuckDB result), or an iterable of "
            f"RecordBatches; got {named(source)}. Make it one of these, for example with "
            "pyarrow.table(…), or with pyarrow.dataset.dataset(path) if it is a path"
        )
    return _checked(source)


def _checked(source: Iterable[object]) -> Iterator[pa.RecordBatch]:
    for index, element in enumerate(source):
        if not isinstance(element, pa.RecordBatch):
            raise OptionError(
                f"a stream that is an iterable must yield RecordBatches, but its element {index} "
                f"(from 0) is {named(element)}. Pass a single table as the stream itself; turn "
                "several into batches with Table.to_batches()"
            )
        yield element


def named(value: object) -> str:
    """Return the type of a value, for an error message."""
    return f"a {type(value).__module__}.{type(value).__qualname__}".replace(" builtins.", " ")
