"""Deletes a topic of a store: from one ledger commit on it does not exist, whatever is left of it on the disks.

| step | done | killed behind it |
|---|---|---|
| 1 | the deletion is written down | nothing happened: the next opening drops the note |
| 2 | ledger rows removed, in one commit | the next opening does 3 and 4 |
| 3 | lost ranges and settings forgotten, directories renamed to `-delete`, roots synced | the next opening does 4 |
| 4 | checkpoint files written without the topic, the note dropped | the next opening does 5 |
| 5 | after `file.delete.delay.ms`: content removed | the next opening does it |

A topic of that name that is made later has another id, and starts at offset 0.

Source: Kafka LogManager.asyncDelete.
"""

import logging
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from sparklog.sink.ledger.ledger import Ledger
from sparklog.sink.ledger.rows import LogState
from sparklog.sink.opening.access import WrittenStore
from sparklog.sink.opening.finish_pending import finish_pending
from sparklog.sink.opening.pending_work import TopicDeletion, read_pending, write_pending
from sparklog.sink.store.log_dirs import check_root
from sparklog.sink.store.store_folder import Store
from sparklog.sink.store.topic_configs import read_topic_configs
from sparklog.storage_core.cleaner.hold_log import wait_for_tasks
from sparklog.storage_core.errors import UnknownTopicError
from sparklog.storage_core.fault_points import reach
from sparklog.storage_core.log_config import LogConfig
from sparklog.storage_core.storage.local import storage_errors
from sparklog.storage_core.topic_partition import TopicPartition

__all__ = ["DeletedLog", "TopicDeletionPlan", "delete_topic", "plan_topic_deletion"]

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeletedLog:
    """One log of a topic that is to go.

    Attributes:
        offsets: how many it holds.
        size_bytes: of all its files; None where its disk is offline.
    """

    log: TopicPartition
    directory: Path
    offsets: int
    size_bytes: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicDeletionPlan:
    """What deleting a topic takes.

    Attributes:
        logs: by partition.
        file_delete_delay_ms: how long the renamed directories stay.
    """

    topic: str
    topic_id: str
    logs: tuple[DeletedLog, ...]
    file_delete_delay_ms: int


def plan_topic_deletion(store: Store, ledger: Ledger, topic: str) -> TopicDeletionPlan:
    """Return what deleting a topic takes; changes nothing.

    Raises:
        UnknownTopicError: the store has no such topic.
        CorruptFileError: the settings of the store's topics can't be read.
    """
    states = _states(ledger, topic)
    logs = [
        DeletedLog(
            log=TopicPartition(topic, state.partition),
            directory=store.log_path(state),
            offsets=state.log_end_offset - state.log_start_offset,
            size_bytes=_size_bytes(store.log_path(state)),
        )
        for state in states
    ]
    config = read_topic_configs(store).get(topic, LogConfig())
    return TopicDeletionPlan(
        topic=topic,
        topic_id=states[0].topic_id,
        logs=tuple(logs),
        file_delete_delay_ms=config.file_delete_delay_ms,
    )


def delete_topic(written: WrittenStore, topic: str) -> list[Path]:
    """Delete a topic, but for the content of its directories.

    Returns:
        `-delete` directories to be removed; those on disks that are offline are left to a later opening.

    Raises:
        UnknownTopicError: the store has no such topic.
        StoreLockedError: a task of a dead maintenance run is still at work on a log; nothing was changed.
        CommitStateUnknownError: the ledger's folder failed; the next opening finds out.
        StorageError: the disk refused; behind the commit the next opening goes on.
    """
    store, ledger = written.store, written.ledger
    states = _states(ledger, topic)
    wait_for_tasks(store.log_path(state) for state in states if check_root(store, state.log_dir) is None)
    deletion = TopicDeletion(
        topic=topic,
        topic_id=states[0].topic_id,
        logs=tuple((state.partition, state.log_dir) for state in states),
    )
    work = read_pending(store)
    write_pending(store, replace(work, deletions=(*work.deletions, deletion)), written.lock)
    rows = np.array([ledger.rows[TopicPartition(topic, state.partition)] for state in states], np.int64)
    ledger.remove(rows)
    reach("delete-topic.committed")
    deleted = finish_pending(store, ledger, written.lock)
    logger.info("Deleted a topic topic=%s logs=%d", topic, len(states))
    return deleted


def _states(ledger: Ledger, topic: str) -> list[LogState]:
    states = [state for state in ledger.states().values() if state.topic == topic]
    if not states:
        known = ", ".join(sorted(set(ledger.topics))) or "none"
        raise UnknownTopicError(f"no topic of that name: name={topic} topics={known}")
    return sorted(states, key=lambda state: state.partition)


def _size_bytes(directory: Path) -> int | None:
    with storage_errors(directory):
        if not directory.is_dir():
            return None
        return sum(path.stat().st_size for path in directory.iterdir() if path.is_file())
