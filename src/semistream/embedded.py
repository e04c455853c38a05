"""The join without Spark: record batches in, record batches out."""

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pyarrow as pa

from semistream.advice.auto import AUTO, make_join
from semistream.advice.checks import latency_in_s
from semistream.advice.settings import Settings, named_algorithm
from semistream.advice.shed import SheddingJoin, check_shed
from semistream.conditions.condition import Conditions
from semistream.errors import OptionError
from semistream.joins.protocols import Operator
from semistream.joins.shedding import Shedding, shedding_of
from semistream.relation.relation import Relation
from semistream.sources import Stream, named, open_stream
from semistream.spec import Columns, JoinSpec, On, resolve
from semistream.units import parse_budget

DEFAULT_MEMORY = "64MB"


@dataclass(frozen=True, slots=True)
class JoinOptions:
    """The keyword arguments that `join` and `semistream.spark.enrich` have in common."""

    on: On | None = None
    how: str = "left"
    columns: Columns | None = None
    memory: int | str = DEFAULT_MEMORY
    algorithm: str = AUTO
    suffix: str | None = None
    condition: Conditions | None = None
    valid_at: str | None = None
    ordered: str | None = None
    front_stage: bool = False
    settings: Settings | None = None
    shed: Shedding | str | None = None
    rate: float | None = None  # this and the next: only of `join`
    latency: float | str | timedelta | None = None

    def memory_bytes(self, relation: Relation) -> int:
        """Return the budget of the whole join in bytes."""
        return parse_budget(self.memory, relation.size_bytes)

    def spec(
        self, relation: Relation, schema: pa.Schema, *, case_sensitive: bool = True
    ) -> JoinSpec:
        """Return the join, checked against the relation and the schema of the stream."""
        return resolve(
            relation,
            schema,
            on=self.on,
            how=self.how,
            columns=self.columns,
            suffix=self.suffix,
            condition=self.condition,
            valid_at=self.valid_at,
            case_sensitive=case_sensitive,
        )


def join(
    stream: Stream,
    relation: Relation | str | os.PathLike[str],
    *,
    on: On | None = None,
    how: str = "left",
    columns: Columns | None = None,
    memory: int | str = DEFAULT_MEMORY,
    algorithm: str = AUTO,
    suffix: str | None = None,
    condition: Conditions | None = None,
    valid_at: str | None = None,
    ordered: str | None = None,
    front_stage: bool = False,
    settings: Settings | None = None,
    shed: Shedding | str | None = None,
    rate: float | None = None,
    latency: float | str | timedelta | None = None,
) -> Iterator[pa.RecordBatch]:
    """Join a stream of record batches with a relation, within a memory budget.

    `stream` is an Arrow table, batch or batch reader, any object that exports an Arrow stream (a
    Polars frame, a DuckDB result), or an iterable of record batches that have the same schema.
    Views, dictionaries and run-end-encoded columns come out as the plain type they stand for.
    `relation` is a relation, or where it lies. `memory` is a size, or a share of the relation
    (``"5%"``). `how` is ``left``, ``inner``, ``semi`` or ``anti``. A `condition` must hold for a
    pair to match, beside equal keys: `where`, `between`, `similar`, a predicate, or several.
    With `valid_at`, a column of the stream, it matches the version of a row that was valid then;
    the relation must have been built with ``validity``. With ``ordered="stream"`` rows leave in the
    order of the stream, with ``ordered="key"`` those of a key do. ``front_stage=True`` puts the
    front stage before a named algorithm; `settings` are its operating parameters
    (`semistream.advice.settings`).

    Lazy: rows are pulled from `stream` as the window has space for them. The output has all
    columns of the stream, then the requested columns of the relation; its rows are in no particular
    order. An empty batch means "no rows for now"; the join continues with the rows that it has.

    The cost model chooses the algorithm, unless one is named, and the split of the budget; it
    chooses again when the stream changes. Its cost factors are those of a common machine, until
    `semistream calibrate` has measured this one. With a `rate`, in tuples per second, the join uses
    only the part of `memory` that it needs to keep up, and adapts when the rate changes. With
    `shed` as well, ``"uniform"``, ``"keep-rare"`` or `semistream.shedding`, it uses all of
    `memory`. Where the rate is more than it can serve, it then joins only a part of the rows: each
    output row has a weight, so that weighted sums and counts are unbiased.

    With a `rate` and a `latency` (``"50ms"``, seconds, a timedelta) it uses the least memory for
    which the model predicts that it keeps up, and that the average time from a row's arrival to its
    output is at most the latency. If there is none, it takes what comes closest, and logs a
    warning. While no row arrives, the stream has to yield empty batches: otherwise rows wait for
    the window to fill.

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
    options = JoinOptions(
        on,
        how,
        columns,
        memory,
        algorithm,
        suffix,
        condition,
        valid_at,
        ordered,
        front_stage,
        settings,
        shed,
        rate,
        latency,
    )
    operator, batches = _prepare(stream, relation, options)
    return iter(()) if operator is None else operator.join(batches)


def open_relation(relation: Relation | str | os.PathLike[str]) -> Relation:
    """Return a relation that is given as such, or by its path; raise if it is something else."""
    if isinstance(relation, Relation):
        return relation
    if isinstance(relation, str | os.PathLike):
        return Relation.open(relation)
    raise OptionError(
        "the relation must be what build_relation returns, or the path where it was built; got "
        f"{named(relation)}. Build one first: build_relation(source, path, key=…)"
    )


def prepare(
    stream: Stream, relation: Relation | str | os.PathLike[str], **options: Any
) -> tuple[Operator | None, Iterable[pa.RecordBatch]]:
    """Return the operator that `join` would run with these options, and the batches to run it on.

    Use it to read the operator's telemetry and ledger. There is no operator if the stream is an
    iterable without a single batch: its schema is not known then.
    """
    return _prepare(stream, relation, JoinOptions(**options))


def _prepare(
    stream: Stream, relation: Relation | str | os.PathLike[str], options: JoinOptions
) -> tuple[Operator | None, Iterable[pa.RecordBatch]]:
    relation = open_relation(relation)
    schema, batches = open_stream(stream)
    if schema is None:
        return None, ()
    spec, budget_bytes = options.spec(relation, schema), options.memory_bytes(relation)
    about = (options.algorithm, options.front_stage, options.settings)
    algorithm, settings = named_algorithm(*about)
    shed = shedding_of(options.shed)
    rate, ordered = options.rate, options.ordered
    about_latency = (options.latency, algorithm, spec)
    latency_s = latency_in_s(*about_latency, rate=rate, ordered=ordered, shed=shed)

    def make(spec: JoinSpec, budget_bytes: int) -> Operator:
        return make_join(
            algorithm,
            relation,
            spec,
            budget_bytes,
            rate=rate if shed is None else None,
            latency_s=latency_s,
            stream_rows=_row_count(stream),
            ordered=ordered,
            settings=settings,
        )

    if shed is None:
        return make(spec, budget_bytes), batches
    arrivals = check_shed(shed, algorithm, spec, rate)
    return SheddingJoin(relation, spec, budget_bytes, shed, arrivals, make), batches


def _row_count(stream: Stream) -> int | None:
    """Return how many rows a stream has that is all there; None for others."""
    if isinstance(stream, pa.Table | pa.RecordBatch):
        return int(stream.num_rows)
    if isinstance(stream, list | tuple):
        return sum(int(batch.num_rows) for batch in stream)
    return None
