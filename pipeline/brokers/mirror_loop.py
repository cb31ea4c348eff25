"""The loop of a mirror: what the source has above the ends of the store's logs becomes the next micro-batch.

Offsets are preserved, so a mirror goes on at the ends that the ledger has; there is no checkpoint. A micro-batch
that is killed before its commit is read again, from the same offsets; after its commit the next one follows.
"""

import logging
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, Protocol

from sparklog.pipeline.brokers.mirror_lines import mirror_line
from sparklog.pipeline.brokers.plan_ranges import Ranges, plan_ranges
from sparklog.pipeline.brokers.source_settings import SourceSettings, mirrored_topic, sink_topic
from sparklog.pipeline.brokers.source_topics import (
    Offsets,
    SourceTopic,
    deleted_problems,
    open_transaction_problems,
    recreated_problems,
    went_back_problems,
)
from sparklog.sink.config import SinkConfig
from sparklog.sink.ledger.group_table import GroupRow, GroupTable, MicroBatch
from sparklog.sink.ledger.ledger import Ledger
from sparklog.sink.ledger.rows import LogState
from sparklog.sink.metrics import MicroBatchMetrics
from sparklog.sink.past.cuts import Cut, CutTable, cuts_path
from sparklog.sink.place.end_offsets import PlannedEnds
from sparklog.sink.store.store_folder import Store
from sparklog.storage_core.clock import Clock
from sparklog.storage_core.errors import InvalidConfigError, LogStorageError, TopicsChangedError
from sparklog.storage_core.kraft.group_offsets import GroupOffset
from sparklog.storage_core.storage.owned_names import Owner
from sparklog.storage_core.topic_partition import TopicPartition

__all__ = ["Mirror", "MirrorOptions", "OpenTarget", "Source", "Target"]

logger = logging.getLogger(__name__)

_SETTINGS_AGE_MS: Final = 60_000
_NO_BATCH: Final = -1

_Log = tuple[str, int]


class Source(Protocol):
    """The cluster that is mirrored."""

    def cluster_id(self) -> str:
        """Return its id."""

    def topics(self, pattern: str) -> Mapping[str, SourceTopic]:
        """Return the topics whose whole names match; an error without one."""

    def settings(self, topics: Iterable[str]) -> Mapping[str, SourceSettings]:
        """Return properties of topics."""

    def starts(self, logs: Iterable[_Log]) -> Offsets:
        """Return where logs start."""

    def ends(self, logs: Iterable[_Log], isolation: str = "READ_COMMITTED") -> Offsets:
        """Return where logs end; by default before the first record of a transaction that is open."""

    def group_offsets(self) -> Sequence[GroupOffset]:
        """Return the offsets that consumer groups have committed."""

    def offsets_at(self, logs: Iterable[_Log], time_ms: int) -> Offsets:
        """Return the first offset at a time or later, of logs that have one."""


class Target(Protocol):
    """The sink of some topics."""

    @property
    def owner(self) -> Owner:
        """Its hold of the store."""

    def write(
        self, ranges: Ranges, ends: PlannedEnds, query_id: str, batch_id: int, check_source: Callable[[], None]
    ) -> MicroBatchMetrics:
        """Commit the source's records in these ranges as one micro-batch, unless the source is another one by then.

        Args:
            check_source: called after the last record is read, and before the commit; its error fails the micro-batch.
        """

    def close(self) -> None:
        """Release the store."""


