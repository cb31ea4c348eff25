"""The verb `repair` of a store of objects: finds extents that are gone or damaged, and with `--execute` drops them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from sparklog.pipeline.report import DONE, FAILED, show, to_json
from sparklog.pipeline.stop_request import StopRequest
from sparklog.pipeline.terminal import say, say_at_once
from sparklog.sink.objects.object_ledger import ObjectLedger
from sparklog.sink.objects.repair_objects import DamagedExtent, find_damage, object_sizes, repair_logs
from sparklog.storage_core.clock import SystemClock
from sparklog.storage_core.objects.open_storage import StoragePlace
from sparklog.storage_core.topic_partition import TopicPartition

__all__ = ["repair_objects"]

_HELD_BYTES = 256 << 20
"""Of damaged extents with batches that can be saved, before they are written."""


@dataclass(frozen=True, slots=True)
class _Repair:
    """A planned or finished repair.

    Attributes:
        damage: of each damaged log.
        done: logs that were repaired; None for a plan.
    """

    damage: dict[TopicPartition, Sequence[DamagedExtent]]
    logs: int
    done: Sequence[TopicPartition] | None
    is_stopped: bool

    def lines(self) -> Iterator[str]:
        """Return the logs that changed before they could be repaired."""
        if self.done is not None:
            left = sorted(self.damage.keys() - set(self.done))
            yield from (f"not repaired: {log}: it has changed meanwhile -> repair again" for log in left)

    def verdict(self) -> str:
        """Return the last line for people."""
        offsets = f"{self._lost():,} offsets of {len(self.damage):,} logs are lost"
        if self.is_stopped:
            return f"stopped: {self.logs:,} logs were looked at"
        if not self.damage:
            return f"nothing to repair: {self.logs:,} logs"
        if self.done is None:
            return f"planned: {offsets}; --execute records that, and the logs can be read again"
        return f"repaired: {len(self.done):,} logs; {offsets}"

    def as_dict(self) -> dict[str, Any]:
        """Return the summary, for JSON."""
        return {
            "executed": self.done is not None,
            "logs": self.logs,
            "damaged": [str(log) for log in self.damage],
            "lost_offsets": self._lost(),
            "repaired": None if self.done is None else [str(log) for log in self.done],
        }

    def code(self) -> int:
        """Return the exit code."""
        return FAILED if self.is_stopped or len(self.damage) > len(self.done or ()) else DONE

    def _lost(self) -> int:
        found = (span for held in self.damage.values() for each in held for span in each.lost)
        return sum(last - first + 1 for first, last in found)


def repair_objects(place: StoragePlace, *, execute: bool, as_json: bool) -> int:
    """Carry the verb out; return the exit code.

    Raises:
        LogStorageError: the ledger can't be read, or the storage does not answer.
    """
    ledger = ObjectLedger.open(place)
    damage, done, looked = dict[TopicPartition, Sequence[DamagedExtent]](), set[TopicPartition](), 0
    storage, extents = place.open(), ledger.extents()
    sizes = object_sizes(storage)
    waiting, held_bytes = dict[TopicPartition, Sequence[DamagedExtent]](), 0
    with StopRequest(say_at_once, "log") as stop:
        for log in sorted(ledger.states()):
            if stop.requested:
                break
            found = find_damage(storage, extents.get(log, ()), sizes)
            looked += 1
            if not found:
                continue
            damage[log] = waiting[log] = found
            held_bytes += sum(len(each.sound.data) for each in found if each.sound is not None)
            for each in found:
                _say(log, each, as_json=as_json)
            if execute and held_bytes >= _HELD_BYTES:
                done |= repair_logs(ledger, waiting, SystemClock().now_ms())
                waiting, held_bytes = {}, 0
        if execute and waiting:
            done |= repair_logs(ledger, waiting, SystemClock().now_ms())
    report = _Repair(damage, looked, sorted(done) if execute else None, stop.requested)
    show(report, as_json=as_json)
    return report.code()


def _say(log: TopicPartition, each: DamagedExtent, *, as_json: bool) -> None:
    for first, last in each.lost:
        if as_json:
            say(to_json({"log": str(log), "first_offset": first, "last_offset": last, "reason": each.reason}))
        else:
            say(f"{log}: offsets {first:,}..{last:,} are lost: {each.reason}")
