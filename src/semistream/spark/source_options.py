"""The options of the workload source, from the strings that Spark hands over.

Spark compares the names of options without regard to case and hands them over in lower case. All
that are not the source's own go to the workload, whose names are in lower case anyway.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

from semistream.errors import OptionError, did_you_mean
from semistream.workload.arrivals import Arrivals, Bursty, Intermittent, Steady
from semistream.workload.base import Workload
from semistream.workload.registry import WORKLOADS, make_workload, workload_options

DEFAULT_ROWS_PER_BATCH = 1_000_000

_TABLES = ("stream", "relation")
# Each kind of arrivals, and its options beside the rate.
_ARRIVALS: dict[str, tuple[Callable[..., Arrivals], tuple[str, ...]]] = {
    "steady": (Steady, ()),
    "bursty": (Bursty, ("step_s",)),
    "intermittent": (partial(Intermittent, on_s=10.0, off_s=10.0), ("on_s", "off_s")),
}
_OWN = (
    *("workload", "table", "rows", "rowsPerBatch", "partitions", "rate", "arrivals"),
    *(name for _, names in _ARRIVALS.values() for name in names),
)


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """What to read, how much of it, and how fast. Without `rows` there is no end."""

    workload: Workload
    is_relation: bool
    rows: int | None
    rows_per_batch: int
    partitions: int
    arrivals: Arrivals | None


def parse_options(given: Mapping[str, str], default_partitions: int) -> SourceOptions:
    """Read the options of one `load()`, or raise `OptionError`."""
    lower = {name.lower(): value for name, value in given.items()}
    own = {name: lower.pop(name.lower()) for name in _OWN if name.lower() in lower}
    workload = _workload(own.get("workload"), lower)
    return SourceOptions(
        workload=workload,
        is_relation=_one_of("table", own.get("table", "stream"), _TABLES) == "relation",
        rows=_rows(workload, own.get("rows")),
        rows_per_batch=_count("rowsPerBatch", own.get("rowsPerBatch", DEFAULT_ROWS_PER_BATCH)),
        partitions=_count("partitions", own.get("partitions", default_partitions)),
        arrivals=_arrivals(own, lower.get("seed")),
    )


def _workload(name: str | None, options: Mapping[str, str]) -> Workload:
    if name is None:
        raise OptionError(
            'the workload source must know which workload; say .option("workload", "zipf")'
        )
    if name in WORKLOADS:
        known = (*_OWN, *workload_options(name))
        for option in options:
            if option not in known:
                raise OptionError(
                    f"the workload source has no option {option!r} for {name}; it has "
                    f"{', '.join(known)}.{did_you_mean(option, known)}"
                )
    return make_workload(name, **options)


def _rows(workload: Workload, wanted: str | None) -> int | None:
    """Return how many rows to read: no more than a stream has, if it ends."""
    ends: list[int] = [] if wanted is None else [_count("rows", wanted)]
    if hasattr(workload, "stream_length"):
        ends.append(workload.stream_length)
    return min(ends, default=None)


def _arrivals(own: Mapping[str, str], seed: str | None) -> Arrivals | None:
    """Return how the rows arrive, or None if they lie ready. One seed serves rows and bursts."""
    options = {name: own[name] for _, names in _ARRIVALS.values() for name in names if name in own}
    if "rate" not in own:
        if "arrivals" in own or options:
            raise OptionError("arrivals need a rate, in rows a second; say .option('rate', 50000)")
        return None
    kind = _one_of("arrivals", own.get("arrivals", "steady"), _ARRIVALS)
    make, names = _ARRIVALS[kind]
    if not set(options) <= set(names):
        raise OptionError(
            f"{kind} arrivals take the rate{''.join(f' and {n}' for n in names)}; "
            f"got {', '.join(options)}"
        )
    numbers = {name: _number(name, value) for name, value in options.items()}
    if kind == "bursty" and seed is not None:
        numbers["seed"] = _count("seed", seed, least=0)
    return make(_number("rate", own["rate"]), **numbers)


def _one_of(name: str, value: str, known: Mapping[str, object] | tuple[str, ...]) -> str:
    if value not in known:
        raise OptionError(
            f"option {name} must be one of {', '.join(known)}; got {value!r}."
            + did_you_mean(value, known)
        )
    return value


def _count(name: str, value: str | int, least: int = 1) -> int:
    try:
        count = int(value)
    except ValueError:
        count = least - 1
    if count < least:
        raise OptionError(
            f"option {name} must be a whole number of at least {least}; got {value!r}"
        )
    return count


def _number(name: str, value: str) -> float:
    try:
        return float(value)
    except ValueError:
        raise OptionError(f"option {name} must be a number; got {value!r}") from None
