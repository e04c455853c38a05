from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from semistream import memory
from semistream.errors import BudgetError
from semistream.memory import MemoryLedger, Reservation


def test_reserving_and_releasing() -> None:
    ledger = MemoryLedger(1_000)
    window = ledger.reserve("window", 600)
    disk = ledger.reserve("disk buffer", 400)
    assert ledger.holders() == {"window": 600, "disk buffer": 400}
    assert (ledger.held_bytes, ledger.available_bytes) == (1_000, 0)
    window.release()
    disk.resize(10)
    assert ledger.holders() == {"disk buffer": 10}
    assert (ledger.held_bytes, ledger.available_bytes, ledger.peak_bytes) == (10, 990, 1_000)


def test_the_last_byte_can_be_had_but_not_one_more() -> None:
    ledger = MemoryLedger(100)
    ledger.reserve("a", 99)
    ledger.reserve("b", 1)
    with pytest.raises(BudgetError):
        ledger.reserve("c", 1)


def test_a_shortage_names_everybody() -> None:
    ledger = MemoryLedger(5_000)
    ledger.reserve("window", 3_000)
    ledger.reserve("disk buffer", 1_500)
    with pytest.raises(BudgetError) as error:
        ledger.reserve("output buffer", 2_000)
    message = str(error.value)
    for part in (
        "output buffer needs 2.0 KB",
        "only 500 B",
        "budget of 5.0 KB",
        "window holds 3.0 KB",
        "disk buffer holds 1.5 KB",
        "Raise memory",
    ):
        assert part in message


def test_a_shortage_with_nothing_held() -> None:
    with pytest.raises(BudgetError, match="nothing is held"):
        MemoryLedger(1).reserve("window", 2)


def test_a_refused_change_changes_nothing() -> None:
    ledger = MemoryLedger(100)
    window = ledger.reserve("window", 60)
    with pytest.raises(BudgetError):
        window.resize(101)
    assert window.size_bytes == 60
    assert ledger.holders() == {"window": 60}
    assert ledger.peak_bytes == 60


def test_two_reservations_of_one_holder_add_up() -> None:
    ledger = MemoryLedger(100)
    first = ledger.reserve("window", 30)
    ledger.reserve("window", 20)
    assert ledger.holders() == {"window": 50}
    first.release()
    first.release()
    assert ledger.holders() == {"window": 20}


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 600)), max_size=40))
def test_never_more_than_the_budget(changes: list[tuple[int, int]]) -> None:
    ledger = MemoryLedger(1_000)
    reservations = [Reservation(ledger, f"holder {i}") for i in range(4)]
    sizes = [0, 0, 0, 0]
    peak = 0
    for which, size in changes:
        others = sum(sizes) - sizes[which]
        if others + size > 1_000:
            with pytest.raises(BudgetError):
                reservations[which].resize(size)
        else:
            reservations[which].resize(size)
            sizes[which] = size
        peak = max(peak, sum(sizes))
        assert ledger.held_bytes == sum(sizes)
        assert ledger.peak_bytes == peak <= 1_000


@pytest.mark.parametrize(
    ("own", "limited", "files"),
    [
        ("0::/", ".", ("memory.max", "memory.current")),
        ("0::/pods/pod-1", "pods/pod-1", ("memory.max", "memory.current")),
        ("0::/pods/pod-1", "pods", ("memory.max", "memory.current")),
        ("0::/of/the/host", ".", ("memory.max", "memory.current")),
        (
            "4:memory:/a/b\n0::/",
            "memory/a/b",
            ("memory.limit_in_bytes", "memory.usage_in_bytes"),
        ),
        ("4:memory:/a\n0::/", "memory", ("memory.limit_in_bytes", "memory.usage_in_bytes")),
    ],
)
def test_the_limit_of_a_container_is_its_memory(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    own: str,
    limited: str,
    files: tuple[str, str],
) -> None:
    group = tmp_path / limited
    group.mkdir(parents=True, exist_ok=True)
    for name, value in zip(files, (3_000_000, 1_000_000), strict=True):
        (group / name).write_text(f"{value}\n")
    (tmp_path / "own").write_text(own)
    monkeypatch.setattr(memory, "_GROUPS", tmp_path)
    monkeypatch.setattr(memory, "_OWN_GROUPS", tmp_path / "own")
    assert memory.host_memory() == (2_000_000, 3_000_000)
