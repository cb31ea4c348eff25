"""What is under way with log directories, written down before it starts: topics that are deleted, logs that move.

`control/pending-directories.json`. The ledger decides whether such a thing happened; this file says what is left to do
on the disks then, also on one that is offline for now. So a directory of records that the ledger does not name is
either named here, or somebody else's.
"""

import json
import re
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from sink.store import Store
from storage_core.errors import CorruptFileError, InvalidConfigError
from storage_core.log_config import INT32_MAX
from storage_core.storage.local import make_directory, replace_file, storage_errors
from storage_core.topic_partition import TopicPartition, check_topic_name, set_aside_name

__all__ = [
    "LogMove",
    "PendingWork",
    "TopicDeletion",
    "parse_pending",
    "read_pending",
    "render_pending",
    "write_pending",
]

_VERSION: Final = 0
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


def read_pending(store: Store) -> PendingWork:
    """Return what is under way.

    Raises:
        CorruptFileError: the file is damaged.
        StorageError: it can't be read.
    """
    path = _path(store)
    with storage_errors(path):
        data = path.read_bytes() if path.exists() else None
    if data is None:
        return PendingWork()
    try:
        return parse_pending(data)
    except CorruptFileError as error:
        raise CorruptFileError(
            f"the list of directories that are deleted or moved is damaged: path={path} ({error}); restore it from a"
            " copy, or delete it if no topic was being deleted and no log moved"
        ) from error


def parse_pending(data: bytes) -> PendingWork:
    """Return what a list says; every name in it is one that a directory may have.

    Raises:
        CorruptFileError: it is damaged, or of another version.
    """
    try:
        content = json.loads(data)
        if content["version"] != _VERSION:
            raise ValueError(f"version {content['version']}, not {_VERSION}")
        return PendingWork(
            deletions=tuple(_deletion(each) for each in content["deletions"]),
            moves=tuple(_move(each) for each in content["moves"]),
            roots=tuple(_text(each) for each in content["roots"]),
        )
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, InvalidConfigError) as error:
        raise CorruptFileError(f"pending work: {error}") from error


def write_pending(store: Store, work: PendingWork) -> None:
    """Replace the list, durably; the caller holds the writer lock."""
    path = _path(store)
    with storage_errors(path):
        if work == PendingWork() and not path.exists():
            return
        make_directory(path.parent)
        replace_file(path, render_pending(work))


def render_pending(work: PendingWork) -> bytes:
    """Return the file's bytes."""
    return json.dumps({"version": _VERSION, **asdict(work)}, indent=1).encode() + b"\n"


def _deletion(each: dict[str, object]) -> TopicDeletion:
    logs = each["logs"]
    if not isinstance(logs, list):
        raise TypeError("logs are no list")
    return TopicDeletion(
        topic=_topic(each["topic"]),
        topic_id=_text(each["topic_id"]),
        logs=tuple((_partition(partition), _text(log_dir)) for partition, log_dir in logs),
    )


def _move(each: dict[str, object]) -> LogMove:
    unique_id = _text(each["unique_id"])
    if not _UNIQUE_ID.fullmatch(unique_id):
        raise ValueError(f"unique_id={unique_id[:40]!r}")
    return LogMove(
        topic=_topic(each["topic"]),
        partition=_partition(each["partition"]),
        topic_id=_text(each["topic_id"]),
        source=_text(each["source"]),
        target=_text(each["target"]),
        unique_id=unique_id,
    )


def _topic(value: object) -> str:
    topic = _text(value)
    check_topic_name(topic)
    return topic


def _partition(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= INT32_MAX:
        raise ValueError(f"partition={str(value)[:40]}")
    return value


def _text(value: object) -> str:
    if not isinstance(value, str) or not value or "\0" in value:
        raise ValueError(f"not a name: {str(value)[:40]!r}")
    return value


def _path(store: Store) -> Path:
    return store.root / "control" / "pending-directories.json"
