"""Finishes or undoes a replacement of segments that a crash interrupted, as a broker does when it loads a log.

A `.cleaned` file says that the replacement at its offset was not complete: it goes, and so does every `.swap` file from
there on. The `.swap` files that remain are complete: what they replace goes, and they take their names.

Source: Kafka LogLoader.removeTempFilesAndCollectSwapFiles, LogLoader.load; spec of the replacement: LogCleaner.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from storage_core.errors import CorruptFileError
from storage_core.fault_points import reach
from storage_core.log.log_files import CLEANED, DELETED, LOG, SWAP, parse_base_offset
from storage_core.log.segment_reader import SegmentReader
from storage_core.log.segments import SegmentFiles
from storage_core.record.batch_scan import check_crcs
from storage_core.storage.local import storage_errors, sync_directory

__all__ = ["finish_swaps"]


def finish_swaps(directory: Path, check_owner: Callable[[], None]) -> None:
    """Bring a log's directory to what a broker makes of it: no `.cleaned`, `.swap` or `.deleted` file is left.

    Raises:
        CorruptFileError: a replacement is damaged; nothing was changed.
    """
    with storage_errors(directory):
        names = sorted(os.listdir(directory))
        unfinished = min((_offset(name) for name in names if name.endswith(CLEANED)), default=None)
        swaps = [name for name in names if name.endswith(SWAP)]
        void = [name for name in swaps if unfinished is not None and _offset(name) >= unfinished]
        complete = [name for name in swaps if name not in void]
        replaced = _replaced(directory, names, complete)
        check_owner()
        for name in [*void, *(name for name in names if name.endswith((CLEANED, DELETED))), *replaced]:
            (directory / name).unlink(missing_ok=True)
            reach("repair.dropped")
        for name in complete:
            (directory / name).replace(directory / name.removesuffix(SWAP))
            reach("repair.swapped")
        sync_directory(directory)


def _replaced(directory: Path, names: list[str], complete: list[str]) -> list[str]:
    """Return the files whose offsets the complete replacements cover."""
    logs = [name for name in complete if name.endswith(LOG + SWAP)]
    if not logs:
        return []
    low = min(_offset(name) for name in logs)
    high = max(_next_offset(directory / name, _offset(name)) for name in logs)
    originals = [name for name in names if not name.endswith((SWAP, CLEANED, DELETED))]
    return [name for name in originals if parse_base_offset(name) is not None and low <= _offset(name) < high]


def _next_offset(path: Path, base_offset: int) -> int:
    """Return the offset behind a replacement's last batch; every CRC is checked before anything goes for it."""
    following = base_offset
    with SegmentReader(SegmentFiles(base_offset, path)) as reader:
        for chunk in reader.chunks():
            if len(check_crcs(chunk.data, chunk.scan)):
                raise CorruptFileError(f"a replacement of segments is damaged: path={path}")
            following = int(chunk.scan.last_offset[-1]) + 1
        if reader.valid_bytes != reader.size_bytes:
            raise CorruptFileError(f"a replacement of segments is torn: path={path} position={reader.valid_bytes}")
    return following


def _offset(name: str) -> int:
    return int(name.partition(".")[0])
