"""Run as a program: flip a bit of a relation's file, join, count what happens; then another bit.

A program of its own because a join over damaged bytes must not, but might, crash.
"""

import json
import os
import sys
from collections import Counter
from pathlib import Path
from shutil import copytree, rmtree

import pyarrow as pa
import pyarrow.parquet as pq

import semistream as ss
from semistream.errors import CorruptRelationError, RelationFormatError
from semistream.testing import nested_loop_join, same_rows


def join(location: Path, stream: pa.Table) -> pa.Table:
    relation = ss.Relation.open(location)
    batches = ss.join(stream.to_batches(), relation, memory="1MB", algorithm="meshjoin")
    return pa.Table.from_batches(batches)


def damaged_copy(location: Path, name: str, at: int, copy: Path) -> Path:
    """Return a copy in a path of its own: what was read once from a path is not checked again."""
    copytree(location, copy, copy_function=os.link)
    content = bytearray((copy / name).read_bytes())
    content[at] ^= 1 << at % 8
    (copy / name).unlink()
    (copy / name).write_bytes(content)
    return copy


def outcome(location: Path, stream: pa.Table, expected: pa.Table) -> str:
    try:
        return "right" if same_rows(join(location, stream), expected) else "WRONG ROWS"
    except (CorruptRelationError, RelationFormatError):
        return "noticed"
    except Exception as error:
        return f"{type(error).__name__}: {error}"[:60]


def main(location: Path, name: str, step: int, copies: Path, table: Path) -> None:
    stream = pa.table({"id": list(range(0, 70, 3))})
    expected = nested_loop_join(stream, pq.read_table(table), on="id")
    assert same_rows(join(location, stream), expected), "wrong before any damage"
    outcomes: Counter[str] = Counter()
    for at in range(0, (location / name).stat().st_size, step):
        print(at, file=sys.stderr, end=" ")
        copy = damaged_copy(location, name, at, copies / str(at))
        outcomes[outcome(copy, stream, expected)] += 1
        rmtree(copy)
    print(json.dumps(outcomes))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), Path(sys.argv[4]), Path(sys.argv[5]))
