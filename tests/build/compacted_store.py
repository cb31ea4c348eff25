"""Stores with compacted logs of several segments, for tests of what cleans them."""

from collections.abc import Mapping
from contextlib import closing
from pathlib import Path

import pyarrow as pa

from sparklog.sink.opening.access import maintaining
from sparklog.sink.operations.clean_logs import (
    CleanerBudget,
    LogCleaning,
    LogCleaningRow,
    clean_logs,
    pending_removals,
    plan_cleanings,
)
from sparklog.sink.operations.retain_logs import RetentionRun, remove_deleted
from sparklog.sink.store.store_folder import Store
from sparklog.storage_core.clock import Clock
from sparklog.storage_core.log.read.log_reader import LogReader
from sparklog.storage_core.topic_partition import TopicPartition
from tests.build.manual_clock import ManualClock
from tests.build.retained_store import state_of
from tests.build.sink_store import in_process, open_store, rows

__all__ = ["BUDGET", "LOG", "NOW_MS", "SETTINGS", "clean", "expected_offsets", "keyed_rows", "offsets", "write_keyed"]

LOG = TopicPartition("keyed", 0)
NOW_MS = 1_700_000_000_000
BUDGET = CleanerBudget(map_bytes=1 << 16, hash_key=bytes(16))
SETTINGS: Mapping[str, object] = {
    "partitions": 2,
    "cleanup.policy": "compact",
    "segment.bytes": 600,
    "segment.ms": 2**62,  # the records are old, and a maintenance without a sink would roll their segments
    "batch.size": 200,
    "index.interval.bytes": 100,
    "min.cleanable.dirty.ratio": 0.1,
    "file.delete.delay.ms": 0,
}
_KEYS = 7


def write_keyed(store: Path, settings: Mapping[str, object] | None = None, count: int = 200) -> Path:
    """Write a store of topic `keyed`: partition 0 has seven keys in turn, every tenth record is a tombstone."""
    with closing(open_store(store, {LOG.topic: {**SETTINGS, **(settings or {})}}, topic=LOG.topic)) as writer:
        for number, first in enumerate(range(0, count, 20)):
            writer.append("q", number, in_process(keyed_rows(first, min(first + 20, count))))
    return store


def keyed_rows(first: int, last: int) -> pa.RecordBatch:
    """Return rows whose values are numbers."""
    numbers = range(first, last)
    return rows(
        partition=[0 for _ in numbers],
        key=[f"k{each % _KEYS}" for each in numbers],
        value=[None if each % 10 == 9 else str(each) for each in numbers],
        timestamp=[NOW_MS + each for each in numbers],
    )


def clean(
    store: Path, checkpoints: Mapping[TopicPartition, int] | None = None, clock: Clock | None = None
) -> tuple[list[LogCleaning], list[LogCleaningRow]]:
    """Plan, clean, and remove the files; return what was planned and done."""
    clock = clock or ManualClock(NOW_MS)
    with maintaining(store) as maintained:
        plans = plan_cleanings(Store.find(store), checkpoints or {}, clock)
        done = list(clean_logs(maintained, plans, BUDGET, clock))
    assert remove_deleted(RetentionRun([], pending_removals(plans, clock)), clock) == {}
    return plans, done


def offsets(store: Path) -> list[int]:
    """Return the offsets of the committed records of partition 0."""
    state = state_of(store, LOG)
    reader = LogReader(
        store / "logs" / LOG.directory_name,
        log_start_offset=state.log_start_offset,
        log_end_offset=state.log_end_offset,
        last_stable_offset=state.log_end_offset,
    )
    read = [batch.column("offset").to_pylist() for batch in reader.read(state.log_start_offset)]
    return [offset for found in read for offset in found]


def expected_offsets(cleaned_below: int, end: int) -> list[int]:
    """Return what is left of a log that was cleaned up to an offset: the last of each key, and all behind."""
    last = {each % _KEYS: each for each in range(cleaned_below)}
    return [*sorted(last.values()), *range(cleaned_below, end)]
