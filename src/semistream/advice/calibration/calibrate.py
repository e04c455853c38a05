"""The cost factors of a relation's device and a join's schema: stored, measured or shipped."""

import socket
from collections.abc import Callable
from datetime import UTC, datetime
from time import perf_counter
from typing import TypeAlias

from semistream.advice.calibration.fit import fit
from semistream.advice.calibration.reading import io_curve
from semistream.advice.calibration.record import Calibration, shipped_factors, usual_spec
from semistream.advice.calibration.runs import PLAIN, Runs
from semistream.advice.calibration.store import device_of, load
from semistream.advice.choice import Advisor
from semistream.advice.situation import largest_partition, stream_widths
from semistream.cost.factors import CostFactors
from semistream.errors import OptionError
from semistream.memory import return_free_memory
from semistream.relation.device import Reading
from semistream.relation.relation import Relation
from semistream.spec import Columns, JoinSpec

Progress: TypeAlias = Callable[[int, int], None]  # steps done, steps in all
_COMMON_MACHINE = "a common machine"
_COMMON_DEVIATION = 0.3  # of the factors of one machine from another's, about


def calibration_for(relation: Relation, spec: JoinSpec) -> Calibration:
    """Return what is stored for a relation's device and a join's schema, or of a common machine."""
    return load(relation, spec) or common_machine(relation, spec)


def factors_for(relation: Relation, spec: JoinSpec) -> CostFactors:
    """Return the factors of `calibration_for` for the device that the relation is read by."""
    known, device = load(relation, spec), relation.reading.device
    factors = shipped_factors(relation, spec) if known is None else known.factors
    return factors if device is None else factors.with_device(*device.costs)


def common_machine(relation: Relation, spec: JoinSpec) -> Calibration:
    """Return the shipped factors of a common machine, for the columns of a join."""
    factors, deviation = shipped_factors(relation, spec), {"rounds": _COMMON_DEVIATION}
    about = (_COMMON_MACHINE, "local disk", "", 0.0)
    return Calibration(factors, deviation, *about, *_tuple_bytes(relation, spec))


def calibrate(
    relation: Relation,
    spec: JoinSpec | None = None,
    *,
    columns: Columns | None = None,
    progress: Progress | None = None,
) -> Calibration:
    """Measure the cost factors for a relation and a join; without one, for a stream of 20 bytes."""
    if not relation.row_count:
        raise OptionError(
            f"{relation.location} has no rows to measure joins with; calibrate on one that has"
        )
    started = perf_counter()
    relation = relation.read_by(Reading(None, False, relation.reading.whole_pages))
    spec = spec or usual_spec(relation, columns)
    runs = Runs(relation, spec, largest_partition(relation))
    for done, _ in enumerate(runs.all(), 1):
        if progress is not None:
            progress(done, runs.count)
    io, io_deviation = io_curve(runs.opened, list(spec.columns) or list(relation.key))
    factors, deviation = fit(runs, io)
    runs.opened.reader.close()
    del runs
    return_free_memory()
    about = (socket.gethostname(), device_of(relation))
    measured = datetime.now(UTC).isoformat(timespec="seconds")
    return Calibration(
        factors,
        {"io": io_deviation, **deviation},
        *about,
        measured,
        perf_counter() - started,
        *_tuple_bytes(relation, spec),
    )


def _tuple_bytes(relation: Relation, spec: JoinSpec) -> tuple[float, dict[str, float]]:
    """Return the size of a stream tuple, and its memory while it waits, by family of join."""
    widths = stream_widths(relation, spec)
    advisor = Advisor(relation, spec, widths, largest_partition(relation))
    waiting = {family: float(advisor.sizes(name).tuple_bytes) for family, name in PLAIN.items()}
    return sum(widths.average), waiting
