"""The verb `mount --new-cluster`: plans data directories over a store's logs, and with `--execute` makes them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from sparklog.pipeline.brokers.mounting.choice import MountChoice
from sparklog.pipeline.brokers.mounting.reassignment_file import read_reassignment
from sparklog.pipeline.report import show
from sparklog.sink.ledger.ledger import Ledger
from sparklog.sink.mount.cluster import Broker, NewCluster
from sparklog.sink.mount.new_cluster import check_target, make_cluster
from sparklog.sink.mount.plan_mount import MountPlan
from sparklog.sink.opening.access import keep_maintenance_out
from sparklog.sink.operations.retain_logs import LogRetention, plan_logs
from sparklog.sink.store.store_folder import random_id
from sparklog.storage_core.clock import SystemClock
from sparklog.storage_core.errors import InvalidConfigError
from sparklog.storage_core.quantity_text import size_text
from sparklog.storage_core.storage.share_file import Sharing

__all__ = ["asked_cluster", "execute_mount", "mount_new_cluster"]

_MOST_REFUSED: Final = 20
_SETTINGS: Final = {"start-offset": "the log's start", "size": "retention.bytes", "time": "retention.ms"}
_BROKER = re.compile(r"([0-9]{1,10})@([A-Za-z0-9.-]+):([0-9]{1,5})")


@dataclass(frozen=True, slots=True)
class _Mount:
    """A planned or finished mount."""

    plan: MountPlan
    cluster: NewCluster
    out: Path
    due: Sequence[LogRetention]
    shared: Set[str] | None

    def lines(self) -> Iterator[str]:
        """Return a line per topic, and warnings."""
        for topic, logs in self.plan.topics().items():
            records = sum(each.state.log_end_offset - each.state.log_start_offset for each in logs)
            size = size_text(sum(each.size_bytes for each in logs))
            yield f"{topic}: {len(logs)} partitions, {records:,} offsets, {size}"
        if (groups := self.plan.groups).given:
            yield f"consumer groups: {groups.groups_count:,}, {len(groups.given):,} offsets"
        yield from self.warnings()

    def warnings(self) -> Iterator[str]:
        """Return what the brokers will do to records, by their retention."""
        for topic in self.plan.topics():
            if topic not in self.plan.settings:
                yield f"warning: {topic}: its settings are not known; it is mounted with retention.ms=-1"
        if self.plan.groups.gone:
            yield f"warning: {self.plan.groups.gone}"
        refused = self.plan.groups.refused
        yield from (f"warning: not given to its group: {each}" for each in refused[:_MOST_REFUSED])
        if refused[_MOST_REFUSED:]:
            yield f"warning: and {len(refused) - _MOST_REFUSED:,} more offsets of groups; --json lists all"
        for log, what in sorted(self.plan.shortened.items()):
            yield f"warning: {log}: {what}"
        ends = {each.log: each.state.log_end_offset for each in self.plan.logs}
        for each in self.due:
            deletions = [] if each.plan is None else each.plan.deletions
            found = [deletion for deletion in deletions if deletion.base_offset < ends[each.log]]
            if found:
                size = size_text(sum(deletion.size_bytes for deletion in found))
                rules = " and ".join(sorted({_SETTINGS[deletion.rule] for deletion in found}))
                yield f"warning: {each.log}: the brokers will delete {len(found)} segments, {size}, by {rules}"

    def verdict(self) -> str:
        """Return the line for people."""
        nodes = ", ".join(str(each.node_id) for each in self.cluster.brokers)
        state = self.plan.past or f"ledger version {self.plan.ledger_version}"
        what = (
            f"{len(self.plan.logs)} logs, {size_text(self.plan.size_bytes)}, {state}, for brokers {nodes} in {self.out}"
        )
        if self.shared is None:
            return f"planned: {what}; --execute does it"
        return f"mounted: {what}" + (f"; closed segments: {' and '.join(sorted(self.shared))}" if self.shared else "")

    def as_dict(self) -> dict[str, Any]:
        """Return the mount for JSON."""
        return {
            "executed": self.shared is not None,
            "ledger_version": self.plan.ledger_version,
            **({} if self.plan.past is None else {"as_of": str(self.plan.past)}),
            "out": str(self.out),
            "cluster_id": self.cluster.cluster_id,
            "brokers": [each.node_id for each in self.cluster.brokers],
            "logs": len(self.plan.logs),
            "size_bytes": self.plan.size_bytes,
            "groups": self.plan.groups.groups_count,
            "group_offsets": len(self.plan.groups.given),
            "refused_group_offsets": [str(each) for each in self.plan.groups.refused],
            "warnings": [*self.warnings()],
        }


def asked_cluster(
    brokers: Sequence[str], replication_factor: int, reassignment: Path | None, cluster_id: str | None
) -> NewCluster:
    """Return the cluster that options ask for.

    Raises:
        InvalidConfigError: an option's value, or the file, is wrong.
    """
    return NewCluster(
        cluster_id=cluster_id or random_id(),
        brokers=tuple(map(_parse_broker, brokers)),
        replication_factor=replication_factor,
        assigned={} if reassignment is None else read_reassignment(reassignment),
    )


def mount_new_cluster(choice: MountChoice, out: Path, cluster: NewCluster, *, execute: bool, as_json: bool) -> None:
    """Plan the directories, make them if that is wanted, and print it.

    Raises:
        LogStorageError: as `execute_mount`.
    """
    store, clock = choice.store, SystemClock()
    due, shared = plan_logs(store, clock), None
    if execute:
        plan, shared = execute_mount(choice, out, cluster, now_ms=clock.now_ms())
    else:
        plan = choice.plan(Ledger.open(store.ledger_path))
        check_target(store, plan, cluster, out)
    names = {each.log for each in plan.logs}
    due = [each for each in due if each.log in names]
    show(_Mount(plan, cluster, out, due, shared), as_json=as_json)


def execute_mount(
    choice: MountChoice, out: Path, cluster: NewCluster, *, now_ms: int
) -> tuple[MountPlan, set[Sharing]]:
    """Make the directories while no maintenance runs; a sink may run.

    Returns:
        what was mounted, and how closed segments got there.

    Raises:
        StoreLockedError: a maintenance run holds the store.
        LogStorageError: as `plan_mount`, `check_target` and `make_cluster`; nothing is left.
    """
    store = choice.store
    with keep_maintenance_out(store.root):
        plan = choice.plan(
            Ledger.open_beside_writer(store.ledger_path)
        )  # durable: a power cut takes nothing of it back
        check_target(store, plan, cluster, out)
        return plan, make_cluster(plan, cluster, out, now_ms)


def _parse_broker(text: str) -> Broker:
    match = _BROKER.fullmatch(text)
    if not match:
        raise InvalidConfigError(f"name a broker as ID@HOST:PORT: broker={text}")
    return Broker(int(match[1]), match[2], int(match[3]))
