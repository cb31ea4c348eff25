"""How far logs were truncated since a run last wrote down where their cleaning ends.

`control/truncated-offsets.json`, the lowest offset of each log. Other records may have the offsets behind it by now,
and nobody has cleaned them: a checkpoint counts no further until the next one is written.
"""

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from sink.ledger_rows import LogState
from sink.store import Store
from storage_core.errors import CorruptFileError, InvalidConfigError
from storage_core.storage.local import make_directory, replace_file, storage_errors
from storage_core.topic_partition import TopicPartition, check_topic_name

__all__ = ["drop_truncated_offsets", "note_truncated_offset", "read_truncated_offsets"]

_VERSION: Final = 0


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


def note_truncated_offset(store: Store, state: LogState, offset: int) -> None:
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
    _write(store, [*(each for each in known if each.log != log), noted])


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
    store: Store, logs: Collection[TopicPartition], states: Mapping[TopicPartition, LogState]
) -> None:
    """Forget those of logs whose checkpoints were written, and of logs that are gone; needs the maintenance lock."""
    known = _read(store)
    kept = [each for each in known if each.log not in logs and each.is_of(states)]
    if kept != known:
        _write(store, kept)


def _read(store: Store) -> list[_TruncatedLog]:
    path = _path(store)
    with storage_errors(path):
        data = path.read_bytes() if path.exists() else None
    if data is None:
        return []
    try:
        content = json.loads(data)
        if content["version"] != _VERSION:
            raise ValueError(f"version {str(content['version'])[:40]}, not {_VERSION}")
        return [_parse(each) for each in content["logs"]]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, InvalidConfigError) as error:
        raise CorruptFileError(
            f"the list of truncated logs is damaged: path={path} ({error}); restore it from a copy, or delete it and"
            " control/cleaner_checkpoints: every log counts as dirty then"
        ) from error


def _parse(each: dict[str, Any]) -> _TruncatedLog:
    topic, topic_id = each["topic"], each["topic_id"]
    if not isinstance(topic, str) or not isinstance(topic_id, str):
        raise TypeError(f"no topic: {str(topic)[:40]}")
    check_topic_name(topic)
    return _TruncatedLog(
        topic=topic, topic_id=topic_id, partition=_count(each, "partition"), offset=_count(each, "offset")
    )


def _count(each: dict[str, Any], name: str) -> int:
    value = each[name]
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ValueError(f"{name}={str(value)[:40]}")
    return value


def _write(store: Store, logs: Sequence[_TruncatedLog]) -> None:
    path = _path(store)
    content = {"version": _VERSION, "logs": [asdict(each) for each in logs]}
    with storage_errors(path):
        make_directory(path.parent)
        replace_file(path, json.dumps(content, indent=1).encode() + b"\n")


def _path(store: Store) -> Path:
    return store.root / "control" / "truncated-offsets.json"
