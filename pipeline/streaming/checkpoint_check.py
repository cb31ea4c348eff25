"""Checks that Spark's checkpoint and a store belong together.

The checkpoint names a query's newest micro-batch, and so does the store's ledger. Spark and the sink write them one
after the other, so after a crash they differ by at most one micro-batch. A larger difference means that one of them was
replaced: a new store under an old checkpoint would lack all earlier rows, and with an older checkpoint over a newer
store Spark would skip rows as if they were committed.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from sparklog.pipeline.streaming.checkpoint_sync import local_checkpoint
from sparklog.storage_core.errors import InvalidConfigError
from sparklog.storage_core.storage.local import storage_errors
from sparklog.storage_core.storage.open_regular import read_if_there

__all__ = ["CheckpointState", "check_checkpoint", "read_checkpoint"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointState:
    """Progress of a query.

    Attributes:
        committed: its newest micro-batch that Spark recorded as done; -1 if there is none.
        planned: its newest planned micro-batch; -1 if there is none.
    """

    query_id: str
    committed: int
    planned: int


def read_checkpoint(checkpoint: str) -> CheckpointState | None:
    """Return the state of a checkpoint; None if it has no query yet, or is no local folder."""
    root = local_checkpoint(checkpoint)
    query_id = None if root is None else _query_id(root)
    if root is None or query_id is None:
        return None
    return CheckpointState(query_id=query_id, committed=_newest(root / "commits"), planned=_newest(root / "offsets"))


def check_checkpoint(checkpoint: str, store: str, transaction_version: Callable[[str], int | None]) -> None:
    """Refuse a checkpoint of another store. A checkpoint that is no local folder is not checked.

    Args:
        checkpoint: Spark's checkpoint folder, as in the settings.
        store: the store's folder, for the message.
        transaction_version: returns the newest micro-batch of a query in the store; None if there is none.

    Raises:
        InvalidConfigError: checkpoint and store do not belong together.
    """
    found = read_checkpoint(checkpoint)
    if found is None:
        return
    committed, planned = found.committed, found.planned
    held = transaction_version(found.query_id)
    held = -1 if held is None else held
    facts = (
        f"checkpoint={checkpoint} store={store} committed_batch={committed} planned_batch={planned} held_batch={held}"
    )
    if held < committed:
        raise InvalidConfigError(
            f"the checkpoint is ahead of the store: it belongs to another store, or the store is an older copy: {facts}"
        )
    if held > planned:
        raise InvalidConfigError(f"the store is ahead of the checkpoint, which is an older copy: {facts}")


def _query_id(root: Path) -> str | None:
    metadata = root / "metadata"
    with storage_errors(metadata):
        data = read_if_there(metadata)
    if data is None:
        return None
    try:
        query_id = json.loads(data.decode(errors="replace"))["id"]
    except (ValueError, KeyError, TypeError):
        return None  # Spark reports the damage of its file
    return query_id if isinstance(query_id, str) else None


def _newest(folder: Path) -> int:
    with storage_errors(folder):
        names = [path.name for path in folder.iterdir()] if folder.is_dir() else []
    return max((int(name) for name in names if name.isascii() and name.isdigit()), default=-1)
