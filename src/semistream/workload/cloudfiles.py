"""The real cloud reports as a workload: one file is R, the other one, or all others, the stream.

`meshjoin.txt` and `cmeshjoin-front-stage.txt` join the reports of different months on the
longitude. The folder holds them as they come from the archive (`cloudreports` reads them), a file a
month; the first name in order is R. Reports without a valid longitude are left out.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from semistream.errors import OptionError
from semistream.workload.base import CHUNK_ROWS, check_range
from semistream.workload.cloudreports import cloud_report_batches
from semistream.workload.clouds import FULL_CIRCLE

_SCHEMA = pa.schema([("lon", pa.int64())], metadata={"origin": "cloud reports of the archive"})


@dataclass(frozen=True)
class CloudFiles:
    """Cloud reports of a folder, joined on the longitude; the stream ends with its last file."""

    folder: Path

    @property
    def key(self) -> str:
        """The longitude."""
        return "lon"

    @property
    def stream_key(self) -> str:
        """The longitude."""
        return "lon"

    @property
    def relation_rows(self) -> int:
        """The number of reports in the first file."""
        return len(_longitudes(self._files[:1]))

    @property
    def relation_schema(self) -> pa.Schema:
        """The longitude alone: other columns are stored as a payload of their width."""
        return _SCHEMA

    @property
    def stream_schema(self) -> pa.Schema:
        """The longitude alone."""
        return _SCHEMA

    def relation_batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the reports of the first file, in their order."""
        lon = _longitudes(self._files[:1])
        for first in range(0, len(lon), CHUNK_ROWS):
            yield pa.RecordBatch.from_arrays([lon.slice(first, CHUNK_ROWS)], schema=_SCHEMA)

    def stream_rows(self, first: int, count: int) -> pa.RecordBatch:
        """Return reports of the other files, fewer where they end."""
        check_range(first, count)
        lon = _longitudes(self._files[1:]).slice(first, count)
        return pa.RecordBatch.from_arrays([lon], schema=_SCHEMA)

    def check(self) -> None:
        """Refuse a folder that has no reports to join."""
        assert self._files

    @property
    def _files(self) -> tuple[Path, ...]:
        """The folder's files in the order of their names; two at least."""
        folder = Path(self.folder)
        if not folder.is_dir():
            raise OptionError(f"there is no folder {folder} with cloud reports")
        files = [p for p in folder.iterdir() if p.is_file() and not p.name.startswith(".")]
        if len(files) < 2:
            raise OptionError(
                f"{folder} needs two files of cloud reports or more, a month each: the first is "
                f"the relation, the others are the stream; it has {len(files)}"
            )
        return tuple(sorted(files))


@lru_cache(maxsize=4)
def _longitudes(files: tuple[Path, ...]) -> pa.Int64Array:
    """Return the longitudes of all reports in files, without those that have none."""
    batches = (batch for file in files for batch in cloud_report_batches(file))
    columns = [batch.column("lon").cast(pa.int64()) for batch in batches]
    lon = pa.concat_arrays(columns) if columns else pa.array([], pa.int64())
    lon = lon.filter(pc.and_(pc.greater_equal(lon, 0), pc.less_equal(lon, FULL_CIRCLE)))
    if not len(lon):
        raise OptionError(f"there are no reports with a longitude in {', '.join(map(str, files))}")
    return lon
