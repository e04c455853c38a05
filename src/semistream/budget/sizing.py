"""The sizes of a join's parts, from the relation's page table and the stream's widths.

Nothing is allocated and no join is made: `auto` compares the sizes of all algorithms before it
chooses one.
"""

from dataclasses import dataclass, replace
from functools import cache, partial

import pyarrow as pa

from semistream.budget.frontsizes import WAYS, CachedColumns, pinned_part_bytes, set_count
from semistream.budget.pagesizes import (
    disk_buffer_bytes,
    planned_bytes,
    planned_parts,
    value_bytes,
    widest_row_bytes,
)
from semistream.budget.resultsizes import ResultColumns
from semistream.budget.rowsizes import NESTED_COPIES, Widths, base_bytes
from semistream.budget.sizes import Sizes
from semistream.budget.tuplesizes import (
    BYTES_PER_PAGE,
    index_tuple_bytes,
    look_up_tuple_bytes,
    scan_tuple_bytes,
    window_base_bytes,
)
from semistream.columns import Encoding, encoding_of, width_bytes
from semistream.relation.pageindex import PageIndex
from semistream.relation.reader import PageReader
from semistream.relation.relation import Relation
from semistream.spec import JoinSpec, read_columns

# Pairs (probe, slot), places in the slab, what a front stage observes, and a validity byte or
# two on the way to Arrow.
_PAIR_BYTES = 8 + 8 + 8 + 8 + 2
# Of the tuples that an index join takes out of the window: slot, code, page, and their pairs.
_TAKEN_BYTES = 5 * 8
# Of the rows that look-ups gather: page, index of the page, place on it, and the plan's requests.
_PLANNED_BYTES = 3 * 8 + 4 * 8
# Pairs that a condition is evaluated for at a time, where keys are not compared, at least.
LEAST_CANDIDATES = 512
# Of tuples in the order of a condition: value, place, and both once more while they are sorted.
_ORDER_BYTES = 4 * 8
# For each variable-width value: where it lies, its length, its offset, and its size in bytes.
_PLACE_BYTES = 8 + 4 + 4 + 8
# Values differ in size: an output buffer has room for more than its rows of average width.
_OUTPUT_SLACK = 1.25


