"""Rows as JSON text, a column at a time."""

import base64

import pyarrow as pa
import pyarrow.compute as pc

from semistream.errors import ColumnError

_ESCAPES = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\r": "\\r", "\t": "\\t"}


def json_lines(batch: pa.RecordBatch) -> pa.StringArray:
    """Return each row as a JSON object. Times are ISO 8601, bytes base64, NaN and infinity null.

    >>> json_lines(pa.record_batch({"k": [1, None], "name": ['a"b', "c"]})).to_pylist()
    ['{"k":1,"name":"a\\\\"b"}', '{"k":null,"name":"c"}']
    """
    pieces: list[pa.Array | str] = []
    for i, (name, column) in enumerate(zip(batch.schema.names, batch.columns, strict=True)):
        label = _escape(pa.scalar(name)).as_py()
        pieces += [f'{"," if i else "{"}"{label}":', pc.fill_null(_value(name, column), "null")]
    return pc.binary_join_element_wise(*pieces, "}", "")


def binary_as_text(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return the batch with its columns of bytes in base64, for formats that have only text."""
    columns = [_base64(c) if _is_bytes(c.type) else c for c in batch.columns]
    return pa.RecordBatch.from_arrays(columns, names=batch.schema.names)


def _value(name: str, column: pa.Array) -> pa.Array:
    """Return a column's values as JSON text, null where they are null."""
    dtype = column.type
    if pa.types.is_integer(dtype) or pa.types.is_boolean(dtype) or pa.types.is_decimal(dtype):
        return column.cast(pa.string())
    if pa.types.is_floating(dtype):
        numbers = pc.if_else(pc.is_finite(column), column, pa.scalar(None, dtype))
        return numbers.cast(pa.string())
    if pa.types.is_timestamp(dtype):
        return _quoted(pc.strftime(column, "%Y-%m-%dT%H:%M:%S" + ("Z" if dtype.tz else "")))
    if pa.types.is_date(dtype):
        return _quoted(column.cast(pa.string()))
    if pa.types.is_string(dtype) or pa.types.is_large_string(dtype):
        return _quoted(_escape(column.cast(pa.string())))
    if _is_bytes(dtype):
        return _quoted(_base64(column))
    raise ColumnError(f"column {name!r} of type {dtype} cannot be written as JSON; leave it out")


def _quoted(text: pa.Array) -> pa.Array:
    return pc.binary_join_element_wise('"', text, '"', "")


def _escape(text: pa.Array | pa.Scalar) -> pa.Array | pa.Scalar:
    for plain, escaped in _ESCAPES.items():
        text = pc.replace_substring(text, plain, escaped)
    if pc.any(pc.match_substring_regex(text, "[\\x00-\\x1f]")).as_py():
        for code in range(32):
            text = pc.replace_substring(text, chr(code), f"\\u{code:04x}")
    return text


def _is_bytes(dtype: pa.DataType) -> bool:
    return bool(
        pa.types.is_binary(dtype)
        or pa.types.is_large_binary(dtype)
        or pa.types.is_fixed_size_binary(dtype)
    )


def _base64(column: pa.Array) -> pa.Array:
    encoded = [None if v is None else base64.b64encode(v).decode() for v in column.to_pylist()]
    return pa.array(encoded, pa.string())