class OpenTarget(Protocol):
    """Opens the sink of a store."""

    def __call__(self, config: SinkConfig, *, take_lock_by_force: bool) -> Target:
        """Return the sink; by force it takes the store from a writer that does not stop."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MirrorOptions:
    """What is mirrored, and how.

    Attributes:
        topics: regular expressions of whole names, with commas between.
        log_dirs: of new logs.
        until: a time in ms, or `now`: the mirror is done once it has what the source has then; None never.
        max_offsets: about so many in a micro-batch.
        codec: of new batches; None for the topic's own, or zstd.
        allow_gaps: whether to go on above records that the source has deleted.
        take_lock_by_force: takes the store, at the first opening, from a writer that does not stop.
    """

    store: Path
    topics: str
    log_dirs: tuple[str, ...] = ("logs",)
    until: int | str | None = None
    max_offsets: int = 5_000_000
    codec: str | None = None
    allow_gaps: bool = False
    take_lock_by_force: bool = False


@dataclass(slots=True)
class _Opened:
    """The store, for as long as its topics and settings stay."""

    config: SinkConfig
    target: Target
    ledger: Ledger
    groups: GroupTable


class Mirror:
    """A mirror of some topics of one cluster.

    Args:
        open_target: opens the sink of a store.
        report: gets a line for people for each micro-batch.
        clock: decides whether the time to mirror until has passed, and when settings are asked for again.

    Attributes:
        is_done: whether all is there that was asked for.
    """

    def __init__(
        self,
        options: MirrorOptions,
        source: Source,
        open_target: OpenTarget,
        report: Callable[[str], None],
        clock: Clock,
    ) -> None:
        self._clock = clock
        self._options = options
        self._source = source
        self._open_target = open_target
        self._is_by_force = options.take_lock_by_force
        self._report = report
        self._query_id = f"mirror-{source.cluster_id()}"
        self._topics: Mapping[str, SourceTopic] = {}
        self._asked_ms = 0
        self._opened: _Opened | None = None
        self._goal: Offsets | None = None
        self._cut_table = CutTable(cuts_path(options.store))  # kept: it looks a version up once
        self._cuts: Mapping[int, MicroBatch] = {}
        self._knows_cuts = True
        self._groups: Sequence[GroupRow] | None = None
        self.is_done = False
        self.batches = 0
        self.records = 0

    def advance(self) -> bool:
        """Mirror one micro-batch; return whether there was one.

        A topic that is deleted meanwhile at the source, or a log that went back below what was read, leaves all for the
        next call, which asks again.

        Raises:
            InvalidConfigError: a topic is another one than the store's, its offsets went back, its records are gone,
                or a transaction is open in the store; nothing of this micro-batch was committed.
            WriterFencedError: another writer has taken the store.
            LogStorageError: the source or the store failed.
        """
        try:
            return self._advance()
        except TopicsChangedError as error:
            self._report(f"asking again: {error}")
            return False

    def _advance(self) -> bool:
        opened = self._current()
        opened.ledger = ledger = opened.ledger.newest()
        held, table = ledger.states(), opened.groups
        known = ledger.transaction_version(self._query_id)
        batch_id = (_NO_BATCH if known is None else known) + 1
        if self._groups is None:
            newest = table.newest(ledger.transaction_version)  # also of an earlier mirror, of a cluster that is gone
            self._groups = [] if newest is None else table.read(newest) or []
        offsets = self._source.group_offsets()  # before the ends: what a group has read by now lies below them
        logs = [(name, each) for name, topic in self._topics.items() for each in range(topic.partitions)]
        ends = self._source.ends(logs)
        lower = [log for log, end in ends.items() if end < _end(held, log)]
        _refuse(went_back_problems(self._source.ends(lower, "READ_UNCOMMITTED") if lower else {}, held))
        ranges, planned = self._plan(held, self._until(ends))
        groups = self._group_rows(offsets, held, planned)
        has_goal = self._goal is not None
        if not planned and (groups == self._groups or (has_goal and self.batches)):  # groups may go on for ever
            self.is_done = has_goal
            return False
        table.write((self._query_id, batch_id), ledger.version, groups, opened.target.owner, self._cut_batches())
        metrics = opened.target.write(
            ranges, planned, self._query_id, batch_id, lambda: self._check_source(held, planned, logs)
        )
        self._groups = groups
        self.batches += 1
        self.records += metrics.records
        self._report(mirror_line(metrics, {log: end - planned.get(log, _end(held, log)) for log, end in ends.items()}))
        return True

    def close(self) -> None:
        """Release the store."""
        if self._opened is not None:
            self._opened.target.close()
        self._opened = None

    def _check_source(
        self, held: Mapping[TopicPartition, LogState], planned: PlannedEnds, logs: Iterable[_Log]
    ) -> None:
        """Refuse what was read if the source is no longer that of the plan.

        Without this, records of a topic that was made anew since its id was asked for would come into the old log.
        """
        topics = self._source.topics(self._options.topics)
        _refuse(recreated_problems(topics, held.values()))
        if gone := sorted(self._topics.keys() - topics.keys()):
            raise TopicsChangedError(f"topics were deleted at the source: topics={', '.join(gone)}")
        ends = self._source.ends(logs, "READ_UNCOMMITTED")  # of all: the same question as before is kept
        _refuse(went_back_problems(ends, held))
        if lower := [f"{TopicPartition(*log)}" for log, end in planned.items() if ends[log] < end]:
            raise TopicsChangedError(f"logs of the source went back below what was read: logs={', '.join(lower)}")

    def _current(self) -> _Opened:
        """Return the sink of the source's topics as they are now; opened again if they have changed."""
        topics = self._source.topics(self._options.topics)
        is_due = self._clock.monotonic_ms() - self._asked_ms > _SETTINGS_AGE_MS
        if self._opened is None or is_due or topics != self._topics:
            held = self._held()
            _refuse(recreated_problems(topics, held.values()) + open_transaction_problems(topics, held.values()))
            config = self._sink_config(topics, held)
            self._topics, self._asked_ms = topics, self._clock.monotonic_ms()
            if self._opened is None or config != self._opened.config:
                if self._opened is not None:
                    self._opened.target.owner.check()  # a successor that took the store by force keeps it
                self.close()
                self._opened = self._open(config)
                count = sum(each.partitions for each in topics.values())
                self._report(f"mirroring {len(topics):,} topics, {count:,} partitions: {', '.join(sorted(topics))}")
        return self._opened

    def _open(self, config: SinkConfig) -> _Opened:
        target = self._open_target(config, take_lock_by_force=self._is_by_force)
        self._is_by_force = False
        try:
            store = Store.find(self._options.store)
            return _Opened(config, target, Ledger.open(store.ledger_path), GroupTable(store.root))
        except BaseException:
            target.close()
            raise

    def _held(self) -> Mapping[TopicPartition, LogState]:
        if not (self._options.store / "store.properties").exists():
            return {}
        return Ledger.open(Store.find(self._options.store).ledger_path).states()

    def _group_rows(
        self, offsets: Sequence[GroupOffset], held: Mapping[TopicPartition, LogState], planned: PlannedEnds
    ) -> list[GroupRow]:
        """Return the groups' offsets, those of the store's other topics as an earlier run has recorded them."""
        others = {state.topic: state.topic_id for log, state in held.items() if log.topic not in self._topics}
        found = [_group_row(each, held, planned) for each in offsets if each.topic in self._topics]
        found += [each for each in self._groups or () if others.get(each.offset.topic) == each.topic_id]
        return sorted(found, key=lambda each: (each.offset.group, each.offset.topic, each.offset.partition))

    def _cut_batches(self) -> set[MicroBatch] | None:
        """Return the micro-batches that kept cuts name: a mount as of a cut needs their groups; None if unknown."""
        table, known = self._cut_table, self._cuts
        try:
            self._cuts = {moment: known.get(moment) or _batch_of(table.read(moment)) for moment in table.times()}
        except LogStorageError as error:
            if self._knows_cuts:
                logger.warning("Rows of consumer groups stay until the table of cuts can be read: %s", error)
            self._knows_cuts = False
            return None
        self._knows_cuts = True
        return set(self._cuts.values())

    def _sink_config(self, topics: Mapping[str, SourceTopic], held: Mapping[TopicPartition, LogState]) -> SinkConfig:
        """Return the sink's settings. A new log begins where the source's starts now: what goes later is a loss."""
        settings = self._source.settings(topics)
        logs = [(name, each) for name, topic in topics.items() for each in range(topic.partitions)]
        new = [log for log in logs if TopicPartition(*log) not in held]
        starts: dict[str, dict[int, int]] = defaultdict(dict)
        for (name, partition), start in (self._source.starts(new) if new else {}).items():
            starts[name][partition] = start
        mirrored = {
            name: replace(mirrored_topic(name, each.topic_id, settings[name]), starts=starts[name])
            for name, each in topics.items()
        }
        codec, root = self._options.codec, self._options.store
        return SinkConfig(
            store=root,
            topics={
                name: sink_topic(name, topics[name].partitions, each.settings, codec) for name, each in mirrored.items()
            },
            offsets="preserved",
            quarantine=root / "quarantine",
            log_dirs=self._options.log_dirs,
            mirrored=mirrored,
        )

    def _until(self, ends: Offsets) -> Offsets:
        """Return how far to mirror: to the source's ends, or to those of the given time once it has passed."""
        until = self._options.until
        is_to_come = isinstance(until, int) and self._clock.now_ms() < until
        if self._goal is None and until is not None and not is_to_come:
            times = self._source.offsets_at(ends, until) if isinstance(until, int) else {}
            self._goal = {log: min(end, times.get(log, end)) for log, end in ends.items()}
        return (
            ends if self._goal is None else {log: min(ends[log], self._goal[log]) for log in ends if log in self._goal}
        )

    def _plan(self, held: Mapping[TopicPartition, LogState], ends: Offsets) -> tuple[Ranges, PlannedEnds]:
        """Return the offsets to read, and where the logs start and end with them; a log without offsets is absent."""
        starts = {log: _end(held, log) for log in ends}
        due = {log for log, end in ends.items() if end > starts[log]}
        source_starts = self._source.starts(ends) if due else {}  # of all: the same question as before is kept
        source_starts = {log: source_starts[log] for log in due}
        if not self._options.allow_gaps:
            _refuse(deleted_problems(source_starts, {log: (starts[log], ends[log]) for log in due}))
        starts |= {log: max(starts[log], start) for log, start in source_starts.items()}
        ranges = plan_ranges(starts, ends, self._options.max_offsets)
        reached = {log: end for log, (_, end) in ranges.items()}
        reached |= {log: ends[log] for log in due if starts[log] >= ends[log]}  # no record is left there
        return ranges, PlannedEnds(reached, {log: starts[log] for log in reached if not _end(held, log)})


def _end(held: Mapping[TopicPartition, LogState], log: _Log) -> int:
    state = held.get(TopicPartition(*log))
    return 0 if state is None else state.log_end_offset


def _batch_of(cut: Cut) -> MicroBatch:
    return cut.query_id, cut.batch_id


def _group_row(offset: GroupOffset, held: Mapping[TopicPartition, LogState], planned: PlannedEnds) -> GroupRow:
    log = offset.topic, offset.partition
    state, is_ahead = held.get(TopicPartition(*log)), offset.offset > planned.get(log, _end(held, log))
    topic_id, leader_epoch = ("", -1) if state is None else (state.topic_id, state.leader_epoch)
    return GroupRow(offset, topic_id, leader_epoch, is_ahead)


def _refuse(problems: list[str]) -> None:
    if problems:
        raise InvalidConfigError(*problems)
