import inspect

import pytest

from semistream import errors
from semistream.errors import BudgetError, SemistreamError, did_you_mean

MODULE = errors.__name__


@pytest.mark.parametrize(
    ("name", "known", "hint"),
    [
        ("prodct_id", ["product_id", "price"], " Did you mean 'product_id'?"),
        ("PRICE", ["product_id", "Price"], " Did you mean 'Price'?"),
        ("meshjion", ["auto", "resident", "meshjoin"], " Did you mean 'meshjoin'?"),
        ("zzz", ["product_id", "price"], ""),
        ("price", [], ""),
    ],
)
def test_did_you_mean(name: str, known: list[str], hint: str) -> None:
    assert did_you_mean(name, known) == hint


def test_did_you_mean_takes_any_iterable() -> None:
    assert did_you_mean("prise", iter(["price"])) == " Did you mean 'price'?"


def test_every_error_is_a_semistream_error() -> None:
    found = [c for _, c in inspect.getmembers(errors, inspect.isclass) if c.__module__ == MODULE]
    assert len(found) > 5
    assert all(issubclass(error, SemistreamError) for error in found)


def test_budget_error_carries_the_least() -> None:
    assert BudgetError("too small.", 7).least_bytes == 7
    assert BudgetError("too small.").least_bytes is None
    assert str(BudgetError("too small.")) == "too small."
    assert str(BudgetError("too small.", 7)) == "too small. Raise memory to 7 bytes"
    said = str(BudgetError("too small.", 7, ", or wait"))
    assert said == "too small. Raise memory to 7 bytes, or wait"


def test_budget_error_of_one_task_as_that_of_the_whole_join() -> None:
    """Even if the problem mentions the same number of bytes: only the advice is multiplied."""
    one = BudgetError("memory is limited to 7 bytes.", 7, ", or wait")
    whole = one.for_all_tasks(3)
    assert whole.least_bytes == 21
    assert str(whole) == (
        "each of the 3 tasks that run at once gets an equal share of memory; in one, memory is "
        "limited to 7 bytes. "
        "Raise memory to 21 bytes, the total for all 3 tasks, or wait, or build the relation with "
        "fewer partitions"
    )
    assert BudgetError("a row is too wide.").for_all_tasks(3).least_bytes is None
    assert one.for_all_tasks(1) is one
