"""The verb `adopt`: a copied store takes over log directories and quarantined rows from the other copy."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from sparklog.pipeline.report import show
from sparklog.sink.opening.adopt_roots import ClaimedRoot, adopt_roots, plan_adoption

__all__ = ["run"]


@dataclass(frozen=True, slots=True)
class _Adoption:
    """The folders to take over, or taken over."""

    store: Path
    claimed: Sequence[ClaimedRoot]
    is_executed: bool

    def lines(self) -> list[str]:
        """Return a line per folder."""
        return [f"{each.path}: claimed by {each.other}" for each in self.claimed]

    def verdict(self) -> str:
        """Return the last line for people."""
        if not self.claimed:
            return "no other copy has a log directory or quarantined rows of this store"
        if self.is_executed:
            return f"adopted by {self.store}: {len(self.claimed):,} folders"
        return (
            f"{len(self.claimed):,} folders; --execute takes them over: then the other copy can't be opened, and"
            f" {self.store} lacks the records that only the other copy committed"
        )

    def as_dict(self) -> list[dict[str, str]]:
        """Return the folders for JSON."""
        return [{each.kind: str(each.path), "other": str(each.other)} for each in self.claimed]


def run(store: Path, log_dirs: tuple[str, ...], execute: bool, as_json: bool) -> None:
    """Carry the verb out."""
    claimed = (adopt_roots if execute else plan_adoption)(store, log_dirs)
    show(_Adoption(store, claimed, execute), as_json=as_json)
