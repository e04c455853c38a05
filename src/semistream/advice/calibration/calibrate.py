"""Load the cost factors of a relation's device and a join's schema, or measure them."""

import socket
from collections.abc import Callable
from datetime import UTC, datetime
from time import perf_counter
from typing import TypeAlias

from semistream.advice.calibration.fit import fit
from semistream.advice.calibration.reading import io_curve
from semistream.advice.calibration.record import Calibration, common_machine, usual_spec
from semistream.advice.calibration.runs import PLAIN, Allotment, Runs
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


def calibration_for(relation: Relation, spec: JoinSpec) -> Calibration:
    """Return what is stored for a relation's device and a join's schema, or of a common machine."""
    return load(relation, spec) or common_machine(relation, spec)


def factors_for(relation: Relation, spec: JoinSpec) -> CostFactors:
    """Return the factors of `calibration_for` for the device that the relation is read by."""
    return calibration_for(relation, spec).factors_on(relation.reading.device)


def calibrate(
    relation: Relation,
    spec: JoinSpec | None = None,
    *,
    columns: Columns | None = None,
    budget_bytes: int | None = None,
    brief: bool = False,
    progress: Progress | None = None,
) -> Calibration:
    """Measure the cost factors for a relation and a join; without one, for a stream of 20 bytes.

    `brief` runs only what a choice needs, at one size: about a second. Then `budget_bytes` limits
    its memory, if that is more than a few megabytes.
    """
    if not relation.row_count:
        raise OptionError(
            f"{relation.location} has no rows to measure joins with; calibrate on one that has"
        )
    started = perf_counter()
    relation = relation.read_by(Reading(None, False, relation.reading.whole_pages))
    spec = spec or usual_spec(relation, columns)
    partition = largest_partition(relation)
    memory = Allotment.within(relation, spec, partition, budget_bytes if brief else None, brief)
    runs = Runs(relation, spec, partition, memory, brief)
    for done, _ in enumerate(runs.all(), 1):
        if progress is not None:
            progress(done, runs.count)
    io, io_deviation = io_curve(memory.opened, list(spec.columns) or list(relation.key))
    factors, deviation = fit(runs, io)
    count = runs.count
    widths = stream_widths(relation, spec)
    advisor = Advisor(relation, spec, widths, partition, memory.opened.reader)
    memory.opened.reader.close()
    del runs
    return_free_memory()
    if progress is not None:
        progress(count, count)
    return Calibration(
        factors,
        {"io": io_deviation, **deviation},
        socket.gethostname(),
        device_of(relation),
        datetime.now(UTC).isoformat(timespec="seconds"),
        perf_counter() - started,
        brief,
        sum(widths.average),
        {family: float(advisor.sizes(name).tuple_bytes) for family, name in PLAIN.items()},
    )
