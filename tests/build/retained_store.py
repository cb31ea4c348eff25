"""Stores with logs of several segments that are due by size, age or log start, for tests of what deletes them."""

from collections.abc import Mapping
from contextlib import closing
from pathlib import Path

import pyarrow as pa

from sparklog.sink.ledger.ledger import Ledger
from sparklog.sink.ledger.rows import LogState
from sparklog.sink.opening.access import maintaining
from sparklog.sink.operations.retain_logs import LogRetention, RetentionRun, execute_plans, plan_logs, remove_deleted
from sparklog.sink.store.store_folder import Store
from sparklog.storage_core.clock import Clock, SystemClock
from sparklog.storage_core.retention.plan_retention import plan_record_deletion
from sparklog.storage_core.topic_partition import TopicPartition
from tests.build.manual_clock import ManualClock
from tests.build.sink_store import in_process, open_store, rows

__all__ = ["COUNT", "LOG", "START_MS", "aged_rows", "delete_records", "names", "retain", "state_of", "write_aged"]

LOG = TopicPartition("aged", 0)
START_MS = 1_700_000_000_000
COUNT = 200

_SETTINGS: Mapping[str, object] = {
    "partitions": 2,
    "segment.bytes": 600,
    "batch.size": 200,
    "index.interval.bytes": 100,
    "retention.ms": -1,
    "file.delete.delay.ms": 0,
}


def write_aged(store: Path, settings: Mapping[str, object] | None = None, count: int = COUNT) -> Path:
    """Write a store of topic `aged`: a record a second in partition 0, in several segments; partition 1 is empty."""
    with closing(open_store(store, {LOG.topic: {**_SETTINGS, **(settings or {})}}, topic=LOG.topic)) as writer:
        for number, first in enumerate(range(0, count, 20)):
            writer.append("q", number, in_process(aged_rows(first, min(first + 20, count))))
    return store


def aged_rows(first: int, last: int) -> pa.RecordBatch:
    """Return rows whose values are numbers and whose times are as many seconds after `START_MS`."""
    numbers = range(first, last)
    return rows(
        partition=[0 for _ in numbers],
        value=[str(each) for each in numbers],
        timestamp=[START_MS + 1000 * each for each in numbers],
    )


def retain(store: Path, clock: Clock | None = None) -> tuple[list[LogRetention], RetentionRun]:
    """Plan, carry out, and remove the files; return what was planned and done."""
    clock = clock or ManualClock(START_MS)
    plans = plan_logs(Store.find(store), clock)
    with maintaining(store) as maintained:
        run = execute_plans(maintained, plans, clock)
    assert remove_deleted(run, clock) == {}
    return plans, run


def state_of(store: Path, log: TopicPartition = LOG) -> LogState:
    """Return what the ledger says of a log."""
    return Ledger.open(Store.find(store).ledger_path).states()[log]


def names(store: Path, suffix: str = ".log", log: TopicPartition = LOG) -> list[str]:
    """Return the names of a log's files that end in a suffix."""
    return sorted(path.name for path in (store / "logs" / log.directory_name).iterdir() if path.name.endswith(suffix))


def delete_records(store: Path, offset: int, clock: Clock | None = None) -> RetentionRun:
    """Let a log start at an offset, and remove the segments below."""
    clock = clock or SystemClock()
    with maintaining(store) as maintained:
        plans = plan_logs(maintained.store, clock, {LOG}, lambda facts, _: plan_record_deletion(facts, offset))
        run = execute_plans(maintained, plans, clock)
    assert remove_deleted(run, clock) == {}
    return run
