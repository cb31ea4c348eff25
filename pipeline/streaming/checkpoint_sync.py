"""Spark's checkpoint and a power cut: its plan is on the disk before the store commits a micro-batch of it.

Spark renames its files into place and syncs none of them, so a power cut leaves new ones empty, or not at all. Were a
micro-batch committed whose plan is lost, Spark would plan it anew, with rows that came meanwhile, and the store would
take it for one it has. So each plan is synced before its micro-batch runs, with the note that ends the one before.

What is torn all the same was never committed, and is dropped at the next start: the note that a micro-batch is done
(the ledger knows better), a plan that the store holds nothing of, and a source's file that no plan names yet: Spark
writes it first. Nothing was read of it, so the next start finds its own beginning, and a mirror's new log starts there.
Anything else is left for Spark to refuse.

Source: Spark HDFSMetadataLog, CheckpointFileManager, StreamMetadata, FileStreamSourceOffset.
"""

import contextlib
import json
import logging
import os
from collections.abc import Callable, Iterator
from pathlib import Path

from sparklog.storage_core.storage.local import storage_errors, sync_directory, sync_file
from sparklog.storage_core.storage.open_regular import read_file

__all__ = ["CheckpointSync", "drop_torn", "local_checkpoint"]

logger = logging.getLogger(__name__)

_NOTHING = "-"
"""What Spark writes for a source that has planned nothing yet."""

_FIRST_SOURCE = 2
"""The line of a plan that tells the offset of `sources/0`; below it come those of the others."""


def local_checkpoint(checkpoint: str) -> Path | None:
    """Return the folder of a checkpoint; None if it is not one of this machine."""
    local = checkpoint.removeprefix("file://") if checkpoint.startswith("file:///") else checkpoint
    return None if "://" in local else Path(local.removeprefix("file:"))


class CheckpointSync:
    """Brings what Spark has added to a checkpoint onto the disk; does nothing for one that is no local folder."""

    def __init__(self, checkpoint: str) -> None:
        self._root = local_checkpoint(checkpoint)
        self._known: set[Path] = set()

    def sync(self) -> None:
        """Sync the files that have come since the last call, then the names in their folders.

        Raises:
            StorageError: the disk refused.
        """
        if self._root is None:
            return
        with storage_errors(self._root):
            files = {path for folder in _folders(self._root) for path in _files(folder)}
            new = sorted(files - self._known)
            for path in new:
                with contextlib.suppress(FileNotFoundError):  # Spark removes old ones meanwhile
                    sync_file(path)
            folders = {path.parent for path in new}
            for folder in sorted(folders | {each.parent for each in folders if each != self._root}):
                sync_directory(folder)
            if not self._known:
                sync_directory(self._root.absolute().parent)
        self._known = files


def drop_torn(checkpoint: str, transaction_version: Callable[[str], int | None]) -> None:
    """Drop what a power cut left torn of a local checkpoint, where nothing of it was committed.

    Args:
        checkpoint: Spark's checkpoint folder, as in the settings.
        transaction_version: tells the newest micro-batch that the store holds of a query, None if there is none.

    Raises:
        StorageError: the disk refused.
    """
    root = local_checkpoint(checkpoint)
    if root is None or not root.is_dir():
        return
    with storage_errors(root):
        plans, notes = _numbered(root / "offsets"), _numbered(root / "commits")
        if _is_torn(root / "metadata") and not notes and set(plans) <= {0}:
            _drop(root / "metadata")  # synced before the first micro-batch: there was none
        if notes and _is_torn(notes[max(notes)]):
            _drop(notes[max(notes)])
        query_id = _query_id(root / "metadata")
        held = transaction_version(query_id) if query_id is not None else None
        held, planned = -1 if held is None else held, max(plans, default=-1)
        if planned < max(held, -1, *notes):
            return  # plans are gone that were durable: that was no power cut
        plan = plans.get(planned)
        torn = [newest for folder in _source_folders(root) if _is_torn(newest := _newest(folder))]
        dropped = [path for path in torn if plan is None or _is_behind(path, plan)]
        if plan is not None and planned > held and (torn != dropped or _is_torn(plan)):
            dropped = [*torn, plan]
        for path in dropped:
            _drop(path)


def _folders(root: Path) -> list[Path]:
    return [each for each in (root, root / "offsets", root / "commits", *_source_folders(root)) if each.is_dir()]


def _source_folders(root: Path) -> list[Path]:
    sources = root / "sources"
    return sorted(path for path in sources.iterdir() if path.is_dir()) if sources.is_dir() else []


def _files(folder: Path) -> Iterator[Path]:
    """Yield the files that have their names; Spark's checksums lie beside, as `.<name>.crc`."""
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_file() and not entry.name.removesuffix(".crc").endswith(".tmp"):
                yield folder / entry.name


def _numbered(folder: Path) -> dict[int, Path]:
    names = os.listdir(folder) if folder.is_dir() else []
    return {int(name): folder / name for name in names if name.isascii() and name.isdigit()}


def _newest(folder: Path) -> Path:
    """Return the newest entry of a source's log, compacted or not; the folder itself if there is none."""
    entries = _numbered(folder)
    for path in folder.glob("*.compact"):
        if path.stem.isdigit():
            entries[int(path.stem)] = path
    return entries[max(entries)] if entries else folder


def _is_behind(path: Path, plan: Path) -> bool:
    """Whether an entry of a source's log is newer than what a plan names; False where that can't be told."""
    lines = read_file(plan).decode(errors="replace").splitlines()
    try:
        named = lines[_FIRST_SOURCE + int(path.parent.name)]
        return named == _NOTHING or int(path.stem) > json.loads(named)["logOffset"]
    except (ValueError, LookupError, TypeError):
        return False


def _is_torn(path: Path) -> bool:
    """Whether a file is empty, zeros, or ends within a line of JSON, as a power cut leaves it.

    One zero in front is right: Spark writes it before the offsets that a Kafka source starts at.
    """
    if not path.is_file():
        return False
    lines = read_file(path).removeprefix(b"\0").decode(errors="replace").splitlines()
    if not lines or "\0" in lines[0]:
        return True
    try:
        _ = [json.loads(line) for line in lines if line != _NOTHING and not _is_version(line)]
    except ValueError:
        return True
    return len(lines) == 1 and _is_version(lines[0])


def _is_version(line: str) -> bool:
    return line[:1] == "v" and line[1:].isdigit()


def _query_id(metadata: Path) -> str | None:
    try:
        query_id = json.loads(read_file(metadata))["id"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return query_id if isinstance(query_id, str) else None


def _drop(path: Path) -> None:
    path.with_name(f".{path.name}.crc").unlink(missing_ok=True)
    path.unlink()
    sync_directory(path.parent)
    logger.warning("Dropped a file of Spark's checkpoint, torn by a power cut before it counted path=%s", path)