@dataclass(frozen=True, slots=True)
class Sizing:
    """Computes the sizes of a join over one relation, or one partition of it."""

    reader: PageReader
    columns: tuple[str, ...]  # of R, that the join reads
    stored_schema: pa.Schema  # of the stream, as the window stores it
    implied: int | None  # the stream column that is not stored, because it is the key code
    has_front: bool
    compared: tuple[int, ...] = ()  # stream columns that a condition looks at, copied once more
    pair_bytes: int = 0  # what a condition makes of each pair besides
    has_key: bool = True  # whether keys are compared; otherwise the window is kept in order
    results: ResultColumns | None = None  # what waits with tuples that leave in their order

    @classmethod
    def of(
        cls, relation: Relation, spec: JoinSpec, reader: PageReader, has_front: bool
    ) -> "Sizing":
        """Return the sizing of a join, with or without a front stage."""
        return cls(
            reader,
            read_columns(relation, spec),
            # Whatever the stream's schema promises, a null may come.
            pa.schema([field.with_nullable(True) for field in spec.stream_schema]),
            _implied(relation, spec),
            has_front,
            *_of_condition(spec),
            has_key=bool(spec.stream_key),
            results=ResultColumns.of(reader, spec) if spec.in_order else None,
        )

    def for_scan(self, widths: Widths) -> Sizes:
        """Return the sizes of a join that scans R, for stream rows of these widths."""
        schema = self.stored_schema
        return self._sizes(
            widths,
            scan_tuple_bytes(schema, widths.average, self.implied, bool(self.listed_bytes))
            + self._ordering_bytes(widths),
            window_base_bytes(schema, widths.widest) + self._candidates_bytes(widths),
            self._output_row_bytes(widths) * (1 if self.has_key else 2),
            self.reader.table_bytes + self.listed_bytes,
        )

    @property
    def listed_bytes(self) -> int:
        """What a scan keeps to tell apart tuples that hot and delta pages concern; 0 if nothing."""
        return self.reader.listed_form.bits_bytes if self.has_key else 0

    def for_index(self, widths: Widths) -> Sizes:
        """Return the sizes of a join that reads pages by index."""
        schema, reader = self.stored_schema, self.reader
        return self._sizes(
            widths,
            index_tuple_bytes(schema, widths.average, self.implied),
            base_bytes(schema, widths.widest) + BYTES_PER_PAGE * (reader.page_count + 1),
            self._output_row_bytes(widths) + _TAKEN_BYTES,
            reader.table_bytes + PageIndex.size_bytes(reader),
            # A page with duplicates may need the page after it as well.
            least_pages=min(reader.page_count, 1 if reader.has_unique_codes else 2),
        )

    def for_look_ups(self, widths: Widths) -> Sizes:
        """Return the sizes of look-ups in the order of R."""
        schema, reader, results = self.stored_schema, self.reader, self.results
        result_bytes = 0 if results is None else results.bytes_per_tuple
        result_base_bytes = 0 if results is None else results.base_bytes
        sizes = self._sizes(
            widths,
            look_up_tuple_bytes(schema, widths.average, self.implied) + result_bytes,
            base_bytes(schema, widths.widest) + result_base_bytes,
            self._output_row_bytes(widths) + _PLANNED_BYTES,
            reader.table_bytes + PageIndex.size_bytes(reader),
        )
        parts = planned_parts(reader, self.columns)
        planned = cache(partial(planned_bytes, reader, parts))
        return replace(sizes, disk_bytes=planned)

    @property
    def output_base_bytes(self) -> int:
        """The size of an output row without its variable-width values."""
        fields = [*self.stored_schema, *map(self.reader.manifest.schema.field, self.columns)]
        fields += [self.stored_schema.field(i) for i in self.compared]
        return _PAIR_BYTES + self.pair_bytes + sum(map(_fixed_bytes, fields))

    def _sizes(
        self,
        widths: Widths,
        tuple_bytes: int,
        window_base_bytes: int,
        output_row_bytes: int,
        table_bytes: int,
        least_pages: int = 1,
    ) -> Sizes:
        reader, columns = self.reader, self.columns
        widest = widths.widest_row_bytes(self.stored_schema) + widest_row_bytes(reader, columns)
        return Sizes(
            page_count=reader.page_count,
            disk_bytes=cache(partial(self._disk_bytes)),
            pinned_bytes=cache(partial(pinned_part_bytes, reader, columns)),
            cached_rows=partial(_cached_rows, CachedColumns.of(reader, columns)),
            tuple_bytes=tuple_bytes,
            window_base_bytes=window_base_bytes,
            output_row_bytes=output_row_bytes,
            widest_row_bytes=output_row_bytes + widest,
            table_bytes=table_bytes,
            least_pages=least_pages,
        )

    def _output_row_bytes(self, widths: Widths) -> int:
        """Return the size of an average output row, with some slack where widths differ."""
        of_stream = zip(self.stored_schema, widths.average, strict=True)
        fields = [self.reader.manifest.schema.field(name) for name in self.columns]
        of_relation = [(f, value_bytes(self.reader, f.name)) for f in fields]
        of_condition = [(self.stored_schema.field(i), widths.average[i]) for i in self.compared]
        every = (*of_stream, *of_relation, *of_condition)
        varying = sum(_varying_bytes(field, size) for field, size in every)
        return int(self.output_base_bytes + _OUTPUT_SLACK * varying)

    def _candidates_bytes(self, widths: Widths) -> int:
        """Return what pairs take that a condition is evaluated for, where keys are not compared."""
        return 0 if self.has_key else LEAST_CANDIDATES * self._output_row_bytes(widths)

    def _ordering_bytes(self, widths: Widths) -> int:
        """Return what a tuple takes besides where keys are not compared: its place, its columns."""
        if self.has_key:
            return 0
        compared = [self.stored_schema.field(i) for i in self.compared]
        varying = [
            _varying_bytes(f, widths.average[i])
            for i, f in zip(self.compared, compared, strict=True)
        ]
        return _ORDER_BYTES + sum(map(_fixed_bytes, compared)) + int(sum(varying))

    def _disk_bytes(self, pages: int) -> int:
        return disk_buffer_bytes(self.reader, self.columns, pages, self.has_front)


def _cached_rows(columns: CachedColumns, size_bytes: int) -> int:
    return WAYS * set_count(columns, size_bytes)


def _implied(relation: Relation, spec: JoinSpec) -> int | None:
    """Return the stream column that is the key code.

    Where rows without a key enter the window too, it has to be stored.
    """
    if not spec.stream_key or not relation.coder.is_exact or (spec.in_order and spec.keeps_misses):
        return None
    return spec.stream_key_indexes[0]


def _of_condition(spec: JoinSpec) -> tuple[tuple[int, ...], int]:
    """Return which stream columns the condition looks at, and what else it makes of a pair."""
    if spec.condition is None:
        return (), 0
    names = spec.condition.columns_of("stream")
    indexes = [spec.stream_schema.get_field_index(name) for name in names]
    return tuple(indexes), spec.condition.pair_bytes


def _fixed_bytes(field: pa.Field) -> int:
    is_fixed = encoding_of(field.type) is Encoding.FIXED
    return width_bytes(field.type) if is_fixed else _PLACE_BYTES


def _varying_bytes(field: pa.Field, average_bytes: float) -> float:
    encoding = encoding_of(field.type)
    if encoding is Encoding.FIXED:
        return 0.0
    return average_bytes * (NESTED_COPIES if encoding is Encoding.NESTED else 1)
