"""Versions of a row: from when to when each is valid, and what a build does with odd ones.

A relation with versions (a slowly changing dimension, type 2) has several rows for a key, and two
columns that say from when (inclusive) to when (exclusive) each is valid. A null is an open end. A
join with ``valid_at="sold_at"`` takes the version that was valid at the event's time.

All versions of a key are in one partition, next to each other, so the build looks at them
once, and no join has to choose between versions:

=============  =====================================================================================
`overlapping`  when two versions of a key are valid at the same time
=============  =====================================================================================
``refuse``     the build fails, and names the key
``cut``        a version ends where the next one begins; of two that begin together the last wins
``keep``       both stay, and an event between them matches both
=============  =====================================================================================

=============  =====================================================================================
`missing`      when no version is valid at a time
=============  =====================================================================================
``miss``       an event of that time has no match
``extend``     a version stays valid until the next one begins, the first one was always valid, and
               the last one remains so
=============  =====================================================================================

With ``cut`` and ``extend`` the stored columns have the corrected times, and of versions that begin
together ``cut`` stores the last one only. A row that ends before it
begins is never valid; it is kept as it is.

Memory: the rows of one batch, and those of its last key, which may go on in the next.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal, TypeAlias, get_args

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from semistream.errors import BuildError, ColumnError, OptionError, did_you_mean

Overlapping: TypeAlias = Literal["refuse", "cut", "keep"]
Missing: TypeAlias = Literal["miss", "extend"]
Rows: TypeAlias = tuple[NDArray[np.int64], pa.RecordBatch]  # codes, and the rows they are of
_ALWAYS = np.iinfo(np.int64)


@dataclass(frozen=True, slots=True)
class Validity:
    """Which columns say when a row is valid, and what becomes of overlaps and gaps."""

    valid_from: str  # inclusive
    valid_to: str  # exclusive
    overlapping: Overlapping = "refuse"
    missing: Missing = "miss"

    def __post_init__(self) -> None:
        """Raise unless the policies exist."""
        _check_name("overlapping", self.overlapping, get_args(Overlapping))
        _check_name("missing", self.missing, get_args(Missing))

    @classmethod
    def of(cls, given: "Validity | Sequence[str] | None") -> "Validity | None":
        """Return a validity that was given as such, or as the names of its two columns."""
        if given is None or isinstance(given, Validity):
            return given
        if isinstance(given, str) or len(given) != 2:
            raise OptionError(
                "validity is the names of two columns, ('valid_from', 'valid_to'), or "
                f"semistream.validity(…); got {given!r}"
            )
        return cls(given[0], given[1])

    def check(self, schema: pa.Schema) -> None:
        """Raise unless the columns are there, and are of one type that has an order."""
        for name in (self.valid_from, self.valid_to):
            if name not in schema.names:
                raise ColumnError(
                    f"column {name!r} of validity is not in the source, which has "
                    f"{', '.join(schema.names)}.{did_you_mean(name, schema.names)}"
                )
        types = [schema.field(name).type for name in (self.valid_from, self.valid_to)]
        if types[0] != types[1] or not _is_ordered(types[0]):
            raise ColumnError(
                "the columns of validity must be of one type, timestamps, dates or integers; "
                f"{self.valid_from!r} is {types[0]} and {self.valid_to!r} is {types[1]}. Cast them"
            )

    def to_dict(self) -> dict[str, Any]:
        """Return it as the manifest has it."""
        return asdict(self)


def validity(
    valid_from: str,
    valid_to: str,
    *,
    overlapping: Overlapping = "refuse",
    missing: Missing = "miss",
) -> Validity:
    """Return which columns say when a row is valid, for ``build_relation(…, validity=…)``.

    `overlapping` versions of a key are ``refuse``d, ``cut`` where the next one begins, or
    ``keep``. Times for which a version is `missing` are a ``miss``, or the versions around them
    ``extend``. See `semistream.relation.validity`.
    """
    return Validity(valid_from, valid_to, overlapping, missing)


def _check_name(argument: str, given: str, known: Sequence[str]) -> None:
    if given not in known:
        raise OptionError(
            f"{argument} must be one of {', '.join(known)}; got {given!r}."
            f"{did_you_mean(str(given), known)}"
        )


def _is_ordered(dtype: pa.DataType) -> bool:
    types = pa.types
    is_signed = types.is_integer(dtype) and not types.is_uint64(dtype)
    return bool(types.is_timestamp(dtype) or types.is_date(dtype) or is_signed)


def with_whole_versions(
    rows: Iterable[Rows], validity: Validity, key: Sequence[str]
) -> Iterator[Rows]:
    """Yield rows that come sorted by code, with the versions of each key in order and corrected."""
    held: list[Rows] = []  # of the last code: more may follow
    for codes, batch in rows:
        if not len(codes):
            continue
        held.append((codes, batch))
        end = int(np.searchsorted(codes, codes[-1]))
        if end == 0 and held[0][0][0] == codes[-1]:
            continue  # one code so far
        whole = [*held[:-1], (codes[:end], batch[:end])]
        held = [(codes[end:], batch[end:])]
        yield _corrected(whole, validity, key)
    if held:
        yield _corrected(held, validity, key)


def _corrected(rows: list[Rows], validity: Validity, key: Sequence[str]) -> Rows:
    codes = np.concatenate([c for c, _ in rows])
    batch = pa.concat_batches([b for _, b in rows])
    ids = [codes, *(_ids(batch.column(name)) for name in key)]  # of each row's key
    begins = _numbers(batch.column(validity.valid_from), _ALWAYS.min)
    ends = _numbers(batch.column(validity.valid_to), _ALWAYS.max)
    order = np.lexsort((begins, *reversed(ids)))
    if validity.overlapping == "cut":
        order = order[_is_last_to_begin(order, ids, begins, ends)]
    codes, batch, begins, ends = (
        codes[order],
        batch.take(pa.array(order)),
        begins[order],
        ends[order],
    )
    one, other = _successive([column[order] for column in ids], begins < ends)
    overlaps = ends[one] > begins[other]
    if overlaps.any() and validity.overlapping == "refuse":
        raise _refusal(batch, validity, key, one[overlaps][0], other[overlaps][0])
    later = np.full(len(codes), -1, np.int64)  # the version at whose begin each row is to end
    if validity.overlapping == "cut":
        later[one[overlaps]] = other[overlaps]
    is_first, is_last = np.zeros(len(codes), np.bool_), np.zeros(len(codes), np.bool_)
    if validity.missing == "extend":
        gaps = ends[one] < begins[other]
        later[one[gaps]] = other[gaps]
        is_first[begins < ends], is_last[begins < ends] = True, True
        is_first[other], is_last[one] = False, False
    return codes, _with_times(batch, validity, later, is_first, is_last)


def _successive(
    ids: Sequence[NDArray[Any]], is_ever_valid: NDArray[np.bool_]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return pairs of rows of one key that follow each other, leaving out those never valid."""
    ever = np.flatnonzero(is_ever_valid)
    same = np.ones(max(0, len(ever) - 1), np.bool_)
    for column in ids:
        same &= column[ever[:-1]] == column[ever[1:]]
    return ever[:-1][same], ever[1:][same]


