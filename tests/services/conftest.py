"""One Kafka broker for the tests here, and the jars that it and Spark's own source need."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.services.kafka import Broker, fetch_jars
from tests.services.missing import missing


@pytest.fixture(scope="session")
def jars(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("jars")
    try:
        fetch_jars(folder)
    except AssertionError as error:
        missing("Kafka", str(error))
    return folder


@pytest.fixture(scope="session")
def server(jars: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Return the address of a broker; every test has topics of its own."""
    with Broker(jars, tmp_path_factory.mktemp("kafka")).running() as address:
        yield address
