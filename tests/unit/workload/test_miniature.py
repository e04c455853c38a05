"""The miniature has the skew of the full size; real reports and skewed customers as workloads."""

from pathlib import Path

import numpy as np
import pytest

from semistream.errors import OptionError
from semistream.lab.rig import shares_of
from semistream.workload.cloudfiles import CloudFiles
from semistream.workload.miniature import Miniature
from semistream.workload.synthetic import Synthetic


@pytest.mark.parametrize("exponent", [0.5, 1.0])
def test_a_share_of_r_has_its_share_of_the_stream_at_full_size(exponent: float) -> None:
    """Against sums over all ranks at full size; a smaller domain alone would be far off."""
    small = Miniature(2_000, exponent, by_frequency=True, times=100.0)
    weights = np.arange(1, 200_001) ** -exponent
    keys = small.stream_rows(0, 400_000).column("k").to_numpy()
    shares = shares_of(small)
    for rows in (2, 20, 200, 1_000):
        exact = weights[: rows * 100].sum() / weights.sum()
        assert (keys < rows).mean() == pytest.approx(exact, rel=0.03)
        assert shares[:rows].sum() == pytest.approx(exact, rel=0.003)
    naive = Synthetic(2_000, exponent, by_frequency=True).stream_rows(0, 400_000)
    assert (naive.column("k").to_numpy() < 2).mean() != pytest.approx(
        weights[:200].sum() / weights.sum(), rel=0.1
    )


def test_every_row_can_be_requested() -> None:
    small = Miniature(50, 0.0, times=7.3)
    keys = small.stream_rows(0, 20_000).column("k").to_numpy()
    assert sorted(set(keys.tolist())) == list(range(50))
    with pytest.raises(OptionError, match="times must be at least 1"):
        Miniature(50, times=0.5)


def _report(lon: int) -> bytes:
    line = f"85 9 1 01 1234{lon:5d}" + "1" * 37
    assert len(line) == 56, len(line)
    return line.encode() + b"\n"


def test_the_first_file_of_reports_is_the_relation(tmp_path: Path) -> None:
    (tmp_path / "SEP85L").write_bytes(b"".join(_report(lon) for lon in (100, 200, 200)))
    (tmp_path / "DEC85L").write_bytes(b"".join(_report(lon) for lon in (200, 36_000)))
    (tmp_path / ".hidden").write_bytes(b"")
    clouds = CloudFiles(tmp_path)
    clouds.check()
    (batch,) = clouds.relation_batches()
    assert batch.column("lon").to_pylist() == [200, 36_000]  # December comes first by name
    assert clouds.relation_rows == 2
    assert clouds.stream_rows(1, 5).column("lon").to_pylist() == [200, 200]
    assert clouds.stream_rows(3, 5).num_rows == 0


def test_a_folder_without_two_months_is_refused(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="there is no folder"):
        CloudFiles(tmp_path / "none").check()
    (tmp_path / "SEP85L").write_bytes(_report(1))
    with pytest.raises(OptionError, match="needs two files of cloud reports or more"):
        CloudFiles(tmp_path).check()
