"""The map: which algorithm wins over skew, memory, micro-batch size and device, for a user.

Unlike the papers' figures, R is read as the product reads it, keys first. Each algorithm has its
best split by the cost model. A micro-batch is a stream that ends: its time is that until the last
row is resolved, an empty window at the beginning included. On an emulated device the time is that
of its clock, plus `COMPUTING_S` for each tuple; on this machine's own it is the time of the wall
clock, R being in the page cache, the best of some rounds. Algorithms that the model rates below a
third of the best are not measured.

*Regret* is by how much the model's choice is slower than the fastest that was measured.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice, product
from math import inf
from pathlib import Path
from time import perf_counter

import pyarrow as pa

from semistream.advice.choice import CHOICES, LOOK_UP, Option, are_few
from semistream.cost.conditions import Conditions
from semistream.cost.defaults import default_factors
from semistream.errors import BudgetError
from semistream.joins.registry import make_operator
from semistream.lab.beyond import COMPUTING_S
from semistream.lab.claims import Row, Table
from semistream.lab.mappage import map_page, regret_told
from semistream.lab.rig import REAL
from semistream.lab.validation import ADDED, Bench
from semistream.relation.device import Reading

EXPONENTS = (0.0, 0.5, 1.0, 1.2)
SHARES = (0.01, 0.05, 0.2)  # the memory, of R
BATCHES = (0.01, 0.1, 1.0, inf)  # rows of a micro-batch, for each row of R; without end
NAME = "map"
_WORTH = 1 / 3
_ROUNDS = 2
_BATCH_ROWS = 4096


@dataclass(frozen=True, slots=True)
class _Place:
    """A place on the map."""

    device: str
    share: float
    batch: float
    exponent: float


def measure_map(
    folder: Path,
    rows: int,
    devices: Sequence[str],
    seed: int,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> Table:
    """Measure all places; `progress` gets those done and their total."""
    built = Bench.build(folder, rows, None, seed)
    places = [_Place(*place) for place in product(devices, SHARES, BATCHES, EXPONENTS)]
    benches = {device: _bench(built, device) for device in devices}
    found: list[Row] = []
    for done, place in enumerate(places):
        progress(done, len(places))
        found.extend(_rows_of(benches[place.device], place))
    progress(len(places), len(places))
    return Table(found)


def write_map(table: Table, rows: int, out: Path) -> tuple[Path, str]:
    """Write the table and the page; return the page's path and the regret in a sentence."""
    table.write(out / f"{NAME}.csv")
    path = out / f"{NAME}.html"
    regret = regret_told(table)
    path.write_text(map_page(table, rows), encoding="utf-8")
    return path, regret


def _bench(built: Bench, device: str) -> Bench:
    return Bench(
        built.relation,
        built.workload,
        None if device == REAL else device,
        warm_cycles=2.0,
        cycles=1.0,
        most_tuples=2e6,
        batch_rows=_BATCH_ROWS,
        shipped=default_factors(3, len(ADDED)),
    )


def _rows_of(bench: Bench, place: _Place) -> list[Row]:
    """Return the rates of a place, and which one the model chooses."""
    conditions = _conditions(bench, place)
    try:
        ranked = bench.advisor.rank(bench.budget(place.share), conditions, CHOICES)
    except BudgetError:
        return []  # too little memory for any
    chosen = _chosen(bench, place, conditions, ranked)
    best = max(option.speed for option in ranked)
    worth = [o for o in ranked if o.speed >= _WORTH * best or o.name == chosen]
    rates = {option.name: _rate(bench, place, option) for option in worth}
    fastest = max(rates.values())
    return [
        {
            "device": place.device,
            "memory_percent": place.share * 100,
            "batch_per_row": place.batch,
            "exponent": place.exponent,
            "algorithm": name,
            "tuples_per_s": rate,
            "is_fastest": float(rate == fastest),
            "is_chosen": float(name == chosen),
            "regret": 1 - rate / fastest,
        }
        for name, rate in rates.items()
    ]


def _conditions(bench: Bench, place: _Place) -> Conditions:
    """Return what the model assumes; on this machine's own device, with shipped cost factors."""
    conditions = bench.conditions(place.exponent)
    if place.batch == inf:
        return conditions
    return replace(conditions, stream_rows=_batch_size(bench, place))


def _batch_size(bench: Bench, place: _Place) -> int:
    return max(1, int(place.batch * bench.relation.row_count))


def _chosen(bench: Bench, place: _Place, conditions: Conditions, ranked: Sequence[Option]) -> str:
    """Return what `auto` would choose."""
    rows = conditions.stream_rows
    is_short = rows is not None and are_few(rows, conditions.layout.page_count)
    if is_short and any(option.name == LOOK_UP for option in ranked):
        return LOOK_UP
    return bench.advisor.choose(bench.budget(place.share), conditions).name


def _rate(bench: Bench, place: _Place, option: Option) -> float:
    """Return tuples per second, the best of some rounds on this machine's own device."""
    if place.batch != inf:
        rounds = 1 if bench.device else _ROUNDS
        return max(_batch_rate(bench, place, option) for _ in range(rounds))
    key = (option.name, place.share, place.exponent, option.tuned.split)
    rate = bench.measure(*key).rate
    return rate if bench.device is None else 1 / (1 / rate + COMPUTING_S)


def _batch_rate(bench: Bench, place: _Place, option: Option) -> float:
    """Join one micro-batch and return its rows over its time."""
    device = None if bench.device is None else bench.new_device(bench.device)
    budget, rows = bench.budget(place.share), _batch_size(bench, place)
    relation = bench.relation.read_by(Reading(device))
    join = make_operator(option.name, relation, bench.spec, budget, None, option.tuned.split)
    batches = list(_stream(bench, place.exponent, rows))
    began = perf_counter()
    joined = sum(batch.num_rows for batch in join.join(iter(batches)))
    seconds = perf_counter() - began
    if joined != rows:
        raise AssertionError(f"{option.name} joined {joined} of {rows} rows")
    return rows / (seconds if device is None else device.now_s + rows * COMPUTING_S)


def _stream(bench: Bench, exponent: float, rows: int) -> Iterator[pa.RecordBatch]:
    size = min(rows, _BATCH_ROWS)
    whole, rest = divmod(rows, size)
    batches = bench.workload.endless(exponent, size)
    yield from islice(batches, whole)
    if rest:
        yield next(batches).slice(0, rest)
