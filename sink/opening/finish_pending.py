"""Finishes what a crash, or an offline disk, left of deleted topics and moved logs.

The ledger decides. A deletion that it does not show never happened, and one that it shows is carried out. Of a moved
log the directory counts that lies where the ledger says: it gets its name if it has not got it yet, and others are set
aside. On a disk that is offline nothing can be done, so that part stays written down.
"""

import logging
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from sparklog.sink.ledger.ledger import Ledger
from sparklog.sink.ledger.lost_ranges import LostRangeTable
from sparklog.sink.opening.pending_work import LogMove, PendingWork, TopicDeletion, read_pending, write_pending
from sparklog.sink.store.derived_files import DerivedFiles
from sparklog.sink.store.log_dirs import check_root
from sparklog.sink.store.set_aside import set_aside, stored_topic_id
from sparklog.sink.store.store_folder import Store
from sparklog.sink.store.topic_configs import forget_topic_config
from sparklog.storage_core.errors import StorageError
from sparklog.storage_core.fault_points import reach
from sparklog.storage_core.storage.local import storage_errors, sync_directory
from sparklog.storage_core.storage.owned_names import Owner, rename
from sparklog.storage_core.topic_partition import TopicPartition

__all__ = ["finish_pending"]

logger = logging.getLogger(__name__)


def finish_pending(store: Store, ledger: Ledger, owner: Owner) -> list[Path]:
    """Carry out what is written down and not done yet; the caller holds the writer lock.

    Returns:
        `-delete` directories that came of it.

    Raises:
        InvalidConfigError: two directories claim to be one log; neither was changed.
        StoreLockedError: a task of a dead maintenance run is still at work on a log that was deleted or moved.
        CorruptFileError: the list can't be read.
    """
    work = read_pending(store)
    if not work.deletions and not work.moves:
        return []
    deleted: list[Path] = []
    deletions = [_finish_deletion(store, ledger, each, owner, deleted) for each in work.deletions]
    moves = [_finish_move(store, ledger, each, owner, deleted) for each in work.moves]
    touched = _touched_roots(work)
    left = PendingWork(
        deletions=tuple(each for each in deletions if each is not None),
        moves=tuple(each for each in moves if each is not None),
        roots=tuple(sorted({*work.roots, *touched})),
    )
    try:
        DerivedFiles(store, ledger, owner).write_roots(touched)
    except StorageError as error:  # a full disk must not keep the store from being opened
        logger.warning("Checkpoint files were not written, a later opening will: %s", error)
    write_pending(store, left, owner)
    logger.info("Finished deletions and moves of logs left=%d", len(left.deletions) + len(left.moves))
    return deleted


def _finish_deletion(
    store: Store, ledger: Ledger, deletion: TopicDeletion, owner: Owner, deleted: list[Path]
) -> TopicDeletion | None:
    """Return what is left to do: logs on disks that are offline."""
    states = ledger.states().values()
    if any(state.topic_id == deletion.topic_id for state in states):
        return None  # killed before the commit: the topic is as it was
    if not any(state.topic == deletion.topic for state in states):  # or it is a later topic's by now
        owner.check()
        lost = LostRangeTable(store.root / "control" / "lost_ranges")
        lost.drop_torn(owner)  # a power cut may have come while it was forgotten
        lost.forget(deletion.topic)
        forget_topic_config(store, deletion.topic, owner)
    left = []
    for partition, name in deletion.logs:
        log = TopicPartition(deletion.topic, partition)
        if check_root(store, name) is not None:
            left.append((partition, name))
        else:
            deleted += _set_aside_old(store, ledger, (log, deletion.topic_id), name, owner)
            reach("delete-topic.renamed")
    return replace(deletion, logs=tuple(left)) if left else None


def _finish_move(store: Store, ledger: Ledger, move: LogMove, owner: Owner, deleted: list[Path]) -> LogMove | None:
    """Return the move if one of its disks is offline.

    The new directory gets its name before the old one loses it, as in Kafka: with a crash in between a broker finds the
    log twice and does not start. The other way round it would find none, and begin an empty log.
    """
    row = ledger.rows.get(move.log)
    state = None if row is None else ledger.state(row)
    home = state.log_dir if state is not None and state.topic_id == move.topic_id else None
    is_offline = {name: check_root(store, name) is not None for name in (move.source, move.target)}
    future = store.log_dir(move.target) / move.future_name
    if not is_offline[move.target] and future.is_dir():
        if home == move.target and _take_name(move.log, future, owner):
            reach("move.renamed")
        else:
            deleted.append(set_aside(move.log, future, owner))
    if home is None or (store.log_dir(home) / move.log.directory_name).is_dir():
        for name in (each for each in (move.source, move.target) if each != home and not is_offline[each]):
            deleted += _set_aside_old(store, ledger, (move.log, move.topic_id), name, owner)
            reach("move.renamed")
    return move if any(is_offline.values()) else None


def _take_name(log: TopicPartition, future: Path, owner: Owner) -> bool:
    """Give a complete `-future` directory the log's name, durably, unless the log has it already."""
    target = future.with_name(log.directory_name)
    if target.exists():
        return False
    with storage_errors(future):
        rename(owner, future, target)
        sync_directory(target.parent)
    return True


def _set_aside_old(
    store: Store, ledger: Ledger, log_of_topic: tuple[TopicPartition, str], root: str, owner: Owner
) -> Iterator[Path]:
    """Set the log's directory in a root aside, if it is of that topic: a later one of the same name stays.

    One that does not say whose it is can only be what is looked for, unless the ledger names it.
    """
    log, topic_id = log_of_topic
    directory = store.log_dir(root) / log.directory_name
    if not directory.is_dir():
        return
    row = ledger.rows.get(log)
    is_named = row is not None and store.log_path(ledger.state(row)) == directory
    found = stored_topic_id(directory)
    if found == topic_id or (found is None and not is_named):
        yield set_aside(log, directory, owner)


def _touched_roots(work: PendingWork) -> set[str]:
    names = {name for each in work.deletions for _, name in each.logs}
    return names | {name for each in work.moves for name in (each.source, each.target)}
