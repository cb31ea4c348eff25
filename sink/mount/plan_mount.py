"""Selects what of a store a broker gets: the logs of some topics as one version of the ledger has them."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from sparklog.sink.ledger.group_table import GroupTable
from sparklog.sink.ledger.intents import Move, Truncation
from sparklog.sink.ledger.ledger import Ledger
from sparklog.sink.ledger.lost_ranges import LostRange, LostRangeTable
from sparklog.sink.ledger.rows import LogState
from sparklog.sink.mount.plan_groups import GroupPlan, find_groups, newest_batches, plan_groups
from sparklog.sink.mount.rows_then import rows_then, shortened_logs
from sparklog.sink.opening.clean_end import find_surplus
from sparklog.sink.past.past_state import PastState
from sparklog.sink.store.expected_log import expected_log
from sparklog.sink.store.log_dirs import find_unreadable, require_online
from sparklog.sink.store.store_folder import Store
from sparklog.sink.store.topic_configs import read_other_properties, read_preserved_topics, read_topic_configs
from sparklog.storage_core.errors import InvalidConfigError, LedgerDamagedError, UnknownTopicError
from sparklog.storage_core.inspect.verify.findings import ExpectedLog
from sparklog.storage_core.log.files.names import LOG, segment_file_name
from sparklog.storage_core.log.files.segments import SegmentFiles
from sparklog.storage_core.log_config import LogConfig
from sparklog.storage_core.retention.log_facts import list_log
from sparklog.storage_core.topic_partition import TopicPartition
from sparklog.storage_core.topic_pattern import is_named

__all__ = ["MountPlan", "MountedLog", "plan_mount"]

_MOST_NAMES = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class MountedLog:
    """One log and its files.

    Attributes:
        state: its ledger row.
        closed: segments below the active one that hold readable offsets: nothing is appended to them any more.
        first_base_offset: base offset of its first segment.
        size_bytes: of its `.log` files.
        index_interval_bytes: bytes between two index entries.
        lost: known lost offsets, first and last.
        expected: what its files must agree with, as if all of it were synced: a mount takes no unsynced bytes.
    """

    log: TopicPartition
    state: LogState
    directory: Path
    closed: tuple[SegmentFiles, ...]
    first_base_offset: int
    size_bytes: int
    index_interval_bytes: int
    lost: tuple[tuple[int, int], ...]
    expected: ExpectedLog

    def copied_bytes(self, *, shares: bool) -> int:
        """Return how many bytes have to be copied.

        Args:
            shares: whether closed segments need no copy.
        """
        indexes = [
            path for files in self.closed for path in (files.index_path, files.time_index_path, files.txn_index_path)
        ]
        copied = [path for path in indexes if path.exists()]
        copied += [] if shares else [files.log_path for files in self.closed]
        return self.state.active_size_bytes + sum(path.stat().st_size for path in copied)

    @property
    def active_path(self) -> Path:
        """Path of the active segment's `.log`; there may be none while no byte of it is committed."""
        return self.directory / segment_file_name(self.state.active_base_offset, LOG)


@dataclass(frozen=True, slots=True, kw_only=True)
class MountPlan:
    """What is mounted.

    Attributes:
        ledger_version: that it is the state of.
        logs: by topic and partition.
        settings: of each topic; a topic without an entry has unknown settings.
        others: properties of mirrored topics that only brokers use.
        past: the earlier state that is mounted; None for the newest.
        shortened: logs of it that have lost their beginning since, and what.
        groups: offsets of consumer groups.
    """

    ledger_version: int
    logs: tuple[MountedLog, ...]
    settings: Mapping[str, LogConfig]
    others: Mapping[str, Mapping[str, str]]
    groups: GroupPlan
    past: PastState | None = None
    shortened: Mapping[TopicPartition, str] = field(default_factory=dict)

    @property
    def size_bytes(self) -> int:
        """Bytes of records."""
        return sum(each.size_bytes for each in self.logs)

    def topics(self) -> dict[str, list[MountedLog]]:
        """Return the logs of each topic."""
        found: dict[str, list[MountedLog]] = {}
        for each in self.logs:
            found.setdefault(each.log.topic, []).append(each)
        return found


