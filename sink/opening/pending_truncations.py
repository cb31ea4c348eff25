"""Truncations under way, written down before the ledger says anything of them.

`control/pending-truncations.json`. The ledger decides whether a truncation happened; a note says what is left to do
then, also in a log whose disk is offline for now. Every opening for writing finishes what happened, and drops the note
of what did not.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any, Final

from sparklog.sink.ledger.rows import LogState
from sparklog.sink.store.control_file import ControlFile, check_count, check_name, check_topic
from sparklog.sink.store.store_folder import Store
from sparklog.storage_core.storage.owned_names import Owner
from sparklog.storage_core.topic_partition import TopicPartition

__all__ = ["PendingTruncation", "read_truncations", "write_truncations"]

_FILE: Final = ControlFile(
    name="pending-truncations.json",
    what="the list of logs that are truncated is",
    remedy="restore it from a copy, or delete it if no log was being truncated",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingTruncation:
    """A log that is truncated.

    Attributes:
        topic_id: tells its topic from a later one of that name.
        offset: the log's new end.
        log_start_offset: its new start.
        next_offset: behind its last batch that stays; a batch without records stands for those up to the new end.
        segment_base: of the segment that becomes the active one.
        size_bytes: that stay of it.
        lost_from: first offset below the new end that is lost; the new end if none is.
        began_ms: when it was written down.
    """

    topic: str
    partition: int
    topic_id: str
    offset: int
    log_start_offset: int
    next_offset: int
    segment_base: int
    size_bytes: int
    lost_from: int
    began_ms: int

    @property
    def log(self) -> TopicPartition:
        """Topic and partition."""
        return TopicPartition(self.topic, self.partition)

    @property
    def is_emptying(self) -> bool:
        """Whether nothing stays, so that the log begins anew."""
        return self.size_bytes == 0 and self.segment_base == self.log_start_offset == self.offset

    @property
    def first_start(self) -> int:
        """Where the log starts until its end is where it belongs: not behind its last batch."""
        return min(self.log_start_offset, self.next_offset)

    def is_committed(self, state: LogState) -> bool:
        """Whether the ledger lets the log end with its last batch that stays: the rest is still to be done.

        Its start tells, too: a log that was rolled and is to be emptied ends in an empty segment before.
        """
        end = (state.active_base_offset, state.active_size_bytes, state.log_end_offset)
        is_cut = end == (self.segment_base, self.size_bytes, self.next_offset)
        return is_cut and state.topic_id == self.topic_id and state.log_start_offset >= self.first_start


def read_truncations(store: Store) -> list[PendingTruncation]:
    """Return what is under way, in the order in which it began.

    Raises:
        CorruptFileError: the file is damaged.
        StorageError: it can't be read.
    """
    return _FILE.read(store, _truncations) or []


def write_truncations(store: Store, truncations: Sequence[PendingTruncation], owner: Owner) -> None:
    """Replace the list, durably; the caller holds the writer lock."""
    if truncations or _FILE.path(store).exists():
        _FILE.replace(store, {"truncations": [asdict(each) for each in truncations]}, owner)


def _truncations(content: dict[str, Any]) -> list[PendingTruncation]:
    return [_truncation(each) for each in content["truncations"]]


def _truncation(each: dict[str, Any]) -> PendingTruncation:
    values = {field.name: each[field.name] for field in fields(PendingTruncation)}
    topic, topic_id = check_topic(values.pop("topic")), check_name(values.pop("topic_id"))
    counts = {name: check_count(name, value) for name, value in values.items()}
    return PendingTruncation(topic=topic, topic_id=topic_id, **counts)
