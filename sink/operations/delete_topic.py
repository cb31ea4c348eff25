"""Deletes a topic of a store: after one ledger commit it does not exist; its files are removed later.

| step | done | killed after it |
|---|---|---|
| 1 | its ledger rows say that it is deleted, in one commit | the next opening does 2 to 4 |
| 2 | lost ranges and settings forgotten, directories renamed to `-delete` | the next opening does 3 and 4 |
| 3 | after `file.delete.delay.ms`: content removed | the next opening does 4 |
| 4 | by the next opening: checkpoint files written without the topic, its rows dropped in one commit | |

A topic of that name that is made later has another id, and starts at offset 0.

Source: Kafka LogManager.asyncDelete.
"""

import logging
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from sparklog.sink.ledger.intents import Deletion, Truncation, render_intents
from sparklog.sink.ledger.ledger import Ledger
from sparklog.sink.ledger.rows import LedgerRows, LogState
from sparklog.sink.opening.access import WrittenStore
from sparklog.sink.opening.finish_intents import finish_directories, named_log_dirs
from sparklog.sink.past.write_cuts import write_due_cut
from sparklog.sink.store.derived_files import DerivedFiles
from sparklog.sink.store.log_dirs import check_root
from sparklog.sink.store.store_folder import Store
from sparklog.sink.store.topic_configs import read_topic_configs
from sparklog.storage_core.cleaner.hold_log import wait_for_tasks
from sparklog.storage_core.clock import Clock
from sparklog.storage_core.errors import UnknownTopicError
from sparklog.storage_core.fault_points import reach
from sparklog.storage_core.log_config import LogConfig
from sparklog.storage_core.storage.local import storage_errors
from sparklog.storage_core.topic_partition import TopicPartition

__all__ = ["DeletedLog", "TopicDeletionPlan", "delete_topic", "plan_topic_deletion"]

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeletedLog:
    """One log of a topic to delete.

    Attributes:
        offsets: number of its offsets.
        size_bytes: of all its files; None on an offline disk.
    """

    log: TopicPartition
    directory: Path
    offsets: int
    size_bytes: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicDeletionPlan:
    """Plan of a topic's deletion.

    Attributes:
        logs: by partition.
        file_delete_delay_ms: delay before the renamed directories are removed.
    """

    topic: str
    topic_id: str
    logs: tuple[DeletedLog, ...]
    file_delete_delay_ms: int


def plan_topic_deletion(store: Store, ledger: Ledger, topic: str) -> TopicDeletionPlan:
    """Plan the deletion of a topic; changes nothing.

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


def delete_topic(written: WrittenStore, topic: str, clock: Clock) -> list[Path]:
    """Delete a topic, except the content of its directories.

    Returns:
        `-delete` directories to remove; a later opening finds those on offline disks.

    Raises:
        UnknownTopicError: the store has no such topic.
        StoreLockedError: a task of a dead maintenance run still holds a log; nothing was changed.
        CommitStateUnknownError: the ledger's folder failed; the next opening decides.
        StorageError: the disk refused; after the commit the next opening continues.
    """
    store, ledger = written.store, written.ledger
    states = _states(ledger, topic)
    wait_for_tasks(store.log_path(state) for state in states if check_root(store, state.log_dir) is None)
    rows = np.array([ledger.rows[state.log] for state in states], np.int64)
    ends = np.array([state.log_end_offset for state in states], np.int64)  # no record needs a sync any more
    intents = [_intent(state) for state in states]

    def change(held: LedgerRows) -> LedgerRows:
        return held.with_values(rows, {"intent": intents, "recovery_point": ends})

    now_ms = clock.now_ms()
    write_due_cut(store.root, ledger, written.lock, now_ms)
    ledger.change(change, written.lock, changed_ms=now_ms)
    reach("delete-topic.committed")
    deleted = finish_directories(store, ledger, written.lock)
    DerivedFiles(store, ledger, written.lock).write_roots(named_log_dirs(ledger))
    logger.info("Deleted a topic topic=%s logs=%d", topic, len(states))
    return deleted


def _states(ledger: Ledger, topic: str) -> list[LogState]:
    states = [state for state in ledger.states().values() if state.topic == topic]
    if not states:
        known = ", ".join(sorted(set(ledger.topics))) or "none"
        raise UnknownTopicError(f"no topic of that name: name={topic} topics={known}")
    return sorted(states, key=lambda state: state.partition)


def _intent(state: LogState) -> str:
    """Return a deleted log's intent: an offline disk may have directories of earlier moves, too."""
    moves = tuple(each for each in state.intents if not isinstance(each, Truncation))
    return render_intents((*moves, Deletion()))


def _size_bytes(directory: Path) -> int | None:
    with storage_errors(directory):
        if not directory.is_dir():
            return None
        return sum(path.stat().st_size for path in directory.iterdir() if path.is_file())
