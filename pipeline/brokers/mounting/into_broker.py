"""The verb `mount --into`: plans which logs a stopped broker's folders get, and with `--execute` puts them there."""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from sparklog.pipeline.brokers.mounting.choice import MountChoice
from sparklog.pipeline.places.refuse_store import refuse_store
from sparklog.pipeline.report import show
from sparklog.sink.ledger.ledger import Ledger
from sparklog.sink.locks.broker_lock import lock_roots, lock_roots_to_read
from sparklog.sink.mount.into_broker import mount_into
from sparklog.sink.mount.plan_mount import MountedLog, MountPlan
from sparklog.sink.mount.plan_target import TargetPlan, plan_target
from sparklog.sink.opening.access import keep_maintenance_out
from sparklog.storage_core.clock import SystemClock
from sparklog.storage_core.errors import CorruptBatchError, InvalidConfigError
from sparklog.storage_core.log_config import LogConfig
from sparklog.storage_core.quantity_text import size_text
from sparklog.storage_core.retention.log_facts import list_log, read_log_facts
from sparklog.storage_core.retention.plan_retention import plan_retention
from sparklog.storage_core.storage.share_file import Sharing

__all__ = ["execute_mount_into", "mount_into_broker"]

_STORE: Final = ("these are logs of a store", "name the log.dirs of a stopped broker")
_RETENTION: Final = ("cleanup.policy", "retention.bytes", "retention.ms")


@dataclass(frozen=True, slots=True)
class _MountInto:
    """A planned or finished mount."""

    plan: MountPlan
    target: TargetPlan
    folders: Sequence[Path]
    due: Sequence[str]
    shared: Set[str] | None

    def lines(self) -> Iterator[str]:
        """Return a line per topic, then what is noticed."""
        placing = {each.mounted.log for each in self.target.placing}
        for topic, logs in self.plan.topics().items():
            offsets = sum(each.state.log_end_offset - each.state.log_start_offset for each in logs)
            size, there = (
                size_text(sum(each.size_bytes for each in logs)),
                sum(each.log not in placing for each in logs),
            )
            known = f", {there} logs are there already" if there else ""
            yield f"{topic}: {len(logs)} partitions, {offsets:,} offsets, {size}{known}"
        yield from self.notes()

    def notes(self) -> Iterator[str]:
        """Return what is not as in the store, and what the broker will do."""
        for each in self.target.placing:
            if each.lowered is not None:
                yield (
                    f"{each.mounted.log}: its leader epochs are above the broker's: copied, with epochs up to"
                    f" {each.mounted.state.leader_epoch}"
                )
        for log, what in sorted(self.plan.shortened.items()):
            yield f"warning: {log}: {what}"
        if self.target.settings is None:
            yield "warning: the broker's folders do not have the topics' settings: its retention may delete records"
        yield from self.due
        if self.plan.groups.gone:
            yield f"warning: {self.plan.groups.gone}"
        if self.plan.groups.given or self.plan.groups.refused:
            ids = {each.log: each.state.topic_id for each in self.plan.logs}
            has_other_ids = any(each.mounted.state.topic_id != ids[each.mounted.log] for each in self.target.logs)
            past = "" if self.plan.past is None else f" --as-of {self.plan.ledger_version}"
            options = past + (" --csv" if has_other_ids else "")
            yield f"consumer groups: sparklog restore-groups{options}, once the broker runs, has their offsets"

    def verdict(self) -> str:
        """Return the line for people."""
        folders = ", ".join(map(str, self.folders))
        placing = self.target.placing
        size = size_text(sum(each.mounted.size_bytes for each in placing))
        state = self.plan.past or f"ledger version {self.plan.ledger_version}"
        what = f"{len(placing)} logs, {size}, {state}, into {folders}"
        if self.shared is None:
            return f"planned: {what}; --execute does it"
        return f"mounted: {what}" + (f"; closed segments: {' and '.join(sorted(self.shared))}" if self.shared else "")

    def as_dict(self) -> dict[str, Any]:
        """Return the mount for JSON."""
        return {
            "executed": self.shared is not None,
            "ledger_version": self.plan.ledger_version,
            **({} if self.plan.past is None else {"as_of": str(self.plan.past)}),
            "into": [str(each) for each in self.folders],
            "logs": [
                {
                    "log": str(each.mounted.log),
                    "topic_id": each.mounted.state.topic_id,
                    "log_start_offset": each.mounted.state.log_start_offset,
                    "log_end_offset": each.mounted.state.log_end_offset,
                    "is_there_already": each.is_there,
                }
                for each in self.target.logs
            ],
            "size_bytes": sum(each.mounted.size_bytes for each in self.target.placing),
            "notes": [*self.notes()],
        }


