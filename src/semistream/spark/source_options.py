"""The options of the workload source, from the strings that Spark passes.

Spark ignores the case of option names and passes them in lower case. All that are not the source's
own go to the workload, whose option names are in lower case anyway.
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
# Each kind of arrivals, and its options in addition to the rate.
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
    """The options of one source, parsed."""

    workload: Workload
    is_relation: bool  # read the relation, not the stream
    rows: int | None  # of the stream; None: it has no end
    rows_per_batch: int  # the most of a micro-batch
    partitions: int  # tasks that read a micro-batch
    arrivals: Arrivals | None  # None: all rows are available from the start


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
            'the workload source needs to know which workload; set .option("workload", "zipf")'
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


def _rows(workload: Workload, given: str | None) -> int | None:
    """Return the number of rows to read, at most the length of the stream; None: no end."""
    ends: list[int] = [] if given is None else [_count("rows", given)]
    if hasattr(workload, "stream_length"):
        ends.append(workload.stream_length)
    return min(ends, default=None)


def _arrivals(own: Mapping[str, str], seed: str | None) -> Arrivals | None:
    """Return the arrivals, None without a rate. Rows and bursts have the same seed."""
    options = {name: own[name] for _, names in _ARRIVALS.values() for name in names if name in own}
    if "rate" not in own:
        if "arrivals" in own or options:
            raise OptionError(
                "arrivals need a rate, in rows per second; set .option('rate', 50000)"
            )
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
