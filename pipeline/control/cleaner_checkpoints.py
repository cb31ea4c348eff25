"""What is known of each log from former runs, and how a run changes it. Decides, touches nothing.

A log that failed waits before it is tried again: a quarter of an hour, twice as long after each further failure, a day
at most. Any success forgets that. What is known of a topic that was deleted and made again is another topic's.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, Final

from sparklog.sink.ledger.rows import LogState
from sparklog.storage_core.topic_partition import TopicPartition

__all__ = ["CleanerCheckpoint", "LogWork", "after_work", "checkpoints_of"]

_FIRST_WAIT_MS: Final = 15 * 60_000
_LONGEST_WAIT_MS: Final = 24 * 3_600_000


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanerCheckpoint:
    """A row of `cleaner_checkpoints`.

    Attributes:
        topic_id: of the topic whose log it was.
        first_dirty_offset: where the next cleaning begins.
        log_start_offset: as it was then.
        last_cleaned_ms: when a round came to its end; None if none ever did.
        uncleanable_reason: why the last cleaning failed, whatever the cause; None behind a sound one.
        uncleanable_file, uncleanable_position, uncleanable_offset: where the log can't be cleaned, as far as that is
            known; None where trying again may help.
        failure_count: since the last success.
        retry_at_ms: not before; None without a failure.
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
class LogWork:
    """What a run did to one log, as far as the next one has to know.

    Attributes:
        first_dirty_offset: where the next cleaning begins; None where none was tried.
        log_start_offset: as it is now.
        is_cleaned: whether a round came to its end.
        uncleanable: why the log can't be cleaned; names file, position or offset.
        failure: why it was not, and may be next time.
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
    """Return what is known of the logs that there are.

    Args:
        rows: of the table.
        states: of the logs; above its `cleaner_limit_offset` a log is dirty, whatever its row says.
    """
    names = [each.name for each in fields(CleanerCheckpoint)]
    found = (CleanerCheckpoint(**{name: row[name] for name in names}) for row in rows)
    known = [each for each in found if each.log in states and states[each.log].topic_id == each.topic_id]
    return {each.log: _limited(each, states[each.log].cleaner_limit_offset) for each in known}


def after_work(before: CleanerCheckpoint | None, work: LogWork, run_id: str, now_ms: int) -> CleanerCheckpoint:
    """Return what is known of a log behind a run."""
    state = work.state
    found = before or CleanerCheckpoint(
        topic=state.topic,
        partition=state.partition,
        topic_id=state.topic_id,
        first_dirty_offset=work.log_start_offset,
        log_start_offset=work.log_start_offset,
    )
    dirty = found.first_dirty_offset if work.first_dirty_offset is None else work.first_dirty_offset
    found = replace(
        found,
        first_dirty_offset=max(dirty, work.log_start_offset),
        log_start_offset=work.log_start_offset,
        run_id=run_id,
        updated_ms=now_ms,
    )
    if work.is_cleaned:
        found = replace(found, last_cleaned_ms=now_ms)
    if problem := work.uncleanable or work.failure:
        return _failed(found, problem, now_ms, is_uncleanable=work.uncleanable is not None)
    return _sound(found) if work.first_dirty_offset is not None else found


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
    """Return what a message says of a name: facts stand as `name=value` in it, and a path may have blanks."""
    found = re.search(rf"\b(?:{names})=(.+?)(?=[;:]\s|[;,:]?\s+\w+=|[;,:]?$)", text)
    return found[1] if found else None


def _number(text: str, name: str) -> int | None:
    found = re.search(rf"\b{name}=(\d+)\b", text)
    return int(found[1]) if found else None
