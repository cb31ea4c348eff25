"""Rows that could not become records, as Parquet files beside the store."""

import contextlib
import os
import shutil
from pathlib import Path

from storage_core.fault_points import reach
from storage_core.storage.local import make_directory, storage_errors, sync_directory, sync_files
from storage_core.storage.owned_names import Owner, remove_tree, remove_unique, rename

__all__ = ["publish_quarantine"]


def publish_quarantine(files: list[Path], directory: Path, owner: Owner, token: str) -> None:
    """Move a micro-batch's diverted rows to their folder, durably, before the micro-batch is committed.

    A crash behind this point leaves the folder of a micro-batch that will run again: it is replaced then, so a row is
    never lost and never there twice. Without files it goes: under other settings these rows became records.

    It is filled under a name with the writer's token: one that lost the store meanwhile must not move its files into
    the folder that its successor fills.
    """
    with storage_errors(directory):
        if not files:
            remove_tree(owner, directory)
            sync_directory(directory.parent)
            return
        make_directory(directory.parent)  # durably: the ledger is about to say that these rows are dealt with
        for left in directory.parent.glob(f"{directory.name}.????????"):  # of a writer that was killed
            remove_tree(owner, left)
        building = directory.with_name(f"{directory.name}.{token}")
        try:
            _build(building, files)
            remove_tree(owner, directory)
            rename(owner, building, directory)
        except BaseException:
            # The files are gone where another writer took over since the owner was checked: leave nothing behind.
            with contextlib.suppress(OSError):
                remove_unique(building)
            raise
        sync_directory(directory.parent)
    reach("commit.quarantined")


def _build(folder: Path, files: list[Path]) -> None:
    remove_unique(folder)
    folder.mkdir()
    for number, file in enumerate(files):
        shutil.move(file, folder / f"part-{number:05}.parquet")
    sync_files([folder / name for name in os.listdir(folder)])
    sync_directory(folder)
