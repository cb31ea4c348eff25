"""The verb `delete-topic`: which logs go, and with `--execute` their deletion.

The store's locks are held until the directories are renamed, and given back before the wait: from then on nobody needs
what is in them, and whoever removes it, this run or the next opening of the store, does the same.
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
    """A deletion that was planned, or done."""

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
        left = f"; {offline:,} of them offline, to be removed when they are back" if offline else ""
        what = f"topic {self.plan.topic}, {len(self.plan.logs):,} logs, {size_text(size)}"
        return f"deleted: {what}{left}" if self.is_executed else f"planned: {what}; --execute does it{left}"

    def as_dict(self) -> dict[str, Any]:
        """Return it for JSON."""
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
    """Delete a topic to the end; return what that took.

    Args:
        root: of the store.
        topic: to delete.
        clock: says when directories may go.
        waits: told which directories wait, and until when.
        sleep: for so many seconds.

    Raises:
        StoreLockedError: a sink or a maintenance runs.
        UnknownTopicError: there is no such topic.
        KeyboardInterrupt: while it waited; the topic is deleted, and the next opening removes the directories.
    """
    refuse_leased(root, clock)
    with writing(root) as written:
        planned = plan_topic_deletion(written.store, written.ledger, topic)
        directories = delete_topic(written, topic)
    due_ms = clock.monotonic_ms() + planned.file_delete_delay_ms
    if directories and planned.file_delete_delay_ms:
        waits(directories, clock.now_ms() + planned.file_delete_delay_ms)
        while (left_ms := due_ms - clock.monotonic_ms()) > 0:
            sleep(min(left_ms, _LONGEST_SLEEP_MS) / 1000)
    remove_deleted(directories, lambda _path: reach("delete-topic.deleted"))
    return planned
