"""What is remembered of earlier streams: limited, and only in the history that was passed in."""

from semistream.advice.history import History


def test_the_kind_that_was_stored_longest_ago_is_dropped() -> None:
    history = History(most=2)
    for kind, rows in (("a", 1), ("b", 2), ("a", 3), ("c", 4)):
        history.row_counts.put(kind, rows)
    assert [history.row_counts.get(kind) for kind in "abc"] == [3, None, 4]


def test_histories_share_nothing() -> None:
    one, other = History(), History()
    one.row_counts.put("a", 1)
    assert other.row_counts.get("a") is None
