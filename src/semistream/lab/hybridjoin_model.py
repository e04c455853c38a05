"""HYBRIDJOIN's cost model against measurement: figure 11, the equations as printed and ours."""

from collections.abc import Sequence
from functools import partial

from semistream.budget.rules import Settings
from semistream.lab.claims import Row
from semistream.lab.common import MB, PAGE_BYTES, symbols_of
from semistream.lab.equations import hybridjoin as printed
from semistream.lab.equations import inlj as printed_inlj
from semistream.lab.equations.symbols import Symbols
from semistream.lab.figures import Lab, Point
from semistream.lab.hybridjoin_streams import BUDGETS_MB, skewed
from semistream.lab.meshjoin import printed_rate as meshjoin_rate
from semistream.lab.rig import Rig
from semistream.relation.device import EmulatedDevice


def validation_points(
    lab: Lab, algorithms: Sequence[str], budgets_mb: Sequence[float] = BUDGETS_MB
) -> list[Point]:
    """Return rates by budget: measured, by the paper's equations, and by our model."""

    def rows(memory: float, algorithm: str) -> list[Row]:
        rig = skewed(lab)
        measured = rig.measure_tuned(algorithm, memory * MB)
        rates = {
            "measured": measured.rate,
            "printed": _printed_rate(rig, algorithm, measured.settings),
            "model": rig.predict(algorithm, measured).rate,
        }
        return [
            {"memory_mb": memory, "algorithm": algorithm, "what": w, "tuples_per_s": r}
            for w, r in rates.items()
        ]

    return [partial(rows, memory, name) for name in algorithms for memory in budgets_mb]


def _printed_rate(rig: Rig, algorithm: str, settings: Settings) -> float:
    """Return the rate by the equations as printed, for the loads and the waiting tuples here."""
    if algorithm == "inlj":
        device = EmulatedDevice.named(rig.device)
        page_s = device.seek_s + device.request_s + rig.relation_page_bytes / device.bytes_per_s
        return printed_inlj.service_rate(Symbols(1, io_s=lambda b: page_s))
    if algorithm == "meshjoin":
        return meshjoin_rate(rig, settings)
    symbols = symbols_of(rig, algorithm, printed.NODE_BYTES, seeks=True)
    pages = settings.pages_per_read * rig.page_bytes / PAGE_BYTES
    return printed.service_rate(symbols, settings.places * rig.times, pages)