def mount_into_broker(
    choice: MountChoice, folders: Sequence[Path], *, made_anew: bool, execute: bool, as_json: bool
) -> None:
    """Plan the mount, carry it out if that is wanted, and print it.

    Raises:
        LogStorageError: as `execute_mount_into`.
    """
    now_ms, shared = SystemClock().now_ms(), None
    refuse_store(folders, _STORE)
    if execute:
        plan, target, shared = execute_mount_into(choice, folders, made_anew=made_anew, now_ms=now_ms)
    else:
        with lock_roots_to_read(folders):
            plan = choice.plan(Ledger.open(choice.store.ledger_path))
            target = plan_target(choice.store, plan, folders, made_anew=made_anew, now_ms=now_ms)
    show(_MountInto(plan, target, folders, [*_due(plan, target, now_ms)], shared), as_json=as_json)


def execute_mount_into(
    choice: MountChoice, folders: Sequence[Path], *, made_anew: bool, now_ms: int
) -> tuple[MountPlan, TargetPlan, set[Sharing]]:
    """Put the logs into a broker's folders while no maintenance runs; a sink may run, the broker may not.

    Returns:
        what was mounted, where, and how closed segments got there.

    Raises:
        StoreLockedError: a broker has the folders, or a maintenance run holds the store.
        LogStorageError: as `plan_mount`, `plan_target` and `mount_into`.
    """
    store = choice.store
    with keep_maintenance_out(store.root), lock_roots(folders):
        plan = choice.plan(
            Ledger.open_beside_writer(store.ledger_path)
        )  # durable: a power cut takes nothing of it back
        target = plan_target(store, plan, folders, made_anew=made_anew, now_ms=now_ms)
        return plan, target, mount_into(target)


def _due(plan: MountPlan, target: TargetPlan, now_ms: int) -> Iterator[str]:
    """Yield what the broker will delete by its own settings, as far as its folders have them."""
    for each in plan.logs:
        given = (target.settings or {}).get(each.log.topic, {})
        try:
            config = LogConfig.from_properties({name: given[name] for name in _RETENTION if name in given})
            count, rules = _deletions(each, config, now_ms)
        except (CorruptBatchError, InvalidConfigError):
            continue
        if count:
            default = (
                ""
                if "retention.ms" in given
                else ", which the topic does not set: the broker's default counts, mostly 7 days"
            )
            yield f"warning: {each.log}: the broker will delete {count} segments by {rules}{default}"


def _deletions(each: MountedLog, config: LogConfig, now_ms: int) -> tuple[int, str]:
    listed = list_log(each.directory, each.state.committed_end)
    facts = read_log_facts(
        each.directory,
        listed,
        each.state.log_start_offset,
        lambda timestamp: config.retention_ms < 0 or now_ms - timestamp <= config.retention_ms,
    )
    found = [found for found in plan_retention(facts, config, now_ms).deletions if found.rule != "start-offset"]
    rules = {"size": "retention.bytes", "time": "retention.ms"}
    return len(found), " and ".join(sorted({rules[each.rule] for each in found}))
