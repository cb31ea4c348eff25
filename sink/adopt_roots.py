"""Log directories taken over from another copy of a store.

A log directory names its store. Where another folder with the same store id is named, and still has that directory,
an opening refuses it: which of the two goes on is for people to decide. From the adoption on the other one is refused.
"""

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from sink.ledger import Ledger
from sink.pending_work import read_pending
from sink.store import Store
from sink.store_access import both_locks
from sink.writer_lock import refused_again
from storage_core.errors import InvalidConfigError

__all__ = ["ClaimedRoot", "adopt_roots", "plan_adoption"]


@dataclass(frozen=True, slots=True)
class ClaimedRoot:
    """A log directory of a store that another copy of it has.

    Attributes:
        log_dir: its path.
        other: the other copy's folder.
    """

    log_dir: Path
    other: Path


def plan_adoption(root: Path, more: Collection[str] = ()) -> list[ClaimedRoot]:
    """Return what would be taken over; changes nothing.

    Args:
        root: of the store.
        more: log directories in which the ledger has no logs yet.

    Raises:
        InvalidConfigError: no store is there, or not one of `more`.
        LedgerDamagedError: its ledger can't be read.
    """
    store = Store.find(root)
    for name in more:
        if not store.log_dir(name).is_dir():
            raise InvalidConfigError(f"no such log directory: log_dir={store.log_dir(name)}")
    states = Ledger.open(store.ledger_path).states().values()
    names = {state.log_dir for state in states} | read_pending(store).log_dirs | set(more)
    others = {name: store.claimant(name) for name in sorted(names) if store.log_dir(name).is_dir()}
    return [ClaimedRoot(store.log_dir(name), other) for name, other in others.items() if other is not None]


def adopt_roots(root: Path, more: Collection[str] = ()) -> list[ClaimedRoot]:
    """Take log directories over from another copy; args and result are those of `plan_adoption`.

    Raises:
        StoreLockedError: the store or the other copy is open, or a broker has a log directory.
        StorageError: the disk refused; the next call goes on.
    """
    with both_locks(root) as (lock, maintenance):
        with refused_again(lock, maintenance):
            store, claimed = Store.find(root), plan_adoption(root, more)
            for each in claimed:
                lock.roots.take(each.log_dir, lock, by_force=False)
        for each in claimed:
            store.name_store(each.log_dir, lock)
        for held in (maintenance, lock):
            if not held.follows_crash:  # what its last owner left is still to be done
                held.sign_off()
    return claimed
