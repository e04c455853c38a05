"""`enrich` through Spark Connect: the client has no JVM and shares only paths with the server.

A process cannot hold a classic and a Connect session at once, so the client is a process of its
own. The server is started on a free port: `remote("local[2]")` would insist on port 15002.
"""

import json
from pathlib import Path

from tests.spark.services import (
    SPARK_HOME,
    environment,
    free_port,
    run_driver,
    service,
    wait_until_listening,
)


def test_batch_and_streaming_joins_through_connect(tmp_path: Path) -> None:
    port, log = free_port(), tmp_path / "server.log"
    env = environment(SPARK_DAEMON_MEMORY="1g")
    settings = {
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": str(port),
        "spark.driver.host": "127.0.0.1",
        "spark.local.dir": str(tmp_path / "local"),
        "spark.sql.warehouse.dir": str(tmp_path / "warehouse"),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }
    command = [str(SPARK_HOME / "bin" / "spark-submit"), "--master", "local[2]"]
    command += [word for key, value in settings.items() for word in ("--conf", f"{key}={value}")]
    command += ["--class", "org.apache.spark.sql.connect.service.SparkConnectServer"]
    command += ["spark-internal"]
    with service(command, log, env) as server:
        wait_until_listening(server, port, log)
        found = json.loads(run_driver("connect_driver.py", str(port), str(tmp_path), env=env))
    assert found["session"].startswith("pyspark.sql.connect")
    assert not found["jvm_in_client"]
    assert found["relation_rows"] == 600
    assert found["batch_is_right"]
    assert found["twice_is_right"]
    assert found["stream_is_right"]
    assert found["workload_is_right"]
    assert found["stream_rows"] == [150, 150, 150]
    assert found["output_rows"] == found["expected_rows"] > 450
    assert found["null_key_rows"] == 50
