"""The specification of a join: key columns, conditions, kind of join, columns to add, output."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, Protocol, TypeAlias, get_args

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from semistream.columns import POOL, plain_schema
from semistream.conditions.condition import Binder, BoundCondition, Conditions
from semistream.conditions.expressions import Side
from semistream.errors import ColumnError, OptionError, did_you_mean
from semistream.keys import check_same_type
from semistream.relation.relation import Relation

How: TypeAlias = Literal["inner", "left", "semi", "anti"]
On: TypeAlias = str | Sequence[str] | Mapping[str, str]
Columns: TypeAlias = Sequence[str] | Mapping[str, str]


class ResolvedRows(Protocol):
    """Is told which rows of the stream are resolved."""

    def add(self, numbers: NDArray[np.int64]) -> None:
        """Note that all joined rows of these stream rows have been emitted."""
        ...


@dataclass(frozen=True, slots=True)
class JoinSpec:
    """A join, checked and with all names resolved against both sides."""

    how: How
    stream_schema: pa.Schema
    stream_key: tuple[str, ...]  # in the order of the relation's key
    columns: tuple[str, ...]  # of the relation, to be added
    output_schema: pa.Schema
    condition: BoundCondition | None = None  # what must hold for a pair beside equal keys
    # If the output is ordered: what is told of the stream rows that are resolved, by their numbers
    # in the last column of the stream.
    resolved: "ResolvedRows | None" = field(default=None, compare=False)
    in_order: bool = False  # whether look-ups let tuples leave in the order of the stream

    @property
    def adds_columns(self) -> bool:
        """Whether the relation's columns appear in the output."""
        return self.how in ("inner", "left")

    @property
    def stream_key_indexes(self) -> list[int]:
        """The positions of the key columns in the stream."""
        return [self.stream_schema.get_field_index(k) for k in self.stream_key]

    def with_stream_schema(self, schema: pa.Schema) -> "JoinSpec":
        """Return the same join for a stream whose columns are labelled a little differently."""
        schema = plain_schema(schema)
        added = list(self.output_schema)[len(self.stream_schema) :]
        return replace(self, stream_schema=schema, output_schema=pa.schema([*schema, *added]))

    def assemble(
        self, stream: Sequence[pa.Array], relation: Sequence[pa.Array] | None, count: int
    ) -> pa.RecordBatch:
        """Return an output batch; without relation columns they are null."""
        if relation is None:
            added = list(self.output_schema)[len(self.stream_schema) :]
            relation = [pa.nulls(count, each.type, memory_pool=POOL) for each in added]
        return pa.RecordBatch.from_arrays([*stream, *relation], schema=self.output_schema)

    @property
    def keeps_misses(self) -> bool:
        """Whether stream rows without a match appear in the output."""
        return self.how in ("left", "anti")


def resolve(
    relation: Relation,
    stream_schema: pa.Schema,
    *,
    on: On | None = None,
    how: str = "left",
    columns: Columns | None = None,
    suffix: str | None = None,
    condition: Conditions | None = None,
    valid_at: str | None = None,
    case_sensitive: bool = True,
) -> JoinSpec:
    """Check a join against both schemas and return it with all names resolved.

    `on` is a name, a list of names, or a mapping from stream name to relation name; the default
    is the relation's key. An empty list compares no keys: then only the `condition` counts.
    `columns` are the relation's columns to add, the default all but its key; a mapping renames
    them. Where a name is already taken by the stream, `suffix` is appended, and without one the
    clash is an error. A `condition` must hold for a pair to match, beside equal keys. With
    `valid_at`, a column of the stream, only the version of a row matches that was valid at that
    time.
    """
    how = _join_type(how)
    names = _Names(case_sensitive)
    stream_schema = plain_schema(stream_schema)
    stream_key = _stream_key(relation, stream_schema, on, names)
    added = _added_columns(relation, columns, names) if how in ("inner", "left") else {}
    renamed = _rename_clashes(added, stream_schema, suffix, names)
    fields = [relation.schema.field(n).with_name(out).with_nullable(True) for n, out in renamed]
    sides: dict[Side, pa.Schema] = {
        "stream": stream_schema,
        "relation": plain_schema(relation.schema),
    }
    binder = Binder(sides, dict(zip(stream_key, relation.key, strict=False)), names.find)
    bound = _with_version(binder.bind(condition), binder, relation, valid_at)
    if not stream_key and bound is None:
        raise OptionError(
            "on=[] compares no keys, so every stream row would match every row of the relation; "
            "pass a condition, for example condition='s.amount >= r.least_amount'"
        )
    return JoinSpec(
        how=how,
        stream_schema=stream_schema,
        stream_key=stream_key,
        columns=tuple(added),
        output_schema=pa.schema([*stream_schema, *fields]),
        condition=bound,
    )


