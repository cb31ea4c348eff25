"""Errors of libraries over a damaged Delta table become one error that names the table, the file and the remedy."""

import errno
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
from deltalake.exceptions import DeltaError

from sparklog.storage_core.errors import LedgerDamagedError, LogStorageError
from sparklog.storage_core.storage.local import storage_errors

__all__ = ["Damage", "file_named", "one_line"]

_DAMAGE = (DeltaError, OSError, ValueError, KeyError, TypeError, AttributeError, OverflowError, pa.ArrowException)
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_BACKTRACE = re.compile(r"\n\s*0: .*", re.DOTALL)
"""Frames of the library's own code, numbered from 0, a line each."""


@dataclass(frozen=True, slots=True)
class Damage:
    """How a table's damage is reported.

    Attributes:
        table: its name for a person.
        remedy: action of the user.
        error: class that is raised.
    """

    table: str
    remedy: str
    error: type[LogStorageError] = LedgerDamagedError

    @contextmanager
    def refused(self, path: Path) -> Iterator[None]:
        """Turn what libraries raise over the damaged table in a folder into the error that names the remedy.

        Raises:
            StorageError: the kernel refused to read, which is no evidence of damage.
        """
        try:
            yield
        except _DAMAGE as error:
            if isinstance(error, OSError) and error.errno not in (None, errno.ENOENT):
                with storage_errors(path):
                    raise
            text = f"{self.table} can't be read: path={path}; {self.remedy} ({one_line(error)})"
            raise self.error(text) from error


@contextmanager
def file_named(file: Path) -> Iterator[None]:
    """Name a file in the error over its content; an `OSError` of the kernel stays as it is."""
    try:
        yield
    except _DAMAGE as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise
        raise ValueError(f"file={file.name}: {one_line(error)}") from error


def one_line(error: Exception) -> str:
    """Return a library's message without its line breaks, colours and backtrace."""
    return " ".join(_BACKTRACE.sub("", _COLOUR.sub("", str(error))).split())
