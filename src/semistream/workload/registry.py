"""Workloads by name, for commands and sources whose options come as text."""

import inspect
import types
from collections.abc import Callable, Mapping
from typing import Any, get_args

from semistream.errors import OptionError, did_you_mean
from semistream.workload.base import Workload
from semistream.workload.clouds import Clouds
from semistream.workload.drift import Drifting
from semistream.workload.retail import Retail
from semistream.workload.synthetic import Synthetic
from semistream.workload.tpch import Tpch


def _retail(relation_rows: int = 8_000_000, exponent: float = 1.0, seed: int = 2026) -> Retail:
    """A product master and its sales, of which a few name unknown products."""
    return Retail(products=relation_rows, exponent=exponent, seed=seed)


def _tpch_orders(scale: float = 1.0, folder: str = "tpch") -> Tpch:
    """TPC-H customers and their orders."""
    return Tpch(scale, "customer-orders", folder)


def _tpch_lineitem(scale: float = 1.0, folder: str = "tpch") -> Tpch:
    """TPC-H parts and the line items that order them."""
    return Tpch(scale, "part-lineitem", folder)


WORKLOADS: dict[str, Callable[..., Workload]] = {
    "zipf": Synthetic,
    "drifting": Drifting,
    "retail": _retail,
    "clouds": Clouds,
    "tpch-orders": _tpch_orders,
    "tpch-lineitem": _tpch_lineitem,
}


def make_workload(name: str, **options: object) -> Workload:
    """Return a workload by name; values may come as text, such as ``"1_000_000"`` or ``"true"``.

    >>> make_workload("zipf", relation_rows="1000", by_frequency="true").relation_rows
    1000
    """
    if name not in WORKLOADS:
        raise OptionError(
            f"there is no workload {name!r}; there are {', '.join(WORKLOADS)}."
            f"{did_you_mean(name, WORKLOADS)}"
        )
    known = workload_options(name)
    unknown = [option for option in options if option not in known]
    if unknown:
        raise OptionError(
            f"workload {name!r} has no option {unknown[0]!r}; it has {', '.join(known)}."
            f"{did_you_mean(unknown[0], known)}"
        )
    return WORKLOADS[name](**{o: _value(o, v, known[o].annotation) for o, v in options.items()})


def workload_options(name: str) -> Mapping[str, inspect.Parameter]:
    """Return a workload's options by name, with their types and defaults."""
    return inspect.signature(WORKLOADS[name]).parameters


def _value(option: str, value: object, annotation: Any) -> object:
    is_union = isinstance(annotation, types.UnionType)
    kinds = get_args(annotation) if is_union else (annotation,)
    if types.NoneType in kinds and str(value).lower() == "none":
        return None
    if not isinstance(value, str):
        return value
    try:
        return _READERS[kinds[0]](value)
    except ValueError as error:
        names = " or ".join(_NAMES[k] for k in kinds)
        raise OptionError(f"option {option!r} must be {names}; got {value!r}") from error


def _truth(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError(text)
    return text.lower() == "true"


_READERS: dict[Any, Callable[[str], object]] = {int: int, float: float, bool: _truth, str: str}
_NAMES = {
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    str: "text",
    types.NoneType: "none",
}
