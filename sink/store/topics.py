"""Makes the logs of new topics."""

import logging
import os
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

from sparklog.sink.config import SinkConfig, TopicConfig
from sparklog.sink.ledger.ledger import Ledger
from sparklog.sink.ledger.rows import LogState
from sparklog.sink.store.set_aside import remove_deleted, set_aside
from sparklog.sink.store.store_folder import Store, random_id
from sparklog.storage_core.checkpoint.leader_epochs import EPOCHS_NAME, render_leader_epochs
from sparklog.storage_core.checkpoint.partition_metadata import render_partition_metadata
from sparklog.storage_core.errors import InvalidConfigError, LogDirOfflineError
from sparklog.storage_core.fault_points import reach
from sparklog.storage_core.log.files.names import INDEX, LOG, TIMEINDEX, segment_file_name
from sparklog.storage_core.storage.local import storage_errors, sync_directories, sync_files, write_all
from sparklog.storage_core.storage.open_regular import open_to_change
from sparklog.storage_core.storage.owned_names import Owner
from sparklog.storage_core.topic_partition import TopicPartition, topic_names_collide

__all__ = ["create_topics", "new_state", "plan_topics", "topic_problems"]

logger = logging.getLogger(__name__)


def plan_topics(
    store: Store, ledger: Ledger, config: SinkConfig, log_dirs: Sequence[str], now_ms: int
) -> list[LogState]:
    """Return the logs that the settings name and the ledger lacks; changes nothing.

    Args:
        log_dirs: usable ones of the settings.

    Raises:
        LogDirOfflineError: there are logs to add, and no usable log directory.
        InvalidConfigError: a topic has more partitions than its setting, collides with another one, or a directory
            holds records of a log that the ledger lacks.
    """
    if problems := topic_problems(config, ledger.rows):
        raise InvalidConfigError(*problems)
    load = Counter(dict.fromkeys(log_dirs, 0))
    load.update(state.log_dir for state in ledger.states().values() if state.log_dir in load)
    ids = {state.topic: state.topic_id for state in ledger.states().values()}
    added: list[LogState] = []
    for topic in config.topics.values():
        mirrored = config.mirrored.get(topic.name)
        topic_id = ids.get(topic.name) or (mirrored and mirrored.topic_id) or random_id()
        # An import may have left partitions out, so those that there are need not be the first ones.
        missing = [each for each in range(topic.partitions) if TopicPartition(topic.name, each) not in ledger.rows]
        for partition in missing:
            if not log_dirs:
                raise LogDirOfflineError(
                    f"no log directory can be used for new logs: log_dirs={', '.join(config.log_dirs)}"
                    f" log={topic.name}-{partition}"
                )
            log_dir = min(log_dirs, key=lambda name: (load[name], log_dirs.index(name)))
            load[log_dir] += 1
            start = mirrored.starts.get(partition, 0) if mirrored else 0
            added.append(new_state(topic.name, partition, log_dir, topic_id, start, now_ms))
    for log, directory in _existing(store, added, log_dirs):
        _check_is_empty(directory, log)
    return added


def create_topics(
    store: Store, ledger: Ledger, added: list[LogState], log_dirs: Sequence[str], *, with_segment: bool, owner: Owner
) -> None:
    """Add planned logs: directories first, then one ledger commit.

    A crash before the commit leaves directories without records, which the next call removes.

    Args:
        log_dirs: usable ones of the settings.
        with_segment: whether those at offset 0 get one; with preserved offsets their first record names it.
    """
    if not added:
        return
    # Orphans of a crash go first: a fenced writer may still have their files open.
    remove_deleted([set_aside(log, directory, owner) for log, directory in _existing(store, added, log_dirs)])
    _make_directories(store, added, with_segment, owner)
    reach("open.directories")
    ledger.add(added, owner, max(state.updated_ms for state in added))
    logger.info("Created logs count=%d topics=%s", len(added), ",".join(sorted({state.topic for state in added})))


def topic_problems(config: SinkConfig, existing: Iterable[TopicPartition]) -> list[str]:
    """Return the conflicts between the topics of the settings and of a store.

    Args:
        existing: logs of the store.
    """
    counts: Counter[str] = Counter()
    for log in existing:
        counts[log.topic] = max(counts[log.topic], log.partition + 1)
    return [problem for topic in config.topics.values() if (problem := _problem(topic, counts))]


def _problem(topic: TopicConfig, existing: Counter[str]) -> str | None:
    if existing[topic.name] > topic.partitions:
        return (
            f"topics.{topic.name}: partitions={topic.partitions}, but the store has {existing[topic.name]}:"
            " a topic can't shrink"
        )
    colliding = [name for name in existing if topic_names_collide(name, topic.name)]
    if colliding and not existing[topic.name]:
        return f"topics.{topic.name}: collides with existing topic {colliding[0]!r}"
    return None


def new_state(topic: str, partition: int, log_dir: str, topic_id: str, start: int, now_ms: int) -> LogState:
    """Return the row of a log that is empty."""
    return LogState(
        topic=topic,
        partition=partition,
        log_dir=log_dir,
        topic_id=topic_id,
        log_start_offset=start,
        log_end_offset=start,
        recovery_point=start,
        active_base_offset=start,
        active_size_bytes=0,
        max_timestamp_ms=-1,
        leader_epoch=0,
        updated_ms=now_ms,
    )


def _existing(store: Store, states: list[LogState], log_dirs: Sequence[str]) -> list[tuple[TopicPartition, Path]]:
    """Return existing directories of new logs."""
    logs = [TopicPartition(state.topic, state.partition) for state in states]
    directories = [(log, store.log_dir(name) / log.directory_name) for log in logs for name in log_dirs]
    return [(log, directory) for log, directory in directories if directory.exists()]


def _make_directories(store: Store, states: list[LogState], with_segment: bool, owner: Owner) -> None:
    files: list[Path] = []
    directories: list[Path] = []
    for state in states:
        directory = store.log_path(state)
        with storage_errors(directory):
            directory.mkdir(exist_ok=True)
            base = state.active_base_offset
            is_begun = with_segment or base > 0  # a log that starts above 0 needs the segment that says so
            contents = {
                "partition.metadata": render_partition_metadata(state.topic_id),
                EPOCHS_NAME: render_leader_epochs([(state.leader_epoch, 0)]),
                **{segment_file_name(base, suffix): b"" for suffix in (LOG, INDEX, TIMEINDEX) if is_begun},
            }
            for name, content in contents.items():
                _write_file(directory / name, content, owner)
                files.append(directory / name)
        directories.append(directory)
    with storage_errors("log directories"):
        sync_files(files)
        sync_directories(directories)
        sync_directories(sorted({directory.parent for directory in directories}))


def _write_file(path: Path, content: bytes, owner: Owner) -> None:
    """Write a small file, after a check of the lock: a new owner may have records in it."""
    descriptor = open_to_change(path, os.O_WRONLY | os.O_CREAT)
    try:
        owner.check()
        os.ftruncate(descriptor, 0)
        write_all(descriptor, content, 0)
    finally:
        os.close(descriptor)


def _check_is_empty(directory: Path, log: TopicPartition) -> None:
    with storage_errors(directory):
        has_records = any(path.stat().st_size for path in directory.iterdir() if path.name.endswith(LOG))
    if has_records:
        raise InvalidConfigError(
            f"log={log} is not in the ledger, but {directory} holds records: name another store, or move it away"
        )
