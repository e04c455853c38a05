"""Random sequences of changes with joins of every algorithm, against DuckDB.

``python -m tests.sequences --count 500`` runs the full number.
"""

import pytest

from tests.sequences import run


@pytest.mark.parametrize("seed", range(1000, 1030))
def test_a_sequence_of_changes(seed: int) -> None:
    run(seed, steps=3)
