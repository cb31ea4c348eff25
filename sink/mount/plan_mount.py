"""Selects what of a store a broker gets: the logs of some topics as one version of the ledger has them."""

import itertools
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

from sparklog.sink.ledger.ledger import Ledger
from sparklog.sink.ledger.lost_ranges import LostRangeTable
from sparklog.sink.ledger.rows import LogState
from sparklog.sink.store.log_dirs import find_unreadable, require_online
from sparklog.sink.store.store_folder import Store
from sparklog.sink.store.topic_configs import read_topic_configs
from sparklog.storage_core.errors import CorruptFileError, InvalidConfigError, UnknownTopicError
from sparklog.storage_core.log.files.segments import SegmentFiles, list_segments
from sparklog.storage_core.log_config import LogConfig
from sparklog.storage_core.storage.local import storage_errors
from sparklog.storage_core.topic_partition import TopicPartition

__all__ = ["MountPlan", "MountedLog", "plan_mount"]

_MOST_NAMES = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class MountedLog:
    """One log and its files.

    Attributes:
        state: its ledger row.
        closed: segments below the active one that hold readable offsets: nothing is appended to them any more.
        active: its active segment, of which only the committed bytes count.
        size_bytes: of its `.log` files.
    """

    log: TopicPartition
    state: LogState
    directory: Path
    closed: tuple[SegmentFiles, ...]
    active: SegmentFiles
    size_bytes: int

    @property
    def first_base_offset(self) -> int:
        """Base offset of its first segment."""
        return (*self.closed, self.active)[0].base_offset


@dataclass(frozen=True, slots=True, kw_only=True)
class MountPlan:
    """What is mounted.

    Attributes:
        ledger_version: that it is the state of.
        logs: by topic and partition.
        settings: of each topic; a topic without an entry has unknown settings.
    """

    ledger_version: int
    logs: tuple[MountedLog, ...]
    settings: Mapping[str, LogConfig]

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


def plan_mount(store: Store, ledger: Ledger, topics: str | None, *, allow_gaps: bool = False) -> MountPlan:
    """Return the logs to mount; the caller keeps maintenance away.

    Args:
        topics: regular expressions of whole names, separated by commas; None for every topic.
        allow_gaps: whether logs with offsets that a repair could not save may be mounted.

    Raises:
        UnknownTopicError: no topic has such a name.
        InvalidConfigError: an expression is none; or a log has lost offsets.
        LogDirOfflineError: a log's directory can't be read.
        CorruptFileError: a log's active segment is not there, or shorter than it was committed.
    """
    states = {log: state for log, state in ledger.states().items() if _is_named(log.topic, topics)}
    if not states:
        known = ", ".join(sorted({log.topic for log in ledger.states()})) or "none"
        raise UnknownTopicError(f"no topic of that name: topics={topics} known={known}")
    require_online(store, states.values(), find_unreadable(store, states.values()))
    _require_all_partitions(states)
    if not allow_gaps:
        _refuse_lost(store, states)
    configs = read_topic_configs(store)
    return MountPlan(
        ledger_version=ledger.version,
        logs=tuple(_listed(store, log, states[log]) for log in sorted(states)),
        settings={topic: config for topic, config in configs.items() if any(log.topic == topic for log in states)},
    )


def _is_named(topic: str, topics: str | None) -> bool:
    if topics is None:
        return True
    try:
        return any(re.fullmatch(each.strip(), topic) for each in topics.split(","))
    except re.error as error:
        raise InvalidConfigError(f"no regular expression: topics={topics} reason={error}") from None


def _require_all_partitions(logs: Collection[TopicPartition]) -> None:
    """Refuse a topic without one of its partitions: a broker would make an empty log, without a word."""
    for topic in {log.topic for log in logs}:
        found = {log.partition for log in logs if log.topic == topic}
        if missing := sorted(set(range(max(found) + 1)) - found):
            raise InvalidConfigError(f"the store has no log of some partitions: topic={topic} partitions={missing}")


def _refuse_lost(store: Store, logs: Collection[TopicPartition]) -> None:
    lost = [
        each
        for each in LostRangeTable(store.root / "control" / "lost_ranges").read()
        if TopicPartition(each.topic, each.partition) in logs
    ]
    if lost:
        names = [f"{each.topic}:{each.partition} from offset {each.first_offset}" for each in lost[:_MOST_NAMES]]
        more = f" and {len(lost) - _MOST_NAMES} more" if lost[_MOST_NAMES:] else ""
        raise InvalidConfigError(
            f"offsets were lost in a repair: {', '.join(names)}{more}; --allow-gaps mounts what is left"
        )


def _listed(store: Store, log: TopicPartition, state: LogState) -> MountedLog:
    directory = store.log_path(state)
    segments = {each.base_offset: each for each in list_segments(directory)}
    active = segments.get(state.active_base_offset)
    with storage_errors(directory):
        size = active.log_path.stat().st_size if active else -1
        if active is None or size < state.active_size_bytes:
            raise CorruptFileError(
                f"committed bytes are gone: log={log} base_offset={state.active_base_offset}"
                f" wanted_bytes={state.active_size_bytes} found_bytes={max(size, 0)} path={directory}; repair the store"
            )
        bases = sorted(base for base in segments if base <= state.active_base_offset)
        closed = tuple(
            segments[base] for base, following in itertools.pairwise(bases) if following > state.log_start_offset
        )
        closed_bytes = sum(each.log_path.stat().st_size for each in closed)
    return MountedLog(
        log=log,
        state=state,
        directory=directory,
        closed=closed,
        active=active,
        size_bytes=closed_bytes + state.active_size_bytes,
    )
