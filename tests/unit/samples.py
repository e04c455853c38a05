"""One sample column of every Arrow type that a relation or a stream may carry."""

from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa

NOON = datetime(2020, 2, 29, 12, 0, 0, 123456)
NOON_UTC = NOON.replace(tzinfo=UTC)

# Type → some values that are not null. The extremes are where bits get lost.
PLAIN: dict[pa.DataType, list[Any]] = {
    pa.int8(): [-128, 0, 127],
    pa.int16(): [-(2**15), 0, 2**15 - 1],
    pa.int32(): [-(2**31), 0, 2**31 - 1],
    pa.int64(): [-(2**63), 0, 2**63 - 1],
    pa.uint8(): [0, 255],
    pa.uint64(): [0, 2**64 - 1],
    pa.float32(): [-0.5, 0.0, 1e30],
    pa.float64(): [-0.5, 0.0, 1e300],
    pa.bool_(): [True, False, False, True],
    pa.decimal128(10, 2): [Decimal("-123.45"), Decimal("0.00"), Decimal("99999999.99")],
    pa.decimal128(38, 10): [Decimal("-1234567890123456789012345678.0123456789"), Decimal(1)],
    pa.date32(): [date(1, 1, 1), date(1970, 1, 1), date(9999, 12, 31)],
    pa.time64("us"): [time(0), time(23, 59, 59, 999999)],
    pa.timestamp("us"): [datetime(1, 1, 1), NOON],
    pa.timestamp("us", tz="UTC"): [NOON_UTC, datetime(1969, 7, 20, tzinfo=UTC)],
    pa.timestamp("ms", tz="Europe/Vienna"): [NOON_UTC.replace(microsecond=5000)],
    pa.duration("us"): [timedelta(microseconds=-1), timedelta(days=10**6)],
    pa.month_day_nano_interval(): [pa.MonthDayNano([1, -2, 3])],
    pa.string(): ["", "a", "pêche", "x" * 300],
    pa.large_string(): ["", "a", "pêche", "x" * 300],
    pa.binary(): [b"", b"\x00\xff", b"x" * 300],
    pa.large_binary(): [b"", b"\x00\xff", b"x" * 300],
    pa.binary(3): [b"abc", b"\x00\x01\x02"],
    pa.list_(pa.int64()): [[], [1, None, 3]],
    pa.large_list(pa.string()): [[], ["a", None, ""]],
    pa.list_(pa.float32(), 2): [[1.0, 2.0], [None, 0.5]],
    pa.struct([("x", pa.int64()), ("y", pa.string())]): [
        {"x": 1, "y": "a"},
        {"x": None, "y": None},
    ],
    pa.map_(pa.string(), pa.int64()): [[], [("a", 1), ("b", None)]],
    pa.list_(pa.struct([("m", pa.map_(pa.string(), pa.list_(pa.date32())))])): [
        [],
        [{"m": [("k", [date(2020, 1, 1), None])]}, None, {"m": None}],
    ],
    pa.struct([("d", pa.decimal128(20, 3)), ("s", pa.struct([("b", pa.bool_())]))]): [
        {"d": Decimal("1.500"), "s": {"b": True}},
        {"d": None, "s": None},
    ],
    pa.null(): [],
}


def column(dtype: pa.DataType, count: int, with_nulls: bool = True) -> pa.Array:
    """Return a column that repeats the type's samples, every third value null if wanted."""
    values = PLAIN[dtype] or [None]
    picked = [values[i % len(values)] for i in range(count)]
    return pa.array(
        [None if with_nulls and i % 3 == 1 else value for i, value in enumerate(picked)], dtype
    )
