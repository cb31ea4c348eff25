"""Which logs a crash left with anything behind their committed end, and cutting those back."""

import os
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor

from sink.ledger import Ledger
from sink.ledger_rows import LogState
from sink.store import Store
from sink.writer_lock import WriterLock
from storage_core.log.append_state import CommittedEnd
from storage_core.log.cut_back import cut_back, has_leftovers, needs_cut_back
from storage_core.topic_partition import TopicPartition

__all__ = ["committed_end", "cut_back_torn", "find_torn"]

_CHUNK = 256
"""Logs that a thread looks at in one go."""


def committed_end(state: LogState) -> CommittedEnd:
    """Return where the ledger says a log ends."""
    return CommittedEnd(state.active_base_offset, state.active_size_bytes, state.log_end_offset)


def find_torn(store: Store, states: Mapping[TopicPartition, LogState], *, follows_crash: bool) -> list[TopicPartition]:
    """Return the logs with anything behind their end, having changed nothing.

    Two `stat` calls a log tell what a failed micro-batch leaves; after a crash each directory is listed, too.

    Raises:
        CorruptFileError: committed bytes are gone.
    """

    def look(logs: list[TopicPartition]) -> Iterator[TopicPartition]:
        for log in logs:
            directory, end = store.log_path(states[log]), committed_end(states[log])
            if needs_cut_back(directory, end) or (follows_crash and has_leftovers(directory, end)):
                yield log

    logs = list(states)
    chunks = [logs[start : start + _CHUNK] for start in range(0, len(logs), _CHUNK)]
    if len(chunks) <= 1:
        return list(look(logs))
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return [log for found in pool.map(lambda chunk: list(look(chunk)), chunks) for log in found]


def cut_back_torn(store: Store, ledger: Ledger, lock: WriterLock) -> None:
    """Make every log end where the ledger says, and delete what is staged: its writer is dead.

    Raises:
        CorruptFileError: committed bytes are gone; nothing was changed.
        WriterFencedError: another writer owns the store.
    """
    states = ledger.states()
    for log in find_torn(store, states, follows_crash=lock.follows_crash):
        cut_back(store.log_path(states[log]), committed_end(states[log]), lock.check)
    store.sweep_staging()
