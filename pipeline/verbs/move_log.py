"""The verb `move-log`: what a move copies from where to where, and with `--execute` the move."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sparklog.pipeline.control.leases import refuse_leased
from sparklog.sink.ledger.ledger import Ledger
from sparklog.sink.opening.access import writing
from sparklog.sink.operations.move_log import MovePlan, move_log, plan_move
from sparklog.sink.store.set_aside import remove_deleted
from sparklog.sink.store.store_folder import Store
from sparklog.storage_core.errors import InvalidConfigError
from sparklog.storage_core.fault_points import reach
from sparklog.storage_core.quantity_text import size_text
from sparklog.storage_core.topic_partition import TopicPartition

__all__ = ["as_dict", "execute_move", "parse_log", "plan_log_move", "verdict"]


def parse_log(name: str) -> TopicPartition:
    """Return the log that `TOPIC:PARTITION` names.

    Raises:
        InvalidConfigError: the name has another form.
    """
    topic, _, partition = name.rpartition(":")
    if not topic or not (partition.isascii() and partition.isdigit()):
        raise InvalidConfigError(f"one log is wanted, TOPIC:PARTITION: name={name}")
    return TopicPartition(topic, int(partition))


def plan_log_move(root: Path, log: TopicPartition, target: str) -> MovePlan:
    """Return how a log would move; changes nothing. Raises as `sparklog.sink.operations.move_log.plan_move`."""
    store = Store.find(root)
    return plan_move(store, Ledger.open(store.ledger_path), log, target)


def execute_move(root: Path, log: TopicPartition, target: str) -> MovePlan:
    """Move a log, and remove its old directory; return what that took.

    Raises:
        StoreLockedError: a sink or a maintenance runs.
        LogStorageError: as `sparklog.sink.operations.move_log.move_log`.
    """
    refuse_leased(root)
    with writing(root) as written:
        planned = plan_move(written.store, written.ledger, log, target)
        directories = move_log(written, log, target)
    remove_deleted(directories, lambda _path: reach("move.deleted"))
    return planned


def verdict(planned: MovePlan, root: Path, *, is_executed: bool) -> str:
    """Return the line for people."""
    target = root / planned.target
    where = f"{planned.log} from {planned.source.parent} to {target}{', a new log directory' if planned.is_new else ''}"
    what = f"{where}: {len(planned.sizes):,} files, {size_text(planned.size_bytes)}"
    return f"moved: {what}" if is_executed else f"planned: {what}; --execute does it"


def as_dict(planned: MovePlan, root: Path, *, is_executed: bool) -> dict[str, Any]:
    """Return what was planned or done, for JSON."""
    return {
        "executed": is_executed,
        "topic": planned.log.topic,
        "partition": planned.log.partition,
        "from": str(planned.source.parent),
        "to": str(root / planned.target),
        "is_new": planned.is_new,
        "files": len(planned.sizes),
        "size_bytes": planned.size_bytes,
    }
