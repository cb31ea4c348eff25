"""Stores with several compacted logs, and what a maintenance run makes of them, for tests of the job."""

import os
from collections.abc import Collection
from contextlib import closing
from pathlib import Path

import pyarrow as pa

from sparklog.pipeline.maintenance.plan import MaintenancePlan, SurveyedLog, plan_maintenance
from sparklog.sink.operations.clean_logs import plan_cleanings
from sparklog.sink.operations.retain_logs import plan_logs
from sparklog.sink.store.store_folder import Store
from sparklog.storage_core.clock import Clock
from sparklog.storage_core.topic_partition import TopicPartition
from tests.build.compacted_store import NOW_MS, SETTINGS
from tests.build.sink_store import in_process, open_store, read_store, rows

__all__ = ["PARTITIONS", "TOPIC", "DeadlyKeys", "live_values", "plan_of", "write_keys"]

TOPIC = "keyed"
PARTITIONS = 4
_SETTINGS = {**SETTINGS, "partitions": PARTITIONS, "delete.retention.ms": 86_400_000}


class DeadlyKeys(dict[str, pa.Array]):
    """Keys to erase, by topic id, that end the process which looks up those of a topic that has some."""

    def get(self, topic_id: str, default: pa.Array | None = None) -> pa.Array | None:
        """End the process, or give the default."""
        if topic_id in self:
            os._exit(1)
        return default


def write_keys(store: Path, count: int = 400, keys: int = 7, settings: dict[str, object] | None = None) -> Path:
    """Write a store of topic `keyed`: each partition has some keys in turn; values are numbers that grow."""
    with closing(open_store(store, {TOPIC: {**_SETTINGS, **(settings or {})}}, topic=TOPIC)) as writer:
        for number, first in enumerate(range(0, count, 40)):
            numbers = range(first, min(first + 40, count))
            batch = rows(
                partition=[each % PARTITIONS for each in numbers],
                key=[f"k{each % PARTITIONS}-{each // PARTITIONS % keys}" for each in numbers],
                value=[str(each) for each in numbers],
                timestamp=[NOW_MS + each for each in numbers],
            )
            writer.append("q", number, in_process(batch))
    return store


def plan_of(store: Path, clock: Clock, erased_logs: Collection[TopicPartition] = ()) -> MaintenancePlan:
    """Return the plan of a run over a store that no run has maintained before."""
    found = Store.find(store)
    cleanings = {each.log: each for each in plan_cleanings(found, {}, clock)}
    logs = [SurveyedLog(retention=each, cleaning=cleanings[each.log]) for each in plan_logs(found, clock)]
    return plan_maintenance(logs, clock.now_ms(), erased_logs=erased_logs)


def live_values(store: Path) -> dict[str, dict[bytes | None, bytes | None]]:
    """Return the latest value of each key, by log."""
    return {
        log: {record.key: record.value for record in sorted(records, key=lambda each: each.offset)}
        for log, records in read_store(store).items()
    }
