"""Random sequences of changes to a relation, with joins between and during them.

DuckDB does the same changes to a table of its own, and joins it: it is the oracle. Everything
depends on the seed, so a failure can be repeated::

    python -m tests.sequences --count 500            # all sequences of the full test
    python -m tests.sequences --first 17 --count 1   # one of them again
"""

import argparse
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest.mock import patch

import duckdb
import numpy as np
import pyarrow as pa

import semistream as ss
from semistream.joins.registry import ALGORITHMS
from semistream.keys import KeyCoder
from semistream.testing import same_rows
from tests.oracle import duckdb_join

HOWS = ("inner", "left", "semi", "anti")
OPERATIONS = ("upsert", "upsert", "delete", "refresh", "compact", "prune", "restore", "reopen")
_DOMAIN = 300  # different keys


@dataclass
class Sequence:
    """One sequence: a relation, what it should hold, and what is done to it."""

    seed: int
    folder: Path
    log: list[str] = field(default_factory=list)  # what was done

    def __post_init__(self) -> None:
        self.rng = np.random.default_rng(self.seed)
        self.key_kind = ("integer", "integer", "text", "both")[self.seed % 4]
        self.key = ["id", "name"] if self.key_kind == "both" else [self._key_column]
        self.is_unique = bool(self.rng.random() < 0.5)
        self.has_nulls = bool(self.rng.random() < 0.5)
        self.collides = self.key_kind != "integer" and bool(self.rng.random() < 0.5)
        self.algorithm = self.seed % len(ALGORITHMS)  # each in turn
        self.expected: dict[str, pa.Table] = {}  # by snapshot

    @property
    def _key_column(self) -> str:
        return "id" if self.key_kind == "integer" else "name"

    def run(self, steps: int) -> None:
        """Do all steps; an `AssertionError` says what differed."""
        with self._codes(), duckdb.connect() as db:
            db.execute("SET threads = 1")
            self.db = db
            self._build()
            self._check(self.relation, self._table())
            for _ in range(steps):
                operation = str(self.rng.choice(OPERATIONS))
                with self._join_during():
                    self.log.append(operation)
                    getattr(self, f"_{operation}")()
                self.expected[self.relation.snapshot] = self._table()
                self._check(self.relation, self._table())
            self._check_all()

    @contextmanager
    def _codes(self) -> Iterator[None]:
        """In some sequences let keys share codes, as two hashes may."""
        if not self.collides:
            yield
            return
        codes = KeyCoder.codes

        def few(coder: KeyCoder, columns: Any) -> Any:
            found, has_key = codes(coder, columns)
            return np.ascontiguousarray(found % 41), has_key

        with patch.object(KeyCoder, "codes", few):
            yield

    # ── changes ─────────────────────────────────────────────────────────────────────────────────

    def _rows(self, count: int) -> pa.Table:
        numbers = self.rng.integers(0, _DOMAIN, count)
        if self.is_unique:
            numbers = np.unique(numbers)
            self.rng.shuffle(numbers)
        n = len(numbers)
        null = self.rng.random(n) < (0.05 if self.has_nulls else 0)
        texts = [None if self.rng.random() < 0.1 else "v" * int(i % 17) for i in numbers]
        names = np.where(null & ("name" in self.key), None, [f"key-{i}" for i in numbers])
        return pa.table(
            {
                "id": pa.array(numbers * 3 - 100, mask=null if self.key == ["id"] else None),
                "name": pa.array(names.tolist(), pa.string()),
                "value": pa.array(self.rng.integers(0, 10**6, n)),
                "text": pa.array(texts, pa.string()),
                "tags": pa.array([[int(i)] * int(i % 3) for i in numbers], pa.list_(pa.int64())),
            }
        )

    def _build(self) -> None:
        rows = self._rows(int(self.rng.integers(0, 400)))
        self._replace(rows)
        by_frequency = bool(self.rng.random() < 0.4)
        options: dict[str, Any] = {"order": "frequency", "sample": rows} if by_frequency else {}
        self.relation = ss.build_relation(
            rows,
            self.folder / "r.rel",
            key=self.key,
            partitions=int(self.rng.integers(1, 5)),
            page_size=int(self.rng.integers(300, 2500)),
            **options,
        )
        self.expected[self.relation.snapshot] = self._table()

    def _replace(self, rows: pa.Table) -> None:
        self.db.register("new_rows", rows)
        self.db.execute("CREATE OR REPLACE TABLE r AS SELECT * FROM new_rows")

    def _refresh(self) -> None:
        rows = self._rows(int(self.rng.integers(0, 400)))
        self._replace(rows)
        self.relation = self.relation.refresh(rows)

    def _delete(self) -> None:
        self._change(deleted_share=1.0)

    def _upsert(self) -> None:
        self._change(deleted_share=float(self.rng.choice([0.0, 0.3])))

    def _change(self, deleted_share: float) -> None:
        rows = self._rows(int(self.rng.choice([0, 1, 10, 60])))
        gone = pa.array(self.rng.random(len(rows)) < deleted_share)
        same = " AND ".join(f"r.{name} = c.{name}" for name in self.key)
        self.db.register("changes", rows.append_column("gone", gone))
        self.db.execute(f"DELETE FROM r WHERE EXISTS (SELECT 1 FROM changes c WHERE {same})")
        self.db.execute("INSERT INTO r SELECT * EXCLUDE gone FROM changes WHERE NOT gone")
        changes = rows.append_column("gone", gone).select(["gone", *rows.column_names[::-1]])
        self.relation = self.relation.upsert(changes, deletes="gone")

    def _compact(self) -> None:
        self.relation = self.relation.compact()
        assert not self.relation.delta_share

    def _prune(self) -> None:
        removed = self.relation.prune(keep=int(self.rng.integers(1, 4)), grace=0).removed
        self.expected = {s: rows for s, rows in self.expected.items() if s not in removed}

    def _restore(self) -> None:
        snapshot = str(self.rng.choice(list(self.expected)))
        self._replace(self.expected[snapshot])
        self.relation = ss.Relation.open(self.relation.location, snapshot).restore()

    def _reopen(self) -> None:
        self.relation = ss.Relation.open(self.relation.location)

    # ── checks ──────────────────────────────────────────────────────────────────────────────────

    def _table(self) -> pa.Table:
        return self.db.sql("SELECT * FROM r").to_arrow_table()

    def _stream(self) -> pa.Table:
        numbers = self.rng.integers(0, _DOMAIN + 40, 250)
        return pa.table(
            {
                "id": pa.array(numbers * 3 - 100),
                "name": [None if i % 31 == 0 else f"key-{i}" for i in numbers],
                "n": np.arange(250),
            }
        ).select([*self.key, "n"])

    def _join(self, relation: ss.Relation, stream: pa.Table, how: str) -> Iterator[pa.RecordBatch]:
        name = list(ALGORITHMS)[self.algorithm % len(ALGORITHMS)]
        self.algorithm += 1
        self.log.append(f"{name} {how}")
        batches = stream.to_batches(max_chunksize=40)
        about = {"on": self.key, "columns": ["value", "text", "tags"], "how": how}
        return ss.join(batches, relation, algorithm=name, memory="3MB", **about)

    def _compare(self, batches: list[pa.RecordBatch], stream: pa.Table, rows: Any) -> None:
        how, table = rows
        on = dict(zip(self.key, self.key, strict=True))
        columns = ["value", "text", "tags"]
        expected = duckdb_join(stream, table, on=on, how=how, columns=columns)
        found = pa.Table.from_batches(batches, expected.schema if not batches else None)
        assert same_rows(found, expected), f"{len(found)} rows, not the {len(expected)} of DuckDB"

    def _check(self, relation: ss.Relation, table: pa.Table) -> None:
        keyed = sum(all(row[k] is not None for k in self.key) for row in table.to_pylist())
        assert relation.row_count == keyed, f"{relation.row_count} rows instead of {keyed}"
        stream, how = self._stream(), str(self.rng.choice(HOWS))
        self._compare(list(self._join(relation, stream, how)), stream, (how, table))

    @contextmanager
    def _join_during(self) -> Iterator[None]:
        """Begin a join before a change, and end it after: it sees what was before."""
        relation, table = self.relation, self._table()
        stream, how = self._stream(), str(self.rng.choice(HOWS))
        with closing(self._join(relation, stream, how)) as join:  # type: ignore[type-var]
            first = [next(join, None)]
            yield
            batches = [batch for batch in (*first, *join) if batch is not None]
        self._compare(batches, stream, (how, table))

    def _check_all(self) -> None:
        """Every snapshot that was not pruned is there, intact, and has the rows it had."""
        kept = set(self.relation.snapshots())
        assert kept == set(self.expected), "snapshots were lost, or pruned ones are still there"
        for snapshot, table in self.expected.items():
            relation = ss.Relation.open(self.relation.location, snapshot)
            problems = relation.verify().problems
            assert not problems, problems
            self._check(relation, table)


def run(seed: int, steps: int = 6) -> None:
    """Run one sequence; an error names the seed and what was done."""
    with tempfile.TemporaryDirectory(prefix="semistream-sequence-") as folder:
        sequence = Sequence(seed, Path(folder))
        try:
            sequence.run(steps)
        except Exception as error:
            error.add_note(f"sequence {seed} ({sequence.key_kind}): {', '.join(sequence.log)}")
            raise


def main() -> int:
    """Run many sequences, and say how many there were."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--first", type=int, default=0, help="seed of the first sequence")
    parser.add_argument("--count", type=int, default=500, help="number of sequences")
    arguments = parser.parse_args()
    began = time.monotonic()
    for seed in range(arguments.first, arguments.first + arguments.count):
        run(seed)
        if seed % 50 == 49:
            print(f"{seed + 1} after {time.monotonic() - began:.0f} s", flush=True)
    print(f"{arguments.count} sequences, no row wrong, no snapshot lost")
    return 0


if __name__ == "__main__":
    sys.exit(main())
