"""A real Kafka broker on 127.0.0.1 for one test, from jars that Spark's own Ivy fetches.

It is one process, broker and controller in one, with its log in a folder of the test's. The jars
are kept in the virtual environment, so they are fetched once.
"""

import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from tests.spark.services import (
    JVM_FOR_SHORT_LIVES,
    PATIENCE_SECONDS,
    SPARK_HOME,
    environment,
    free_port,
    service,
    wait_until_listening,
)

JARS = Path(__file__).parent / "kafka-jars.xml"
CACHE = Path(sys.prefix) / "ivy"
PARTITIONS = 2
_JAVA = (shutil.which("java") or "java", *JVM_FOR_SHORT_LIVES.split())
_CLUSTER_ID = "c2VtaXN0cmVhbS10ZXN0cw"
_ATTEMPTS = 3


def fetch_jars(folder: Path) -> None:
    """Put the jars of the broker and of Spark's Kafka source into ``broker`` and ``source``."""
    (ivy,) = (SPARK_HOME / "jars").glob("ivy-*.jar")
    pattern = f"{folder}/[conf]/[artifact]-[revision].[ext]"
    command = [*_JAVA, "-jar", ivy, "-cache", CACHE, "-ivy", JARS, "-retrieve", pattern]
    for attempt in range(_ATTEMPTS):
        time.sleep(attempt * 5)
        done = _run(*map(str, command))
        if done.returncode == 0:
            return
    raise AssertionError(
        f"Ivy could not fetch what {JARS.name} names. The test of Kafka needs Maven Central once; "
        f"after that the jars are in {CACHE}. Ivy says:\n{done.stdout[-4000:]}"
    )


@contextmanager
def broker(jars: Path, folder: Path) -> Iterator[str]:
    """Run a broker until the block ends; gives its address."""
    port, log = free_port(), folder / "broker.log"
    settings = _write_settings(folder, port, free_port())
    java = [*_JAVA, "-Xmx256m", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"]
    java += ["-cp", f"{jars}/broker/*"]
    tool = [*java, "kafka.tools.StorageTool", "format", "-t", _CLUSTER_ID, "-c", str(settings)]
    done = _run(*tool)
    assert done.returncode == 0, f"the broker's storage could not be made:\n{done.stdout[-4000:]}"
    with service([*java, "kafka.Kafka", str(settings)], log, environment()) as process:
        wait_until_listening(process, port, log)
        address = f"127.0.0.1:{port}"
        _wait_until_serving(address, log)
        yield address


def _write_settings(folder: Path, port: int, controller_port: int) -> Path:
    settings = {
        "process.roles": "broker,controller",
        "node.id": 1,
        "controller.quorum.voters": f"1@127.0.0.1:{controller_port}",
        "controller.listener.names": "CONTROLLER",
        "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}",
        "advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "log.dirs": folder / "log",
        "num.partitions": PARTITIONS,
        "offsets.topic.num.partitions": 1,
        "offsets.topic.replication.factor": 1,
        "transaction.state.log.num.partitions": 1,
        "transaction.state.log.replication.factor": 1,
        "transaction.state.log.min.isr": 1,
    }
    path = folder / "server.properties"
    path.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
    return path


def _wait_until_serving(address: str, log: Path) -> None:
    try:
        AdminClient({"bootstrap.servers": address}).list_topics(timeout=PATIENCE_SECONDS)
    except KafkaException as error:
        raise AssertionError(f"the broker does not answer:\n{log.read_text()[-4000:]}") from error


def _run(*command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=3 * PATIENCE_SECONDS,
        check=False,
    )
