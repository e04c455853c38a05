"""The running sum of the guide: its bounds hold as often as they say, and narrow to the truth."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

import semistream as ss

GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "online-aggregates.md"
RUNS = 30


def running_sum() -> Any:
    names: dict[str, Any] = {}
    exec(re.findall(r"```python\n(.*?)```", GUIDE.read_text(), re.DOTALL)[0], names)
    return names["RunningSum"]


def test_the_true_value_lies_within_the_bounds(tmp_path: Path) -> None:
    """Over many relations and streams, at a quarter, a half and three quarters of the rows."""
    make, within, looks = running_sum(), 0, 0
    for seed in range(RUNS):
        rng = np.random.default_rng(seed)
        keys = [f"{seed} {i}" for i in range(1_500)]
        table = pa.table({"k": keys, "v": rng.lognormal(0, 0.7, 1_500)})
        chosen = rng.integers(0, 1_500, 5_000)
        stream = pa.table({"k": [keys[i] for i in chosen]})
        truth = float(table["v"].to_numpy()[chosen].sum())
        relation = ss.build_relation(table, tmp_path / str(seed), key="k", page_size="1KB")
        options = {"algorithm": "meshjoin", "settings": {"disk_buffer": "4KB"}}
        running, marks = make(stream.num_rows), [0.25, 0.5, 0.75]
        for batch in ss.join(stream, relation, memory="300KB", **options):
            running.add(batch.column("k"), batch.column("v"))
            while marks and running.rows >= marks[0] * stream.num_rows:
                low, _, high = running.bounds()
                looks, within = looks + 1, within + (low <= truth <= high)
                marks.pop(0)
        low, estimate, high = running.bounds()
        assert np.isclose(estimate, truth)
        assert high - low < 1e-6 * truth
    assert looks == 3 * RUNS
    assert 0.88 <= within / looks <= 1.0  # 95 % is said


def test_a_sample_of_keys_is_not_one_of_rows() -> None:
    """Rows of a key are alike: bounds that took rows as drawn would be too narrow."""
    running = running_sum()(4_000)
    rng = np.random.default_rng(1)
    keys = np.repeat(np.arange(100), 20)
    values = rng.normal(size=100)[keys]
    running.add(pa.array(keys), pa.array(values))
    low, _, high = running.bounds()
    by_rows = 2 * 1.96 * 4_000 * np.sqrt(0.5) * values.std() / np.sqrt(2_000)
    assert high - low > 3 * by_rows
    assert pc.sum(pa.array(values)).as_py() != 0
