"""A question to the cost model: a relation, a join with it, and what is known of the stream."""

from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa

from semistream.advice.calibration import Calibration, calibration_for, usual_spec
from semistream.advice.choice import Advisor
from semistream.advice.situation import demand_in, layout_of, reader_for, stream_widths
from semistream.conditions.condition import Conditions as PairConditions
from semistream.cost.conditions import Conditions
from semistream.cost.demand import Demand
from semistream.errors import OptionError
from semistream.joins.frontstage import POLICY
from semistream.relation.relation import Relation
from semistream.spec import Columns, JoinSpec, On, read_columns, resolve

_MOST_SAMPLE_ROWS = 1_000_000


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked about; `advisor` and `conditions` are what the models need."""

    relation: Relation
    spec: JoinSpec
    calibration: Calibration
    skew: float | None = None  # a Zipf exponent
    sample: pa.Table | None = None  # of the stream

    @classmethod
    def of(
        cls,
        relation: Relation,
        *,
        rate: float | None = None,
        skew: float | None = None,
        sample: pa.Table | None = None,
        on: On | None = None,
        columns: Columns | None = None,
        batch: int | None = None,
        condition: PairConditions | None = None,
        valid_at: str | None = None,
        calibration: Calibration | None = None,
    ) -> "Question":
        """Check what a user asks."""
        if sample is not None and skew is not None:
            raise OptionError("give either skew or a sample of the stream, not both")
        if rate is not None and rate <= 0:
            raise OptionError(f"rate must be positive: tuples per second; got {rate}")
        if batch is not None and batch < 1:
            raise OptionError(f"batch must be at least 1: rows of a micro-batch; got {batch}")
        if not relation.row_count:
            raise OptionError(
                f"{relation.location} has no rows: any budget and any algorithm will do"
            )
        if sample is None and (condition is not None or valid_at is not None):
            raise OptionError(
                "a condition or valid_at looks at columns of the stream; give a sample of it"
            )
        spec = _spec(relation, sample, on, columns, condition, valid_at)
        known = calibration or calibration_for(relation, spec)
        return cls(relation, spec, known, skew, sample)

    def advisor(self, partition: int | None = None) -> Advisor:
        """Return what ranks algorithms for the join with R, or with one partition of it."""
        widths = stream_widths(self.relation, self.spec, self.sample)
        return Advisor(self.relation, self.spec, widths, partition)

    def conditions(self, partition: int | None = None) -> tuple[Conditions, str]:
        """Return the conditions of that join, and where its skew is known from."""
        reader = reader_for(self.relation, self.spec, partition)
        layout = layout_of(reader, read_columns(self.relation, self.spec))
        factors = self.calibration.factors_on(self.relation.reading.device)
        if self.sample is None:
            said = "assumed: the least favourable" if self.skew is None else "as given"
            demand = Demand.zipf(self.skew or 0.0, max(1, reader.row_count))
        else:
            sample = self.sample[:_MOST_SAMPLE_ROWS]
            said = f"from {sample.num_rows:,} sampled rows"
            demand = demand_in(sample, self.relation, self.spec.stream_key, reader)
        return Conditions(layout, demand, factors, POLICY), said


def _spec(
    relation: Relation,
    sample: pa.Table | None,
    on: On | None,
    columns: Columns | None,
    condition: PairConditions | None = None,
    valid_at: str | None = None,
) -> JoinSpec:
    if sample is None:
        if on is not None and not isinstance(on, Mapping) and on != relation.key:
            named = [on] if isinstance(on, str) else list(on)
            resolve(relation, pa.schema([relation.schema.field(k) for k in relation.key]), on=named)
        return usual_spec(relation, columns)
    return resolve(
        relation,
        sample.schema,
        on=on,
        how="left",
        columns=columns,
        suffix="_r",
        condition=condition,
        valid_at=valid_at,
    )
