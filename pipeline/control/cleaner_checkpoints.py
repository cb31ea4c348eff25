"""Cleaner checkpoints: the state of each log after former runs, and its change by a run. A pure decision.

A failed log waits before its retry: a quarter of an hour, doubled after each further failure, a day at most. A success
resets that. Rows of a deleted topic do not count for a new topic of that name.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, Final

from sparklog.sink.ledger.rows import LogState
from sparklog.storage_core.topic_partition import TopicPartition

__all__ = ["CleanerCheckpoint", "LogTaskResult", "after_task", "checkpoints_of"]

_FIRST_WAIT_MS: Final = 15 * 60_000
_LONGEST_WAIT_MS: Final = 24 * 3_600_000


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanerCheckpoint:
    """A row of `cleaner_checkpoints`.

    Attributes:
        topic_id: of the log's topic.
        first_dirty_offset: start of the next cleaning.
        log_start_offset: at that time.
        last_cleaned_ms: end of the last complete round; None if there was none.
        uncleanable_reason: failure of the last cleaning, of any cause; None after a success.
        uncleanable_file, uncleanable_position, uncleanable_offset: known place of the damage; None if a retry may help.
        failure_count: since the last success.
        retry_at_ms: earliest retry; None without a failure.
        run_id: of the run that wrote the row.
    """

    topic: str
    partition: int
    topic_id: str
    first_dirty_offset: int
    log_start_offset: int
    last_cleaned_ms: int | None = None
    uncleanable_reason: str | None = None
    uncleanable_file: str | None = None
    uncleanable_position: int | None = None
    uncleanable_offset: int | None = None
    failure_count: int = 0
    retry_at_ms: int | None = None
    run_id: str | None = None
    updated_ms: int = 0

    @property
    def log(self) -> TopicPartition:
        """The log's name."""
        return TopicPartition(self.topic, self.partition)

    def as_dict(self) -> dict[str, Any]:
        """Return the columns."""
        return asdict(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class LogTaskResult:
    """The result of a task that the next run needs.

    Attributes:
        first_dirty_offset: start of the next cleaning; None without a cleaning.
        log_start_offset: of the log now.
        is_cleaned: whether a round was completed.
        uncleanable: the damage that prevents a cleaning; names file, position or offset.
        failure: a failure that a retry may overcome.
    """

    state: LogState
    log_start_offset: int
    first_dirty_offset: int | None = None
    is_cleaned: bool = False
    uncleanable: str | None = None
    failure: str | None = None


def checkpoints_of(
    rows: Iterable[Mapping[str, Any]], states: Mapping[TopicPartition, LogState]
) -> dict[TopicPartition, CleanerCheckpoint]:
    """Return the checkpoints of existing logs.

    Args:
        states: of the logs; above its `cleaner_limit_offset` a log is dirty, also if its row is higher.
    """
    names = [each.name for each in fields(CleanerCheckpoint)]
    found = (CleanerCheckpoint(**{name: row[name] for name in names}) for row in rows)
    known = [each for each in found if each.log in states and states[each.log].topic_id == each.topic_id]
    return {each.log: _limited(each, states[each.log].cleaner_limit_offset) for each in known}


def after_task(before: CleanerCheckpoint | None, result: LogTaskResult, run_id: str, now_ms: int) -> CleanerCheckpoint:
    """Return the checkpoint of a log after a task."""
    state = result.state
    found = before or CleanerCheckpoint(
        topic=state.topic,
        partition=state.partition,
        topic_id=state.topic_id,
        first_dirty_offset=result.log_start_offset,
        log_start_offset=result.log_start_offset,
    )
    dirty = found.first_dirty_offset if result.first_dirty_offset is None else result.first_dirty_offset
    found = replace(
        found,
        first_dirty_offset=max(dirty, result.log_start_offset),
        log_start_offset=result.log_start_offset,
        run_id=run_id,
        updated_ms=now_ms,
    )
    if result.is_cleaned:
        found = replace(found, last_cleaned_ms=now_ms)
    if problem := result.uncleanable or result.failure:
        return _failed(found, problem, now_ms, is_uncleanable=result.uncleanable is not None)
    return _sound(found) if result.first_dirty_offset is not None else found


def _limited(before: CleanerCheckpoint, limit: int) -> CleanerCheckpoint:
    return before if limit < 0 else replace(before, first_dirty_offset=min(before.first_dirty_offset, limit))


def _failed(before: CleanerCheckpoint, problem: str, now_ms: int, *, is_uncleanable: bool) -> CleanerCheckpoint:
    count = before.failure_count + 1
    wait_ms = min(_FIRST_WAIT_MS << min(count - 1, 16), _LONGEST_WAIT_MS)
    found = replace(_sound(before), uncleanable_reason=problem, failure_count=count, retry_at_ms=now_ms + wait_ms)
    if not is_uncleanable:
        return found
    return replace(
        found,
        uncleanable_file=_named(problem, "file|path"),
        uncleanable_position=_number(problem, "position"),
        uncleanable_offset=_number(problem, "offset"),
    )


def _sound(before: CleanerCheckpoint) -> CleanerCheckpoint:
    return replace(
        before,
        uncleanable_reason=None,
        uncleanable_file=None,
        uncleanable_position=None,
        uncleanable_offset=None,
        failure_count=0,
        retry_at_ms=None,
    )


def _named(text: str, names: str) -> str | None:
    """Return the value of a `name=value` fact in a message; a path may have blanks."""
    found = re.search(rf"\b(?:{names})=(.+?)(?=[;:]\s|[;,:]?\s+\w+=|[;,:]?$)", text)
    return found[1] if found else None


def _number(text: str, name: str) -> int | None:
    found = re.search(rf"\b{name}=(\d+)\b", text)
    return int(found[1]) if found else None
