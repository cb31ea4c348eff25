"""Finds unusable log directories of a store: a failing one takes only its own logs offline.

A log directory in which the ledger has logs is never made again: if its disk is not mounted, new files would lie below
the mount point, and be hidden once the disk is back.

Source: Kafka LogManager.handleLogDirFailure; KIP-112.
"""

import errno
import os
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path

from sparklog.sink.ledger.rows import LogState
from sparklog.sink.store.store_folder import Store
from sparklog.storage_core.checkpoint.meta_properties import parse_meta_properties
from sparklog.storage_core.errors import CorruptFileError, LogDirOfflineError
from sparklog.storage_core.storage.open_regular import read_file
from sparklog.storage_core.topic_partition import TopicPartition

__all__ = ["check_log_dirs", "check_root", "find_unreadable", "require_online", "states_online"]

_META_FILE = "meta.properties"
_MOST_NAMES = 5


def check_log_dirs(store: Store, states: Collection[LogState]) -> dict[str, str]:
    """Return the unwritable log directories of these logs: the reason, by name.

    A full disk is no reason: writes that do not fit fail by themselves, and continue after there is room.
    """
    return {
        name: problem
        for name, logs in _by_log_dir(states).items()
        if (problem := _read_problem(store, name, logs) or _write_problem(store, name) or _probe(store.log_dir(name)))
    }


def check_root(store: Store, name: str) -> str | None:
    """Return why this store can't write a log directory, with or without logs; None if it can."""
    return _read_problem(store, name, []) or _write_problem(store, name)


def find_unreadable(store: Store, states: Collection[LogState]) -> dict[str, str]:
    """Return the unreadable log directories of these logs: the reason, by name.

    One that is read-only, or whose `meta.properties` is damaged or foreign, is readable; `verify` reports it.
    """
    return {
        name: problem for name, logs in _by_log_dir(states).items() if (problem := _read_problem(store, name, logs))
    }


def states_online(
    states: Mapping[TopicPartition, LogState], offline: Collection[str]
) -> dict[TopicPartition, LogState]:
    """Return the logs that do not lie in an offline directory."""
    return {log: state for log, state in states.items() if state.log_dir not in offline}


def require_online(store: Store, states: Iterable[LogState], offline: Mapping[str, str]) -> None:
    """Refuse logs if one of them is offline.

    Raises:
        LogDirOfflineError: it names the first such directory, the reason, and its logs.
    """
    hit: dict[str, list[str]] = {}
    for state in states:
        if state.log_dir in offline:
            hit.setdefault(state.log_dir, []).append(f"{state.topic}-{state.partition}")
    for name, logs in sorted(hit.items()):
        listed = ", ".join(logs[:_MOST_NAMES]) + (f" and {len(logs) - _MOST_NAMES} more" if logs[_MOST_NAMES:] else "")
        raise LogDirOfflineError(
            f"log directory is offline: log_dir={store.log_dir(name)} reason={offline[name]} logs={listed}"
        )


def _by_log_dir(states: Iterable[LogState]) -> dict[str, list[LogState]]:
    logs: dict[str, list[LogState]] = {}
    for state in states:
        logs.setdefault(state.log_dir, []).append(state)
    return dict(sorted(logs.items()))


def _read_problem(store: Store, name: str, states: list[LogState]) -> str | None:
    root = store.log_dir(name)
    try:
        if not root.exists():
            return "does not exist"
        if not root.is_dir():
            return "is not a folder"
        os.listdir(root)
        if (root / _META_FILE).exists() or any(store.log_path(state).is_dir() for state in states):
            return None
    except OSError as error:
        return error.strerror or str(error)
    return f"holds neither {_META_FILE} nor any of its logs, is its disk mounted?"


def _write_problem(store: Store, name: str) -> str | None:
    root = store.log_dir(name)
    try:
        if (root / _META_FILE).exists():
            owner = parse_meta_properties(read_file(root / _META_FILE))["cluster.id"]
            if owner != store.store_id:
                return f"belongs to another store or broker, its cluster.id is {owner}"
        if os.statvfs(root).f_flag & os.ST_RDONLY:
            return "is on a read-only filesystem"
    except CorruptFileError as error:
        return str(error)
    except OSError as error:
        return error.strerror or str(error)
    return None if os.access(root, os.W_OK | os.X_OK, effective_ids=True) else "may not be written"


def _probe(root: Path) -> str | None:
    """Write and fsync a file without a name: only this finds a failing disk."""
    try:
        descriptor = os.open(root, os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC, 0o600)
        try:
            os.write(descriptor, b"x")
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    except OSError as error:
        is_harmless = error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL)
        return None if is_harmless else error.strerror or str(error)
    return None
