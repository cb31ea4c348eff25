"""Protects Spark's checkpoint from power cuts: syncs a micro-batch's plan before the micro-batch runs and commits.

Spark renames its files into place without fsync, so a power cut may leave new files empty or missing. If the plan of a
committed micro-batch were lost, Spark would plan that micro-batch again with newer rows, and the store would skip it as
a replay. So each plan is synced before its micro-batch runs, together with the commit file of the one before.

The next start drops torn files of which nothing was committed: a commit file (the ledger is the truth), a plan without
a micro-batch in the store, and a source's file that no plan names yet, as Spark writes it first. No row was read by it,
so the source starts afresh, and a mirror's new log starts there. Spark itself refuses other torn files.

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
"""Spark writes this for a source without a plan."""

_FIRST_SOURCE = 2
"""Line of a plan with the offset of `sources/0`; the other sources follow."""


def local_checkpoint(checkpoint: str) -> Path | None:
    """Return the folder of a checkpoint; None if it is not on this machine."""
    local = checkpoint.removeprefix("file://") if checkpoint.startswith("file:///") else checkpoint
    return None if "://" in local else Path(local.removeprefix("file:"))


class CheckpointSync:
    """Syncs new files of a checkpoint; does nothing for a checkpoint that is no local folder."""

    def __init__(self, checkpoint: str) -> None:
        self._root = local_checkpoint(checkpoint)
        self._known: set[Path] = set()

    def sync(self) -> None:
        """Sync the files added since the last call, then their folders.

        Raises:
            StorageError: the disk refused.
        """
        if self._root is None:
            return
        with storage_errors(self._root):
            files = {path for folder in _folders(self._root) for path in _files(folder)}
            new = sorted(files - self._known)
            for path in new:
                with contextlib.suppress(FileNotFoundError):  # Spark has removed it as an old one
                    sync_file(path)
            folders = {path.parent for path in new}
            for folder in sorted(folders | {each.parent for each in folders if each != self._root}):
                sync_directory(folder)
            if not self._known:
                sync_directory(self._root.absolute().parent)
        self._known = files


def drop_torn(checkpoint: str, transaction_version: Callable[[str], int | None]) -> None:
    """Drop files of a local checkpoint that a power cut tore before anything of them was committed.

    Args:
        checkpoint: Spark's checkpoint folder, as in the settings.
        transaction_version: returns the newest micro-batch of a query in the store; None if there is none.

    Raises:
        StorageError: the disk refused.
    """
    root = local_checkpoint(checkpoint)
    if root is None or not root.is_dir():
        return
    with storage_errors(root):
        plans, notes = _numbered(root / "offsets"), _numbered(root / "commits")
        if _is_torn(root / "metadata") and not notes and set(plans) <= {0}:
            _drop(root / "metadata")  # synced before the first micro-batch, so none has run
        if notes and _is_torn(notes[max(notes)]):
            _drop(notes[max(notes)])
        query_id = _query_id(root / "metadata")
        held = transaction_version(query_id) if query_id is not None else None
        held, planned = -1 if held is None else held, max(plans, default=-1)
        if planned < max(held, -1, *notes):
            return  # synced plans are missing: not the result of a power cut
        plan = plans.get(planned)
        torn = [newest for folder in _source_folders(root) if _is_torn(newest := _newest(folder))]
        dropped = [path for path in torn if plan is None or _is_newer(path, plan)]
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
    """Yield files with their final names, also Spark's checksums `.<name>.crc`."""
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_file() and not entry.name.removesuffix(".crc").endswith(".tmp"):
                yield folder / entry.name


def _numbered(folder: Path) -> dict[int, Path]:
    names = os.listdir(folder) if folder.is_dir() else []
    return {int(name): folder / name for name in names if name.isascii() and name.isdigit()}


def _newest(folder: Path) -> Path:
    """Return the newest entry of a source's log, compacted or not; the folder if the log is empty."""
    entries = _numbered(folder)
    for path in folder.glob("*.compact"):
        if path.stem.isdigit():
            entries[int(path.stem)] = path
    return entries[max(entries)] if entries else folder


def _is_newer(path: Path, plan: Path) -> bool:
    """Whether an entry of a source's log is newer than the plan's entry; False if that is unknown."""
    lines = read_file(plan).decode(errors="replace").splitlines()
    try:
        named = lines[_FIRST_SOURCE + int(path.parent.name)]
        return named == _NOTHING or int(path.stem) > json.loads(named)["logOffset"]
    except (ValueError, LookupError, TypeError):
        return False


def _is_torn(path: Path) -> bool:
    """Whether a file is empty, zeros, or ends within a line of JSON: a torn write.

    One leading zero is valid: Spark writes it before the start offsets of a Kafka source.
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
    logger.warning("Dropped a torn file of Spark's checkpoint; nothing of it was committed path=%s", path)
