"""Every algorithm's cost model by its name: the predicted rate of a split of a budget."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from semistream.budget.rules import RULES, BudgetRules, Settings
from semistream.cost import frontstage, hybridjoin, inlj, meshjoin, xhybridjoin
from semistream.cost.conditions import Conditions
from semistream.cost.prediction import Prediction

_Predict = Callable[[Conditions, Any], Prediction]


@dataclass(frozen=True, slots=True)
class Model:
    """The cost model of one algorithm."""

    rules: BudgetRules
    predict_back: _Predict

    def predict(self, conditions: Conditions, settings: Settings, cached_rows: int) -> Prediction:
        """Return what a loop with these settings costs and serves."""
        if not cached_rows:
            return self.predict_back(conditions, settings)

        def back(rest: Conditions) -> Prediction:
            return self.predict_back(rest, settings)

        return frontstage.predict(conditions, cached_rows, back, settings.places)


_PREDICTIONS: dict[str, _Predict] = {
    "inlj": inlj.predict_one,
    "binlj": inlj.predict_sweep,
    "meshjoin": meshjoin.predict,
    "rmeshjoin": meshjoin.predict_reduced,
    "hybridjoin": hybridjoin.predict,
    "xhybridjoin": xhybridjoin.predict,
    # Behind a front stage the back stage's model holds, with what is left of the stream.
    "cinlj": inlj.predict_one,
    "cbinlj": inlj.predict_sweep,
    "cmeshjoin": meshjoin.predict,
    "chybridjoin": hybridjoin.predict,
}

MODELS = {name: Model(RULES[name], predict) for name, predict in _PREDICTIONS.items()}
