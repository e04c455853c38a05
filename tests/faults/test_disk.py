"""A disk that forgets and fails, at every call of a build, of opening a relation and of a join."""

import errno
import tempfile
from collections.abc import Callable, Iterator

import numpy as np
import pyarrow as pa
import pytest

import semistream as ss
from semistream.errors import (
    BuildError,
    CommitError,
    CorruptRelationError,
    RelationNotFoundError,
    SemistreamError,
)
from semistream.relation import build, leases, parts, storage
from semistream.relation.draft import Draft
from semistream.relation.hot import HotKeys
from semistream.testing import nested_loop_join, same_rows
from tests.faults.forgetful_disk import Faults, ForgetfulDisk, PowerLoss

PLACE = "/data/shop/products.rel"
OLD = pa.table({"id": [1, 2, 3, 9], "text": ["a", "b", "c", None]})
NEW = pa.table({"id": np.arange(60), "text": [f"row {i}" * (i % 3) for i in range(60)]})
SAMPLE = pa.table({"id": [7, 7, 7, 7, 8, 8, 8]})
CODES = [errno.EIO, errno.ENOSPC, errno.EMFILE]


def use(disk: ForgetfulDisk) -> ForgetfulDisk:
    """Make this the disk that all local stores are on; nothing of it was read before."""
    storage.disk = disk
    parts._checked.clear()
    return disk


