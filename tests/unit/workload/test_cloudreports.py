"""The files here are hand-made in the archive's format; no observed report is among them."""

import gzip
from pathlib import Path

import pytest

from semistream.errors import OptionError
from semistream.workload.cloudreports import cloud_report_batches
from semistream.workload.clouds import read_cloud_reports


def _land(lon: int = 1637, lat: int = 4833, year: str = "85") -> str:
    place = f"{year}0901061{lat:5d}{lon:5d}11035"
    return place + "1617 3 4 5-1-190090099 0-123  45"


_LAND_EXTENSION = "10132 35270-105 21 20301"
_SHIP_EXTENSION = "   -1 -1 -1 90090001871A"


def _ship() -> str:
    return _land(35990, -1250).replace("110351", " 92542")


def _write(path: Path, lines: list[str], end: str = "\n") -> Path:
    path.write_bytes("".join(line + end for line in lines).encode())
    return path


def test_made_up_lines_have_the_archives_widths() -> None:
    assert len(_land()) == 56
    assert len(_land() + _LAND_EXTENSION) == 80
    assert len(_ship() + _SHIP_EXTENSION) == 80


def test_edited_reports(tmp_path: Path) -> None:
    table = read_cloud_reports(_write(tmp_path / "SEP85L", [_land(), _land(36000, -9000)]))
    assert table["lon"].to_pylist() == [1637, 36000]
    assert table["lat"].to_pylist() == [4833, -9000]
    first = table.to_pylist()[0]
    assert (first["year"], first["month"], first["day"], first["hour"]) == (1985, 9, 1, 6)
    assert (first["station"], first["land_or_ocean"], first["weather"]) == (11035, 1, 61)
    assert (first["cover"], first["low_amount"], first["base_height"]) == (7, 3, 4)
    assert (first["low_type"], first["middle_type"], first["high_type"]) == (5, None, None)
    assert (first["middle_amount"], first["high_visible"]) == (None, None)
    assert (first["solar_altitude"], first["lunar_illuminance"]) == (-123, 45)
    assert "pressure" not in table.column_names
    assert table.schema.field("lon").metadata[b"unit"] == b"degree / 100, eastward"


def test_extended_reports_of_land_and_sea(tmp_path: Path) -> None:
    lines = [_land() + _LAND_EXTENSION, _ship() + _SHIP_EXTENSION]
    land, ship = read_cloud_reports(_write(tmp_path / "SEP85", lines)).to_pylist()
    assert (land["pressure"], land["wind_speed"], land["wind_direction"]) == (10132, 35, 270)
    assert (land["air_temperature"], land["dew_point_depression"]) == (-105, 21)
    assert (land["elevation"], land["pressure_flag"], land["ship_items"]) == (203, 1, None)
    assert (ship["lon"], ship["lat"], ship["station"]) == (35990, -1250, 9254)
    assert (ship["pressure"], ship["air_temperature"]) == (None, None)
    assert (ship["elevation"], ship["pressure_flag"], ship["ship_items"]) == (None, None, "0187A")


def test_a_year_of_four_digits(tmp_path: Path) -> None:
    line = _land(year="2003") + _LAND_EXTENSION
    assert read_cloud_reports(_write(tmp_path / "SEP03L", [line]))["year"].to_pylist() == [2003]


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_packed_files_in_batches_without_a_last_line_end(tmp_path: Path, end: str) -> None:
    lines = [_land(i) for i in range(1_001)]
    path = tmp_path / "SEP85L.gz"
    path.write_bytes(gzip.compress(end.join(lines).encode()))
    batches = list(cloud_report_batches(path, batch_rows=300))
    assert [b.num_rows for b in batches] == [300, 300, 300, 101]
    assert [x for b in batches for x in b.column("lon").to_pylist()] == list(range(1_001))


@pytest.mark.parametrize(
    ("content", "hint"),
    [
        (b"short line\n", "10 characters"),
        (b"", "empty"),
        (b"\x1f\x9dxyz", "uncompress"),
        (f"{_land()}\n{_land()[:-9]}\n".encode(), "line 2"),
        (f"{_land()}\n{_land().replace('11035', '11x35')}\n".encode(), "line 2 has '11x35' for ID"),
        (f"{_land().replace('11035', '1 035')}\n".encode(), "for ID"),
        (f"{_land().replace('11035', '1-035')}\n".encode(), "for ID"),
    ],
)
def test_files_that_are_none_are_refused(tmp_path: Path, content: bytes, hint: str) -> None:
    path = tmp_path / "file"
    path.write_bytes(content)
    with pytest.raises(OptionError, match=hint):
        read_cloud_reports(path)


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="No such file"):
        read_cloud_reports(tmp_path / "none")
