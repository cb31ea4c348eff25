"""What of a store somebody wants to mount."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from sparklog.sink.ledger.ledger import Ledger
from sparklog.sink.ledger.versions import AsOf
from sparklog.sink.mount.plan_mount import MountPlan, plan_mount
from sparklog.sink.past.past_state import PastState, find_past
from sparklog.sink.store.store_folder import Store

__all__ = ["MountChoice"]


@dataclass(frozen=True, slots=True, kw_only=True)
class MountChoice:
    """Which logs of a store, and of which moment.

    Attributes:
        topics: regular expressions of whole names, separated by commas; None for every topic but a cluster's own.
        past: an earlier state; None for the ledger's newest.
        allow_gaps: whether logs with offsets that a repair could not save may be mounted.
        given: the store as somebody named it.
        copied: version of the ledger that the store is a copy of; None if it is no copy.
        as_of: version that a later command must name to find the same state; None for the newest.
    """

    store: Store
    given: str
    topics: str | None = None
    past: PastState | None = None
    allow_gaps: bool = False
    copied: int | None = None
    as_of: int | None = None

    @classmethod
    def find(cls, store: Path, topics: str | None, as_of: AsOf | None, *, allow_gaps: bool) -> MountChoice:
        """Return the choice of a store's logs.

        Raises:
            InvalidConfigError: there is no store, or no such state.
            LedgerDamagedError: the ledger can't be read.
        """
        found = Store.find(store)
        past = None if as_of is None else find_past(found.ledger_path, as_of)
        version = None if past is None else past.ledger_version
        return cls(store=found, given=str(found.root), topics=topics, past=past, allow_gaps=allow_gaps, as_of=version)

    def plan(self, ledger: Ledger) -> MountPlan:
        """Return the logs to mount; raises as `plan_mount`."""
        plan = plan_mount(self.store, ledger, self.topics, allow_gaps=self.allow_gaps, past=self.past)
        return plan if self.copied is None else replace(plan, ledger_version=self.copied)
