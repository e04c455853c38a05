"""The streams of a calibration: keys of R, drawn by a Zipf distribution, with any other values."""

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from semistream.columns import concatenate, take_rows
from semistream.joins.diskbuffer import DiskBuffer
from semistream.joins.stopwatch import Stopwatch
from semistream.relation.relation import Relation
from semistream.spec import JoinSpec
from semistream.workload.zipf import zipf_ranks

_SAMPLED_PAGES = 8_192
_SEED = 7


class KeyStream:
    """Streams of tuples whose keys R has."""

    def __init__(self, spec: JoinSpec, keys: list[pa.Array]) -> None:
        """Prepare streams for a join; `keys` are columns of R's key."""
        self._spec, self._keys = spec, keys

    def endless(self, exponent: float, rows: int) -> Iterator[pa.RecordBatch]:
        """Yield batches of `rows` rows without end, always the same ones."""
        rng = np.random.default_rng(_SEED)
        schema, keys = self._spec.stream_schema, self._keys
        others = {
            i: _any_values(field, rows)
            for i, field in enumerate(schema)
            if i not in self._spec.stream_key_indexes
        }
        key_at = {i: n for n, i in enumerate(self._spec.stream_key_indexes)}
        while True:
            picks = zipf_ranks(rng, rows, len(keys[0]), exponent) - 1
            columns = [
                take_rows(keys[key_at[i]], picks).cast(field.type) if i in key_at else others[i]
                for i, field in enumerate(schema)
            ]
            yield pa.RecordBatch.from_arrays(columns, schema=schema)


def sample_keys(relation: Relation, partition: int | None, row_count: int) -> list[pa.Array]:
    """Return the key columns of about `row_count` rows, from each page or from many of them."""
    reader = relation.reader(list(relation.key), partition)
    rng = np.random.default_rng(_SEED)
    count = min(reader.page_count, _SAMPLED_PAGES)
    pages = np.sort(rng.choice(reader.page_count, count, replace=False))
    per_page = -(-row_count // max(1, count))
    disk = DiskBuffer(reader, relation.key, 1, False, Stopwatch())
    found: list[list[pa.Array]] = []
    for page in pages.tolist():
        disk.load(page, page + 1)
        rows = rng.permutation(len(disk.codes))[:per_page]
        found.append(disk.locate(np.sort(rows)).gather())
    reader.close()
    columns = [concatenate(column) for column in zip(*found, strict=True)]
    order = rng.permutation(len(columns[0]))
    return [take_rows(column, order) for column in columns]


def _any_values(field: pa.Field, count: int) -> pa.Array:
    """Return values of a type; only their size matters."""
    numbers = np.arange(97)
    each = pa.array(np.arange(count) % len(numbers))
    for values in (pa.array(numbers), pa.array([f"value {n:010d}" for n in numbers.tolist()])):
        try:
            return values.cast(field.type).take(each)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            continue
    return pa.nulls(count, field.type)
