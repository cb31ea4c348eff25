"""Metrics files in Prometheus' text format, replaced atomically.

Prometheus' node exporter reads them (`--collector.textfile.directory`).
"""

import errno
import logging
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Literal

from sparklog.storage_core.errors import LogStorageError
from sparklog.storage_core.storage.local import make_directory, storage_errors
from sparklog.storage_core.storage.owned_names import UNSHARED, replace_file

__all__ = ["Samples", "figure_lines", "make_metrics_folder", "try_replace"]

logger = logging.getLogger(__name__)

Samples = Iterable[tuple[Mapping[str, str], float]]


def make_metrics_folder(path: Path) -> None:
    """Make the folder of the file, so that a run that could not write it is refused at its start.

    Raises:
        StorageError: the folder can't be made or written, or the path is a folder.
    """
    folder = path.absolute().parent
    with storage_errors(path):
        make_directory(folder)
        if path.is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        if not os.access(folder, os.W_OK | os.X_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))


def try_replace(path: Path, text: str) -> bool:
    """Replace the file atomically and fsync it; return whether it was written, and log a failure."""
    try:
        with storage_errors(path):
            make_directory(path.absolute().parent)
            replace_file(UNSHARED, path, text.encode())
    except LogStorageError as error:
        logger.warning("The metrics file can't be written: %s", error)
        return False
    return True


def figure_lines(name: str, words: str, samples: Samples, kind: Literal["gauge", "counter"] = "gauge") -> Iterator[str]:
    """Yield the lines of one metric: its description, and each sample."""
    yield f"# HELP {name} {words}\n# TYPE {name} {kind}\n"
    for labels, value in samples:
        inside = ",".join(f'{key}="{text}"' for key, text in labels.items())
        yield f"{name}{'{' + inside + '}' if inside else ''} {value:.15g}\n"
