"""Routing: with a shuffle or without one the rows are the same, and memory is kept."""

import re
from collections.abc import Iterator
from functools import partial

import boto3
import pyarrow as pa
import pytest
from moto.server import ThreadedMotoServer
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

import semistream as ss
from semistream.advice.feasible import check_share
from semistream.errors import BudgetError, OptionError
from semistream.spark.holding import _planned
from semistream.spark.parallelism import Cores
from semistream.spark.routing import Given, Route, choose_route
from semistream.spec import JoinSpec, resolve
from semistream.testing import nested_loop_join, same_rows
from tests.spark.frames import SPARK_HOW, from_arrow, spark_join
from tests.spark.pipelines import (
    FILES,
    ROWS_PER_FILE,
    Pipeline,
    observed,
    total,
)
from tests.spark.test_enrich import workload

MEMORY_BYTES = 8_000_000
PARTITIONS = 8
TWO_CORES = Cores(2)


@pytest.fixture(scope="module")
def relation(products: pa.Table, tmp_path_factory: pytest.TempPathFactory) -> ss.Relation:
    """More partitions than the session has cores."""
    folder = tmp_path_factory.mktemp("products") / "products.rel"
    return ss.build_relation(products, folder, key="k", partitions=PARTITIONS, page_size=256)


@pytest.fixture(scope="module")
def spec(relation: ss.Relation) -> JoinSpec:
    return resolve(relation, pa.schema({"k": pa.int64(), "q": pa.int32()}))


def sales(spark: SparkSession, tasks: int) -> DataFrame:
    """Each key three times, some unknown, some null, in `tasks` tasks, one of them empty."""
    key = "if(id % 13 = 0, null, id % 120)"
    rows = spark.range(0, 360, 1, tasks).selectExpr(f"{key} as k", "cast(id as int) as q")
    return rows.filter(F.spark_partition_id() != 1)


# The same rows ---------------------------------------------------------------------------------


@pytest.mark.parametrize("how", SPARK_HOW)
@pytest.mark.parametrize("kinds", [("int64",), ("string",), ("string", "int32")])
@pytest.mark.parametrize("algorithm", ["auto", "lookup"])
def test_local_routing_gives_the_rows_of_sparks_join(
    spark: SparkSession, kinds: tuple[str, ...], how: str, algorithm: str
) -> None:
    """With duplicates and nulls on both sides, and keys that the other side lacks."""
    work = workload(kinds, how)
    stream, table = (from_arrow(spark, t) for t in work.tables())
    relation = work.build(table.toArrow())
    options = {"on": work.on, "how": how, "algorithm": algorithm, "memory": "300KB"}
    joined = ss.enrich(stream.repartition(5), relation, routing="local", **options)
    wanted = spark_join(stream, table, work.on, how).toArrow()
    assert len(wanted) > 0
    assert same_rows(joined.toArrow(), wanted)


@pytest.mark.parametrize("algorithm", ["meshjoin", "chybridjoin", "resident"])
def test_any_algorithm_runs_over_all_of_r(
    spark: SparkSession, relation: ss.Relation, products: pa.Table, algorithm: str
) -> None:
    stream = sales(spark, 3)
    joined = ss.enrich(stream, relation, algorithm=algorithm, routing="local", memory=MEMORY_BYTES)
    assert same_rows(joined.toArrow(), nested_loop_join(stream.toArrow(), products, on="k"))


@pytest.mark.parametrize("tasks", [1, 2, 7])
def test_any_number_of_tasks(
    pipeline: Pipeline, relation: ss.Relation, products: pa.Table, tasks: int
) -> None:
    """One task, as many as cores, more than cores; R has eight partitions."""
    stream = pipeline.source().repartition(tasks)
    frame = ss.enrich(stream, relation, routing="local", memory=MEMORY_BYTES)
    query = pipeline.run(frame)
    assert same_rows(pipeline.written(), pipeline.expected(products))
    metrics = observed(query, "semistream:products")
    assert [m["stream_rows"] for m in metrics] == [ROWS_PER_FILE] * FILES
    assert total(metrics, "output_rows") == pipeline.expected(products).num_rows
    assert total(metrics, "missed_rows") == pipeline.expected(products, "anti").num_rows
    assert all(0 < m["memory_bytes_peak"] <= MEMORY_BYTES for m in metrics)


def test_a_shuffle_to_more_tasks_than_cores_keeps_the_memory(
    pipeline: Pipeline, relation: ss.Relation, products: pa.Table
) -> None:
    """Each of the two that run at once has half of it, and together they report no more."""
    frame = ss.enrich(
        pipeline.source(), relation, algorithm="meshjoin", routing="shuffle", memory=200_000
    )
    metrics = observed(pipeline.run(frame), "semistream:products")
    assert same_rows(pipeline.written(), pipeline.expected(products))
    assert all(100_000 < m["memory_bytes_peak"] <= 200_000 for m in metrics)


