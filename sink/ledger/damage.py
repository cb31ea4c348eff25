"""What reading a damaged ledger, or another Delta table of a store, raises, told as one error."""

import errno
import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import pyarrow as pa
from deltalake.exceptions import DeltaError

from sparklog.storage_core.errors import LedgerDamagedError
from sparklog.storage_core.storage.local import storage_errors

__all__ = ["damage_refused", "one_line", "read_while_tidied"]

_Read = TypeVar("_Read")

_TRIES = 10

_DAMAGE = (DeltaError, OSError, ValueError, KeyError, TypeError, AttributeError, OverflowError, pa.ArrowException)
_REMEDY = (
    "a writer that starts after a crash drops an entry that a power cut tore, any other damage means: restore it from a"
    " copy"
)
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_BACKTRACE = re.compile(r"\n\s*0: .*", re.DOTALL)
"""Frames of the library's own code, numbered from 0, a line each."""


@contextmanager
def damage_refused(path: Path, what: str = "the ledger", remedy: str = _REMEDY) -> Iterator[None]:
    """Turn what libraries raise over a damaged table into the error that says what to do.

    Args:
        path: of the table.
        what: it is.
        remedy: what to do.

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
        raise LedgerDamagedError(f"{what} can't be read: path={path}; {remedy} ({one_line(error)})") from error


def read_while_tidied(path: Path, read: Callable[[], _Read]) -> _Read:
    """Return what a function reads of a ledger; once more where its entries changed meanwhile.

    Raises:
        LedgerDamagedError: it failed, and no entry had come or gone.
        StorageError: the kernel refused to read.
    """
    tries_left = _TRIES
    while True:
        before, tries_left = _entries(path), tries_left - 1
        try:
            with damage_refused(path):
                return read()
        except LedgerDamagedError:
            if not tries_left or _entries(path) == before:
                raise


def _entries(path: Path) -> frozenset[str]:
    with storage_errors(path):
        return frozenset(os.listdir(path / "_delta_log"))


def one_line(error: Exception) -> str:
    """Return a library's message without its line breaks, colours and backtrace."""
    return " ".join(_BACKTRACE.sub("", _COLOUR.sub("", str(error))).split())
