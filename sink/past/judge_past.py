"""Judges whether the records of an earlier state can still be read: nothing keeps them from retention or compaction.

| compared with the log now | the state is |
|---|---|
| there is no such log, or its topic has another id | passed: deleted since |
| its start is at the state's end or above | passed: retention, or a deletion of records |
| a compaction has come past the state's end | passed: it may have dropped what later records superseded |
| the offsets of the state's leader epoch end below the state's end | passed: truncated since |
| its start is above the state's | shortened: the offsets below it are gone |
| otherwise | whole, apart from erased keys; a compacted topic still has the last value of each key |

A truncation raises the leader epoch, so one rule of Kafka's finds it, also after the log has grown again.

Source: Kafka LeaderEpochFileCache.endOffsetFor; KIP-101.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from sparklog.sink.ledger.rows import LogState
from sparklog.storage_core.checkpoint.leader_epochs import end_offset_for, parse_leader_epochs
from sparklog.storage_core.errors import CorruptFileError
from sparklog.storage_core.storage.local import storage_errors
from sparklog.storage_core.storage.open_regular import read_if_there
from sparklog.storage_core.topic_partition import TopicPartition

__all__ = ["Judgement", "LogsNow", "find_loss", "judge_past", "read_epochs"]

_EPOCHS: Final = "leader-epoch-checkpoint"


@dataclass(frozen=True, slots=True)
class Judgement:
    """What is left of one log's earlier state.

    Attributes:
        state: `passed` can't be read any more.
        reason: for a person; empty if it is whole.
    """

    state: Literal["whole", "shortened", "passed"]
    reason: str = ""


_WHOLE: Final = Judgement("whole")


class LogsNow:
    """Logs as they are now, to judge any number of earlier states by.

    Args:
        rows: of the ledger as it is.
        directories: of the logs that can be read; epochs are read of those whose leader epoch has risen, once.
    """

    def __init__(self, rows: Mapping[TopicPartition, LogState], directories: Mapping[TopicPartition, Path]) -> None:
        self.rows = rows
        self._directories = directories
        self._epochs: dict[TopicPartition, list[tuple[int, int]] | None] = {}

    def judge(self, past: Mapping[TopicPartition, LogState]) -> dict[TopicPartition, Judgement]:
        """Judge logs of an earlier state by their rows then.

        Raises:
            StorageError: the disk refused.
        """
        return {
            log: judge_past(state, self.rows.get(log), self._epochs_since(log, state)) for log, state in past.items()
        }

    def _epochs_since(self, log: TopicPartition, past: LogState) -> list[tuple[int, int]] | None:
        today = self.rows.get(log)
        if today is None or today.leader_epoch == past.leader_epoch or log not in self._directories:
            return []
        if log not in self._epochs:
            self._epochs[log] = read_epochs(self._directories[log])
        return self._epochs[log]


def judge_past(past: LogState, now: LogState | None, epochs: list[tuple[int, int]] | None) -> Judgement:
    """Judge one log.

    Args:
        past: its row then.
        now: its row today, None without one.
        epochs: its leader epochs with their first offsets; may be empty if the epoch has not risen; None: unknown.
    """
    loss = find_loss(past, now)
    if now is None or loss is not None:
        return Judgement("passed", loss or "")
    if epochs is None:
        return Judgement("passed", f"{_EPOCHS} is damaged, so a truncation would not be seen")
    end = end_offset_for(epochs, past.leader_epoch, now.log_end_offset)
    if (now.log_end_offset if end is None else end) < past.log_end_offset:
        return Judgement("passed", f"it was truncated since, below its end {past.log_end_offset}")
    if past.log_start_offset < min(now.log_start_offset, past.log_end_offset):
        gone = f"{past.log_start_offset}..{now.log_start_offset - 1}"
        return Judgement("shortened", f"the records of offsets {gone} were deleted since")
    return _WHOLE


def find_loss(past: LogState, now: LogState | None) -> str | None:
    """Return why a log's earlier state can't be read any more after deletions, retention or compaction; None if it can.

    If so, no state before it can be read, unless the log was empty then or did not exist. For a truncation that does
    not hold: it spares states that ended below it.
    """
    if now is None or now.topic_id != past.topic_id:
        return "the topic was deleted since"
    if past.log_start_offset == past.log_end_offset:
        return None
    if now.log_start_offset >= past.log_end_offset:
        return f"its records were deleted since, the log starts at {now.log_start_offset}"
    if now.compacted_offset > past.log_end_offset:
        return "compaction may have dropped records for later ones"
    return None


def read_epochs(directory: Path) -> list[tuple[int, int]] | None:
    """Return the leader epochs of a log with their first offsets; None if the file is gone or damaged."""
    path = directory / _EPOCHS
    with storage_errors(path):
        data = read_if_there(path)
    try:
        return None if data is None else parse_leader_epochs(data)
    except CorruptFileError:
        return None
