"""The verb `move-log`: plans the move of a log to another log directory, and with `--execute` moves it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sparklog.pipeline.control.leases import refuse_leased
from sparklog.pipeline.report import show
from sparklog.sink.ledger.ledger import Ledger
from sparklog.sink.opening.access import writing
from sparklog.sink.operations.move_log import MovePlan, move_log, plan_move
from sparklog.sink.store.store_folder import Store
from sparklog.storage_core.errors import InvalidConfigError
from sparklog.storage_core.quantity_text import size_text
from sparklog.storage_core.topic_partition import TopicPartition

__all__ = ["execute_move", "run"]


@dataclass(frozen=True, slots=True)
class _Move:
    """A planned or finished move."""

    plan: MovePlan
    root: Path
    is_executed: bool

    def lines(self) -> tuple[str, ...]:
        """Return nothing: there is one log."""
        return ()

    def verdict(self) -> str:
        """Return the line for people."""
        plan, is_new = self.plan, ", a new log directory" if self.plan.is_new else ""
        where = f"{plan.log} from {plan.source.parent} to {self.root / plan.target}{is_new}"
        what = f"{where}: {len(plan.sizes):,} files, {size_text(plan.size_bytes)}"
        return f"moved: {what}" if self.is_executed else f"planned: {what}; --execute does it"

    def as_dict(self) -> dict[str, Any]:
        """Return the move for JSON."""
        return {
            "executed": self.is_executed,
            "topic": self.plan.log.topic,
            "partition": self.plan.log.partition,
            "from": str(self.plan.source.parent),
            "to": str(self.root / self.plan.target),
            "is_new": self.plan.is_new,
            "files": len(self.plan.sizes),
            "size_bytes": self.plan.size_bytes,
        }


def run(store: Path, name: str, target: str, execute: bool, as_json: bool) -> None:
    """Carry the verb out."""
    log = _parse_log(name)
    if execute:
        plan = execute_move(store, log, target)
    else:
        found = Store.find(store)
        plan = plan_move(found, Ledger.open(found.ledger_path), log, target)
    show(_Move(plan, store, execute), as_json=as_json)


def _parse_log(name: str) -> TopicPartition:
    """Return the log that `TOPIC:PARTITION` names.

    Raises:
        InvalidConfigError: the name has another form.
    """
    topic, _, partition = name.rpartition(":")
    if not topic or not (partition.isascii() and partition.isdigit()):
        raise InvalidConfigError(f"name one log as TOPIC:PARTITION: name={name}")
    return TopicPartition(topic, int(partition))


def execute_move(root: Path, log: TopicPartition, target: str) -> MovePlan:
    """Move a log, and remove its old directory; return the plan.

    Raises:
        StoreLockedError: a sink or a maintenance run holds the store.
        LogStorageError: as `sparklog.sink.operations.move_log.move_log`.
    """
    refuse_leased(root)
    with writing(root) as written:
        return move_log(written, log, target)
