"""Says which cuts a retention or a compaction will overtake: nothing holds either back for them."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from sparklog.sink.ledger.ledger import Ledger
from sparklog.sink.ledger.rows import LogState
from sparklog.sink.past.cuts import CutTable, cuts_path
from sparklog.sink.past.judge_past import find_loss
from sparklog.storage_core.quantity_text import iso_time
from sparklog.storage_core.topic_partition import TopicPartition

__all__ = ["describe_overtaken"]

_Rows = Mapping[TopicPartition, LogState]


def describe_overtaken(ledger_path: Path, planned: _Rows) -> str | None:
    """Return a line that names the moment before which cuts can't be read any more after a plan was carried out.

    Args:
        ledger_path: of the store's ledger; the cuts are beside it.
        planned: rows of the logs that the plan changes, as they will be.

    Returns:
        None if no further cut is overtaken.
    """
    if not planned:
        return None
    table = CutTable(cuts_path(ledger_path.parent))
    times, now = table.times(), Ledger.open(ledger_path).states()
    newest = _find_newest(table, times, (now, planned), sorted(planned))
    if newest is None:
        return None
    cut_ms, log = newest
    later = [each for each in times if each > cut_ms]
    if not later:
        return f"after this, no cut can be read: {log}"
    return f"after this, cuts before {iso_time(later[0])} can't be read: {log}"


def _find_newest(
    table: CutTable, times: list[int], rows: tuple[_Rows, _Rows], logs: Sequence[TopicPartition]
) -> tuple[int, TopicPartition] | None:
    """Return the newest cut that a log will have lost and has not lost yet, and the log.

    Reads few of the cuts: a log has lost the oldest ones that have records of it. A cut without any says nothing about
    later ones.

    Args:
        times: of the cuts to look at.
        rows: of the logs as they are, and as they will be.
    """
    if not times or not logs:
        return None
    middle, (now, planned) = len(times) // 2, rows
    past = table.read(times[middle]).rows
    kept, overtaken, others = [], [], []
    for log in logs:
        state = past.state(past.number_of[log]) if log in past.number_of else None
        if state is None or state.log_start_offset == state.log_end_offset or find_loss(state, now.get(log)):
            others.append(log)
        elif find_loss(state, planned[log]):
            overtaken.append(log)
        else:
            kept.append(log)
    if found := _find_newest(table, times[middle + 1 :], rows, [*overtaken, *others]):
        return found
    return (times[middle], overtaken[0]) if overtaken else _find_newest(table, times[:middle], rows, kept)
