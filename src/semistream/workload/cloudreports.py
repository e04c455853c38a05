"""Reads the Edited Synoptic Cloud Reports of Hahn, Warren and London in the archive's format.

A report is a line of fixed-width integers. Extended reports (NDP-026C) have 80 characters, and land
reports of 1997 and later 82, with a year of four digits. The earlier edited reports (NDP-026B) are
assumed to be the first 56 of the 80: the extended ones without pressure, wind and temperature. The
format is detected from the line's length.

Numbers are kept as they are written, in the units that the schema's field metadata names: a
longitude is an integer from 0 to 36000. The archive's codes for missing values become null. For
ships the archive gives other meanings to two of the last items, where land reports have the
station's elevation and a pressure flag; those characters are kept as text, in ``ship_items``.

The archive is at cdiac.ess-dive.lbl.gov/ftp/ndp026b and …/ndp026c. Plain files and .gz are read.
"""

import gzip
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, NamedTuple, cast

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from semistream.errors import OptionError
from semistream.workload.base import CHUNK_ROWS


class _Item(NamedTuple):
    name: str
    width: int
    symbol: str
    unit: str = "code"
    missing: int | None = None


_EDITED = (
    _Item("month", 2, "mn", "month"),
    _Item("day", 2, "dy", "day"),
    _Item("hour", 2, "hr", "hour, UTC"),
    _Item("sky_bright", 1, "IB"),
    _Item("lat", 5, "LAT", "degree / 100"),
    _Item("lon", 5, "LON", "degree / 100, eastward"),
    _Item("station", 5, "ID"),
    _Item("land_or_ocean", 1, "LO"),
    _Item("weather", 2, "ww", missing=-1),
    _Item("cover", 1, "N", "eighth"),
    _Item("low_amount", 2, "Nh", "eighth", -1),
    _Item("base_height", 2, "h", missing=-1),
    _Item("low_type", 2, "CL", missing=-1),
    _Item("middle_type", 2, "CM", missing=-1),
    _Item("high_type", 2, "CH", missing=-1),
    _Item("middle_amount", 3, "AM", "eighth / 100", 900),
    _Item("high_amount", 3, "AH", "eighth / 100", 900),
    _Item("middle_visible", 1, "UM", "eighth", 9),
    _Item("high_visible", 1, "UH", "eighth", 9),
    _Item("change", 2, "IC"),
    _Item("solar_altitude", 4, "SA", "degree / 10"),
    _Item("lunar_illuminance", 4, "RI", "1 / 100"),
)
_EXTENSION = (
    _Item("pressure", 5, "SLP", "mb / 10", -1),
    _Item("wind_speed", 3, "WS", "m / s / 10", -1),
    _Item("wind_direction", 3, "WD", "degree", -1),
    _Item("air_temperature", 4, "AT", "°C / 10", 900),
    _Item("dew_point_depression", 3, "DD", "°C / 10", 900),
    _Item("elevation", 4, "EL", "m, land only", 9000),
    _Item("wind_indicator", 1, "IW", missing=9),
    _Item("pressure_flag", 1, "IP", "code, land only", 9),
)
_LAND_ONLY = ("elevation", "pressure_flag")
_LAYOUTS = {
    56: (_Item("year", 2, "yr", "year"), *_EDITED),
    80: (_Item("year", 2, "yr", "year"), *_EDITED, *_EXTENSION),
    82: (_Item("year", 4, "yr", "year"), *_EDITED, *_EXTENSION),
}
_GZIP, _COMPRESS = b"\x1f\x8b", b"\x1f\x9d"


def read_cloud_reports(path: str | Path) -> pa.Table:
    """Return a file of cloud reports as a table."""
    batches = list(cloud_report_batches(path))
    if not batches:
        raise OptionError(f"{path} holds no cloud reports: the file is empty")
    return pa.Table.from_batches(batches)


def cloud_report_batches(
    path: str | Path, batch_rows: int = CHUNK_ROWS
) -> Iterator[pa.RecordBatch]:
    """Yield a file of cloud reports in batches."""
    with _open(Path(path)) as file:
        line = file.readline()
        layout = _layout(path, line)
        length = len(line) if line.endswith(b"\n") else len(line) + 1
        block, first = line + file.read(length * (batch_rows - 1)), 0
        while block:
            lines = _lines(path, block, length, first)
            yield _parse(path, lines, layout, first)
            first += len(lines)
            block = file.read(length * batch_rows)


