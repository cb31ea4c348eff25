"""Undoes what was written but not committed, at the start of a writer and after a failed micro-batch."""

import logging
import os
from collections.abc import Callable
from pathlib import Path

from storage_core.errors import CorruptFileError
from storage_core.fault_points import reach
from storage_core.log.append_state import CommittedEnd, load_append_state
from storage_core.log.log_files import CLEANED, INDEX, LOG, TIMEINDEX, parse_base_offset, segment_file_name
from storage_core.storage.local import storage_errors, sync_directory, write_all

__all__ = ["cut_back", "has_segment_beyond", "needs_cut_back", "renew_active_segment"]

logger = logging.getLogger(__name__)


def needs_cut_back(directory: Path, end: CommittedEnd) -> bool:
    """Whether a crash left something behind, told by two `stat` calls.

    Looked at are the active segment's size and whether a segment starts at the log's end: without preserved offsets any
    segment of an unfinished micro-batch follows one that starts there.

    Raises:
        CorruptFileError: committed bytes are gone.
    """
    with storage_errors(directory):
        try:
            size = (directory / segment_file_name(end.segment_base, LOG)).stat().st_size
        except FileNotFoundError:
            size = 0
        if size < end.size_bytes:
            raise CorruptFileError(
                f"committed bytes are gone: segment={segment_file_name(end.segment_base, LOG)} in {directory}"
                f" has {size} bytes, the ledger names {end.size_bytes}: restore it from a copy"
            )
        beyond = end.log_end_offset != end.segment_base
        return size > end.size_bytes or (beyond and (directory / segment_file_name(end.log_end_offset, LOG)).exists())


def has_segment_beyond(directory: Path, end: CommittedEnd) -> bool:
    """Whether files of a later segment lie there: `needs_cut_back` can't tell where preserved offsets have gaps."""
    with storage_errors(directory):
        return bool(_names_to_delete(directory, end))


def cut_back(directory: Path, end: CommittedEnd, check_owner: Callable[[], None]) -> None:
    """Make the log end exactly where the ledger says, durably.

    Later segments go first: if the process dies after the active segment was cut, the next start must still see that
    there is something to undo.
    """
    with storage_errors(directory):
        while names := _names_to_delete(directory, end):
            for name in names:
                check_owner()
                (directory / name).unlink(missing_ok=True)
                reach("undo.deleted")
        sync_directory(directory)
        if end.size_bytes:
            _cut_file(directory / segment_file_name(end.segment_base, LOG), end.size_bytes, check_owner)
            reach("undo.cut")
    load_append_state(directory, end, 0, 0)
    logger.info("Cut back an unfinished micro-batch log=%s end_offset=%d", directory.name, end.log_end_offset)


def _cut_file(path: Path, size_bytes: int, check_owner: Callable[[], None]) -> None:
    """Cut a file and fsync it: an unsynced cut can come undone under what is appended next.

    The descriptor is older than the check: were the store taken meanwhile, it is an unlinked file that is cut.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    try:
        check_owner()
        if os.fstat(descriptor).st_size > size_bytes:
            os.ftruncate(descriptor, size_bytes)
            os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _names_to_delete(directory: Path, end: CommittedEnd) -> list[str]:
    """List what does not belong to the log, newest segment first and its `.log` last.

    Called again until it finds nothing: a writer that lost the store may be renaming a file meanwhile.
    """
    names = [name for name in os.listdir(directory) if name.endswith(CLEANED) or _is_beyond(name, end)]
    return sorted(names, key=lambda name: (-(parse_base_offset(name) or 0), name.endswith(LOG)))


def _is_beyond(name: str, end: CommittedEnd) -> bool:
    base = parse_base_offset(name)
    if base is None or not name.endswith((LOG, INDEX, TIMEINDEX)):
        return False
    if end.size_bytes == 0:  # nothing committed: the first append starts the segment again
        return base >= end.segment_base
    return base > end.segment_base and base >= end.log_end_offset


def renew_active_segment(directory: Path, end: CommittedEnd, check_owner: Callable[[], None]) -> None:
    """Give the active segment's files new inodes that hold exactly the committed bytes.

    A writer that lost the store may still hold descriptors of the old files; what it writes there is lost with them.
    """
    cut_back(directory, end, check_owner)
    with storage_errors(directory):
        for suffix in (LOG, INDEX, TIMEINDEX):
            path = directory / segment_file_name(end.segment_base, suffix)
            if not path.exists():
                continue
            copy = path.with_name(path.name + CLEANED)
            _copy_file(path, copy)
            copy.replace(path)
        sync_directory(directory)


def _copy_file(source: Path, target: Path) -> None:
    with source.open("rb") as reader:
        descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
        try:
            position = 0
            while chunk := reader.read(1 << 22):
                write_all(descriptor, chunk, position)
                position += len(chunk)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
