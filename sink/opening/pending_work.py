"""What is under way with log directories, written down before it starts: topics that are deleted, logs that move.

`control/pending-directories.json`. The ledger decides whether such a thing happened; this file says what is left to do
on the disks then, also on one that is offline for now. So a directory of records that the ledger does not name is
either named here, or somebody else's.
"""

import re
from dataclasses import asdict, dataclass
from typing import Any, Final

from sparklog.sink.store.control_file import ControlFile, check_count, check_name, check_topic
from sparklog.sink.store.store_folder import Store
from sparklog.storage_core.log_config import INT32_MAX
from sparklog.storage_core.storage.owned_names import Owner
from sparklog.storage_core.topic_partition import TopicPartition, set_aside_name

__all__ = ["LogMove", "PendingWork", "TopicDeletion", "read_pending", "write_pending"]

_FILE: Final = ControlFile(
    name="pending-directories.json",
    what="the list of directories that are deleted or moved is",
    remedy="restore it from a copy, or delete it if no topic was being deleted and no log moved",
)
_UNIQUE_ID: Final = re.compile(r"[0-9a-f]{32}")


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicDeletion:
    """A topic that is deleted.

    Attributes:
        topic_id: tells it from a later topic of that name.
        logs: partition and log directory of each log whose directory may still be there.
    """

    topic: str
    topic_id: str
    logs: tuple[tuple[int, str], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LogMove:
    """A log that moves from one log directory to another.

    Attributes:
        topic_id: tells its topic from a later one of that name.
        unique_id: of the `-future` directory.
    """

    topic: str
    partition: int
    topic_id: str
    source: str
    target: str
    unique_id: str

    @property
    def log(self) -> TopicPartition:
        """Topic and partition."""
        return TopicPartition(self.topic, self.partition)

    @property
    def future_name(self) -> str:
        """Name of the directory that is filled on the target."""
        return set_aside_name(self.log, self.unique_id, "future")


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingWork:
    """Everything under way, in the order in which it began.

    Attributes:
        roots: log directories that such work has changed: what is set aside there may still be to be removed, and
            checkpoint files to be written. The ledger may have no log there any more.
    """

    deletions: tuple[TopicDeletion, ...] = ()
    moves: tuple[LogMove, ...] = ()
    roots: tuple[str, ...] = ()

    @property
    def log_dirs(self) -> set[str]:
        """Every log directory that it is about."""
        of_deletions = {log_dir for deletion in self.deletions for _, log_dir in deletion.logs}
        return of_deletions | {name for move in self.moves for name in (move.source, move.target)} | set(self.roots)


def read_pending(store: Store) -> PendingWork:
    """Return what is under way; every name in it is one that a directory may have.

    Raises:
        CorruptFileError: the file is damaged.
        StorageError: it can't be read.
    """
    return _FILE.read(store, _work) or PendingWork()


def write_pending(store: Store, work: PendingWork, owner: Owner) -> None:
    """Replace the list, durably; the caller holds the writer lock."""
    if work != PendingWork() or _FILE.path(store).exists():
        _FILE.replace(store, asdict(work), owner)


def _work(content: dict[str, Any]) -> PendingWork:
    return PendingWork(
        deletions=tuple(_deletion(each) for each in content["deletions"]),
        moves=tuple(_move(each) for each in content["moves"]),
        roots=tuple(check_name(each) for each in content["roots"]),
    )


def _deletion(each: dict[str, object]) -> TopicDeletion:
    logs = each["logs"]
    if not isinstance(logs, list):
        raise TypeError("logs are no list")
    return TopicDeletion(
        topic=check_topic(each["topic"]),
        topic_id=check_name(each["topic_id"]),
        logs=tuple(
            (check_count("partition", partition, INT32_MAX), check_name(log_dir)) for partition, log_dir in logs
        ),
    )


def _move(each: dict[str, object]) -> LogMove:
    unique_id = check_name(each["unique_id"])
    if not _UNIQUE_ID.fullmatch(unique_id):
        raise ValueError(f"unique_id={unique_id[:40]!r}")
    return LogMove(
        topic=check_topic(each["topic"]),
        partition=check_count("partition", each["partition"], INT32_MAX),
        topic_id=check_name(each["topic_id"]),
        source=check_name(each["source"]),
        target=check_name(each["target"]),
        unique_id=unique_id,
    )
