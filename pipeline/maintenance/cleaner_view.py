"""The cleaner's state of compacted logs, for `describe`: first dirty offset, dirty ratio, reason of a failed cleaning.

Imports the cleaner, with its kernels, only for a store that has compacted logs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from sparklog.pipeline.places.store_view import LogView, StoreView
from sparklog.sink.store.store_folder import Store
from sparklog.sink.store.topic_configs import read_topic_configs
from sparklog.storage_core.clock import Clock
from sparklog.storage_core.errors import CorruptFileError, UnsupportedFormatError
from sparklog.storage_core.quantity_text import iso_time

if TYPE_CHECKING:
    from sparklog.sink.operations.clean_logs import LogCleaning

__all__ = ["cleaner_lines", "describe_cleaner"]


_KNOWN: Final = (
    "last_cleaned_ms",
    "uncleanable_reason",
    "uncleanable_file",
    "uncleanable_position",
    "uncleanable_offset",
    "failure_count",
    "retry_at_ms",
)


def describe_cleaner(view: StoreView, logs: Sequence[LogView], clock: Clock) -> dict[str, Any]:
    """Return the cleaner's state of a store's compacted logs; nothing for a plain folder.

    Args:
        clock: for the age of records.
    """
    if view.ledger_version is None:
        return {}
    store = Store.find(view.root)
    try:
        configs = read_topic_configs(store)
        compacted = {topic for topic, config in configs.items() if config.is_compacted}
        wanted = {each.log for each in logs if each.log.topic in compacted and not each.offline}
        if not wanted:
            return {}
        from sparklog.pipeline.maintenance.survey import read_checkpoints

        known = read_checkpoints(store)
    except (CorruptFileError, UnsupportedFormatError) as error:
        return {"cleaner_problem": str(error)}
    from sparklog.sink.operations.clean_logs import plan_cleanings

    dirty = {log: each.first_dirty_offset for log, each in known.items()}
    found = []
    for each in plan_cleanings(store, dirty, clock, wanted):
        row = known[each.log].as_dict() if each.log in known else {}
        found.append(_plan_of(each) | {name: row.get(name) for name in _KNOWN})
    return {"cleaner": found}


def cleaner_lines(described: Mapping[str, Any]) -> list[str]:
    """Return the same for people, one line per log."""
    lines = [_line(each) for each in described.get("cleaner", ())]
    return [*lines, *([f"cleaner: {described['cleaner_problem']}"] if "cleaner_problem" in described else [])]


def _plan_of(each: LogCleaning) -> dict[str, Any]:
    found: dict[str, Any] = {"topic": each.log.topic, "partition": each.log.partition}
    plan = each.plan
    if plan is None:
        return found | {"decision": None, "reason": each.failure, "dirty_ratio": None, "first_dirty_offset": None}
    return found | {
        "decision": plan.decision,
        "reason": plan.reason,
        "dirty_ratio": round(plan.dirty_ratio, 6),
        "first_dirty_offset": plan.first_dirty_offset,
        "first_uncleanable_offset": plan.first_uncleanable_offset,
    }


def _line(each: Mapping[str, Any]) -> str:
    name = f"cleaner: {each['topic']}-{each['partition']}"
    if each["first_dirty_offset"] is None:
        return f"{name} can't be read: {each['reason']}"
    line = f"{name} first dirty offset {each['first_dirty_offset']:,}, dirty ratio {each['dirty_ratio']:.2f}"
    if not each["failure_count"]:
        return line
    when = "" if each["retry_at_ms"] is None else f", retry at {iso_time(each['retry_at_ms'])}"
    return f"{line}, failed {each['failure_count']} times{when}: {each['uncleanable_reason'] or 'see control/runs'}"
