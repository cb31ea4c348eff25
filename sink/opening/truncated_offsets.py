"""How far logs were truncated since a run last wrote down where their cleaning ends.

`control/truncated-offsets.json`, the lowest offset of each log. Other records may have the offsets behind it by now,
and nobody has cleaned them: a checkpoint counts no further until the next one is written.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from sparklog.sink.ledger.rows import LogState
from sparklog.sink.store.control_file import ControlFile, check_count, check_name, check_topic
from sparklog.sink.store.store_folder import Store
from sparklog.storage_core.storage.owned_names import Owner
from sparklog.storage_core.topic_partition import TopicPartition

__all__ = ["drop_truncated_offsets", "note_truncated_offset", "read_truncated_offsets"]

_FILE: Final = ControlFile(
    name="truncated-offsets.json",
    what="the list of truncated logs is",
    remedy="restore it from a copy, or delete it and control/cleaner_checkpoints: every log counts as dirty then",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _TruncatedLog:
    """A log of a topic, and the lowest offset that it was truncated to."""

    topic: str
    partition: int
    topic_id: str
    offset: int

    @property
    def log(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)

    def is_of(self, states: Mapping[TopicPartition, LogState]) -> bool:
        """Whether the log is still there, and not another topic's."""
        return self.log in states and states[self.log].topic_id == self.topic_id


def note_truncated_offset(store: Store, state: LogState, offset: int, owner: Owner) -> None:
    """Write down that a log is about to be truncated, durably; the caller holds both locks.

    Raises:
        CorruptFileError: the file is damaged.
        StorageError: it can't be read or written.
    """
    log, known = TopicPartition(state.topic, state.partition), _read(store)
    before = [each.offset for each in known if each.log == log and each.topic_id == state.topic_id]
    noted = _TruncatedLog(
        topic=state.topic, partition=state.partition, topic_id=state.topic_id, offset=min([*before, offset])
    )
    _write(store, [*(each for each in known if each.log != log), noted], owner)


def read_truncated_offsets(store: Store, states: Mapping[TopicPartition, LogState]) -> dict[TopicPartition, int]:
    """Return up to where checkpoints count, of those logs that were truncated.

    Args:
        store: to look at.
        states: of its logs.

    Raises:
        CorruptFileError: the file is damaged.
        StorageError: it can't be read.
    """
    return {each.log: each.offset for each in _read(store) if each.is_of(states)}


def drop_truncated_offsets(
    store: Store, logs: Collection[TopicPartition], states: Mapping[TopicPartition, LogState], owner: Owner
) -> None:
    """Forget those of logs whose checkpoints were written, and of logs that are gone; needs the maintenance lock."""
    known = _read(store)
    kept = [each for each in known if each.log not in logs and each.is_of(states)]
    if kept != known:
        _write(store, kept, owner)


def _read(store: Store) -> list[_TruncatedLog]:
    return _FILE.read(store, lambda content: [_log(each) for each in content["logs"]]) or []


def _log(each: dict[str, Any]) -> _TruncatedLog:
    return _TruncatedLog(
        topic=check_topic(each["topic"]),
        partition=check_count("partition", each["partition"]),
        topic_id=check_name(each["topic_id"]),
        offset=check_count("offset", each["offset"]),
    )


def _write(store: Store, logs: Sequence[_TruncatedLog], owner: Owner) -> None:
    _FILE.replace(store, {"logs": [asdict(each) for each in logs]}, owner)
