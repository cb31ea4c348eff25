"""The cuts of a store, each with what of it can still be read."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from sparklog.pipeline.places.store_view import LogView
from sparklog.sink.ledger.ledger import Ledger
from sparklog.sink.past.cuts import Cut, CutTable, cuts_path
from sparklog.sink.past.judge_past import Judgement, LogsNow
from sparklog.sink.store.store_folder import Store
from sparklog.storage_core.quantity_text import iso_time
from sparklog.storage_core.topic_partition import TopicPartition

__all__ = ["cut_lines", "cut_verdict", "describe_cuts"]

_WORST_FIRST = ("passed", "shortened", "whole")


def describe_cuts(root: Path, logs: Sequence[LogView]) -> list[dict[str, Any]]:
    """Return the cuts of a store for JSON, oldest first.

    Args:
        root: of the store.
        logs: of today; a cut's other logs are left out, unless they are gone with their topics.

    Raises:
        LedgerDamagedError: the table of cuts, or the ledger, can't be read.
    """
    return [_describe(cut, judged) for cut, judged in _judged(root, logs)]


def cut_lines(cuts: Sequence[Mapping[str, Any]], now_ms: int) -> Iterator[str]:
    """Yield what a person has to know of the cuts."""
    if any(each["cut_ms"] > now_ms for each in cuts):
        yield "warning: a cut is of the future, so the clock was ahead: until then no cut is written"


def cut_verdict(cuts: Sequence[Mapping[str, Any]]) -> str:
    """Return how many there are, and the oldest that can be read."""
    usable = [each["cut_ms"] for each in cuts if each["state"] != "passed"]
    oldest = f", the oldest of {iso_time(usable[0])}" if usable else ""
    return f"{len(cuts):,} cuts, {len(usable):,} can be read{oldest}"


def _judged(root: Path, logs: Sequence[LogView]) -> Iterator[tuple[Cut, dict[TopicPartition, Judgement]]]:
    rows, table = Ledger.open(Store.find(root).ledger_path).states(), CutTable(cuts_path(root))
    now = LogsNow(rows, {each.log: each.directory for each in logs if each.offline is None})
    others = rows.keys() - {each.log for each in logs}
    for cut_ms in table.times():
        cut = table.read(cut_ms)
        yield cut, now.judge({log: row for log, row in cut.rows.states.items() if log not in others})


def _describe(cut: Cut, judged: Mapping[TopicPartition, Judgement]) -> dict[str, Any]:
    rows = [cut.rows.states[log] for log in judged]
    counts: Counter[str] = Counter(each.state for each in judged.values())
    state = next((each for each in _WORST_FIRST if counts[each]), "whole")
    reason = next((f"{log}: {each.reason}" for log, each in judged.items() if each.state == state and each.reason), "")
    return {
        "cut_ms": cut.cut_ms,
        "ledger_version": cut.ledger_version,
        "logs": len(rows),
        "offsets": sum(row.log_end_offset - row.log_start_offset for row in rows),
        "state": state,
        "reason": reason,
        **{each: counts[each] for each in _WORST_FIRST},
    }
