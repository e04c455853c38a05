import pytest
from hypothesis import given
from hypothesis import strategies as st

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
