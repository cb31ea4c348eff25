"""A roll without an append: an empty segment at the end of a log, after the active one.

Its files appear complete, by a rename, `.log` first: that is the name by which the start of a writer finds and undoes a
segment that no ledger names.

Source: Kafka LocalLog.roll.
"""

import contextlib
from pathlib import Path

from sparklog.storage_core.log.files.names import CLEANED, INDEX, LOG, TIMEINDEX, segment_file_name
from sparklog.storage_core.storage.local import storage_errors, sync_directory, sync_files
from sparklog.storage_core.storage.owned_names import Owner, remove_unique, rename

__all__ = ["add_empty_segment"]


def add_empty_segment(directory: Path, base_offset: int, token: str, owner: Owner) -> None:
    """Make the files of an empty segment, durably.

    Args:
        directory: of the log.
        base_offset: the log's end.
        token: distinguishes this writer's unpublished files.
        owner: its check raises once another writer owns the store.

    Raises:
        StorageError: the disk refused; a segment that has its names by then is undone by the next opening.
    """
    names = [segment_file_name(base_offset, suffix) for suffix in (LOG, INDEX, TIMEINDEX)]
    unpublished = [directory / f"{name}.{token}{CLEANED}" for name in names]
    with storage_errors(directory):
        try:
            for path in unpublished:
                path.touch(mode=0o644, exist_ok=False)
            sync_files(unpublished)
            for path, name in zip(unpublished, names, strict=True):
                rename(owner, path, directory / name)
            sync_directory(directory)
        except BaseException:
            for path in unpublished:  # the names are this writer's own, even if another one owns the store by now
                with contextlib.suppress(OSError):
                    remove_unique(path)
            raise
