import pytest

from semistream.errors import OptionError
from semistream.units import format_bytes, parse_budget, parse_bytes


@pytest.mark.parametrize(
    ("written", "size_bytes"),
    [
        (1, 1),
        (64_000_000, 64_000_000),
        ("17", 17),
        ("17B", 17),
        ("64MB", 64_000_000),
        ("64 MB", 64_000_000),
        (" 64mb ", 64_000_000),
        ("64MiB", 64 << 20),
        ("3kb", 3_000),
        ("3KiB", 3 << 10),
        ("1.5GB", 1_500_000_000),
        ("0.5gib", 1 << 29),
        ("120266 bytes", 120_266),
    ],
)
def test_parse(written: int | str, size_bytes: int) -> None:
    assert parse_bytes(written) == size_bytes


@pytest.mark.parametrize(
    "written", ["", "MB", "64 parsecs", "-1MB", "1e6", "1,5MB", "64MB!", "6 4MB", True, None, "TB1"]
)
def test_parse_refuses_what_is_no_size(written: object) -> None:
    with pytest.raises(OptionError, match="such as '64MB'"):
        parse_bytes(written)  # type: ignore[arg-type]


@pytest.mark.parametrize("written", [0, -1, "0", "0MB", "0.1B"])
def test_parse_refuses_nothing_and_less(written: int | str) -> None:
    with pytest.raises(OptionError, match="positive"):
        parse_bytes(written)


@pytest.mark.parametrize(
    ("size_bytes", "text"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1_000, "1.0 KB"),
        (1_500, "1.5 KB"),
        (20_971_520, "21.0 MB"),
        (10**9, "1.0 GB"),
        (5 * 10**12, "5000.0 GB"),
        (26.4, "26 B"),
    ],
)
def test_format(size_bytes: float, text: str) -> None:
    assert format_bytes(size_bytes) == text


@pytest.mark.parametrize("text", ["1.0 KB", "21.0 MB", "1.5 GB", "812 B"])
def test_what_is_formatted_parses_back(text: str) -> None:
    assert format_bytes(parse_bytes(text)) == text


@pytest.mark.parametrize(
    ("written", "budget_bytes"),
    [("5%", 50_000), (" 12.5 % ", 125_000), ("0%", 1), ("64KB", 64_000), (17, 17)],
)
def test_a_budget_is_a_size_or_a_share(written: int | str, budget_bytes: int) -> None:
    assert parse_budget(written, 1_000_000) == budget_bytes


@pytest.mark.parametrize("written", ["%", "x%", "-5%", "5%%", "much"])
def test_a_budget_that_is_neither_is_refused(written: str) -> None:
    with pytest.raises(
        OptionError, match=f"a size or a share .*, such as '64MB' or '5%'; got '{written}'"
    ):
        parse_budget(written, 1_000_000)
