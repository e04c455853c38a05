"""Build and enrich on a real cluster: a standalone master and two workers, each a process."""

import json
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.spark.services import (
    SPARK_HOME,
    environment,
    free_port,
    run_driver,
    service,
    wait_until_listening,
)

SPARK_CLASS = str(SPARK_HOME / "bin" / "spark-class")
MASTER = "org.apache.spark.deploy.master.Master"
WORKER = "org.apache.spark.deploy.worker.Worker"


@pytest.fixture
def master(tmp_path: Path) -> Iterator[str]:
    """The URL of a cluster of two workers with one core each."""
    port, env = free_port(), environment()
    listen = ["--host", "127.0.0.1", "--webui-port", "0"]
    with ExitStack() as running:
        log = tmp_path / "master.log"
        command = [SPARK_CLASS, MASTER, *listen, "--port", str(port)]
        process = running.enter_context(service(command, log, env))
        wait_until_listening(process, port, log)
        url = f"spark://127.0.0.1:{port}"
        for name in ("worker-a", "worker-b"):
            limits = ["--cores", "1", "--memory", "1g", "--work-dir", str(tmp_path / name)]
            command = [SPARK_CLASS, WORKER, *listen, *limits, url]
            running.enter_context(service(command, tmp_path / f"{name}.log", env))
        yield url


def test_build_and_enrich_on_two_workers(master: str, tmp_path: Path) -> None:
    found = json.loads(run_driver("cluster_driver.py", master, str(tmp_path), env=environment()))
    assert (found["relation_rows"], found["null_keys"]) == (2997, 3)
    assert found["expected_rows"] > 2000
    assert found["resident_is_right"]
    assert found["retried_meshjoin_is_right"]
    ran = [Path(folder).relative_to(tmp_path).parts[0] for folder in found["executors"]]
    assert ran == ["worker-a", "worker-b"]
