"""Finds the state that a store had at a version of its ledger, or at a time: in the ledger's own past, else in a cut.

The ledger keeps replaced versions for about a minute. A time means the newest version that is not later if the ledger
still has that one, otherwise the newest cut that is not later.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from sparklog.sink.ledger.rows import LogState
from sparklog.sink.ledger.versions import AsOf, open_ledger_at
from sparklog.sink.past.cuts import Cut, CutTable, cuts_path
from sparklog.storage_core.errors import InvalidConfigError
from sparklog.storage_core.quantity_text import iso_time
from sparklog.storage_core.topic_partition import TopicPartition

__all__ = ["PastState", "find_past"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PastState:
    """The rows of a store's logs at a moment of the past.

    Attributes:
        states: by log.
        ledger_version: of the ledger then.
        cut: they were found in; None for the ledger itself.
    """

    states: Mapping[TopicPartition, LogState]
    ledger_version: int
    cut: Cut | None = None

    def __str__(self) -> str:
        version = f"ledger version {self.ledger_version}"
        return version if self.cut is None else f"cut of {iso_time(self.cut.cut_ms)}, {version}"


def find_past(ledger_path: Path, as_of: AsOf) -> PastState:
    """Return the state of a store at a version or a time.

    Args:
        ledger_path: of the store's ledger; the cuts are beside it.

    Raises:
        InvalidConfigError: neither the ledger nor a cut has it; the message says what there is.
        LedgerDamagedError: the ledger or the table of cuts is damaged.
    """
    try:
        ledger = open_ledger_at(ledger_path, as_of)
    except InvalidConfigError as error:
        table = CutTable(cuts_path(ledger_path.parent))
        times = table.times()
        cut = _find_cut(table, times, as_of)
        if cut is None:
            raise InvalidConfigError(f"{error}; {_what_there_is(table, times, as_of)}") from error
        return PastState(states=cut.rows.states, ledger_version=cut.ledger_version, cut=cut)
    return PastState(states=ledger.states(), ledger_version=ledger.version)


def _find_cut(table: CutTable, times: Sequence[int], as_of: AsOf) -> Cut | None:
    """Return the newest cut that is not later than a time, or the one of a version."""
    if as_of.timestamp_ms is not None:
        number = bisect_right(times, as_of.timestamp_ms)
        return table.read(times[number - 1]) if number else None
    version = as_of.version or 0
    number = bisect_left(times, version, key=lambda each: table.read(each).ledger_version)
    cut = table.read(times[number]) if number < len(times) else None
    return cut if cut is not None and cut.ledger_version == version else None


def _what_there_is(table: CutTable, times: Sequence[int], as_of: AsOf) -> str:
    if not times:
        return "there are no cuts: a stream writes them with the setting cuts.every"
    oldest, newest = times[0], times[-1]
    if as_of.timestamp_ms is not None:
        return f"the oldest cut is of {iso_time(oldest)}"
    versions = [table.read(each).ledger_version for each in (oldest, newest)]
    return (
        f"cuts have single versions from {versions[0]}, of {iso_time(oldest)}, to {versions[1]}, of {iso_time(newest)}:"
        " describe --cuts lists them"
    )
