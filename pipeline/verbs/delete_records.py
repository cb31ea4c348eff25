"""The verb `delete-records`: raises a log's start offset, and deletes whole segments below it.

No byte of a segment changes: readers skip records below the start, until their segment is deleted.

Source: Kafka UnifiedLog.maybeIncrementLogStartOffset, ReplicaManager.deleteRecords, DeleteRecordsCommand.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final

import click

from sparklog.pipeline.terminal import say
from sparklog.pipeline.verbs.retain import retain
from sparklog.sink.ledger.ledger import Ledger
from sparklog.sink.ledger.rows import LogState
from sparklog.sink.operations.retain_logs import LogRetention, plan_logs
from sparklog.sink.store.store_folder import Store
from sparklog.sink.store.topic_configs import UNKNOWN_SETTINGS, read_topic_configs
from sparklog.storage_core.clock import Clock, SystemClock
from sparklog.storage_core.errors import InvalidConfigError, OffsetOutOfRangeError, UnknownTopicError
from sparklog.storage_core.log.read.log_reader import LogReader
from sparklog.storage_core.retention.plan_retention import plan_record_deletion
from sparklog.storage_core.topic_partition import TopicPartition

__all__ = ["planner", "run"]

_HIGH_WATERMARK: Final = -1
"""Stands for the log's end, as in Kafka's tool."""


def run(store: Path, name: str, before: int | None, before_time: int | None, execute: bool, as_json: bool) -> int:
    """Carry the verb out; return the exit code."""
    if (before is None) == (before_time is None):
        raise click.UsageError("one of --before and --before-time is needed")
    clock = SystemClock()
    log, offset = _find_offset(store, name, before, before_time)
    plan = planner(log, offset, clock)
    if not as_json:
        (planned,) = plan(Store.find(store))
        say(_meaning(log, planned.state.log_start_offset, offset))
    return retain(store, plan, execute=execute, as_json=as_json)


def _meaning(log: TopicPartition, start: int, before: int) -> str:
    """Return the effect of a new start offset, for people."""
    if before <= start:
        return f"{log} starts at offset {start:,} already: nothing to delete"
    skipped = f"readers will skip offsets {start:,}..{before - 1:,} ({before - start:,})"
    return f"{log} will start at offset {before:,}, not {start:,}: {skipped}"


def _find_offset(root: Path, name: str, before: int | None, before_time: int | None) -> tuple[TopicPartition, int]:
    """Return the named log, and its new start offset.

    Args:
        name: `TOPIC:PARTITION`.
        before: that offset, or `_HIGH_WATERMARK`; None if a time is given.
        before_time: ms; the log starts at the first record that is not earlier, or at its end if all are.

    Raises:
        InvalidConfigError: the folder is no store, or the topic's policy keeps its records.
        UnknownTopicError: the store has no such log.
        OffsetOutOfRangeError: the offset is outside the log.
    """
    store = Store.find(root)
    log, state = _find(store, name)
    config = read_topic_configs(store).get(log.topic)
    if config is None:
        raise InvalidConfigError(f"{UNKNOWN_SETTINGS}: log={log}")
    if "delete" not in config.cleanup_policies:
        raise InvalidConfigError(
            f"records of a topic without 'delete' in its policy can't be deleted: topic={log.topic}"
            f" cleanup.policy={config.cleanup_policy}"
        )
    if before_time is not None:
        return log, _offset_at(store, state, before_time)
    offset = state.log_end_offset if before == _HIGH_WATERMARK or before is None else before
    if not 0 <= offset <= state.log_end_offset:
        raise OffsetOutOfRangeError(
            f"offset is outside the log: log={log} offset={offset} log_start_offset={state.log_start_offset}"
            f" log_end_offset={state.log_end_offset}"
        )
    return log, offset


def planner(log: TopicPartition, offset: int, clock: Clock) -> Callable[[Store], list[LogRetention]]:
    """Return a function that plans a new start offset of a log."""
    return lambda store: plan_logs(store, clock, {log}, lambda facts, _: plan_record_deletion(facts, offset))


def _find(store: Store, name: str) -> tuple[TopicPartition, LogState]:
    states = Ledger.open(store.ledger_path).states()
    for log, state in states.items():
        if name == f"{log.topic}:{log.partition}":
            return log, state
    topics = ", ".join(sorted({each.topic for each in states})) or "none"
    raise UnknownTopicError(f"no log of that name, give TOPIC:PARTITION: name={name} topics={topics}")


def _offset_at(store: Store, state: LogState, timestamp_ms: int) -> int:
    end = state.log_end_offset
    reader = LogReader(
        store.log_path(state), log_start_offset=state.log_start_offset, log_end_offset=end, last_stable_offset=end
    )
    found = reader.offset_for_time(timestamp_ms)
    return end if found is None else found[0]
