"""Paths and URIs: what each means, and what is said where one cannot be used."""

import os
import shutil
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import fs

import semistream as ss
from semistream.errors import OptionError, RelationNotFoundError, StorageError
from semistream.relation import places
from semistream.relation.draft import Draft
from semistream.relation.storage import Store
from tests.unit.snapshots import build

MOST_SECONDS = 30.0  # far below the minutes that the vendors' clients try for
VARIABLES = ("AWS_", "AZURE_", "GOOGLE_", "STORAGE_")


@pytest.fixture(autouse=True)
def _no_variables(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in list(os.environ):
        if name.startswith(VARIABLES):
            monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setattr(places, "ANSWER_S", 1.0)
    places.ask.cache_clear()
    places._connect.cache_clear()
    yield
    places._connect.cache_clear()


@pytest.fixture
def silent() -> Iterator[str]:
    """The address of a server that takes connections and never answers."""
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        yield f"127.0.0.1:{server.getsockname()[1]}"


@pytest.fixture
def closed() -> str:
    """An address where nothing listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{probe.getsockname()[1]}"


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    """Let every service answer without a request; return what was asked."""
    asked: list[tuple[str, str]] = []

    def ask(url: str, source: str) -> dict[str, str]:
        asked.append((url, source))
        return {"x-amz-bucket-region": "eu-west-1"}

    monkeypatch.setattr(places, "ask", ask)
    return asked


@pytest.mark.parametrize(
    "location", ["{}", "file:{}", "file://{}", "file:///{}", "file://localhost{}"]
)
def test_local_paths(tmp_path: Path, location: str) -> None:
    folder = tmp_path / "my products.rel"
    text = location.format(folder)
    built = ss.build_relation(pa.table({"id": [1]}), text, key="id", partitions=1)
    assert built.location == str(folder)
    assert ss.Relation.open(text) == built


@pytest.mark.parametrize("scheme", ["s3", "s3a"])
def test_s3(answers: list[tuple[str, str]], scheme: str) -> None:
    place = places.find(f"{scheme}://warehouse/a%20b/products.rel/")
    assert place.path == "warehouse/a b/products.rel"
    assert isinstance(place.filesystem, fs.S3FileSystem)
    assert place.filesystem.region == "eu-west-1", "the bucket's own"
    assert answers == [("https://s3.us-east-1.amazonaws.com/warehouse", "AWS_REGION")]
    assert places.find("s3://warehouse/other").filesystem is place.filesystem


def test_s3_of_the_environment(
    answers: list[tuple[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_REGION", "cn-north-1")
    place = places.find("s3://warehouse/r")
    assert place.filesystem is not None
    assert place.filesystem.region == "cn-north-1"
    assert answers[-1][0] == "https://s3.cn-north-1.amazonaws.com.cn/warehouse"
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://minio:9000/")
    places.find("s3://warehouse/r")
    assert answers[-1] == ("http://minio:9000/warehouse", "AWS_ENDPOINT_URL")
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", "http://only-s3:9000")
    places.find("s3://warehouse/r?region=x")
    assert answers[-1][0] == "http://only-s3:9000/warehouse"
    places.find("s3://warehouse/r?endpoint_override=given:1&scheme=http")
    assert answers[-1][0] == "http://given:1/warehouse"


def test_google(answers: list[tuple[str, str]], monkeypatch: pytest.MonkeyPatch) -> None:
    place = places.find("gs://warehouse/products.rel?anonymous=true")
    assert place.path == "warehouse/products.rel"
    assert isinstance(place.filesystem, fs.GcsFileSystem)
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", "http://localhost:4443")
    places.find("gs://warehouse/products.rel")
    assert [url for url, _ in answers] == [
        "https://storage.googleapis.com/",
        "http://localhost:4443/",
    ]


def test_azure(answers: list[tuple[str, str]], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AZURE_STORAGE_KEY", "a2V5")
    place = places.find("abfss://lake@shop.dfs.core.windows.net/master/products.rel")
    assert place.path == "lake/master/products.rel"
    assert isinstance(place.filesystem, fs.AzureFileSystem)
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT", "other")
    assert places.find("abfs://lake/products.rel").path == "lake/products.rel"
    monkeypatch.setenv(
        "AZURE_STORAGE_CONNECTION_STRING",
        "AccountName=dev;AccountKey=a2V5;BlobEndpoint=http://127.0.0.1:10000/dev;",
    )
    places.find("abfs://lake/products.rel")
    assert [url for url, _ in answers] == [
        "https://shop.blob.core.windows.net/",
        "https://other.blob.core.windows.net/",
        "http://127.0.0.1:10000/dev",
    ]


def test_azure_of_other_clouds(
    answers: list[tuple[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AZURE_STORAGE_KEY", "a2V5")
    places.find("abfss://space@onelake.dfs.fabric.microsoft.com/products.rel")
    places.find("abfss://lake@shop.dfs.core.chinacloudapi.cn/products.rel")
    assert [url for url, _ in answers] == [
        "https://onelake.blob.fabric.microsoft.com/",
        "https://shop.blob.core.chinacloudapi.cn/",
    ]


@pytest.mark.parametrize("server", ["closed", "silent"])
@pytest.mark.parametrize("store", ["s3", "s3a", "gs", "abfss"])
def test_a_store_that_does_not_answer_fails_within_seconds(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, store: str, server: str
) -> None:
    address = request.getfixturevalue(server)
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://{address}")
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", f"http://{address}")
    monkeypatch.setenv(
        "AZURE_STORAGE_CONNECTION_STRING", f"AccountName=dev;BlobEndpoint=http://{address}/dev"
    )
    began = time.monotonic()
    with pytest.raises(StorageError, match=rf"http://{address}.* does not answer.*Check the net"):
        ss.Relation.open(f"{store}://warehouse/products.rel")
    assert time.monotonic() - began < MOST_SECONDS


def test_s3_that_stops_answering_fails_within_seconds(
    silent: str, answers: list[tuple[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://{silent}")
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    monkeypatch.setattr(places, "_REQUEST_S", 1.0)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "nobody")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "nothing")
    began = time.monotonic()
    with pytest.raises(StorageError, match=r"opening the relation 's3://warehouse/r'.*Timeout"):
        ss.Relation.open("s3://warehouse/r")
    assert time.monotonic() - began < MOST_SECONDS
    assert answers


def test_a_name_node_that_does_not_answer(closed: str) -> None:
    with pytest.raises(StorageError, match=f"{closed} does not answer"):
        Store.at(f"hdfs://{closed}/products.rel")


def test_hdfs_without_hadoop(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HADOOP_HOME", str(tmp_path))
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    monkeypatch.setenv("ARROW_LIBHDFS_DIR", str(tmp_path))
    with pytest.raises(StorageError, match=r"HADOOP_HOME and JAVA_HOME.*hadoop classpath --glob"):
        Store.at("hdfs:///master/products.rel")


def test_databricks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for location in ("dbfs:/master/r", "/dbfs/master/r", "dbfs:/Volumes/a/b/c/r", "/Volumes/a/b/r"):
        with pytest.raises(StorageError, match=r"has no /(dbfs|Volumes)\. Run this"):
            Store.at(location)
    monkeypatch.setattr(places, "_DBFS", str(tmp_path))
    assert Store.at("dbfs:/master/r").root == f"{tmp_path}/master/r"
    assert Store.at("dbfs:///master/r").root == f"{tmp_path}/master/r"
    monkeypatch.setattr(places, "_VOLUMES", "/")
    assert Store.at("dbfs:/Volumes/a/b/c/r").root == "/Volumes/a/b/c/r"


@pytest.mark.parametrize(
    ("location", "message"),
    [
        ("abffs://c@a/r", r"abffs:, which is not known.*Did you mean 'abfs"),
        ("s3:/bucket/r", "write s3:// with two slashes"),
        ("s3://", "names no bucket; write s3://bucket/path"),
        ("s3n://bucket/r", "write s3a:// or s3://"),
        ("s3://bucket/r?regoin=x", "unknown option 'regoin'.*Did you mean 'region'"),
        ("s3://key:secret@bucket/r", "has a password in it"),
        ("wasbs://c@a.blob.core.windows.net/r", "write abfss://container@account"),
        ("https://shop.blob.core.windows.net/lake/r", "cannot be written through a web address"),
        ("abfss://lake/r", "set AZURE_STORAGE_ACCOUNT"),
        ("webhdfs://node/r", "write hdfs://"),
    ],
)
def test_what_cannot_be_used_is_refused(location: str, message: str) -> None:
    with pytest.raises(OptionError, match=message) as raised:
        Store.at(location)
    assert "secret" not in str(raised.value)


def test_a_client_that_cannot_start_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(**_: object) -> None:
        raise OSError("Unable to load libjvm\ndlopen(/usr/lib/jvm/libjvm.so) failed\ndlopen(…)")

    monkeypatch.setattr(fs, "HadoopFileSystem", fail)
    places._connect.cache_clear()
    with pytest.raises(StorageError, match=r"Unable to load libjvm\. HDFS .*JAVA_HOME") as raised:
        Store.at("hdfs:///products.rel")
    assert "\n" not in str(raised.value)


def test_a_missing_folder_is_told_apart_from_a_folder_without_a_relation(tmp_path: Path) -> None:
    with pytest.raises(RelationNotFoundError, match="no such folder on this machine"):
        ss.Relation.open(tmp_path / "none.rel")
    with pytest.raises(RelationNotFoundError, match="is not a relation: it has no CURRENT file"):
        ss.Relation.open(tmp_path)


def test_a_folder_that_a_task_does_not_see(tmp_path: Path) -> None:
    """The relation was opened elsewhere; here, as on an executor, its path does not exist."""
    relation = build(tmp_path / "local.rel")
    shutil.rmtree(relation.location)
    with pytest.raises(RelationNotFoundError, match="every executor needs to see the folder"):
        relation.reader(["text"])
    assert not Path(relation.location).exists(), "no lease has made the folder"
    Path(relation.location).mkdir()  # such as where a volume would be mounted
    with pytest.raises(RelationNotFoundError, match="every executor needs to see the folder"):
        relation.reader(["text"])


def test_a_draft_that_a_task_does_not_see(tmp_path: Path) -> None:
    relation = build(tmp_path / "local.rel")
    shutil.rmtree(relation.location)
    with pytest.raises(RelationNotFoundError, match="every executor needs to see the folder"):
        Draft.resume(relation.location, relation.manifest)
