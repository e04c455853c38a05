"""Which options of a join can go together, and what is wrong with those that cannot."""

from datetime import timedelta

from semistream.advice.ordered import check_order
from semistream.advice.settings import Settings
from semistream.errors import OptionError
from semistream.joins.registry import ALGORITHMS
from semistream.joins.shedding import Shedding
from semistream.spec import JoinSpec
from semistream.units import parse_seconds

_MESHJOIN = ALGORITHMS["meshjoin"].name


def check_options(
    name: str,
    spec: JoinSpec,
    *,
    ordered: str | None,
    rate: float | None,
    settings: Settings | None,
) -> None:
    """Raise `OptionError` with the reason if options cannot go together."""
    _check_rate(name, rate)
    if not spec.stream_key:
        _check_without_key(name, ordered)
    check_order(ordered, name)
    if ordered is not None and settings is not None:
        raise OptionError(
            "settings and ordered cannot go together: ordered splits the budget itself"
        )


def latency_in_s(
    latency: float | str | timedelta | None,
    name: str,
    spec: JoinSpec,
    *,
    rate: float | None,
    ordered: str | None,
    shed: Shedding | None,
) -> float | None:
    """Return a latency in seconds; raise `OptionError` if it is none, or cannot be chosen for."""
    if latency is None:
        return None
    latency_s = parse_seconds(latency)
    if rate is None or name in ALGORITHMS:
        raise OptionError(
            "latency needs rate, the rows per second that arrive, and algorithm='auto'; got "
            f"rate={rate} and {name!r}"
        )
    if not spec.stream_key:
        raise OptionError("there is no prediction for a join with on=[]; leave latency out")
    for option, value in (("ordered", ordered), ("shed", shed)):
        if value is not None:
            raise OptionError(
                f"latency and {option} cannot go together: with {option} all of the memory is used"
            )
    return latency_s


def _check_without_key(name: str, ordered: str | None) -> None:
    """Raise if a join without equal keys cannot be run like this."""
    if name in ALGORITHMS and name != _MESHJOIN:
        raise OptionError(
            f"{name} finds rows by their keys, but on=[] compares none; only meshjoin, which reads "
            "all of the relation, can do that. Use algorithm='meshjoin' or 'auto'"
        )
    if ordered is not None:
        raise OptionError("a join with on=[] cannot be ordered yet; leave ordered out")


def _check_rate(name: str, rate: float | None) -> None:
    """Raise if a rate makes no sense, or not for this algorithm."""
    if rate is not None and (rate <= 0 or name in ALGORITHMS):
        raise OptionError(
            f"rate is a positive number of tuples per second, for algorithm='auto'; got {rate} "
            f"and {name!r}"
        )
