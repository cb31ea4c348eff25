"""A Kafka cluster as plain lists of records, and a sink that reads it without Spark: what a mirror works between."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa

from sparklog.pipeline.brokers.mirror_loop import Mirror, MirrorOptions
from sparklog.pipeline.brokers.plan_ranges import Ranges
from sparklog.pipeline.brokers.source_settings import SourceSettings
from sparklog.pipeline.brokers.source_topics import Offsets, SourceTopic
from sparklog.sink.config import SinkConfig
from sparklog.sink.metrics import MicroBatchMetrics
from sparklog.sink.place.end_offsets import PlannedEnds
from sparklog.sink.stage.report import StageReport
from sparklog.sink.stage.stage_rows import StagePlan
from sparklog.sink.store_writer import StoreWriter
from sparklog.storage_core.clock import Clock, SystemClock
from sparklog.storage_core.errors import TopicsChangedError
from sparklog.storage_core.kraft.group_offsets import GroupOffset
from sparklog.storage_core.storage.owned_names import Owner
from tests.build.sink_store import in_process, rows

__all__ = ["ModelLog", "ModelSource", "ModelTarget", "model_mirror"]

_ALL = ".*"
_Log = tuple[str, int]


@dataclass
class ModelLog:
    """One log of the cluster.

    Attributes:
        offsets: of its committed records; their values are their offsets, their times 1000 above.
        start: first offset that is left.
        end: above its last offset, with or without a record there.
        unstable: first offset of a transaction that is open, None without one; `offsets` has no record from there on.
    """

    offsets: list[int] = field(default_factory=list)
    start: int = 0
    end: int = 0
    unstable: int | None = None


@dataclass
class ModelSource:
    """The cluster; its topics may be changed between two micro-batches.

    Attributes:
        leaving: topic that is deleted right after the next answer about topics.
    """

    ids: dict[str, str]
    logs: dict[_Log, ModelLog]
    given: dict[str, str] = field(default_factory=lambda: {"segment.bytes": "600", "min.insync.replicas": "2"})

    groups: list[GroupOffset] = field(default_factory=list)
    leaving: str | None = None
    cluster: str = "model"

    def cluster_id(self) -> str:
        return self.cluster

    def topics(self, pattern: str) -> Mapping[str, SourceTopic]:
        assert pattern == _ALL
        answer = {
            name: SourceTopic(topic_id, sum(topic == name for topic, _ in self.logs))
            for name, topic_id in self.ids.items()
        }
        self.ids.pop(self.leaving or "", None)
        self.logs = {log: held for log, held in self.logs.items() if log[0] != self.leaving}
        return answer

    def settings(self, topics: Iterable[str]) -> Mapping[str, SourceSettings]:
        effective = {"retention.ms": "-1", "flush.messages": "9223372036854775807", **self.given}
        return {name: SourceSettings(effective, self.given) for name in topics}

    def starts(self, logs: Iterable[_Log]) -> Offsets:
        return {log: self.logs[log].start for log in logs}

    def ends(self, logs: Iterable[_Log], isolation: str = "READ_COMMITTED") -> Offsets:
        asked = list(logs)
        if any(log not in self.logs for log in asked):
            raise TopicsChangedError("a topic is gone")
        found = {log: self.logs[log] for log in asked}
        if isolation == "READ_UNCOMMITTED":
            return {log: each.end for log, each in found.items()}
        return {log: each.end if each.unstable is None else each.unstable for log, each in found.items()}

    def group_offsets(self) -> list[GroupOffset]:
        return list(self.groups)

    def offsets_at(self, logs: Iterable[_Log], time_ms: int) -> Offsets:
        later = {log: [each for each in self.logs[log].offsets if each + 1000 >= time_ms] for log in logs}
        return {log: min(offsets) for log, offsets in later.items() if offsets}


class ModelTarget:
    """A sink whose staging tasks run in this process."""

    def __init__(self, source: ModelSource, config: SinkConfig, clock: Clock, *, take_lock_by_force: bool) -> None:
        self._source = source
        self._writer = StoreWriter(config, clock, take_lock_by_force=take_lock_by_force)

    def write(
        self, ranges: Ranges, ends: PlannedEnds, query_id: str, batch_id: int, check_source: Callable[[], None]
    ) -> MicroBatchMetrics:
        splits = [_rows(log, self._source.logs[log], *span) for log, span in sorted(ranges.items())]

        def run_stage(plan: StagePlan) -> list[StageReport]:
            reports = in_process(*splits)(plan)
            check_source()
            return reports

        return self._writer.append(query_id, batch_id, run_stage, ends)

    @property
    def owner(self) -> Owner:
        return self._writer.owner

    def close(self) -> None:
        self._writer.close()


def model_mirror(
    store: Path,
    source: ModelSource,
    clock: Clock | None = None,
    target: type[ModelTarget] = ModelTarget,
    **options: object,
) -> Mirror:
    """Return a mirror of the cluster."""
    clock = clock or SystemClock()
    wanted = MirrorOptions(store=store, topics=_ALL, **options)  # type: ignore[arg-type]

    def open_target(config: SinkConfig, *, take_lock_by_force: bool) -> ModelTarget:
        return target(source, config, clock, take_lock_by_force=take_lock_by_force)

    return Mirror(wanted, source, open_target, lambda _line: None, clock)


def _rows(log: _Log, held: ModelLog, start: int, end: int) -> pa.RecordBatch:
    offsets = [each for each in held.offsets if held.start <= each and start <= each < end]
    return rows(
        topic=[log[0]] * len(offsets),
        partition=[log[1]] * len(offsets),
        offset=offsets,
        timestamp=[1000 + each for each in offsets],
        value=[f"{log[0]}/{log[1]}/{each}" for each in offsets],
    )
