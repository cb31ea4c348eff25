"""Rows that could not become records, as Parquet files beside the store."""

import os
import shutil
from pathlib import Path

from storage_core.fault_points import reach
from storage_core.storage.local import make_directory, storage_errors, sync_directory, sync_files

__all__ = ["publish_quarantine"]


def publish_quarantine(files: list[Path], directory: Path) -> None:
    """Move a micro-batch's diverted rows to their folder, durably, before the micro-batch is committed.

    A crash behind this point leaves the folder of a micro-batch that will run again: it is replaced then, so a row is
    never lost and never there twice. Without files it goes: under other settings these rows became records.
    """
    with storage_errors(directory):
        if not files:
            shutil.rmtree(directory)
            sync_directory(directory.parent)
            return
        building = directory.with_name(directory.name + ".tmp")
        shutil.rmtree(building, ignore_errors=True)
        make_directory(directory.parent)  # durably: the ledger is about to say that these rows are dealt with
        try:
            _build(building, files)
        except OSError:
            # The files are gone where another writer took over since the owner was checked: leave nothing behind.
            shutil.rmtree(building, ignore_errors=True)
            raise
        shutil.rmtree(directory, ignore_errors=True)
        building.rename(directory)
        sync_directory(directory.parent)
    reach("commit.quarantined")


def _build(folder: Path, files: list[Path]) -> None:
    folder.mkdir()
    for number, file in enumerate(files):
        shutil.move(file, folder / f"part-{number:05}.parquet")
    sync_files([folder / name for name in os.listdir(folder)])
    sync_directory(folder)