def test_a_replayed_micro_batch_loses_and_doubles_nothing(
    pipeline: Pipeline, relation: ss.Relation, products: pa.Table
) -> None:
    """The last micro-batch is run again, as after a driver that died when its rows were written."""
    frame = ss.enrich(pipeline.source(), relation, routing="local")
    pipeline.run(frame)
    for log in ("checkpoint/commits", "out/_spark_metadata"):
        for name in (f"{FILES - 1}", f".{FILES - 1}.crc"):
            (pipeline.folder / log / name).unlink()
    pipeline.arrive(range(FILES, FILES + 1))
    query = pipeline.run(frame)
    assert total(observed(query, "semistream:products"), "stream_rows") == 2 * ROWS_PER_FILE
    assert same_rows(pipeline.written(), pipeline.expected(products))


def test_micro_batches_without_rows(
    pipeline: Pipeline, relation: ss.Relation, products: pa.Table
) -> None:
    nothing = pipeline.source().filter(f"q >= {ROWS_PER_FILE} and q < {2 * ROWS_PER_FILE}")
    query = pipeline.run(ss.enrich(nothing, relation, routing="local"))
    metrics = {p.batchId: p.observedMetrics["semistream:products"] for p in query.recentProgress}
    counted = [None if m.metrics is None else m.metrics["stream_rows"] for m in metrics.values()]
    assert counted == [None, ROWS_PER_FILE, None]
    pipeline.arrived = pipeline.arrived[1:2]
    assert same_rows(pipeline.written(), pipeline.expected(products))


# The plan --------------------------------------------------------------------------------------


def plan(joined: DataFrame) -> str:
    return str(joined._jdf.queryExecution().executedPlan())  # type: ignore[operator]


def test_local_routing_has_no_exchange(spark: SparkSession, relation: ss.Relation) -> None:
    stream = sales(spark, 3)
    for how, algorithm in (("local", "auto"), ("local", "meshjoin"), ("auto", "lookup")):
        joined = ss.enrich(stream, relation, routing=how, algorithm=algorithm)
        assert "MapInArrow" in plan(joined)
        assert "Exchange" not in plan(joined)
    for how, algorithm in (("shuffle", "auto"), ("auto", "meshjoin")):
        joined = ss.enrich(stream, relation, routing=how, algorithm=algorithm)
        assert "Exchange" in plan(joined)


# The choice ------------------------------------------------------------------------------------


def choose(
    relation: ss.Relation,
    spec: JoinSpec,
    memory_bytes: int = MEMORY_BYTES,
    *,
    routing: str = "auto",
    algorithm: str = "auto",
    cores: Cores = TWO_CORES,
) -> Route:
    given = Given(memory_bytes, None)
    return choose_route(routing, algorithm, relation, spec, given, cores)


@pytest.mark.parametrize("algorithm", ["auto", "lookup"])
def test_auto_is_local_on_a_local_path(
    relation: ss.Relation, spec: JoinSpec, algorithm: str
) -> None:
    route = choose(relation, spec, algorithm=algorithm)
    assert route.is_local
    assert (route.tasks, route.share_bytes) == (2, MEMORY_BYTES // 2)
    assert choose(relation, spec, routing="shuffle").is_local is False


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A bucket of a real S3 server of Moto's on this machine."""
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "nobody")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "nothing")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://{host}:{port}")
    boto3.client("s3").create_bucket(Bucket="warehouse")
    yield "s3://warehouse"
    server.stop()


def test_auto_shuffles_for_a_remote_relation(
    spark: SparkSession, products: pa.Table, spec: JoinSpec, bucket: str
) -> None:
    remote = ss.build_relation(products, f"{bucket}/products.rel", key="k", partitions=2)
    assert not choose(remote, spec).is_local
    assert choose(remote, spec, routing="local").is_local
    assert "Exchange" in plan(ss.enrich(sales(spark, 2), remote))
    assert "Exchange" not in plan(ss.enrich(sales(spark, 2), remote, routing="local"))
    for hold in (_planned.pop(), _planned.pop()):  # before the server ends
        hold.release()


@pytest.mark.parametrize("algorithm", ["meshjoin", "chybridjoin", "resident"])
def test_other_algorithms_shuffle_unless_told(
    relation: ss.Relation, spec: JoinSpec, algorithm: str
) -> None:
    assert not choose(relation, spec, algorithm=algorithm).is_local
    assert choose(relation, spec, algorithm=algorithm, routing="local").is_local