def _open(path: Path) -> BinaryIO:
    try:
        with path.open("rb") as file:
            magic = file.read(2)
    except OSError as error:
        raise OptionError(f"cannot read cloud reports from {path}: {error.strerror}") from error
    if magic == _COMPRESS:
        raise OptionError(f"{path} is packed with compress; unpack it first: uncompress {path}")
    return cast("BinaryIO", gzip.open(path, "rb") if magic == _GZIP else path.open("rb"))


def _layout(path: str | Path, line: bytes) -> tuple[_Item, ...]:
    width = len(line.rstrip(b"\r\n"))
    if line and width not in _LAYOUTS:
        raise OptionError(
            f"{path} holds lines of {width} characters; edited cloud reports (NDP-026B) have 56, "
            "extended ones (NDP-026C) 80, or 82 with a year of four digits"
        )
    return _LAYOUTS.get(width, ())


def _lines(path: str | Path, block: bytes, length: int, first: int) -> NDArray[np.uint8]:
    """Return a block's lines as a matrix of characters; the last may lack its line end."""
    short = -len(block) % length
    padded = block + b"\n" * short if short <= 2 else block
    count, rest = divmod(len(padded), length)
    lines = np.frombuffer(padded, np.uint8, count * length).reshape(count, length)
    ragged = np.flatnonzero(lines[:, -1] != ord("\n"))
    if rest or len(ragged):
        at = first + (int(ragged[0]) if len(ragged) else count)
        raise OptionError(f"{path}: line {at + 1} is not as long as the first; is it cut off?")
    return lines


def _parse(
    path: str | Path, lines: NDArray[np.uint8], layout: tuple[_Item, ...], first: int
) -> pa.RecordBatch:
    columns: dict[str, pa.Array] = {}
    fields, texts, at = [], [], 0
    for item in layout:
        characters = lines[:, at : at + item.width]
        at += item.width
        values, absent = _integers(characters)
        bad = np.flatnonzero(absent & (characters != ord(" ")).any(axis=1))
        is_ship = np.zeros(len(lines), bool)
        if item.name in _LAND_ONLY:
            is_ship = np.asarray(columns["land_or_ocean"]) == 2
            texts.append(characters)
            bad = bad[~is_ship[bad]]
        if len(bad):
            text = bytes(characters[bad[0]]).decode("latin-1")
            raise OptionError(
                f"{path}: line {first + int(bad[0]) + 1} has {text!r} for {item.symbol} "
                f"({item.name}), which should be a number of {item.width} characters"
            )
        if item.name == "year" and item.width == 2:
            values = values + 1900
        is_null = absent | is_ship | (values == item.missing)
        columns[item.name] = pa.array(values, pa.int32(), mask=is_null)
        fields.append(_field(item))
    if texts:
        columns["ship_items"] = _ship_items(texts, is_ship)
        fields.append(pa.field("ship_items", pa.string(), metadata={"unit": "text, ships only"}))
    return pa.RecordBatch.from_arrays(list(columns.values()), schema=pa.schema(fields))


def _field(item: _Item) -> pa.Field:
    return pa.field(item.name, pa.int32(), metadata={"symbol": item.symbol, "unit": item.unit})


def _ship_items(texts: list[NDArray[np.uint8]], is_ship: NDArray[np.bool_]) -> pa.Array:
    characters = np.ascontiguousarray(np.hstack(texts))
    whole = characters.view(f"S{characters.shape[1]}").ravel()
    return pa.array(whole, mask=~is_ship).cast(pa.string())


def _integers(characters: NDArray[np.uint8]) -> tuple[NDArray[np.int32], NDArray[np.bool_]]:
    """Return right-aligned integers, and which of them are blank or not numbers."""
    is_digit = (characters >= ord("0")) & (characters <= ord("9"))
    is_minus = characters == ord("-")
    is_blank = characters == ord(" ")
    started = np.cumsum(is_digit | is_minus, axis=1) > 0
    wrong = (
        ~(is_digit | is_minus | is_blank).all(axis=1)
        | (is_blank & started).any(axis=1)
        | (is_minus[:, 1:] & (np.cumsum(is_digit | is_minus, axis=1)[:, :-1] > 0)).any(axis=1)
        | ~is_digit[:, -1]
    )
    powers = 10 ** np.arange(characters.shape[1])[::-1]
    values = np.where(is_digit, characters.astype(np.int64) - ord("0"), 0) @ powers
    return np.where(is_minus.any(axis=1), -values, values).astype(np.int32), wrong
