"""Decides when a cut is written: before the first commit after a multiple of the interval.

The rows that a sink holds before a commit are what the store had since the commit before. So a cut has exactly the
logs, ends and topic ids of its moment, which is the multiple, not that of the commit that found it due. Of another
moment may be what a maintenance run has committed since: `log_start_offset`, `recovery_point`, `cleaner_limit_offset`,
`compacted_offset`, `updated_ms`, and the ledger's version. A reader judges by today's rows, so it misses nothing by
that. A store without commits needs no new cut.

The ledger says when the commit before was (`Ledger.changed_ms`), also to the sink that comes next: no column can, as a
micro-batch may change no row, and maintenance changes rows beside an idle sink. A commit gets the time for which its
owner looked whether a cut is due before it: an hour that ended between the two would have no cut.

What changes a store without a sink, such as a truncation, or adds topics as a sink opens, writes the cut that is due
before it: the next sink would write it with the state after that. Rows of logs that are not imported yet, or deleted,
may be in a cut as in the ledger; readers skip them (`LedgerRows.number_of`, `states`).
"""

import logging
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Final

from sparklog.sink.config import CutSettings
from sparklog.sink.ledger.group_table import GroupTable
from sparklog.sink.ledger.ledger import Ledger
from sparklog.sink.past.cuts import Cut, CutTable, cuts_path
from sparklog.storage_core.errors import LedgerDamagedError, LogStorageError, WriterFencedError
from sparklog.storage_core.storage.owned_names import Owner

__all__ = ["CutWriter", "drop_torn_cuts", "due_cut", "is_cut_due", "write_due_cut"]

logger = logging.getLogger(__name__)

_DROPPED_AT_ONCE: Final = 10
"""Each is a commit, and after a shorter `keep` there may be many."""


class CutWriter:
    """Writes the cuts of one sink.

    Args:
        root: of the store.
        ledger: of the sink, as it has opened it.
        owner: of the store.
    """

    def __init__(self, root: Path, ledger: Ledger, owner: Owner, settings: CutSettings) -> None:
        self._root = root
        self._table = CutTable(cuts_path(root))
        self._ledger = ledger
        self._owner = owner
        self._settings = settings

    def write_if_due(self, now_ms: int) -> None:
        """Write the state before a commit as a cut if a multiple of the interval has passed since the one before.

        A failure only warns, as no record depends on a cut. It is not tried again before the next multiple: the rows of
        this one are then replaced, and a damaged table must not slow each commit.

        Args:
            now_ms: the time that the commit gets.

        Raises:
            WriterFencedError: another writer owns the store.
        """
        every_ms, changed_ms = self._settings.every_ms, self._ledger.changed_ms
        if every_ms is None or due_cut(changed_ms, None, now_ms, every_ms) is None:
            return
        try:
            known = self._table.times()
            cut_ms = due_cut(changed_ms, max(known, default=None), now_ms, every_ms)
            if cut_ms is None:
                return
            _write(self._root, self._table, self._ledger, self._owner, cut_ms)
            kept_since_ms = now_ms - self._settings.keep_ms
            old = [each for each, later in pairwise([*known, cut_ms]) if later <= kept_since_ms]
            self._table.drop(old[:_DROPPED_AT_ONCE], self._owner)
        except WriterFencedError:
            raise
        except LogStorageError as error:
            logger.warning("A cut was not written or dropped, the next one is tried when it is due: %s", error)


def is_cut_due(root: Path, ledger: Ledger, now_ms: int) -> bool:
    """Return whether a cut is due before a change without a sink; a damaged table counts as none.

    Asked without the writer lock, which is taken only if so; with it `write_due_cut` decides anew.

    Args:
        root: of the store.
        ledger: of the store.
    """
    try:
        return _due_now(CutTable(cuts_path(root)).times(), ledger, now_ms, None) is not None
    except LogStorageError as error:
        logger.warning("Earlier states of the store may not be readable: %s", error)
        return False


def write_due_cut(root: Path, ledger: Ledger, owner: Owner, now_ms: int, settings: CutSettings | None = None) -> None:
    """Write the cut that is due before the commit of a change that is no micro-batch; a failure only warns.

    Args:
        root: of the store.
        ledger: of the owner.
        owner: of the store.
        now_ms: the time that the commit gets.
        settings: of the sink. Commands have none: they take the smallest interval of the store's cuts, and write none
            in a store without cuts.

    Raises:
        WriterFencedError: another writer owns the store.
    """
    table = CutTable(cuts_path(root))
    try:
        cut_ms = _due_now(table.times(), ledger, now_ms, settings)
        if cut_ms is not None:
            _write(root, table, ledger, owner, cut_ms)
    except WriterFencedError:
        raise
    except LogStorageError as error:
        logger.warning("A cut was not written, so its moment has an older one: %s", error)


def drop_torn_cuts(root: Path, owner: Owner) -> None:
    """Drop a cut that a power cut tore; other damage only warns, as no record depends on a cut."""
    try:
        CutTable(cuts_path(root)).drop_torn(owner)
    except LedgerDamagedError as error:
        logger.warning("Earlier states of the store may not be readable: %s", error)


def _due_now(known: Sequence[int], ledger: Ledger, now_ms: int, settings: CutSettings | None) -> int | None:
    """Return the moment of the cut that is due; None if none is, or if the newest cut has this state."""
    every_ms, changed_ms = _interval_ms(known) if settings is None else settings.every_ms, ledger.changed_ms
    if every_ms is None or not ledger.rows or (known and known[-1] > changed_ms):
        return None
    return due_cut(changed_ms, None, now_ms, every_ms)


def _interval_ms(known: Sequence[int]) -> int | None:
    """Return the smallest interval of cuts, None without one: that of the settings, or a multiple of it."""
    if not known:
        return None
    return min((later - each for each, later in pairwise(known)), default=CutSettings().every_ms)


def _write(root: Path, table: CutTable, ledger: Ledger, owner: Owner, cut_ms: int) -> None:
    query_id, batch_id = GroupTable(root).newest(ledger.transaction_version) or ("", -1)
    rows, version = ledger.held_rows, ledger.version
    table.add(Cut(cut_ms=cut_ms, ledger_version=version, query_id=query_id, batch_id=batch_id, rows=rows), owner)
    logger.info("cut written cut_ms=%d ledger_version=%d logs=%d", cut_ms, version, len(ledger.rows))


def due_cut(changed_ms: int, newest_ms: int | None, now_ms: int, every_ms: int) -> int | None:
    """Return the moment of the cut that is due, None if none is.

    Args:
        changed_ms: of the commit whose rows the cut gets.
        newest_ms: moment of the newest cut; None without one. It is later than now after the clock was set back, and
            no cut is due until it has passed.
        now_ms: before the next commit.
        every_ms: of two cuts.

    Returns:
        the first multiple of `every_ms` after both moments.
    """
    known_ms = changed_ms if newest_ms is None else max(changed_ms, newest_ms)
    cut_ms = (known_ms // every_ms + 1) * every_ms
    return cut_ms if cut_ms <= now_ms else None
