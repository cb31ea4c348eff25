"""The verb `delete-topic`: plans the deletion of a topic's logs, and with `--execute` deletes them.

Holds the store's locks until the directories are renamed, and releases them before `file.delete.delay.ms`: the renamed
directories belong to no log, so this run or the next opening of the store may remove them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sparklog.pipeline.control.leases import refuse_leased
from sparklog.pipeline.report import say_waiting, show
from sparklog.sink.ledger.ledger import Ledger
from sparklog.sink.opening.access import writing
from sparklog.sink.operations.delete_topic import TopicDeletionPlan, delete_topic, plan_topic_deletion
from sparklog.sink.store.set_aside import remove_deleted
from sparklog.sink.store.store_folder import Store
from sparklog.storage_core.clock import Clock, SystemClock, sleep
from sparklog.storage_core.fault_points import reach
from sparklog.storage_core.quantity_text import size_text

__all__ = ["execute_deletion", "run"]

_LONGEST_SLEEP_MS = 3_600_000


@dataclass(frozen=True, slots=True)
class _Deletion:
    """A planned or finished deletion."""

    plan: TopicDeletionPlan
    is_executed: bool

    def lines(self) -> list[str]:
        """Return a line per log."""
        return [
            f"{each.log}: {each.offsets:,} offsets, "
            + (size_text(each.size_bytes) if each.size_bytes is not None else "offline")
            + f" in {each.directory}"
            for each in self.plan.logs
        ]

    def verdict(self) -> str:
        """Return the last line for people."""
        size = sum(each.size_bytes or 0 for each in self.plan.logs)
        offline = sum(each.size_bytes is None for each in self.plan.logs)
        left = f"; {offline:,} of them offline, to be removed when their log directories are back" if offline else ""
        what = f"topic {self.plan.topic}, {len(self.plan.logs):,} logs, {size_text(size)}"
        return f"deleted: {what}{left}" if self.is_executed else f"planned: {what}; --execute does it{left}"

    def as_dict(self) -> dict[str, Any]:
        """Return the deletion for JSON."""
        logs = [
            {
                "partition": each.log.partition,
                "directory": str(each.directory),
                "offsets": each.offsets,
                "size_bytes": each.size_bytes,
            }
            for each in self.plan.logs
        ]
        facts = {"topic": self.plan.topic, "topic_id": self.plan.topic_id}
        return {"executed": self.is_executed, **facts, "logs": logs}


def run(store: Path, topic: str, execute: bool, as_json: bool) -> None:
    """Carry the verb out."""

    def waits(directories: Sequence[Path], until_ms: int) -> None:
        say_waiting(f"{len(directories):,} directories; Ctrl-C leaves them", until_ms)

    if execute:
        plan = execute_deletion(store, topic, SystemClock(), waits, sleep)
    else:
        found = Store.find(store)
        plan = plan_topic_deletion(found, Ledger.open(found.ledger_path), topic)
    show(_Deletion(plan, execute), as_json=as_json)


def execute_deletion(
    root: Path,
    topic: str,
    clock: Clock,
    waits: Callable[[Sequence[Path], int], None],
    sleep: Callable[[float], None],
) -> TopicDeletionPlan:
    """Delete a topic and remove its directories; return the plan.

    Args:
        clock: of the delay before directories are removed.
        waits: called with the waiting directories, and until when they wait.

    Raises:
        StoreLockedError: a sink or a maintenance run holds the store.
        UnknownTopicError: there is no such topic.
        KeyboardInterrupt: during the delay; the topic is deleted, the next opening removes the directories.
    """
    refuse_leased(root, clock)
    with writing(root) as written:
        planned = plan_topic_deletion(written.store, written.ledger, topic)
        directories = delete_topic(written, topic, clock)
    due_ms = clock.monotonic_ms() + planned.file_delete_delay_ms
    if directories and planned.file_delete_delay_ms:
        waits(directories, clock.now_ms() + planned.file_delete_delay_ms)
        while (left_ms := due_ms - clock.monotonic_ms()) > 0:
            sleep(min(left_ms, _LONGEST_SLEEP_MS) / 1000)
    remove_deleted(directories, lambda _path: reach("delete-topic.deleted"))
    return planned
