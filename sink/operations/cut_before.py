"""Writes the cut that is due before a maintenance run changes a store that no sink has."""

import contextlib

from sparklog.sink.ledger.ledger import Ledger
from sparklog.sink.opening.access import MaintainedStore, enter_writer
from sparklog.sink.past.write_cuts import is_cut_due, write_due_cut
from sparklog.storage_core.clock import Clock

__all__ = ["write_cut_before_maintenance"]


def write_cut_before_maintenance(maintained: MaintainedStore, clock: Clock) -> None:
    """Write the cut that is due; a running sink writes its own. A failure only warns, as no record depends on a cut.

    Raises: as `enter_writer`.
    """
    store, now_ms = maintained.store, clock.now_ms()
    if not is_cut_due(store.root, Ledger.open(store.ledger_path), now_ms):
        return
    with contextlib.ExitStack() as held:
        written = enter_writer(maintained, held)
        if written is not None:
            write_due_cut(store.root, written.ledger, written.lock, now_ms)
