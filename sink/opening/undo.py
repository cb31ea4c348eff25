"""Finds logs with partial writes past their committed end after a crash, and cuts them back."""

import os
from collections.abc import Collection, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor

from sparklog.sink.ledger.rows import LogState
from sparklog.sink.locks.writer_lock import WriterLock
from sparklog.sink.opening.open_log_dirs import LogDirs
from sparklog.sink.store.store_folder import Store
from sparklog.storage_core.log.append.cut_back import cut_back_logs, has_leftovers, needs_cut_back, renew_active_segment
from sparklog.storage_core.storage.local import storage_errors
from sparklog.storage_core.storage.write_back import sync_filesystems
from sparklog.storage_core.topic_partition import TopicPartition

__all__ = ["cut_back_torn", "find_torn", "find_torn_online", "renew", "renew_returned", "sync_cuts"]

_CHUNK = 256
"""Logs that a thread checks in one go."""
_SYNC_THREADS = 8
"""Threads that mostly wait for the disk."""


def find_torn(store: Store, states: Mapping[TopicPartition, LogState], *, follows_crash: bool) -> list[TopicPartition]:
    """Return the logs with bytes or files past their end; changes nothing.

    Two `stat` calls a log find the rest of a failed micro-batch; after a crash each directory is listed, too.

    Raises:
        CorruptFileError: committed bytes are gone.
    """

    def look(logs: list[TopicPartition]) -> Iterator[TopicPartition]:
        for log in logs:
            directory, end = store.log_path(states[log]), states[log].committed_end
            if needs_cut_back(directory, end) or (follows_crash and has_leftovers(directory, end)):
                yield log

    logs = list(states)
    chunks = [logs[start : start + _CHUNK] for start in range(0, len(logs), _CHUNK)]
    if len(chunks) <= 1:
        return list(look(logs))
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return [log for found in pool.map(lambda chunk: list(look(chunk)), chunks) for log in found]


def find_torn_online(
    log_dirs: LogDirs, states: Mapping[TopicPartition, LogState], *, follows_crash: bool
) -> list[TopicPartition]:
    """As `find_torn`, for online logs; logs that were offline until now are checked as after a crash."""
    online, returned = log_dirs.online(states), log_dirs.with_remedy(states, "look", "renew")
    torn = find_torn(log_dirs.store, online, follows_crash=follows_crash)
    known = set(torn)
    close = {log: online[log] for log in returned if log not in known}
    return torn + find_torn(log_dirs.store, close, follows_crash=True)


def sync_cuts(log_dirs: LogDirs, states: Mapping[TopicPartition, LogState]) -> None:
    """Sync truncations that a crashed writer made.

    If a power cut undid them later, old index entries would point into newer batches.
    """
    roots = {log_dirs.store.log_dir(state.log_dir) for state in log_dirs.online(states).values()}
    with storage_errors("log directories"):
        sync_filesystems(roots)


def renew(log_dirs: LogDirs, states: Mapping[TopicPartition, LogState], lock: WriterLock) -> None:
    """Give every online log new inodes: the writer before the taking by force still has the old files open.

    The lock owes new inodes until the last log has them.
    """

    def renew_log(state: LogState) -> None:
        renew_active_segment(log_dirs.store.log_path(state), state.committed_end, lock)

    with ThreadPoolExecutor(_SYNC_THREADS, thread_name_prefix="renew") as pool:
        list(pool.map(renew_log, log_dirs.online(states).values()))
    lock.note_renewed()


def renew_returned(log_dirs: LogDirs, states: Mapping[TopicPartition, LogState], lock: WriterLock) -> None:
    """Give returned logs new inodes if the store was taken by force meanwhile; then clear all paid debts."""
    for log in log_dirs.with_remedy(states, "renew"):
        renew_active_segment(log_dirs.store.log_path(states[log]), states[log].committed_end, lock)
    log_dirs.commit_finished()


def cut_back_torn(
    log_dirs: LogDirs, states: Mapping[TopicPartition, LogState], torn: Collection[TopicPartition], lock: WriterLock
) -> None:
    """Cut torn logs back to their committed ends.

    Raises:
        CorruptFileError: committed bytes are gone; nothing was changed.
        WriterFencedError: another writer owns the store.
    """
    cut_back_logs([(log_dirs.store.log_path(states[log]), states[log].committed_end) for log in torn], lock)
