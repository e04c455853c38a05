"""Counters of several runs, and of the parts of a budget."""

from semistream.joins.telemetry import Telemetry
from semistream.memory import MemoryLedger


def test_runs_are_added_peaks_compared_and_algorithms_collected() -> None:
    one = Telemetry(stream_rows=3, window_rows_peak=7, algorithms=0b01)
    other = Telemetry(stream_rows=4, window_rows_peak=5, algorithms=0b10)
    both = one.plus(other)
    assert (both.stream_rows, both.window_rows_peak, both.algorithms) == (7, 7, 0b11)
    assert one.stream_rows == 3


def test_the_split_is_that_of_the_ledger() -> None:
    ledger = MemoryLedger(1_000)
    ledger.reserve("cost model", 900).release()
    window = ledger.reserve("window", 600)
    ledger.reserve("page table", 100)
    ledger.reserve("page index", 50)
    window.resize(200)
    counted = Telemetry(memory_bytes_peak=ledger.peak_bytes).with_split(ledger.peaks())
    assert (counted.window_bytes_peak, counted.table_bytes_peak) == (600, 150)
    assert (counted.front_bytes_peak, counted.memory_bytes_peak) == (0, 900)
