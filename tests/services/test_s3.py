"""A relation in an object store, against a real S3 server of Moto's on this machine."""

from collections.abc import Iterator
from typing import Any

import boto3
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from moto.server import ThreadedMotoServer

import semistream as ss
from semistream.cli.main import main
from semistream.errors import (
    BuildError,
    CommitError,
    CorruptRelationError,
    RelationNotFoundError,
    SnapshotPrunedError,
)
from semistream.relation import places
from semistream.relation.storage import ArrowStore, Store
from semistream.testing import same_rows
from tests.oracle import duckdb_join

BUCKET = "warehouse"
PRODUCTS = pa.table(
    {
        "id": np.arange(3_000),
        "name": [f"product {i}" if i % 7 else None for i in range(3_000)],
        "tags": [["a"] * (i % 3) for i in range(3_000)],
    }
)
SALES = pa.table({"id": np.arange(2_500, 3_500), "quantity": np.arange(1_000)})


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    """Return the address of an S3 server with an empty bucket."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_ACCESS_KEY_ID", "nobody")
        patch.setenv("AWS_SECRET_ACCESS_KEY", "nothing")
        patch.setenv("AWS_EC2_METADATA_DISABLED", "true")
        moto = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
        moto.start()
        host, port = moto.get_host_and_port()
        address = f"http://{host}:{port}"
        client(address).create_bucket(Bucket=BUCKET)
        yield address
        moto.stop()


def client(address: str) -> Any:
    return boto3.client("s3", endpoint_url=address, region_name="us-east-1")


def uri(server: str, name: str) -> str:
    return (
        f"s3://{BUCKET}/{name}?endpoint_override={server}"
        "&allow_bucket_creation=true&region=us-east-1"
    )


def objects(server: str, name: str) -> list[str]:
    found = client(server).list_objects_v2(Bucket=BUCKET, Prefix=f"{name}/")
    return [entry["Key"] for entry in found.get("Contents", [])]


def joined(relation: ss.Relation, algorithm: str) -> pa.Table:
    batches = SALES.to_batches(max_chunksize=300)
    return pa.Table.from_batches(ss.join(batches, relation, memory="4MB", algorithm=algorithm))


@pytest.mark.parametrize("algorithm", ["meshjoin", "resident"])
def test_build_open_and_join(server: str, algorithm: str) -> None:
    where = uri(server, f"{algorithm}.rel")
    built = ss.build_relation(PRODUCTS, where, key="id", partitions=2, page_size="4KB")
    opened = ss.Relation.open(where)
    assert opened == built
    assert opened.row_count == 3_000
    expected = duckdb_join(SALES, PRODUCTS, on="id")
    assert 0 < expected["tags"].null_count == 500 < expected.num_rows == 1_000
    assert same_rows(joined(opened, algorithm), expected)


def test_rebuild_and_prune(server: str) -> None:
    where = uri(server, "rebuilt.rel")
    old = ss.build_relation(PRODUCTS, where, key="id", partitions=2)
    new = ss.build_relation(PRODUCTS[:10], where, key="id", partitions=2)
    assert ss.Relation.open(where).snapshot == new.snapshot
    kept = joined(ss.Relation.open(where, old.snapshot), "meshjoin")
    assert same_rows(kept, duckdb_join(SALES, PRODUCTS, on="id"))
    assert new.snapshots() == [old.snapshot, new.snapshot]
    assert new.prune(grace=0).removed == [old.snapshot]
    assert new.snapshots() == [new.snapshot]
    assert not [key for key in objects(server, "rebuilt.rel") if old.snapshot in key]
    assert ss.Relation.open(where).row_count == 10


def test_what_a_join_reads_is_not_pruned(server: str) -> None:
    where = uri(server, "read.rel")
    old = ss.build_relation(PRODUCTS, where, key="id", partitions=2)
    new = ss.build_relation(PRODUCTS[:10], where, key="id", partitions=2)
    reader = old.reader(["name"])
    pruned = new.prune(grace=0)
    assert pruned.removed == []
    assert "being read by process" in pruned.kept[old.snapshot]
    reader.close()
    assert new.prune().removed == [], "within the grace period"
    assert new.prune(grace=0).removed == [old.snapshot]
    left = [key for key in objects(server, "read.rel") if not key.endswith("/")]
    assert [key for key in left if "/leases/" in key] == []


def test_a_snapshot_pruned_under_a_join(server: str) -> None:
    where = uri(server, "pruned.rel")
    old = ss.build_relation(PRODUCTS, where, key="id", partitions=2)
    new = ss.build_relation(PRODUCTS[:10], where, key="id", partitions=2)
    reader = old.reader(["name"])
    for key in objects(server, "pruned.rel"):
        if key.endswith(".read"):  # as if it had expired
            client(server).delete_object(Bucket=BUCKET, Key=key)
    assert new.prune(grace=0).removed == [old.snapshot]
    with pytest.raises(SnapshotPrunedError, match="was pruned while it was in use"):
        reader.read_codes(0, reader.page_count, np.empty(reader.row_count, np.int64))


def test_a_prune_removes_the_manifest_first(server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """If it dies in between, what is left is not taken for a snapshot."""
    where = uri(server, "half.rel")
    old = ss.build_relation(PRODUCTS, where, key="id", partitions=2)
    new = ss.build_relation(PRODUCTS[:10], where, key="id", partitions=2)
    exists = ArrowStore.exists

    def dies(store: ArrowStore, name: str) -> bool:
        if name == f"snapshots/{old.snapshot}":
            raise KeyboardInterrupt
        return exists(store, name)

    monkeypatch.setattr(ArrowStore, "exists", dies)
    with pytest.raises(KeyboardInterrupt):
        new.prune(grace=0)
    monkeypatch.undo()
    assert new.snapshots() == [new.snapshot]
    assert [key for key in objects(server, "half.rel") if f"{old.snapshot}/part-" in key]
    assert new.prune(grace=0).removed == [old.snapshot]
    assert not [key for key in objects(server, "half.rel") if old.snapshot in key]


def test_a_put_that_timed_out_but_took_effect(server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    where = uri(server, "timeout.rel")
    old = ss.build_relation(PRODUCTS, where, key="id", partitions=2)
    replace = ArrowStore.replace

    def timed_out(store: ArrowStore, name: str, content: bytes) -> None:
        replace(store, name, content)
        if name == "CURRENT":
            raise OSError("AWS Error NETWORK_CONNECTION: timed out")

    monkeypatch.setattr(ArrowStore, "replace", timed_out)
    with pytest.raises(CommitError, match=r"timed out.*It took effect") as raised:
        ss.build_relation(PRODUCTS[:10], where, key="id", partitions=2)
    assert raised.value.took_effect is True
    relation = ss.Relation.open(where)
    assert relation.snapshot != old.snapshot
    stream = pa.record_batch({"id": [0, 3, 9]})
    out = ss.join([stream], relation, memory="4MB", algorithm="meshjoin")
    assert same_rows(pa.Table.from_batches(out), PRODUCTS.take([0, 3, 9]))


def test_no_relation_there(server: str) -> None:
    with pytest.raises(RelationNotFoundError, match=r"nothing\.rel"):
        ss.Relation.open(uri(server, "nothing.rel"))


def test_a_failed_build_leaves_nothing_behind(server: str) -> None:
    def source() -> Iterator[pa.RecordBatch]:
        yield from PRODUCTS.to_batches(max_chunksize=100)[:3]
        raise RuntimeError("the source broke")

    where = uri(server, "failed.rel")
    reader = pa.RecordBatchReader.from_batches(PRODUCTS.schema, source())
    with pytest.raises(RuntimeError, match="the source broke"):
        ss.build_relation(reader, where, key="id")
    assert [key for key in objects(server, "failed.rel") if not key.endswith("/")] == []


def test_a_missing_object_is_reported(server: str) -> None:
    relation = ss.build_relation(PRODUCTS, uri(server, "holes.rel"), key="id", partitions=1)
    (gone,) = [key for key in objects(server, "holes.rel") if key.endswith(".data")]
    client(server).delete_object(Bucket=BUCKET, Key=gone)
    with pytest.raises(CorruptRelationError, match=relation.snapshot):
        joined(relation, "meshjoin")


def test_a_shortened_object_is_reported(server: str) -> None:
    relation = ss.build_relation(PRODUCTS, uri(server, "short.rel"), key="id", partitions=1)
    (key,) = [key for key in objects(server, "short.rel") if key.endswith(".codes")]
    body = client(server).get_object(Bucket=BUCKET, Key=key)["Body"].read()
    client(server).put_object(Bucket=BUCKET, Key=key, Body=body[:-8])
    with pytest.raises(CorruptRelationError, match="key codes"):
        joined(relation, "meshjoin")


def test_all_from_the_environment(server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As with the vendor's tools: the endpoint is in a variable, and Spark's s3a is the same."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", server)
    client(server).create_bucket(Bucket="sources")
    pq.write_table(PRODUCTS, "sources/products.parquet", filesystem=Store.at("s3://x").filesystem)
    built = ss.build_relation("s3a://sources/", f"s3a://{BUCKET}/plain.rel", key="id", partitions=1)
    opened = ss.Relation.open(f"s3://{BUCKET}/plain.rel")
    assert opened.manifest == built.manifest
    assert same_rows(joined(opened, "meshjoin"), duckdb_join(SALES, PRODUCTS, on="id"))


def test_a_bucket_that_is_not_there(server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", server)
    with pytest.raises(BuildError, match="no-such-bucket"):
        ss.build_relation(PRODUCTS, "s3://no-such-bucket/r.rel", key="id")


def test_the_region_of_a_bucket_is_asked_for(server: str) -> None:
    region = {"LocationConstraint": "eu-west-1"}
    client(server).create_bucket(Bucket="in-europe", CreateBucketConfiguration=region)
    assert places.ask(f"{server}/in-europe", "AWS_REGION")["x-amz-bucket-region"] == "eu-west-1"


def test_doctor_checks_access(
    server: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", server)
    assert main(["doctor", f"s3://{BUCKET}/doctor.rel", "--no-spark"]) == 0
    assert f"ok     place         s3://{BUCKET}/doctor.rel: wrote in" in capsys.readouterr().out
    assert [key for key in objects(server, "doctor.rel") if not key.endswith("/")] == []
    assert main(["doctor", "s3://no-such-bucket/doctor.rel", "--no-spark"]) == 1
    assert "no file can be written at s3://no-such-bucket" in capsys.readouterr().out


def test_info_and_verify(server: str) -> None:
    relation = ss.build_relation(PRODUCTS, uri(server, "info.rel"), key="id", partitions=2)
    (snapshot,) = relation.info().snapshots
    stored = client(server).list_objects_v2(Bucket=BUCKET, Prefix="info.rel/snapshots/")
    assert snapshot.size_bytes == sum(entry["Size"] for entry in stored["Contents"])
    assert relation.verify()


def test_a_killed_builds_objects_are_removed_by_the_next_build(server: str) -> None:
    where = uri(server, "killed.rel")
    old = ss.build_relation(PRODUCTS, where, key="id", partitions=1)
    left = "killed.rel/snapshots/20240229T120000000000-0123abcd/part-00000-0.data"
    client(server).put_object(Bucket=BUCKET, Key=left, Body=b"x")
    new = ss.build_relation(PRODUCTS, where, key="id")
    assert left not in objects(server, "killed.rel")
    assert new.snapshots() == [old.snapshot, new.snapshot]
