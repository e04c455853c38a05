"""Every algorithm's model by its name: how it splits a budget, and what rate that is worth."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

from semistream.cost import frontstage, hybridjoin, inlj, meshjoin, xhybridjoin
from semistream.cost.conditions import Conditions
from semistream.cost.hybridjoin import IndexJoinSettings
from semistream.cost.meshjoin import MeshJoinSettings
from semistream.cost.prediction import Prediction
from semistream.cost.sizes import Sizes
from semistream.cost.split import FRONT_SHARE, Split

Settings: TypeAlias = MeshJoinSettings | IndexJoinSettings


@dataclass(frozen=True)
class Model:
    """The cost model of one algorithm."""

    least_bytes: Callable[[Sizes], int]
    settings_for: Callable[[Sizes, int, Split], Settings]
    predict_back: Callable[[Conditions, Any], Prediction]
    has_front: bool = False
    pins_pages: bool = False
    reads_one_page: bool = False

    def front_bytes(self, sizes: Sizes, budget_bytes: int, split: Split) -> int:
        """Return what the front stage gets: what is wanted, if the back stage can spare it."""
        if not self.has_front:
            return 0
        wanted = split.front_bytes
        wanted = int(budget_bytes * FRONT_SHARE) if wanted is None else wanted
        wanted = max(0, min(wanted, budget_bytes - self.least_bytes(sizes)))
        return wanted if sizes.cached_rows(wanted) else 0

    def settings(self, sizes: Sizes, budget_bytes: int, split: Split) -> tuple[Settings, int]:
        """Return the settings that a split comes to, and how many rows the front stage has."""
        front_bytes = self.front_bytes(sizes, budget_bytes, split)
        settings = self.settings_for(sizes, budget_bytes - front_bytes, split)
        return settings, sizes.cached_rows(front_bytes) if front_bytes else 0

    def predict(self, conditions: Conditions, settings: Settings, cached_rows: int) -> Prediction:
        """Return what a loop with these settings costs and serves."""
        if not cached_rows:
            return self.predict_back(conditions, settings)

        def back(rest: Conditions) -> Prediction:
            return self.predict_back(rest, settings)

        return frontstage.predict(conditions, cached_rows, back, settings.places)


def _least_index_bytes(sizes: Sizes) -> int:
    return hybridjoin.least_memory_bytes(sizes, sizes.least_pages)


def _index_model(
    name: str,
    predict: Callable[[Conditions, IndexJoinSettings], Prediction],
    *,
    has_front: bool = False,
    one_tuple: bool = False,
) -> Model:
    def settings_for(sizes: Sizes, budget_bytes: int, split: Split) -> IndexJoinSettings:
        most = 1 if one_tuple else None
        return hybridjoin.settings_for_budget(
            name, sizes, budget_bytes, sizes.least_pages, split, most
        )

    return Model(
        _least_index_bytes, settings_for, predict, has_front=has_front, reads_one_page=one_tuple
    )


def _pinned_settings(sizes: Sizes, budget_bytes: int, split: Split) -> IndexJoinSettings:
    return xhybridjoin.tuned_parts(sizes, budget_bytes, sizes.least_pages, split)


_MESH = (meshjoin.least_memory_bytes, meshjoin.settings_for_budget, meshjoin.predict)

MODELS: dict[str, Model] = {
    "inlj": _index_model("inlj", inlj.predict_one, one_tuple=True),
    "binlj": _index_model("binlj", inlj.predict_sweep),
    "meshjoin": Model(*_MESH),
    "rmeshjoin": Model(
        meshjoin.least_reduced_bytes, meshjoin.reduced_settings_for_budget, meshjoin.predict_reduced
    ),
    "hybridjoin": _index_model("hybridjoin", hybridjoin.predict),
    "xhybridjoin": Model(
        _least_index_bytes, _pinned_settings, xhybridjoin.predict, pins_pages=True
    ),
    "cinlj": _index_model("inlj", inlj.predict_one, has_front=True, one_tuple=True),
    "cbinlj": _index_model("binlj", inlj.predict_sweep, has_front=True),
    "cmeshjoin": Model(*_MESH, has_front=True),
    "chybridjoin": _index_model("hybridjoin", hybridjoin.predict, has_front=True),
}
