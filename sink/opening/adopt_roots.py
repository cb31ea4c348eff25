"""Adopts log directories and quarantined rows of another copy of a store.

A log directory names its store, and so does a store's part of a quarantine folder. If it names another copy of the
store, and that copy still has it or can't be read, an opening refuses it: people decide which copy continues. After an
adoption the other copy is refused.
"""

from collections.abc import Collection
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal

from sparklog.sink.ledger.ledger import Ledger
from sparklog.sink.locks.writer_lock import WriterLock
from sparklog.sink.opening.access import WRITER_LOCK, both_locks
from sparklog.sink.opening.finish_intents import named_log_dirs
from sparklog.sink.quarantine.claims import claimed_parts, sign_part
from sparklog.sink.store.store_folder import Store
from sparklog.storage_core.errors import InvalidConfigError, StorageError, StoreLockedError

__all__ = ["ClaimedRoot", "adopt_roots", "plan_adoption"]


@dataclass(frozen=True, slots=True)
class ClaimedRoot:
    """A folder of a store that another copy claims.

    Attributes:
        kind: a log directory, or the store's part of a quarantine folder.
        other: the other copy's folder.
    """

    kind: Literal["log_dir", "quarantine"]
    path: Path
    other: Path


def plan_adoption(root: Path, more: Collection[str] = ()) -> list[ClaimedRoot]:
    """Return the folders that an adoption would take; changes nothing.

    Args:
        more: log directories in which the ledger has no logs yet.

    Raises:
        InvalidConfigError: no store is there, or not one of `more`.
        LedgerDamagedError: its ledger can't be read.
    """
    store = Store.find(root)
    for name in more:
        if not store.log_dir(name).is_dir():
            raise InvalidConfigError(f"no such log directory: log_dir={store.log_dir(name)}")
    ledger = Ledger.open(store.ledger_path)
    names = {state.log_dir for state in ledger.states().values()} | named_log_dirs(ledger) | set(more)
    others = {name: store.claimant(name) for name in sorted(names) if store.log_dir(name).is_dir()}
    logs = [ClaimedRoot("log_dir", store.log_dir(name), other) for name, other in others.items() if other is not None]
    return [*logs, *(ClaimedRoot("quarantine", *each) for each in claimed_parts(store))]


def adopt_roots(root: Path, more: Collection[str] = ()) -> list[ClaimedRoot]:
    """Adopt folders of another copy; args and result are those of `plan_adoption`.

    Raises:
        StoreLockedError: the store or the other copy is open, or a broker has a log directory.
        StorageError: the disk refused; the next call continues.
    """
    with both_locks(root) as (lock, _):  # no `begin`: neither ledger nor logs change
        store, claimed = Store.find(root), plan_adoption(root, more)
        for each in claimed:
            if each.kind == "log_dir":
                lock.roots.take(each.path, lock, by_force=False)
            else:
                _refuse_open(each)
        for each in claimed:
            (store.name_store if each.kind == "log_dir" else partial(sign_part, store))(each.path, lock)
    return claimed


def _refuse_open(claimed: ClaimedRoot) -> None:
    """Refuse to take quarantined rows, which have no lock, from a copy with a running sink; skip an unreadable copy."""
    try:
        is_open = WriterLock.is_held(claimed.other / WRITER_LOCK)
    except StorageError:
        return
    if is_open:
        raise StoreLockedError(f"the other copy is open: store={claimed.other}; close its sink first")
