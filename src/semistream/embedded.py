"""The join without Spark: record batches in, record batches out."""

from collections.abc import Iterable, Iterator

import pyarrow as pa

from semistream.advice.auto import AUTO, make_join
from semistream.joins.protocols import Operator
from semistream.relation.relation import Relation
from semistream.sources import Stream, open_stream
from semistream.spec import Columns, On, resolve
from semistream.units import parse_bytes

DEFAULT_MEMORY = "64MB"


def join(
    stream: Stream,
    relation: Relation,
    *,
    on: On | None = None,
    how: str = "left",
    columns: Columns | None = None,
    memory: int | str = DEFAULT_MEMORY,
    algorithm: str = AUTO,
    suffix: str | None = None,
    rate: float | None = None,
) -> Iterator[pa.RecordBatch]:
    """Join a stream of record batches with a relation, within a memory budget.

    `stream` is an Arrow table, batch or batch reader, anything that exports an Arrow stream (a
    Polars frame, a DuckDB result), or an iterable of record batches that have the same schema.
    Views, dictionaries and run-end-encoded columns come out as the plain type they stand for.

    Lazy: rows are pulled from `stream` as there is room for them. The output has all columns
    of the stream, then those of the relation that were asked for; its rows are in no particular
    order. An empty batch means "nothing for now" and lets the join go on with what it has.

    The algorithm, unless one is named, and the split of the budget are chosen by the cost model,
    and again when the stream changes; its factors are measured, in about a second, the first time
    a relation on this device is joined with a stream like this one (`semistream calibrate` measures
    them thoroughly). With a `rate`, in tuples per second, the join takes only as much of `memory`
    as it needs to keep up, and adapts when more or fewer arrive.

    >>> from semistream import build_relation
    >>> import tempfile
    >>> products = pa.table({"product_id": [1, 2], "name": ["pen", "ink"]})
    >>> products = build_relation(products, tempfile.mkdtemp(), key="product_id")
    >>> sales = pa.record_batch({"product_id": [2, 3], "quantity": [5, 7]})
    >>> for batch in join([sales], products, how="left", memory="20MB"):
    ...     print(batch.to_pylist())
    [{'product_id': 3, 'quantity': 7, 'name': None}]
    [{'product_id': 2, 'quantity': 5, 'name': 'ink'}]
    """
    operator, batches = prepare(
        stream,
        relation,
        on=on,
        how=how,
        columns=columns,
        memory=memory,
        algorithm=algorithm,
        suffix=suffix,
        rate=rate,
    )
    return iter(()) if operator is None else operator.join(batches)


def prepare(
    stream: Stream,
    relation: Relation,
    *,
    on: On | None = None,
    how: str = "left",
    columns: Columns | None = None,
    memory: int | str = DEFAULT_MEMORY,
    algorithm: str = AUTO,
    suffix: str | None = None,
    rate: float | None = None,
) -> tuple[Operator | None, Iterable[pa.RecordBatch]]:
    """Return the operator that `join` would run, and the batches to run it on.

    For those who want the operator's telemetry and ledger. There is no operator if the stream is an
    iterable without a single batch: its schema is not known then.
    """
    schema, batches = open_stream(stream)
    if schema is None:
        return None, ()
    spec = resolve(relation, schema, on=on, how=how, columns=columns, suffix=suffix)
    return make_join(algorithm, relation, spec, parse_bytes(memory), rate=rate), batches
