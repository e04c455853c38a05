"""A real Kafka broker on 127.0.0.1 for one test, from jars that Spark's own Ivy fetches.

It is one process, broker and controller in one, with its log in a folder of the test's. The jars
are kept in the virtual environment, so they are fetched once.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from tests.services.ivy import JAVA, fetch, run
from tests.spark.services import (
    PATIENCE_SECONDS,
    environment,
    free_port,
    service,
    wait_until_listening,
)

JARS = Path(__file__).parent / "kafka-jars.xml"
PARTITIONS = 2
_CLUSTER_ID = "c2VtaXN0cmVhbS10ZXN0cw"


def fetch_jars(folder: Path) -> None:
    """Put the jars of the broker into ``broker``, and some of Spark's parts into ``stand-ins``."""
    fetch(JARS, folder)


def spark_settings(jars: Path) -> dict[str, str]:
    """Return the settings of a session that reads from Kafka: the parts that take others' place."""
    return {
        "spark.jars": ",".join(str(jar) for jar in (jars / "stand-ins").iterdir()),
        "spark.jars.excludes": "org.apache.spark:spark-token-provider-kafka-0-10_2.13",
    }


class Broker:
    """A broker that can be started, stopped and started again with what it has stored."""

    def __init__(self, jars: Path, folder: Path) -> None:
        """Make its storage."""
        self._port, self._log = free_port(), folder / "broker.log"
        self.address = f"127.0.0.1:{self._port}"
        self._settings = _write_settings(folder, self._port, free_port())
        self._java = [*JAVA, "-Xmx256m", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"]
        self._java += ["-cp", f"{jars}/broker/*"]
        tool = [*self._java, "kafka.tools.StorageTool", "format", "-t", _CLUSTER_ID]
        done = run(*tool, "-c", str(self._settings))
        assert done.returncode == 0, f"the storage could not be made:\n{done.stdout[-4000:]}"

    @contextmanager
    def running(self) -> Iterator[str]:
        """Run it until the block ends; gives its address."""
        command = [*self._java, "kafka.Kafka", str(self._settings)]
        with service(command, self._log, environment()) as process:
            wait_until_listening(process, self._port, self._log)
            _wait_until_serving(self.address, self._log)
            yield self.address


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
