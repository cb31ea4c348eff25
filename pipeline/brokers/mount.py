"""The verb `mount`: plans a new cluster's data directories over a store's logs, and with `--execute` makes them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sparklog.pipeline.places.store_view import open_logs
from sparklog.pipeline.report import DONE, FAILED, show
from sparklog.pipeline.terminal import say
from sparklog.pipeline.verbs.verify import verify
from sparklog.sink.ledger.ledger import Ledger
from sparklog.sink.mount.new_cluster import Broker, NewCluster, make_cluster
from sparklog.sink.mount.plan_mount import MountedLog, MountPlan, plan_mount
from sparklog.sink.opening.access import maintaining
from sparklog.sink.store.store_folder import Store, random_id
from sparklog.storage_core.clock import SystemClock
from sparklog.storage_core.errors import InvalidConfigError
from sparklog.storage_core.log_config import LogConfig
from sparklog.storage_core.quantity_text import size_text

__all__ = ["execute_mount", "run"]

_BROKER = re.compile(r"(\d+)@([^:\s]+):(\d+)")


@dataclass(frozen=True, slots=True)
class _Mount:
    """A planned or finished mount."""

    plan: MountPlan
    cluster: NewCluster
    out: Path
    now_ms: int
    shared: frozenset[str] | None

    def lines(self) -> Iterator[str]:
        """Return a line per topic, and warnings."""
        for topic, logs in self.plan.topics().items():
            records = sum(each.state.log_end_offset - each.state.log_start_offset for each in logs)
            size = size_text(sum(each.size_bytes for each in logs))
            yield f"{topic}: {len(logs)} partitions, {records:,} offsets, {size}"
        yield from self.warnings()

    def warnings(self) -> Iterator[str]:
        """Return what the brokers would do to the records, and nobody may want."""
        for topic, logs in self.plan.topics().items():
            config = self.plan.settings.get(topic)
            if config is None:
                yield f"warning: {topic}: its settings are not known; it is mounted with retention.ms=-1"
            elif expired := [each for each in logs if _is_expired(each, config, self.now_ms)]:
                names = ", ".join(str(each.log.partition) for each in expired)
                yield (
                    f"warning: {topic}: the brokers will delete old records of partitions {names}:"
                    f" retention.ms={config.retention_ms}"
                )

    def verdict(self) -> str:
        """Return the line for people."""
        nodes = ", ".join(str(each.node_id) for each in self.cluster.brokers)
        found = f"{len(self.plan.logs)} logs, {size_text(self.plan.size_bytes)}, ledger version"
        what = f"{found} {self.plan.ledger_version}, for brokers {nodes} in {self.out}"
        if self.shared is None:
            return f"planned: {what}; --execute does it"
        return f"mounted: {what}; closed segments by {' and '.join(sorted(self.shared)) or 'nothing'}"

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
) -> int:
    """Carry the verb out; return the exit code."""
    cluster = NewCluster(
        cluster_id=cluster_id or random_id(),
        brokers=tuple(map(_parse_broker, brokers)),
        replication_factor=replication_factor,
    )
    now_ms = SystemClock().now_ms()
    if not execute:
        found = Store.find(store)
        plan = plan_mount(found, Ledger.open(found.ledger_path), topics, allow_gaps=allow_gaps)
        show(_Mount(plan, cluster, out, now_ms, None), as_json=as_json)
        return DONE
    plan, shared = execute_mount(store, out, cluster, topics, allow_gaps=allow_gaps, now_ms=now_ms)
    show(_Mount(plan, cluster, out, now_ms, frozenset(shared)), as_json=as_json)
    return DONE if _is_sound(out, cluster) else FAILED


def execute_mount(
    root: Path, out: Path, cluster: NewCluster, topics: str | None, *, allow_gaps: bool, now_ms: int
) -> tuple[MountPlan, set[str]]:
    """Make the directories while no maintenance runs; a sink may run.

    Returns:
        what was mounted, and how closed segments got there.

    Raises:
        LogStorageError: as `plan_mount` and `make_cluster`; nothing is left.
    """
    with maintaining(root) as maintained:
        plan = plan_mount(maintained.store, Ledger.open(maintained.store.ledger_path), topics, allow_gaps=allow_gaps)
        return plan, set(make_cluster(plan, cluster, out, now_ms))


def _is_sound(out: Path, cluster: NewCluster) -> bool:
    """Check what was made, and print what is wrong."""
    names = [""] if len(cluster.brokers) == 1 else [f"broker-{each.node_id}" for each in cluster.brokers]
    results = [
        verify(open_logs(out / name / "data"), lambda each: say(f"{each} -> {each.remedy}", err=True)) for name in names
    ]
    return all(each.is_clean for each in results)


def _parse_broker(text: str) -> Broker:
    match = _BROKER.fullmatch(text)
    if not match:
        raise InvalidConfigError(f"name a broker as ID@HOST:PORT: broker={text}")
    return Broker(int(match[1]), match[2], int(match[3]))


def _is_expired(each: MountedLog, config: LogConfig, now_ms: int) -> bool:
    """Whether a broker's first retention deletes the log's newest record, and so all."""
    newest = each.state.max_timestamp_ms
    return "delete" in config.cleanup_policies and 0 <= config.retention_ms < now_ms - newest and newest >= 0
