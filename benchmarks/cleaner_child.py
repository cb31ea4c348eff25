"""One measurement of `cleaner`: `python -m benchmarks.cleaner_child DIR END_OFFSET MAP_MB` cleans its segments.

The process keeps to one core. What is timed is what a broker times as the cleaning of a log, but for the renames at its
end: the map of the dirty part, the new segment, its indexes and their fsync. The new files are removed again.
"""

import json
import os
import sys
import time
from pathlib import Path

from benchmarks.processes import peak_memory_mb, reset_peak_memory
from sparklog.storage_core.cleaner.keys.build_map import DirtyRange, build_map
from sparklog.storage_core.cleaner.keys.offset_map import HASH_KEY_BYTES, OffsetMap
from sparklog.storage_core.cleaner.rewrite.clean_segments import CleanRequest, clean_segments
from sparklog.storage_core.cleaner.survey.cleaned_transactions import CleanedTransactions
from sparklog.storage_core.log.files.segments import list_segments
from sparklog.storage_core.storage.owned_names import UNSHARED

__all__ = ["main"]

_DAY_MS = 24 * 60 * 60 * 1000


def main(directory: Path, end_offset: int, map_mb: int) -> None:
    """Clean the segments below an offset; print seconds of the clock and of the core, memory in MB, and sizes."""
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    segments = [each for each in list_segments(directory) if each.base_offset < end_offset]
    reset_peak_memory()
    before = peak_memory_mb()["driver"]
    started, core = time.perf_counter(), time.process_time()
    offset_map = OffsetMap(map_mb << 20, os.urandom(HASH_KEY_BYTES))
    dirty = DirtyRange(segments=segments, first_dirty_offset=0, first_uncleanable_offset=end_offset)
    build_map(dirty, offset_map, lambda: None)
    mapped, core_mapped = time.perf_counter(), time.process_time()
    request = CleanRequest(
        now_ms=time.time_ns() // 1_000_000, delete_retention_ms=_DAY_MS, cleaning_end_offset=end_offset
    )
    cleaned = clean_segments(segments, offset_map, CleanedTransactions(), request, UNSHARED)
    print(
        json.dumps(
            {
                "seconds": time.perf_counter() - started,
                "core_seconds": time.process_time() - core,
                "map_seconds": mapped - started,
                "map_core_seconds": core_mapped - core,
                "peak_mb": peak_memory_mb()["driver"] - before,
                "keys": len(offset_map),
                "bytes": cleaned.size_bytes,
                "records": cleaned.counts.records_kept,
                "records_read": cleaned.counts.records_read,
            }
        )
    )
    for path in cleaned.paths:
        path.unlink()


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
