"""A calibration: the cost factors, and what they were measured on."""

from dataclasses import dataclass

import pyarrow as pa

from semistream.columns import Encoding, encoding_of
from semistream.cost.defaults import default_factors
from semistream.cost.factors import CostFactors
from semistream.relation.device import EmulatedDevice
from semistream.relation.relation import Relation
from semistream.spec import Columns, JoinSpec, read_columns, resolve

# How many columns of fixed width a column costs as much as.
_WEIGHTS = {Encoding.FIXED: 1.0, Encoding.BYTES: 3.0, Encoding.NESTED: 10.0}


@dataclass(frozen=True, slots=True)
class Calibration:
    """Cost factors, and what they were measured on; or those of a common machine."""

    factors: CostFactors
    deviation: dict[str, float]  # typical relative deviation of each factor
    host: str
    device: str
    measured: str  # when: date and time; empty if it was not
    seconds: float  # that the calibration took
    stream_bytes: float  # size of a stream tuple's values
    waiting_bytes: dict[str, float]  # memory of such a tuple while it waits, by family of join

    def factors_on(self, device: EmulatedDevice | None) -> CostFactors:
        """Return the factors; an emulated device charges its own time on top."""
        return self.factors if device is None else self.factors.with_device(*device.costs)

    def fudge(self, family: str) -> float:
        """Return f of `meshjoin.txt`: memory of H per byte of tuples, with 4 bytes of Q apart."""
        return (self.waiting_bytes[family] - 4) / self.stream_bytes

    @property
    def tuple_s(self) -> float:
        """The cost of a tuple, all steps together, to compare calibrations by."""
        return sum(p.tuple_s + p.output_s + p.probe_s for p in self.factors.index)

    @property
    def typical_error(self) -> float:
        """By how much runs typically differ on this machine, or one machine from another."""
        return self.deviation["rounds"]

    @property
    def is_measured(self) -> bool:
        """Whether the factors are this machine's, and not those of a common one."""
        return bool(self.measured)


def usual_spec(relation: Relation, columns: Columns | None) -> JoinSpec:
    """Return the join of a stream of key, quantity and price, as in the first paper."""
    key = [relation.schema.field(name) for name in relation.key]
    fields = [*key, pa.field("quantity", pa.int32()), pa.field("price", pa.float64())]
    return resolve(relation, pa.schema(fields), how="left", columns=columns, suffix="_r")


def weight_of(dtype: pa.DataType) -> float:
    """Return how many columns of fixed width a column costs as much as."""
    return _WEIGHTS[encoding_of(dtype)]


def shipped_factors(relation: Relation, spec: JoinSpec) -> CostFactors:
    """Return the shipped factors for the columns of a join."""
    added = [relation.schema.field(name).type for name in read_columns(relation, spec)]
    return default_factors(
        sum(map(weight_of, spec.stream_schema.types)), sum(map(weight_of, added))
    )
