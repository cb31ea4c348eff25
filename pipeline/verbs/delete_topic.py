"""The verb `delete-topic`: which logs go, and with `--execute` their deletion.

The store's locks are held until the directories are renamed, and given back before the wait: from then on nobody needs
what is in them, and whoever removes it, this run or the next opening of the store, does the same.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from sparklog.pipeline.control.leases import refuse_leased
from sparklog.sink.ledger.ledger import Ledger
from sparklog.sink.opening.access import writing
from sparklog.sink.operations.delete_topic import TopicDeletionPlan, delete_topic, plan_topic_deletion
from sparklog.sink.store.set_aside import remove_deleted
from sparklog.sink.store.store_folder import Store
from sparklog.storage_core.clock import Clock
from sparklog.storage_core.fault_points import reach
from sparklog.storage_core.quantity_text import size_text

__all__ = ["as_dict", "execute_deletion", "lines", "plan_deletion", "verdict"]

_LONGEST_SLEEP_MS = 3_600_000


def plan_deletion(root: Path, topic: str) -> TopicDeletionPlan:
    """Return what deleting a topic takes; changes nothing.

    Raises:
        InvalidConfigError: no store is there.
        UnknownTopicError: it has no such topic.
    """
    store = Store.find(root)
    return plan_topic_deletion(store, Ledger.open(store.ledger_path), topic)


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


def lines(planned: TopicDeletionPlan) -> list[str]:
    """Return a line per log, for people."""
    return [
        f"{each.log}: {each.offsets:,} offsets, "
        + (size_text(each.size_bytes) if each.size_bytes is not None else "offline")
        + f" in {each.directory}"
        for each in planned.logs
    ]


def verdict(planned: TopicDeletionPlan, *, is_executed: bool) -> str:
    """Return the last line for people."""
    size = sum(each.size_bytes or 0 for each in planned.logs)
    offline = sum(each.size_bytes is None for each in planned.logs)
    left = f"; {offline:,} of them offline, to be removed when they are back" if offline else ""
    what = f"topic {planned.topic}, {len(planned.logs):,} logs, {size_text(size)}"
    return f"deleted: {what}{left}" if is_executed else f"planned: {what}; --execute does it{left}"


def as_dict(planned: TopicDeletionPlan, *, is_executed: bool) -> dict[str, Any]:
    """Return what was planned or done, for JSON."""
    logs = [
        {
            "partition": each.log.partition,
            "directory": str(each.directory),
            "offsets": each.offsets,
            "size_bytes": each.size_bytes,
        }
        for each in planned.logs
    ]
    return {"executed": is_executed, "topic": planned.topic, "topic_id": planned.topic_id, "logs": logs}
