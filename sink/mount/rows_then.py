"""The rows that logs of an earlier state have in the files of today."""

from collections.abc import Mapping
from dataclasses import replace

from sparklog.sink.ledger.rows import LogState
from sparklog.sink.past.end_in_files import find_end_in_files
from sparklog.sink.past.past_logs import PastLogs
from sparklog.sink.past.past_state import PastState
from sparklog.sink.store.store_folder import Store
from sparklog.storage_core.topic_partition import TopicPartition

__all__ = ["rows_then", "shortened_logs"]


def rows_then(
    store: Store, past: PastState, now: Mapping[TopicPartition, LogState], logs: Mapping[TopicPartition, LogState]
) -> dict[TopicPartition, LogState]:
    """Return rows of logs as if today's files ended where they ended then.

    Args:
        past: the state.
        now: rows of the ledger today.
        logs: which of the state's logs, all of them readable.

    Raises:
        CorruptFileError: damage hides where a log ended.
    """
    return {log: _row_then(store, past.states[log], now[log]) for log in logs}


def shortened_logs(
    store: Store, past: PastState, now: Mapping[TopicPartition, LogState], logs: Mapping[TopicPartition, LogState]
) -> dict[TopicPartition, str]:
    """Return which of some logs have lost their beginning since, and what.

    Raises:
        InvalidConfigError: one of them can't be read any more.
    """
    past_logs = PastLogs(
        ledger_path=str(store.ledger_path),
        what=str(past),
        states=tuple(logs.values()),
        directories=tuple(str(store.log_path(now.get(log, state))) for log, state in logs.items()),
    )
    return {log: each.reason for log, each in past_logs.require_readable().items() if each.state == "shortened"}


def _row_then(store: Store, then: LogState, now: LogState) -> LogState:
    base, size = find_end_in_files(store.log_path(now), then.log_end_offset)
    return replace(
        then,
        log_dir=now.log_dir,
        log_start_offset=min(max(then.log_start_offset, now.log_start_offset), then.log_end_offset),
        active_base_offset=base,
        active_size_bytes=size,
        cleaner_limit_offset=now.cleaner_limit_offset,
        intent=now.intent,
        owes=now.owes,
    )
