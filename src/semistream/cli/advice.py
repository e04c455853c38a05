"""``semistream calibrate`` and ``semistream explain``."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
from rich.console import Console
from rich.table import Table

from semistream.advice.calibration import Calibration, calibrate, store, usual_spec
from semistream.advice.calibration.sparkcosts import KnownCosts, store_costs
from semistream.advice.explain import explain
from semistream.cli.progress import Progress
from semistream.errors import OptionError
from semistream.extras import needs_extra
from semistream.relation.device import EmulatedDevice, Reading
from semistream.relation.relation import Relation
from semistream.units import format_bytes

_SAMPLE_ROWS = 1_000_000
_NANO = 1e9
_MEGA = 1e6


def run_calibrate(location: str, columns: list[str] | None, spark: bool, as_json: bool) -> int:
    """Measure the cost factors of this machine for a relation, keep them and show them.

    With `spark`, what Spark's part of a query costs as well.
    """
    relation = Relation.open(location)
    spec = usual_spec(relation, columns)
    with Progress("calibrating", lambda runs: f"{runs:,.0f}", "runs") as progress:
        calibration = calibrate(relation, spec, progress=progress.update)
    paths = [store(calibration, relation, spec)]
    known = _calibrate_spark(relation, calibration) if spark else None
    if known is not None:
        paths.append(store_costs(known))
    if as_json:
        stored = [json.loads(path.read_text()) for path in paths]
        print(json.dumps({**stored[0], **({"spark": stored[1]} if spark else {})}, indent=1))
        return 0
    console = Console()
    _show(calibration, console)
    if known is not None:
        _show_spark(known, console)
    console.print(f"stored in {' and '.join(map(str, paths))}; explain and auto use it from now on")
    return 0


def _calibrate_spark(relation: Relation, calibration: Calibration) -> KnownCosts:
    with needs_extra("spark", "semistream calibrate --spark"):
        from semistream.spark.trials import calibrate_spark
    with Progress("queries on Spark", lambda runs: f"{runs:,.0f}", "runs") as progress:
        return calibrate_spark(relation, calibration, progress.update)


def _show_spark(known: KnownCosts, console: Console) -> None:
    table = Table(title="Spark's part of a micro-batch, on one core")
    table.add_column("cost")
    table.add_column("", justify="right")
    costs = known.costs
    for name, value, times, unit in (
        ("a micro-batch", costs.batch_s, 1e3, "ms"),
        ("a task", costs.task_s, 1e3, "ms"),
        ("a row to Python and back", costs.row_s, 1e9, "ns"),
        ("a value, in either direction", costs.value_s, 1e9, "ns"),
        ("the stage of a shuffle", costs.stage_s, 1e3, "ms"),
        ("a value through a shuffle", costs.shuffle_s, 1e9, "ns"),
    ):
        table.add_row(name, f"{value * times:,.0f} {unit}")
    console.print(table)
    console.print(known.text())


def _show(calibration: Calibration, console: Console) -> None:
    factors = calibration.factors
    steps = (
        ("read", "read"),
        ("add", "append"),
        ("remove", "expire"),
        ("probe", "probe"),
        ("result", "output"),
        ("loop", "loop"),
        ("entry", "entry"),
    )
    looks = (("look up", "look_up"), ("hit", "hit"), ("learn", "learn"))
    families = (
        ("scan", "Scan joins: a tuple; a probe is for a row of R", factors.scan, steps, "waiting"),
        ("index", "Index joins: a tuple", factors.index, steps, "waiting"),
        ("look-up", "Look-ups: a tuple", factors.look_up, steps, "waiting"),
        ("front", "Front stage: a tuple", factors.front, looks, "cached"),
        ("pinned", "Pinned pages: a tuple", factors.pinned, looks[:2], "pinned"),
    )
    for family, title, points, names, rows in families:
        table = Table(title=f"{title}, ns")
        table.add_column("step")
        for point in points:
            table.add_column(f"{point.rows:,} {rows}", justify="right")
        table.add_column("±", justify="right")
        for name, step in names:
            costs = [f"{getattr(point, f'{step}_s') * _NANO:,.1f}" for point in points]
            known = calibration.deviation.get(f"{family} {step.replace('_', '-')}")
            table.add_row(name, *costs, "" if known is None else f"{known:.0%}")
        console.print(table)
    reading = Table(title="Reading, one request")
    reading.add_column("size", justify="right")
    reading.add_column("time", justify="right")
    for size, seconds in zip(factors.io.sizes_bytes, factors.io.seconds, strict=True):
        reading.add_row(format_bytes(size), f"{seconds * 1e6:,.0f} µs")
    console.print(reading)
    requests = factors.requests
    console.print(
        f"Look-ups read with {requests.request_s * 1e6:.2g} µs for a request and "
        f"{requests.byte_s * 1e6 * _MEGA:,.0f} µs for a megabyte"
    )
    waiting = calibration.waiting_bytes
    console.print(
        f"A stream tuple of {calibration.stream_bytes:.0f} bytes needs {waiting['scan']:.0f} bytes "
        f"({calibration.fudge('scan'):.1f} times as many) while it waits in a scan join, "
        f"{waiting['index']:.0f} ({calibration.fudge('index'):.1f}) in an index join and "
        f"{waiting['lookup']:.0f} ({calibration.fudge('lookup'):.1f}) in look-ups"
    )
    console.print(
        f"{calibration.device} of {calibration.host}, in {calibration.seconds:.0f} s; the factors "
        f"are typically within {calibration.typical_error:.0%}, reading within "
        f"{calibration.deviation['io']:.0%}"
    )


def run_explain(
    location: str,
    *,
    memory: str,
    rate: float | None,
    skew: float | None,
    sample: str | None,
    on: str | None,
    columns: list[str] | None,
    batch: int | None,
    options: dict[str, Any],
    on_spark: dict[str, Any] | None,
    device: str | None,
    as_json: bool,
    plot: Path | None,
) -> int:
    """Print the throughput that a budget buys, and what a micro-batch takes."""
    if plot is not None:
        with needs_extra("charts", "a chart"):
            import matplotlib  # noqa: F401  # reported here, before the work
    relation = Relation.open(location)
    if device is not None:
        relation = relation.read_by(Reading(EmulatedDevice.named(device)))
    asked: dict[str, Any] = {
        "memory": memory,
        "rate": rate,
        "skew": skew,
        "sample": None if sample is None else _read_sample(sample),
        "on": None if on is None else _pairs(on),
        "columns": columns,
        "batch": batch,
    }
    if on_spark is not None:
        return _explain_spark(relation, {**asked, **on_spark}, as_json, plot)
    explanation = explain(relation, **asked, **options)
    print(json.dumps(explanation.to_dict(), indent=1) if as_json else explanation)
    if plot is not None:
        explanation.plot(plot)
        if not as_json:
            print(f"chart in {plot}")
    return 0


def _explain_spark(
    relation: Relation, asked: dict[str, Any], as_json: bool, plot: Path | None
) -> int:
    with needs_extra("spark", "semistream explain --spark"):
        from semistream.spark.prediction import explain_query
    if plot is not None:
        raise OptionError("--plot draws the join alone: leave --spark out")
    explanation = explain_query(relation, **asked)
    print(json.dumps(explanation.to_dict(), indent=1) if as_json else explanation)
    return 0


def _read_sample(path: str) -> pa.Table:
    kind = "csv" if path.endswith(".csv") else "parquet"
    try:
        return ds.dataset(path, format=kind).head(_SAMPLE_ROWS)
    except (OSError, pa.ArrowException) as error:
        raise OptionError(f"--sample {path!r} cannot be read as {kind}: {error}") from error


def _pairs(on: str) -> dict[str, str]:
    """Return stream name → relation name from ``a,b`` or ``a=x,b=y``.

    >>> _pairs("id,sku=product")
    {'id': 'id', 'sku': 'product'}
    """
    named = [pair.partition("=") for pair in on.split(",")]
    return {stream: relation or stream for stream, _, relation in named}
