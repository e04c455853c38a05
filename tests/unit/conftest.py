"""Fixtures of the tests of leases and prunes."""

from collections.abc import Iterator
from pathlib import Path

import pytest

import semistream as ss
from semistream.relation import leases
from tests.unit.snapshots import build


@pytest.fixture
def location(tmp_path: Path) -> Path:
    return tmp_path / "r.rel"


@pytest.fixture
def keeper(monkeypatch: pytest.MonkeyPatch) -> Iterator[leases._Keeper]:
    """The leases of this test alone, whose thread does not act by itself."""
    keeper = leases._Keeper()
    monkeypatch.setattr(leases, "_TICK_S", 1e6)
    monkeypatch.setattr(leases, "_keeper", keeper)
    yield keeper
    keeper.close()


@pytest.fixture
def pair(location: Path) -> tuple[ss.Relation, ss.Relation]:
    """An old snapshot and the current one."""
    return build(location), build(location)
