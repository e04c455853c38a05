"""How many rows a source of files will have, before it is read: for a progress bar."""

import pyarrow as pa
from pyarrow import dataset, fs

from semistream.relation import places

_BLOCK_BYTES = 1 << 20


def expected_rows(path: str) -> tuple[int | None, bool]:
    """Return the number of rows of Parquet or CSV files, and whether it is exact.

    Parquet files say it. Of CSV files it is estimated, from their size and their first lines. It is
    None if the files cannot be opened; what is wrong is said where they are read.
    """
    place = places.find(path)
    filesystem = place.filesystem or fs.LocalFileSystem()
    try:
        found = filesystem.get_file_info(place.path)
        if found.type == fs.FileType.Directory:
            inside = filesystem.get_file_info(fs.FileSelector(place.path, recursive=True))
            files = [info for info in inside if info.extension == "csv"]
        else:
            files = [found] if found.extension == "csv" else []
        if files:
            return _estimate(filesystem, files), False
        return dataset.dataset(place.path, filesystem=filesystem).count_rows(), True
    except (OSError, pa.ArrowInvalid):
        return None, False


def _estimate(filesystem: fs.FileSystem, files: list[fs.FileInfo]) -> int:
    with filesystem.open_input_stream(files[0].path) as file:
        first = file.read(_BLOCK_BYTES)
    size = sum(info.size or 0 for info in files)
    return int(size * first.count(b"\n") / max(1, len(first)))
