"""What reading a damaged ledger raises, told as one error."""

import errno
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
from deltalake.exceptions import DeltaError

from storage_core.errors import LedgerDamagedError
from storage_core.storage.local import storage_errors

__all__ = ["damage_refused", "one_line"]

_DAMAGE = (DeltaError, OSError, ValueError, KeyError, TypeError, AttributeError, OverflowError, pa.ArrowException)
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_BACKTRACE = re.compile(r"\n\s*0: .*", re.DOTALL)
"""Frames of the library's own code, numbered from 0, a line each."""


@contextmanager
def damage_refused(path: Path) -> Iterator[None]:
    """Turn what libraries raise over a damaged ledger into the error that says what to do.

    Raises:
        LedgerDamagedError: the block failed so.
        StorageError: the kernel refused to read: that says nothing about what is on the disk.
    """
    try:
        yield
    except _DAMAGE as error:
        if isinstance(error, OSError) and error.errno not in (None, errno.ENOENT):
            with storage_errors(path):
                raise
        raise LedgerDamagedError(
            f"the ledger can't be read: path={path}; a writer that starts after a crash drops an entry that a power"
            f" cut tore, any other damage means: restore it from a copy ({one_line(error)})"
        ) from error


def one_line(error: Exception) -> str:
    """Return a library's message without its line breaks, colours and backtrace."""
    return " ".join(_BACKTRACE.sub("", _COLOUR.sub("", str(error))).split())
