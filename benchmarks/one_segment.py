"""A log of one segment, as large as wanted."""

from dataclasses import replace
from pathlib import Path

import numpy as np

from benchmarks.rows import make_rows
from sparklog.storage_core.index.index_builder import IndexBuilder
from sparklog.storage_core.log.files.names import INDEX, LOG, TIMEINDEX, segment_file_name
from sparklog.storage_core.record.v2.batch_encode import EncodeOptions, RecordColumns, encode_batches

__all__ = ["write_segment"]

_ROWS = 65_536


def write_segment(directory: Path, size_bytes: int, options: EncodeOptions | None = None) -> Path:
    """Write one segment of so many bytes, or a little more, with its indexes; return its `.log`."""
    directory.mkdir(parents=True)
    options = options or EncodeOptions()
    rows, starts = np.arange(_ROWS), np.array([0, _ROWS])
    columns = RecordColumns.from_arrow(make_rows(_ROWS, 1))
    indexes, position, offset = IndexBuilder(0), 0, 0
    log = directory / segment_file_name(0, LOG)
    with log.open("wb") as file:
        while position < size_bytes:
            encoded = encode_batches(replace(columns, offset=offset + rows), rows, starts, options)
            last = encoded.base_offset + encoded.last_offset_delta
            indexes.add(position + encoded.position, last, encoded.max_timestamp)
            position, offset = position + file.write(encoded.data.data), offset + _ROWS
    built = indexes.finish()
    (directory / segment_file_name(0, INDEX)).write_bytes(built.offset_index)
    (directory / segment_file_name(0, TIMEINDEX)).write_bytes(built.time_index)
    return log
