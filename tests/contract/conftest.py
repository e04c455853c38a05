"""What the tests of the contract share."""

import pytest

from semistream.advice.auto import AUTO
from semistream.cost.factors import CostFactors
from semistream.joins.registry import ALGORITHMS
from semistream.relation.device import EmulatedDevice


@pytest.fixture(params=[AUTO, *ALGORITHMS])
def algorithm(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    # Here it matters that the result is exact whatever is chosen, so the choice may be for a disk
    # that does not exist: to measure the real one for each generated schema would take too long.
    factors = CostFactors.of_device(*EmulatedDevice.named("ssd").costs)
    monkeypatch.setattr("semistream.advice.auto.factors_for", lambda *_: factors)
    return str(request.param)
