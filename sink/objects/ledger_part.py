"""What a ledger of a store of objects says of some logs; it travels to executors."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sparklog.sink.ledger.lost_ranges import LostRange
from sparklog.sink.ledger.rows import LogState
from sparklog.sink.objects.extents import Extent
from sparklog.sink.objects.object_ledger import ObjectLedger
from sparklog.storage_core.objects.open_storage import StoragePlace
from sparklog.storage_core.topic_partition import TopicPartition

__all__ = ["LedgerPart", "parts_of_ledger"]


@dataclass(frozen=True, slots=True)
class LedgerPart:
    """Some logs of a version."""

    place: StoragePlace
    held_states: Mapping[TopicPartition, LogState]
    held_extents: Mapping[TopicPartition, list[Extent]]
    held_settings: Mapping[str, dict[str, Any]]
    held_lost: Sequence[LostRange]

    def states(self) -> dict[TopicPartition, LogState]:
        """As of `ObjectLedger`."""
        return dict(self.held_states)

    def extents(self) -> dict[TopicPartition, list[Extent]]:
        """As of `ObjectLedger`."""
        return dict(self.held_extents)

    def settings(self) -> dict[str, dict[str, Any]]:
        """As of `ObjectLedger`."""
        return dict(self.held_settings)

    def lost(self) -> list[LostRange]:
        """As of `ObjectLedger`."""
        return list(self.held_lost)


def parts_of_ledger(ledger: ObjectLedger, parts: Sequence[Collection[TopicPartition]]) -> list[LedgerPart]:
    """Return what a version says of lists of logs, a part for each list.

    Raises:
        LedgerDamagedError: a data file can't be read.
    """
    states, extents, settings, lost = ledger.states(), ledger.extents(), ledger.settings(), ledger.lost()
    found = []
    for logs in parts:
        topics = {log.topic for log in logs}
        found.append(
            LedgerPart(
                ledger.place,
                {log: states[log] for log in logs},
                {log: extents[log] for log in logs if log in extents},
                {topic: each for topic, each in settings.items() if topic in topics},
                [each for each in lost if each.topic in topics],
            )
        )
    return found
