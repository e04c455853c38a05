"""What the options of a join cost, for `explain`: conditions, versions, order, shedding."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from semistream.advice.choice import LOOK_UP, RESIDENT
from semistream.advice.explain_text import rate_text
from semistream.advice.ordered import check_order, waiting_bytes
from semistream.advice.shed import beside_bytes, check_shed
from semistream.cost.options import (
    IN_ORDER_S,
    ORDERED_S,
    WEIGHT_BYTES,
    condition_s,
    kept_share,
    slowed,
)
from semistream.errors import BudgetError
from semistream.joins.shedding import Shedding, shedding_of
from semistream.relation.relation import Relation
from semistream.spec import JoinSpec
from semistream.units import format_bytes


@dataclass(frozen=True, slots=True)
class OptionCost:
    """One option: the rate with it, the memory that it takes, and both in words."""

    option: str
    tuples_per_s: float  # with it, and with those before it
    memory_bytes: int  # of the budget
    said: str


@dataclass(frozen=True, slots=True)
class Asked:
    """The options that are asked about."""

    ordered: str | None = None
    shed: Shedding | str | None = None


def option_costs(
    asked: Asked,
    relation: Relation,
    spec: JoinSpec,
    budget_bytes: int,
    rates: Mapping[str, float],
    chosen: str,
    arrivals: float | None,
    in_order: Callable[[], tuple[float, int]],
) -> tuple[OptionCost, ...]:
    """Return what each option costs, one after the other.

    `rates` are those without any. `in_order` returns the rate of look-ups whose tuples leave in
    order, and the memory of the results that wait with them.
    """
    check_order(asked.ordered, chosen)
    found: list[OptionCost] = []
    rate = rates[chosen]
    checked_s = 0.0
    if spec.condition is not None:
        keys = sum(partition.distinct_codes for partition in relation.manifest.partitions)
        pairs = relation.row_count / max(1, keys)
        checked_s = condition_s(spec.condition, pairs)
        slower = slowed(rate, checked_s)
        columns = ", ".join(spec.condition.columns_of("relation"))
        said = (
            f"The condition reads {columns or 'no column'} of the relation, which the rates above "
            f"include, and checks {pairs:.2g} pair{'s' * (pairs > 1)} a tuple: "
            f"{rate_text(slower)} tuples/s, {1 - slower / rate:.0%} less."
        )
        found.append(OptionCost("condition", slower, 0, said))
        rate = slower
    if asked.ordered is not None:
        name = RESIDENT if chosen == RESIDENT else LOOK_UP
        try:
            if name == RESIDENT:
                size = waiting_bytes(name, relation, spec, budget_bytes)
                rate = slowed(rates[name], checked_s + ORDERED_S)
            else:
                beside, size = in_order()
                rate = slowed(beside, checked_s + IN_ORDER_S)
            share = f"about {rate_text(rate)} tuples/s"
        except BudgetError:
            rate, size, share = 0.0, 0, "this budget is too small for it"
        said = (
            f"Ordered output runs {name}, and {format_bytes(size)} of the memory are for rows that "
            f"wait for their turn: {share}."
        )
        found.append(OptionCost("ordered", rate, size, said))
    shed = shedding_of(asked.shed)
    if shed is not None:
        check_shed(shed, chosen, spec, arrivals)
        assert arrivals is not None, "or it is refused"
        kept = kept_share(arrivals, shed.capacity or rate)
        size = beside_bytes(shed, budget_bytes)
        said = (
            f"Shedding ({shed.policy}) would keep {kept:.0%} of the rows; it takes "
            f"{format_bytes(size)} of the memory, and {WEIGHT_BYTES} bytes of each tuple."
        )
        found.append(OptionCost("shed", rate, size, said))
    return tuple(found)
