"""Cloud reports joined on longitude: a stand-in for the papers' real-life data set.

`meshjoin.txt`, section 4.1, joins two months of the Edited Synoptic Cloud Reports (Hahn, Warren and
London, NDP-026B), 10 million rows of 32 bytes each; `cmeshjoin-front-stage.txt`, section 4, has 20
and 6 million of 128 bytes. The key is the longitude in hundredths of a degree, 0 to 36000. The
reports themselves have to be downloaded from the archive; `cloudreports` reads them. `Clouds`
generates rows of the same shape without them, and its schemas say so.

Kept from the real reports: the domain; a key that is shared by all reports of a station and by
stations on the same meridian, so that a report matches many of the other month; longitudes in
clusters, since stations are on land, mostly in the north, and ships on their routes; positions of
ships in tenths of a degree; stations that report two, four or eight times a day; and months that
differ, since some stations stop reporting and routes shift. The exact distribution of the real
reports is not kept.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from semistream.errors import OptionError
from semistream.workload.base import (
    CHUNK_ROWS,
    ChunkedStream,
    chunk_ranges,
    chunk_rng,
    random_bytes,
)
from semistream.workload.cloudreports import read_cloud_reports

__all__ = ["Clouds", "read_cloud_reports"]

FULL_CIRCLE = 36_000
LEAST_ROW_BYTES = 32
_RELATION, _PLACES, _RELATION_MONTH, _STREAM_MONTH = 1, 2, 3, 4
_RELATION_START_S, _STREAM_START_S = 494_380_800, 502_243_200  # 1985-09-01 and 1985-12-01
_MONTH_S = 30 * 86_400

# Middle longitude and spread in degrees, stations: North America, South America, Europe, Africa,
# western and eastern Asia, Australia, islands of the Pacific.
_LANDS = (
    (262, 16, 1300),
    (298, 9, 500),
    (14, 13, 1900),
    (20, 15, 800),
    (70, 18, 1300),
    (115, 13, 1500),
    (142, 9, 500),
    (185, 25, 200),
)
# West and east end of the ships' routes in degrees, share of the ships' reports.
_ROUTES = ((285, 355, 0.4), (120, 240, 0.4), (40, 110, 0.2))
_SHIPS_SHARE = 0.12

_COLUMNS = [
    ("lon", pa.int64()),
    ("reported_at", pa.timestamp("us", tz="UTC")),
    ("lat", pa.int32()),
    ("station", pa.int32()),
    ("sky_bright", pa.int8()),
    ("weather", pa.int8()),
    ("cover", pa.int8()),
    ("low_amount", pa.int8()),
    ("base_height", pa.int8()),
    ("low_type", pa.int8()),
    ("middle_type", pa.int8()),
    ("high_type", pa.int8()),
]
_CODES = (2, 100, 9, 9, 10, 12, 13, 10)


@dataclass(frozen=True)
class Clouds(ChunkedStream):
    """Generated cloud reports: R is one month, S without end another, rows of the same width.

    >>> Clouds(relation_rows=1000).stream_schema.metadata[b"origin"][:8]
    b'stand-in'
    """

    relation_rows: int = 10_000_000
    row_bytes: int = LEAST_ROW_BYTES
    seed: int = 7

    def __post_init__(self) -> None:
        """Refuse rows that cannot hold a report."""
        if self.relation_rows < 1 or self.row_bytes < LEAST_ROW_BYTES:
            raise OptionError(
                f"clouds needs relation_rows of at least 1 and row_bytes of at least "
                f"{LEAST_ROW_BYTES} (the papers have 32 and 128); "
                f"got {self.relation_rows} and {self.row_bytes}"
            )

    @property
    def key(self) -> str:
        """The longitude."""
        return "lon"

    @property
    def stream_key(self) -> str:
        """The longitude."""
        return "lon"

    @property
    def relation_schema(self) -> pa.Schema:
        """The columns of a report; the metadata says that they are generated."""
        rest = self.row_bytes - LEAST_ROW_BYTES
        columns = [*_COLUMNS, ("remarks", pa.binary(rest))] if rest else _COLUMNS
        origin = "stand-in for the Edited Synoptic Cloud Reports (NDP-026B); made up, not observed"
        return pa.schema(columns, metadata={"origin": origin})

    @property
    def stream_schema(self) -> pa.Schema:
        """The same columns."""
        return self.relation_schema

    def relation_batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the reports of the relation's month, in random order."""
        for number, rows in chunk_ranges(self.relation_rows):
            rng = chunk_rng(self.seed, number, _RELATION)
            yield self._reports(rng, rows, _RELATION_MONTH, _RELATION_START_S)

    def stream_chunk(self, number: int) -> pa.RecordBatch:
        """Make one chunk of the other month's reports."""
        rng = chunk_rng(self.seed, number)
        return self._reports(rng, CHUNK_ROWS, _STREAM_MONTH, _STREAM_START_S)

    def _reports(
        self, rng: np.random.Generator, rows: int, month: int, start_s: int
    ) -> pa.RecordBatch:
        lon, lat, station = _draw_places(rng, rows, self.seed, month)
        hours = rng.integers(0, _MONTH_S // 10_800, rows) * 10_800
        columns = [
            pa.array(lon),
            pa.array((start_s + hours) * 1_000_000).cast(self.relation_schema.field(1).type),
            pa.array(lat),
            pa.array(station),
            *(pa.array(rng.integers(0, most, rows, dtype=np.int8)) for most in _CODES),
        ]
        if self.row_bytes > LEAST_ROW_BYTES:
            columns.append(random_bytes(rng, rows, self.row_bytes - LEAST_ROW_BYTES))
        return pa.RecordBatch.from_arrays(columns, schema=self.relation_schema)


def _draw_places(
    rng: np.random.Generator, rows: int, seed: int, month: int
) -> tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.int32]]:
    """Draw the origins of reports: longitude, latitude and station number, 0 for a ship."""
    lon, lat = _stations(seed)
    weights, shift = _month(seed, month)
    station = np.searchsorted(weights, rng.random(rows), side="right")
    at_sea = rng.random(rows) < _SHIPS_SHARE
    route = rng.choice(len(_ROUTES), rows, p=[share for *_, share in _ROUTES])
    west, east = (np.array([r[i] for r in _ROUTES], float)[route] for i in (0, 1))
    # Ships are dense in the middle of a route; their positions are in tenths of a degree.
    ship = west + (east - west) * (rng.random(rows) + rng.random(rows)) / 2 + shift
    ship_lon = (np.round(ship * 10).astype(np.int64) * 10) % FULL_CIRCLE
    ship_lat = np.round(rng.normal(300, 150, rows)).clip(-600, 700).astype(np.int32) * 10
    return (
        np.where(at_sea, ship_lon, lon[station]),
        np.where(at_sea, ship_lat, lat[station]),
        np.where(at_sea, 0, station + 1).astype(np.int32),
    )


@lru_cache(maxsize=4)
def _stations(seed: int) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    rng = chunk_rng(seed, 0, _PLACES)
    degrees = np.concatenate([rng.normal(mid, spread, n) for mid, spread, n in _LANDS])
    lon = np.round(degrees * 100).astype(np.int64) % FULL_CIRCLE
    lat = rng.normal(3_500, 2_200, len(lon)).clip(-8_900, 8_300).astype(np.int32)
    return lon, lat


@lru_cache(maxsize=8)
def _month(seed: int, month: int) -> tuple[NDArray[np.float64], float]:
    """Return the running share of the stations in a month's reports, and how far routes shifted."""
    reports_a_day = chunk_rng(seed, 1, _PLACES).choice([2.0, 4.0, 8.0], len(_stations(seed)[0]))
    rng = chunk_rng(seed, 0, month)
    reports_a_day *= rng.random(len(reports_a_day)) > 0.04
    shares = np.cumsum(reports_a_day)
    shares /= shares[-1]
    shares[np.flatnonzero(reports_a_day)[-1] :] = 1.0
    return shares, float(rng.uniform(-2, 2))
