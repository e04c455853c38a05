"""A service that cannot be had: its tests are skipped by name, and fail in CI."""

import pytest

from tests.services.missing import missing


@pytest.mark.parametrize(("ci", "outcome"), [("", pytest.skip), ("true", pytest.fail)])
def test_a_missing_service(monkeypatch: pytest.MonkeyPatch, ci: str, outcome: type) -> None:
    monkeypatch.setenv("CI", ci)
    with pytest.raises(outcome.Exception, match="Kafka cannot be started: no network"):
        missing("Kafka", "no network")
