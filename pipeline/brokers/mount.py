"""The verb `mount`: plans a new cluster's data directories over a store's logs, and with `--execute` makes them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from sparklog.pipeline.report import show
from sparklog.sink.ledger.ledger import Ledger
from sparklog.sink.mount.new_cluster import Broker, NewCluster, check_target, make_cluster
from sparklog.sink.mount.plan_mount import MountPlan, plan_mount
from sparklog.sink.opening.access import keep_maintenance_out
from sparklog.sink.operations.retain_logs import LogRetention, plan_logs
from sparklog.sink.store.store_folder import Store, random_id
from sparklog.storage_core.clock import SystemClock
from sparklog.storage_core.errors import InvalidConfigError
from sparklog.storage_core.quantity_text import size_text
from sparklog.storage_core.storage.share_file import Sharing

__all__ = ["execute_mount", "run"]

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
        yield from self.warnings()

    def warnings(self) -> Iterator[str]:
        """Return what the brokers will do to records, by their retention."""
        for topic in self.plan.topics():
            if topic not in self.plan.settings:
                yield f"warning: {topic}: its settings are not known; it is mounted with retention.ms=-1"
        for each in self.due:
            plan = each.plan
            if plan is not None and plan.deletions:
                size = size_text(sum(deletion.size_bytes for deletion in plan.deletions))
                rules = " and ".join(sorted({_SETTINGS[deletion.rule] for deletion in plan.deletions}))
                yield f"warning: {each.log}: the brokers will delete {len(plan.deletions)} segments, {size}, by {rules}"

    def verdict(self) -> str:
        """Return the line for people."""
        nodes = ", ".join(str(each.node_id) for each in self.cluster.brokers)
        found = f"{len(self.plan.logs)} logs, {size_text(self.plan.size_bytes)}, ledger version"
        what = f"{found} {self.plan.ledger_version}, for brokers {nodes} in {self.out}"
        if self.shared is None:
            return f"planned: {what}; --execute does it"
        return f"mounted: {what}" + (f"; closed segments: {' and '.join(sorted(self.shared))}" if self.shared else "")

    def as_dict(self) -> dict[str, Any]:
        """Return the mount for JSON."""
        return {
            "executed": self.shared is not None,
            "ledger_version": self.plan.ledger_version,
            "out": str(self.out),
            "cluster_id": self.cluster.cluster_id,
            "brokers": [each.node_id for each in self.cluster.brokers],
            "logs": len(self.plan.logs),
            "size_bytes": self.plan.size_bytes,
            "warnings": [*self.warnings()],
        }


def run(
    store: Path,
    out: Path,
    topics: str | None,
    brokers: Sequence[str],
    replication_factor: int,
    cluster_id: str | None,
    allow_gaps: bool,
    execute: bool,
    as_json: bool,
) -> None:
    """Carry the verb out."""
    cluster = NewCluster(
        cluster_id=cluster_id or random_id(),
        brokers=tuple(map(_parse_broker, brokers)),
        replication_factor=replication_factor,
    )
    found, clock = Store.find(store), SystemClock()
    plan = plan_mount(found, Ledger.open(found.ledger_path), topics, allow_gaps=allow_gaps)
    check_target(found, plan, out)
    names = {each.log for each in plan.logs}
    due = [each for each in plan_logs(found, clock) if each.log in names]
    shared = None
    if execute:
        plan, shared = execute_mount(found, out, cluster, topics, allow_gaps=allow_gaps, now_ms=clock.now_ms())
    show(_Mount(plan, cluster, out, due, shared), as_json=as_json)


def execute_mount(
    store: Store, out: Path, cluster: NewCluster, topics: str | None, *, allow_gaps: bool, now_ms: int
) -> tuple[MountPlan, set[Sharing]]:
    """Make the directories while no maintenance runs; a sink may run.

    Returns:
        what was mounted, and how closed segments got there.

    Raises:
        StoreLockedError: a maintenance run holds the store.
        LogStorageError: as `plan_mount` and `make_cluster`; nothing is left.
    """
    with keep_maintenance_out(store.root):
        ledger = Ledger.open_beside_writer(store.ledger_path)  # durable: a power cut takes nothing of it back
        plan = plan_mount(store, ledger, topics, allow_gaps=allow_gaps)
        return plan, make_cluster(plan, cluster, out, now_ms)


def _parse_broker(text: str) -> Broker:
    match = _BROKER.fullmatch(text)
    if not match:
        raise InvalidConfigError(f"name a broker as ID@HOST:PORT: broker={text}")
    return Broker(int(match[1]), match[2], int(match[3]))
