"""The marker of a clean shutdown: with it a start takes the logs of a root on trust, without it they are recovered.

It is deleted before anything is loaded: a start that dies half way must not be taken for a clean shutdown by the next
one. It is written in place, after everything that it vouches for. Only its presence counts; its content, the
broker's epoch, is -1 here: not known.

Source: Kafka CleanShutdownFileHandler, LogManager.loadLogs; KIP-966.
"""

import os
from pathlib import Path
from typing import Final

from sparklog.storage_core.storage.local import storage_errors, sync_directory, write_all
from sparklog.storage_core.storage.open_regular import open_to_change

__all__ = ["CLEAN_SHUTDOWN_FILE", "forget_clean_shutdown", "had_clean_shutdown", "mark_clean_shutdown"]

CLEAN_SHUTDOWN_FILE: Final = ".kafka_cleanshutdown"

_CONTENT: Final = b'{"version":0,"brokerEpoch":-1}'


def had_clean_shutdown(root: Path) -> bool:
    """Whether the marker is there."""
    return (root / CLEAN_SHUTDOWN_FILE).exists()


def forget_clean_shutdown(root: Path) -> None:
    """Delete the marker, durably."""
    path = root / CLEAN_SHUTDOWN_FILE
    with storage_errors(path):
        if path.exists():
            path.unlink()
            sync_directory(root)


def mark_clean_shutdown(root: Path) -> None:
    """Write the marker, durably; every log of the root is synced, and its checkpoints are written."""
    path = root / CLEAN_SHUTDOWN_FILE
    with storage_errors(path):
        descriptor = open_to_change(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        try:
            write_all(descriptor, _CONTENT, 0)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        sync_directory(root)
