"""One server of each kind for all tests here, with its password in the environment."""

from collections.abc import Iterator

import pytest

from tests.databases.fill import Filled, file_url
from tests.services.databases import PASSWORD, mariadb, postgresql

KINDS = ("postgresql", "mariadb", "sqlite", "duckdb")


@pytest.fixture(scope="session", params=KINDS)
def database(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Filled]:
    """Return an empty database of each kind in turn."""
    folder = tmp_path_factory.mktemp(request.param)
    if request.param in ("sqlite", "duckdb"):
        yield Filled(file_url(request.param, folder))
        return
    run = postgresql if request.param == "postgresql" else mariadb
    with run(folder) as server:
        yield Filled(server.url)


@pytest.fixture(autouse=True, scope="session")
def _passwords() -> Iterator[None]:
    """Let drivers, also those in Spark's workers, find both servers' password."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PGPASSWORD", PASSWORD)
        patch.setenv("MYSQL_PWD", PASSWORD)
        yield