@pytest.fixture(autouse=True)
def _own_disk(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Restore the real disk in the end, and let no lease be renewed meanwhile."""
    keeper = leases._Keeper()
    monkeypatch.setattr(storage, "disk", storage.disk)
    monkeypatch.setattr(leases, "_TICK_S", 1e6)
    monkeypatch.setattr(leases, "_keeper", keeper)
    yield
    keeper._stop.set()


def empty_disk() -> ForgetfulDisk:
    return use(ForgetfulDisk([tempfile.gettempdir(), "/data"]))


def disk_with_old() -> ForgetfulDisk:
    disk = empty_disk()
    build_old()
    return disk


def build_old() -> ss.Relation:
    return ss.build_relation(OLD, PLACE, key="id", partitions=2)


def build_new() -> ss.Relation:
    return ss.build_relation(NEW.to_reader(20), PLACE, key="id", partitions=2, page_size=300)


def build_spooled() -> ss.Relation:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(build, "SPOOL_BYTES", 300)
        return build_new()


def build_by_frequency() -> ss.Relation:
    options = {"order": "frequency", "sample": SAMPLE, "page_size": 300}
    return ss.build_relation(NEW, PLACE, key="id", partitions=2, **options)


BUILDS = {"new": build_new, "spooled": build_spooled, "by frequency": build_by_frequency}


def joined(relation: ss.Relation, table: pa.Table) -> pa.Table:
    stream = pa.table({"id": [*table["id"].to_pylist(), 777]})
    batches = ss.join(stream.to_batches(), relation, memory="1MB", algorithm="meshjoin")
    return pa.Table.from_batches(batches)


def holds(relation: ss.Relation, table: pa.Table) -> bool:
    """Whether a relation is this table, row by row."""
    stream = pa.table({"id": [*table["id"].to_pylist(), 777]})
    right = same_rows(joined(relation, table), nested_loop_join(stream, table, on="id"))
    return right and relation.row_count == table.num_rows


def whole(kept: ForgetfulDisk) -> str:
    """Return which of the snapshots a disk opens to, after reading all its rows."""
    use(kept)
    try:
        relation = ss.Relation.open(PLACE)
    except RelationNotFoundError as error:
        return "none" if "is not a relation" in str(error) else "CURRENT names what is not there"
    name = "old" if relation.row_count == OLD.num_rows else "new"
    assert holds(relation, OLD if name == "old" else NEW)
    return name


def calls_of(run: Callable[[], object], disk: ForgetfulDisk) -> list[tuple[str, str]]:
    copied = use(disk.copied())
    run()
    return copied.calls


# A disk that forgets


@pytest.mark.parametrize("kept", ["synced", "names", "some"])
@pytest.mark.parametrize("name", BUILDS)
@pytest.mark.parametrize("is_first", [True, False], ids=["first build", "rebuild"])
def test_the_power_goes_at_every_call(name: str, kept: str, is_first: bool) -> None:
    before = empty_disk() if is_first else disk_with_old()
    run = BUILDS[name]
    count = len(calls_of(run, before))
    found = []
    for at in range(count + 1):
        disk = use(before.copied())
        disk.faults = Faults(power_loss_at=at)
        if at < count:
            with pytest.raises(PowerLoss):
                run()
        else:
            run()
        seeds = range(2) if kept == "some" else [0]
        found += [whole(disk.after_power_loss(kept, seed)) for seed in seeds]
    first = "none" if is_first else "old"
    assert set(found) == {first, "new"}
    assert found[0] == first
    assert set(found[-len(seeds) :]) == {"new"}, "what build_relation has returned is durable"


@pytest.mark.parametrize("seed", range(8))
def test_a_folder_of_snapshots_that_was_never_synced(seed: int) -> None:
    """An earlier build made it and died at once."""
    before = empty_disk()
    before._make(f"{PLACE}/leases")
    before.mkdir(f"{PLACE}/snapshots")
    count = len(calls_of(build_new, before))
    for at in range(count):
        disk = use(before.copied())
        disk.faults = Faults(power_loss_at=at)
        with pytest.raises(PowerLoss):
            build_new()
        assert whole(disk.after_power_loss("some", seed)) in ("none", "new")


def test_a_task_of_a_spark_build_syncs_its_own_files() -> None:
    """The driver, on another host perhaps, cannot do it."""
    disk = empty_disk()
    with Draft.start(PLACE, NEW.schema, ("id",), 300) as draft:
        task = Draft.resume(draft.location, draft.manifest)
        rows = iter([(np.arange(60), NEW.to_batches()[0])])
        info = build.write_sorted(task, 0, rows, "7", HotKeys.none())
        kept = disk.after_power_loss()
    folder = f"{PLACE}/snapshots/{draft.manifest.snapshot}"
    sizes = {entry.name: entry.size_bytes for entry in kept.scan(folder)}
    assert sorted(sizes) == sorted(info.file_names())
    assert sizes["part-00000-7.codes"] == 8 * 60
    assert all(sizes.values())


# A disk that fails


def outcome(run: Callable[[], ss.Relation], disk: ForgetfulDisk) -> str:
    """Run a build whose disk fails, and return which snapshot must be current then."""
    try:
        run()
    except CommitError as error:
        check_message(error, disk)
        return {True: "new", False: "old", None: "any"}[error.took_effect]
    except BuildError as error:
        check_message(error, disk)
        return "old"
    return "new"


def error_of(run: Callable[[], object]) -> SemistreamError | None:
    """Return the error of ours that something raises, if any."""
    try:
        run()
    except SemistreamError as error:
        return error
    return None


def check_rows(actual: pa.Table, expected: pa.Table) -> None:
    assert same_rows(actual, expected)


def check_message(error: SemistreamError, disk: ForgetfulDisk) -> None:
    """It names the relation, the file and the error, and says what to do."""
    code, said = disk.faults.code, str(error)
    assert not isinstance(error, CorruptRelationError | RelationNotFoundError)
    assert isinstance(error.__cause__, OSError)
    assert PLACE in said
    assert f"[Errno {code}]" in said
    assert error.__cause__.filename in {path for _, path in disk.calls}
    assert error.__cause__.filename in said
    wanted = {errno.EIO: "the device failed", errno.ENOSPC: "space", errno.EMFILE: "ulimit -n"}
    assert wanted[code] in said or "build again" in said or "open the relation later" in said


@pytest.mark.parametrize("goes_on", [False, True], ids=["once", "from then on"])
@pytest.mark.parametrize("code", CODES, ids=errno.errorcode.get)
@pytest.mark.parametrize("name", BUILDS)
def test_a_call_of_a_build_fails(name: str, code: int, goes_on: bool) -> None:
    before = disk_with_old()
    run = BUILDS[name]
    count = len(calls_of(run, before))
    (old,) = ss.Relation.open(PLACE).snapshots()[:1]
    outcomes = []
    # Each call fails once for lack of space; the others, which differ in the message, at some.
    for at in range(0, count, 1 if goes_on or code == errno.ENOSPC else 3):
        disk = use(before.copied())
        disk.faults = Faults(fail_at=at, code=code, goes_on=goes_on)
        expected = outcome(run, disk)
        disk.faults = Faults()
        assert whole(disk) in ({"old", "new"} if expected == "any" else {expected})
        assert holds(ss.Relation.open(PLACE, old), OLD), "the old snapshot is lost"
        assert disk._descriptors == {}, "a file was left open"
        outcomes.append(expected)
    assert {"old", "new"} <= set(outcomes)
    assert ("any" in outcomes) == goes_on


@pytest.mark.parametrize("name", BUILDS)
def test_a_build_that_fails_leaves_nothing_behind(name: str) -> None:
    before = disk_with_old()
    calls = calls_of(BUILDS[name], before)
    switch = next(i for i, call in enumerate(calls) if call == ("replace", f"{PLACE}/CURRENT"))
    snapshots = [entry.name for entry in before.scan(f"{PLACE}/snapshots")]
    for at in range(switch):
        disk = use(before.copied())
        disk.faults = Faults(fail_at=at)
        if outcome(BUILDS[name], disk) == "new":
            continue  # the call was not needed
        disk.faults = Faults()
        if calls[at][1].rpartition("/")[2].startswith(".CURRENT"):
            continue  # the new snapshot is kept from here on
        assert [entry.name for entry in disk.scan(f"{PLACE}/snapshots")] == snapshots
        assert [entry.name for entry in disk.scan(tempfile.gettempdir())] == []
        assert "CURRENT" in [entry.name for entry in disk.scan(PLACE)]


def test_a_clean_up_that_fails_does_not_hide_what_went_wrong_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    disk = disk_with_old()

    def stop(_: int) -> None:
        disk.faults = Faults(fail_at=0, goes_on=True)
        raise RuntimeError("enough")

    monkeypatch.setattr(build, "SPOOL_BYTES", 1)
    with pytest.raises(RuntimeError, match="enough"):
        ss.build_relation(NEW, PLACE, key="id", partitions=2, progress=stop)
    disk.faults = Faults()
    assert whole(disk) == "old"


@pytest.mark.parametrize("goes_on", [False, True], ids=["once", "from then on"])
@pytest.mark.parametrize("code", CODES, ids=errno.errorcode.get)
@pytest.mark.parametrize("algorithm", ["meshjoin", "hybridjoin", "resident"])
def test_a_call_of_opening_and_joining_fails(algorithm: str, code: int, goes_on: bool) -> None:
    before = disk_with_old()
    build_new()
    stream = NEW.select(["id"])
    expected = nested_loop_join(stream, NEW, on="id")

    def run() -> pa.Table:
        relation = ss.Relation.open(PLACE)
        batches = ss.join(stream.to_batches(), relation, memory="4MB", algorithm=algorithm)
        return pa.Table.from_batches(batches)

    calls = calls_of(run, before)
    failed = set()
    for at, (call, path) in enumerate(calls):
        disk = use(before.copied())
        disk.faults = Faults(fail_at=at, code=code, goes_on=goes_on)
        error = error_of(lambda: check_rows(run(), expected))
        if error is not None:
            check_message(error, disk)
            failed.add((call, path.rpartition(".")[2]))
        disk.faults = Faults()
        assert whole(disk) == "new"
    wanted = {("open", "codes"), ("preadv", "codes"), ("preadv", "data"), ("open", "pages")}
    if code == errno.EMFILE and not goes_on:  # other files are closed, and it is tried again
        wanted = {("open", "pages")}
    assert wanted <= failed


@pytest.mark.parametrize("goes_on", [False, True], ids=["once", "always"])
@pytest.mark.parametrize("name", BUILDS)
def test_short_reads_and_writes_do_no_harm(name: str, goes_on: bool) -> None:
    before = disk_with_old()
    count = len(calls_of(BUILDS[name], before))
    for at in [0] if goes_on else range(count):
        disk = use(before.copied())
        disk.faults = Faults(short_at=at, goes_on=goes_on)
        BUILDS[name]()
        assert whole(disk) == "new"


def test_short_reads_of_a_join_do_no_harm() -> None:
    before = disk_with_old()
    build_new()
    count = len(calls_of(lambda: joined(ss.Relation.open(PLACE), NEW), before))
    for at in range(count):
        disk = use(before.copied())
        disk.faults = Faults(short_at=at)
        assert holds(ss.Relation.open(PLACE), NEW)


@pytest.mark.parametrize("code", CODES, ids=errno.errorcode.get)
def test_a_call_of_a_prune_fails(code: int) -> None:
    before = disk_with_old()
    build_new()
    count = len(calls_of(lambda: ss.Relation.open(PLACE).prune(grace=0), before))
    for at in range(count):
        disk = use(before.copied())
        disk.faults = Faults(fail_at=at, code=code)
        error = error_of(lambda: ss.Relation.open(PLACE).prune(grace=0))
        if error is not None:
            check_message(error, disk)
        disk.faults = Faults()
        assert whole(disk) == "new"
        relation = ss.Relation.open(PLACE)
        relation.prune(grace=0)
        assert disk.scan(f"{PLACE}/snapshots")[0].name == relation.snapshot
        assert len(disk.scan(f"{PLACE}/snapshots")) == 1
