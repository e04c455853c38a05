"""Builds the relations in this folder; run once with the release whose format is to be kept.

``python -m tests.formats.build_samples NAME`` writes ``NAME-integer.rel`` and ``NAME-text.rel``,
and the two tables that all relations here were built from. Never run it for a name that is here
already: what counts is that files of old releases can be read.

``1-first`` was written by 6f1fe3b, before the manifest named the order of the rows; ``1`` and ``2``
by 386646e. ``3`` has delta pages: it was built from other values, which an upsert corrected.
"""

import sys
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

import semistream as ss

FOLDER = Path(__file__).parent
ROWS = 90
FEW = range(3, 11)  # rows that are wrong at first, where there are delta pages


def values() -> dict[str, Any]:
    """Return columns of every encoding, with nulls: fixed widths, texts, nested."""
    numbers = range(ROWS)
    nested = pa.struct([("x", pa.int64()), ("y", pa.list_(pa.string()))])
    return {
        "amount": pa.array(
            [None if i % 5 == 1 else Decimal(i * 7 - 50) / 4 for i in numbers],
            pa.decimal128(12, 2),
        ),
        "at": pa.array([datetime(2020, 1, 1, i % 24) for i in numbers], pa.timestamp("us")),
        "flag": pa.array([None if i % 7 == 0 else i % 3 == 0 for i in numbers]),
        "word": pa.array([None if i % 11 == 0 else "pêche " * (i % 4) for i in numbers]),
        "nested": pa.array(
            [None if i % 6 == 0 else {"x": i, "y": ["p", None][: i % 3]} for i in numbers], nested
        ),
    }


def integer_table() -> pa.Table:
    """Return rows with an integer key: some of several rows, one null."""
    keys = [None if i == 40 else (i * 37) % 60 - 10 for i in range(ROWS)]
    return pa.table({"id": pa.array(keys, pa.int64()), **values()})


def text_table() -> pa.Table:
    """Return rows with a key of a text and a number, which is kept by its hash."""
    texts = [None if i == 41 else f"key-{(i * 37) % 60}" for i in range(ROWS)]
    numbers = pa.array([i % 2 for i in range(ROWS)], pa.int32())
    return pa.table({"name": texts, "part": numbers, **values()})


def main(name: str) -> None:
    """Build both; with a sample of the stream if the name says so."""
    by_frequency = name.startswith("2")
    for kind, table, key in (
        ("integer", integer_table(), ["id"]),
        ("text", text_table(), ["name", "part"]),
    ):
        sample = table.select(key)
        sample = pa.concat_tables([sample[:30], sample[:15], sample[:15]])
        options: dict[str, Any] = {"key": key, "partitions": 2, "page_size": 512}
        if by_frequency:
            options |= {"order": "frequency", "sample": sample}
        pq.write_table(table, FOLDER / f"{kind}.parquet")
        place = FOLDER / f"{name}-{kind}.rel"
        if name.startswith("3"):
            is_wrong = pa.array([row in FEW for row in range(ROWS)])
            wrong = pa.array(["wrong"] * ROWS)
            words = pc.if_else(is_wrong, wrong, table["word"])
            at = table.schema.get_field_index("word")
            built = ss.build_relation(table.set_column(at, "word", words), place, **options)
            built.upsert(table.filter(same_keys(table, key)))
        else:
            ss.build_relation(table, place, **options)


def same_keys(table: pa.Table, key: list[str]) -> pa.Array:
    """Return which rows have a key that occurs in `FEW` rows: an upsert replaces all of a key."""
    keys = table.select(key).to_pylist()
    few = [keys[row] for row in FEW]
    return pa.array([one in few for one in keys])


if __name__ == "__main__":
    main(*sys.argv[1:])
