"""One measurement of `recovery`: `python -m benchmarks.recovery_child DIR` recovers its segments, prints JSON.

The process keeps to one core. What is timed is what a broker times as the load of a log: scan, cut, indexes, snapshot.
"""

import json
import os
import sys
import time
from pathlib import Path

import sparklog.storage_core.record.reading_kernels  # noqa: F401  loaded before the clock starts, like a broker's code
from benchmarks.processes import peak_memory_mb, reset_peak_memory
from sparklog.storage_core.checkpoint.producer_snapshot import render_producer_snapshot
from sparklog.storage_core.log.files.names import SNAPSHOT, segment_file_name
from sparklog.storage_core.log.files.segments import list_segments
from sparklog.storage_core.log.load.recover_segment import recover_segment, scan_segment
from sparklog.storage_core.log.producers.states import ProducerStates
from sparklog.storage_core.storage.owned_names import UNSHARED, replace_file

__all__ = ["main"]

_INTERVAL_BYTES = 4096


def main(directory: Path) -> None:
    """Recover a log; print seconds of the clock and of the core, and memory in MB above that before."""
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    reset_peak_memory()
    before = peak_memory_mb()["driver"]
    started, core = time.perf_counter(), time.process_time()
    producers = ProducerStates()
    for files in list_segments(directory):
        found = scan_segment(files, _INTERVAL_BYTES, producers)
        recover_segment(found, UNSHARED)
        snapshot = directory / segment_file_name(found.next_offset, SNAPSHOT)
        replace_file(UNSHARED, snapshot, render_producer_snapshot(producers.states()))
    print(
        json.dumps(
            {
                "seconds": time.perf_counter() - started,
                "core_seconds": time.process_time() - core,
                "next_offset": producers.map_end_offset,
                "peak_mb": peak_memory_mb()["driver"] - before,
            }
        )
    )


if __name__ == "__main__":
    main(Path(sys.argv[1]))