def _is_last_to_begin(
    order: NDArray[np.int64],
    ids: Sequence[NDArray[Any]],
    begins: NDArray[np.int64],
    ends: NDArray[np.int64],
) -> NDArray[np.bool_]:
    """Say which rows stay: of versions of a key that begin together only the last."""
    one, other = _successive([column[order] for column in ids], (begins < ends)[order])
    stays = np.ones(len(order), np.bool_)
    stays[one[begins[order[one]] == begins[order[other]]]] = False
    return stays


def _with_times(
    batch: pa.RecordBatch,
    validity: Validity,
    later: NDArray[np.int64],
    is_first: NDArray[np.bool_],
    is_last: NDArray[np.bool_],
) -> pa.RecordBatch:
    """Return the rows with other times: an end where a later version begins, or open ends."""
    begins, ends = batch.column(validity.valid_from), batch.column(validity.valid_to)
    moved = begins.take(pa.array(np.maximum(later, 0)))
    ends = pc.if_else(pa.array(later >= 0), moved, ends)
    nothing = pa.scalar(None, begins.type)
    new = {
        validity.valid_from: pc.if_else(pa.array(is_first), nothing, begins),
        validity.valid_to: pc.if_else(pa.array(is_last), nothing, ends),
    }
    columns = [new.get(f.name, batch.column(i)) for i, f in enumerate(batch.schema)]
    return pa.RecordBatch.from_arrays(columns, schema=batch.schema)


def _numbers(times: pa.Array, null: int) -> NDArray[np.int64]:
    """Return times as integers, in their own unit; an open end is before or after all others."""
    if pa.types.is_date32(times.type):
        times = times.cast(pa.int32())
    numbers = times.cast(pa.int64()).fill_null(null)
    return np.asarray(numbers.to_numpy(zero_copy_only=False))


def _ids(column: pa.Array) -> NDArray[np.int32]:
    """Return a number for each different value."""
    encoded = column.dictionary_encode()
    return np.asarray(encoded.indices.to_numpy(zero_copy_only=False), np.int32)


def _refusal(
    batch: pa.RecordBatch, validity: Validity, key: Sequence[str], one: int, other: int
) -> BuildError:
    rows = [{n: batch.column(n)[int(i)].as_py() for n in batch.schema.names} for i in (one, other)]
    names = ", ".join(f"{name}={rows[0][name]!r}" for name in key)
    spans = " and ".join(f"{row[validity.valid_from]} to {row[validity.valid_to]}" for row in rows)
    return BuildError(
        f"two versions of {names} are valid at the same time: {spans}. Correct the source, or pass "
        "validity=semistream.validity(…, overlapping='cut'), which ends a version where the next "
        "one begins, or overlapping='keep'"
    )