def plan_mount(
    store: Store, ledger: Ledger, topics: str | None, *, allow_gaps: bool = False, past: PastState | None = None
) -> MountPlan:
    """Return the logs to mount. To act on the plan, the caller keeps maintenance away from before until after.

    Args:
        topics: regular expressions of whole names, separated by commas; None for every topic but a cluster's own.
        allow_gaps: whether logs with offsets that a repair could not save may be mounted.
        past: an earlier state to mount; None for the ledger's newest.

    Raises:
        UnknownTopicError: no topic has such a name.
        InvalidConfigError: an expression is none; a log has lost offsets, or an unfinished operation; a log of the
            earlier state can't be read any more.
        LedgerDamagedError: bytes lie above a committed end that no crash left: the ledger lost its newest versions.
        LogDirOfflineError: a log's directory can't be read.
        CorruptFileError: a log's active segment is missing, or a replacement of segments is not finished.
    """
    groups = find_groups(GroupTable(store.root), newest_batches(store, ledger, past))
    now, there = ledger.states(), ledger.states() if past is None else past.states
    states = {log: state for log, state in there.items() if is_named(log.topic, topics)}
    if not states:
        known = ", ".join(sorted({log.topic for log in there})) or "none"
        raise UnknownTopicError(f"no topic to mount: topics={topics or 'all'} known={known}")
    shortened = {} if past is None else shortened_logs(store, past, now, states)
    today = {log: now[log] for log in states}
    require_online(store, today.values(), find_unreadable(store, today.values()))
    if (surplus := find_surplus(store, today, ledger.version)) is not None:
        raise LedgerDamagedError(surplus)
    states = today if past is None else rows_then(store, past, now, states)
    _require_all_partitions(states)
    _refuse_unfinished(states)
    lost = [each for each in _lost(store) if _is_readable(each, states)]
    if lost and not allow_gaps:
        raise InvalidConfigError(_describe_lost(lost))
    configs, preserved = read_topic_configs(store), read_preserved_topics(store)
    return MountPlan(
        ledger_version=ledger.version if past is None else past.ledger_version,
        logs=tuple(_listed(store, states[log], lost, configs.get(log.topic), preserved) for log in sorted(states)),
        settings={topic: config for topic, config in configs.items() if any(log.topic == topic for log in states)},
        others=read_other_properties(store),
        past=past,
        shortened=shortened,
        groups=plan_groups(store, groups, states),
    )


def _require_all_partitions(logs: Collection[TopicPartition]) -> None:
    """Refuse a topic without one of its partitions: a broker would make an empty log, without a word."""
    for topic in {log.topic for log in logs}:
        found = {log.partition for log in logs if log.topic == topic}
        if missing := sorted(set(range(max(found) + 1)) - found):
            raise InvalidConfigError(f"the store has no log of some partitions: topic={topic} partitions={missing}")


def _refuse_unfinished(states: Mapping[TopicPartition, LogState]) -> None:
    for log, state in states.items():
        if any(isinstance(each, Move | Truncation) for each in state.intents):
            raise InvalidConfigError(
                f"a move or truncation of a log is not finished: log={log}; open the store once with the stream that"
                " writes it, which finishes it"
            )


def _lost(store: Store) -> list[LostRange]:
    return LostRangeTable(store.root / "control" / "lost_ranges").read()


def _is_readable(lost: LostRange, states: Mapping[TopicPartition, LogState]) -> bool:
    """Whether lost offsets are of a mounted log, between its start and its end."""
    state = states.get(TopicPartition(lost.topic, lost.partition))
    if state is None or lost.first_offset >= state.log_end_offset:
        return False
    return lost.last_offset is None or lost.last_offset >= state.log_start_offset


def _describe_lost(lost: Sequence[LostRange]) -> str:
    names = [f"{each.topic}:{each.partition} from offset {each.first_offset}" for each in lost[:_MOST_NAMES]]
    more = f" and {len(lost) - _MOST_NAMES} more" if lost[_MOST_NAMES:] else ""
    return f"offsets were lost in a repair: {', '.join(names)}{more}; --allow-gaps mounts what is left"


def _listed(
    store: Store, state: LogState, lost: Sequence[LostRange], config: LogConfig | None, preserved: Collection[str]
) -> MountedLog:
    directory = store.log_path(state)
    segments = list_log(directory, state.committed_end).segments
    has_gaps = True if config is not None and config.is_compacted else None
    expected = expected_log(state, has_gaps=has_gaps, preserves_offsets=state.topic in preserved)
    readable = [each for each in segments[:-1] if each.next_offset > state.log_start_offset]
    return MountedLog(
        log=state.log,
        state=state,
        directory=directory,
        closed=tuple(
            SegmentFiles(each.base_offset, directory / segment_file_name(each.base_offset, LOG)) for each in readable
        ),
        first_base_offset=(*readable, segments[-1])[0].base_offset,
        size_bytes=sum(each.size_bytes for each in (*readable, segments[-1])),
        index_interval_bytes=(config or LogConfig()).index_interval_bytes,
        lost=tuple(
            (each.first_offset, each.last_offset)
            for each in lost
            if TopicPartition(each.topic, each.partition) == state.log and each.last_offset is not None
        ),
        expected=replace(expected, recovery_point=None),
    )