def _with_version(
    condition: BoundCondition | None, binder: Binder, relation: Relation, valid_at: str | None
) -> BoundCondition | None:
    """Return a condition with that of a version beside it: it was valid at the event's time."""
    if valid_at is None:
        return condition
    versions = relation.manifest.validity
    if versions is None:
        raise OptionError(
            "valid_at needs a relation that was built with validity=('valid_from', 'valid_to'), "
            "its columns that say when a row is valid; this one was built without. Build it again"
        )
    version = binder.bind_version(valid_at, versions.valid_from, versions.valid_to)
    return version if condition is None else condition.beside(version)


def _join_type(how: str) -> How:
    """Return the kind of join; Spark's names for one are known: ``left_outer``, ``leftanti``."""
    kinds: dict[str, How] = {kind: kind for kind in get_args(How)}
    spark = {"leftouter": "left", "leftsemi": "semi", "leftanti": "anti"}
    folded = how.lower().replace("_", "")
    if spark.get(folded, folded) not in kinds:
        raise OptionError(
            f"how must be one of {', '.join(kinds)}; got {how!r}.{did_you_mean(how, list(kinds))}"
        )
    return kinds[spark.get(folded, folded)]


def read_columns(relation: Relation, spec: JoinSpec) -> tuple[str, ...]:
    """Return the columns of R a join reads: those it adds, and those it compares."""
    key = () if relation.coder.is_exact or not spec.stream_key else relation.key
    compared = () if spec.condition is None else spec.condition.columns_of("relation")
    return tuple(dict.fromkeys([*key, *spec.columns, *compared]))


@dataclass(frozen=True, slots=True)
class _Names:
    """How names are compared: exactly, or without case, as Spark's analyzer does."""

    case_sensitive: bool

    def fold(self, name: str) -> str:
        return name if self.case_sensitive else name.lower()

    def find(self, name: str, schema: pa.Schema, side: str) -> str:
        """Return the schema's own spelling of a name, or raise `ColumnError`."""
        found = [n for n in schema.names if self.fold(n) == self.fold(name)]
        if len(found) == 1:
            return str(found[0])
        if found:
            raise ColumnError(
                f"{name!r} is ambiguous in the {side}: it has {', '.join(found)}; rename them"
            )
        raise ColumnError(
            f"column {name!r} is not in the {side}, which has "
            f"{', '.join(schema.names)}.{did_you_mean(name, schema.names)}"
        )


def _stream_key(
    relation: Relation, stream_schema: pa.Schema, on: On | None, names: _Names
) -> tuple[str, ...]:
    if on is None:
        on = relation.key
    if isinstance(on, str):
        on = [on]
    if not on:
        return ()
    pairs = dict(on) if isinstance(on, Mapping) else {n: n for n in on}
    by_relation = {_relation_key(relation, s, r, names): s for s, r in pairs.items()}
    if set(by_relation) != set(relation.key) or len(by_relation) != len(pairs):
        raise ColumnError(
            f"the relation's key is ({', '.join(relation.key)}), but on names "
            f"({', '.join(pairs.values())}); name each key column once, or map the stream's "
            "names to them: on={'stream_column': 'relation_column'}"
        )
    found = tuple(names.find(by_relation[k], stream_schema, "stream") for k in relation.key)
    for ours, theirs in zip(relation.key, found, strict=True):
        check_same_type(
            relation.schema.field(ours).type, stream_schema.field(theirs).type, ours, theirs
        )
    return found


def _relation_key(relation: Relation, stream_name: str, name: str, names: _Names) -> str:
    """Return the relation's own spelling of a name in `on`, or raise `ColumnError`."""
    if not any(names.fold(n) == names.fold(name) for n in relation.schema.names):
        hint = did_you_mean(name, relation.key)
        ours = relation.key[0]
        raise ColumnError(
            f"on names {name!r}, which is not in the relation; its key is "
            f"({', '.join(relation.key)}).{hint} If the stream has the key under another name, "
            f"map it: on={{{stream_name!r}: {ours!r}}}"
        )
    return names.find(name, relation.schema, "relation")


def _added_columns(relation: Relation, columns: Columns | None, names: _Names) -> dict[str, str]:
    """Return relation name → output name."""
    if columns is None:
        columns = [n for n in relation.schema.names if n not in relation.key]
    if isinstance(columns, str):
        columns = [columns]
    pairs = dict(columns) if isinstance(columns, Mapping) else {n: n for n in columns}
    return {names.find(n, relation.schema, "relation"): out for n, out in pairs.items()}


def _rename_clashes(
    added: dict[str, str], stream_schema: pa.Schema, suffix: str | None, names: _Names
) -> list[tuple[str, str]]:
    taken = {names.fold(n) for n in stream_schema.names}
    renamed = []
    for name, given in added.items():
        out = given + suffix if suffix and names.fold(given) in taken else given
        if names.fold(out) in taken:
            other = "another suffix" if suffix else f"suffix='_r', which makes it '{out}_r'"
            raise ColumnError(
                f"column {out!r} would appear twice in the output. Pass {other}; or list the "
                f"columns to add, without it or renamed: columns={{{name!r}: 'another_name', …}}"
            )
        taken.add(names.fold(out))
        renamed.append((name, out))
    return renamed