def test_auto_shuffles_when_the_memory_does_not_hold_all_of_the_page_table(
    relation: ss.Relation, spec: JoinSpec
) -> None:
    check = partial(check_share, "lookup", relation, spec)
    with pytest.raises(BudgetError) as refusal:
        check(1_000, whole=True)
    least = refusal.value.least_bytes
    assert least is not None
    check(least, whole=True)
    check(least - 1)  # one partition needs less
    assert choose(relation, spec, 4 * least, cores=Cores(4)).is_local
    assert not choose(relation, spec, 4 * least - 1, cores=Cores(4)).is_local
    assert choose(relation, spec, 64 * least, cores=Cores(64)).is_local
    with pytest.raises(BudgetError, match=f"Raise memory to {4 * least} bytes"):
        choose(relation, spec, 4 * least - 1, routing="local", algorithm="lookup", cores=Cores(4))
    with pytest.raises(BudgetError, match=r"all 4 tasks.*, or set routing to 'shuffle'") as refusal:
        choose(relation, spec, 40, routing="local", cores=Cores(4))
    assert choose(relation, spec, refusal.value.least_bytes or 0, routing="local", cores=Cores(4))


def test_an_unknown_routing_is_refused(relation: ss.Relation, spec: JoinSpec) -> None:
    with pytest.raises(OptionError, match=r"auto, shuffle, local; got 'locale'.*'local'"):
        choose(relation, spec, routing="locale")


# Memory ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("cores", "tasks"), [(2, 2), (8, 8), (64, 8)])
def test_tasks_that_run_at_once_share_the_memory(
    relation: ss.Relation, spec: JoinSpec, cores: int, tasks: int
) -> None:
    shuffled = choose(relation, spec, routing="shuffle", cores=Cores(cores))
    assert (shuffled.tasks, shuffled.share_bytes) == (tasks, MEMORY_BYTES // tasks)
    local = choose(relation, spec, routing="local", cores=Cores(cores))
    assert (local.tasks, local.share_bytes) == (cores, MEMORY_BYTES // cores)


def test_cores_that_may_grow(relation: ss.Relation, spec: JoinSpec) -> None:
    """Then all partitions may be joined at once, and nobody knows how many local tasks run."""
    growing = Cores(2, can_grow=True)
    route = choose(relation, spec, cores=growing)
    assert not route.is_local
    assert route.share_bytes == MEMORY_BYTES // PARTITIONS
    with pytest.raises(OptionError, match="give memory_per_task"):
        choose(relation, spec, routing="local", cores=growing)
    given = Given(None, 500_000)
    assert choose_route("auto", "auto", relation, spec, given, growing).is_local


def test_the_cores_of_a_session(spark: SparkSession) -> None:
    assert Cores.of(spark) == Cores(2, can_grow=False)
    session = spark.newSession()
    settings = session._jsparkSession.sessionState().conf()
    settings.setConfString("spark.dynamicAllocation.enabled", "true")
    assert Cores.of(session) == Cores(2, can_grow=True)


def test_memory_of_each_task(
    spark: SparkSession, relation: ss.Relation, products: pa.Table, spec: JoinSpec
) -> None:
    stream = sales(spark, 3)
    expected = nested_loop_join(stream.toArrow(), products, on="k")
    for how in ("shuffle", "local"):
        with pytest.raises(BudgetError) as refusal:
            ss.enrich(stream, relation, memory_per_task="1KB", routing=how)
        least = re.search(r"Raise memory_per_task to (\d+) bytes", str(refusal.value))
        assert least, refusal.value
        assert "run at once" not in str(refusal.value)
        joined = ss.enrich(stream, relation, memory_per_task=int(least[1]), routing=how)
        assert same_rows(joined.toArrow(), expected)
        route = choose_route(how, "auto", relation, spec, Given(None, 500_000), Cores(2))
        assert route.share_bytes == 500_000


def test_memory_is_given_once(spark: SparkSession, relation: ss.Relation) -> None:
    with pytest.raises(OptionError, match=r"either memory, .* or memory_per_task; got both, '5MB'"):
        ss.enrich(sales(spark, 2), relation, memory="5MB", memory_per_task="1MB")


def test_nothing_is_kept_warm_in_front_of_the_page_cache(
    relation: ss.Relation, spec: JoinSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where all of R is in memory, a look-up costs as little as a hit; not with a shuffle."""
    about = ("lookup", relation, spec, Given(MEMORY_BYTES, None), TWO_CORES)
    warm = {}
    for total_bytes in (10 * relation.size_bytes, 2 * relation.size_bytes):
        monkeypatch.setattr("semistream.memory.host_memory", lambda total=total_bytes: (0, total))
        warm[total_bytes] = [choose_route(r, *about).warm_bytes > 0 for r in ("local", "shuffle")]
    assert [*warm.values()] == [[False, True], [True, True]]


def test_rows_stay_in_their_tasks_only_where_r_is_in_the_page_cache(
    relation: ss.Relation, spec: JoinSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Elsewhere every task would read from disk what the others have read."""
    about = ("auto", "auto", relation, spec, Given(MEMORY_BYTES, None), TWO_CORES)
    stays = []
    for total_bytes in (10 * relation.size_bytes, 2 * relation.size_bytes):
        monkeypatch.setattr("semistream.memory.host_memory", lambda total=total_bytes: (0, total))
        stays.append(choose_route(*about).is_local)
    assert stays == [True, False]
