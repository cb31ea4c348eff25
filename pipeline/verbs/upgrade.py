"""The verb `upgrade`: upgrades a store of an older layout."""

from dataclasses import dataclass
from pathlib import Path

from sparklog.pipeline.report import show
from sparklog.sink.operations.upgrade_store import plan_upgrade, upgrade_store

__all__ = ["run"]


@dataclass(frozen=True, slots=True)
class _Upgrade:
    """A planned or finished upgrade."""

    store: Path
    log_count: int
    is_executed: bool

    def lines(self) -> list[str]:
        """Return nothing: there is only the verdict."""
        return []

    def verdict(self) -> str:
        """Return the line for people."""
        what = f"{self.log_count:,} logs of {self.store}"
        return f"upgraded: {what}" if self.is_executed else f"planned: {what}; --execute does it"

    def as_dict(self) -> dict[str, object]:
        """Return the upgrade for JSON."""
        return {"executed": self.is_executed, "logs": self.log_count}


def run(store: Path, execute: bool, as_json: bool) -> None:
    """Carry the verb out."""
    count = (upgrade_store if execute else plan_upgrade)(store)
    show(_Upgrade(store, count, execute), as_json=as_json)
