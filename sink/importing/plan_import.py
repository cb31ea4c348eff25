"""Plans which logs of a broker's folders a store takes over, and what it refuses; changes no file of either.

Where closed segments are to go, one of each log gets a second name, or shares blocks, for a moment: if the disk can do
neither, copies need room (`new_log_place.can_share`; what a crash leaves of this is told there).

What is taken is what a broker's start would load. Topic ids are the broker's. Settings come from its copy of the
cluster's metadata.
"""

import os
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NoReturn

from sparklog.sink.importing.high_watermarks import notes_above_high_watermarks
from sparklog.sink.importing.log_files import ImportedFiles, survey_files
from sparklog.sink.importing.topic_settings import ImportedSettings, plan_settings
from sparklog.sink.ledger.rows import LogState
from sparklog.sink.store.log_dirs import check_root
from sparklog.sink.store.new_log_place import can_share, check_new_log, check_rooms, is_unmade, known_log_dir
from sparklog.sink.store.set_aside import stored_topic_id
from sparklog.sink.store.store_folder import Store, random_id
from sparklog.storage_core.errors import InvalidConfigError, LogDirOfflineError, UnknownTopicError
from sparklog.storage_core.kraft.read_metadata import ClusterMetadata, read_cluster_metadata
from sparklog.storage_core.log.load.changes import NotedChanges
from sparklog.storage_core.log.load.load_root import LoadedRoot, RootOptions, plan_one_log, plan_roots
from sparklog.storage_core.log.load.survey import LogSurvey, is_log_directory
from sparklog.storage_core.log_config import LogConfig
from sparklog.storage_core.topic_partition import TopicPartition, topic_names_collide
from sparklog.storage_core.topic_pattern import INTERNAL_TOPICS, is_named

__all__ = ["ImportChoice", "ImportPlan", "ImportedLog", "plan_import"]

_MOST_NAMES: Final = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportChoice:
    """What somebody wants to import.

    Attributes:
        folders: the roots of one broker, or one log directory.
        topics: regular expressions of whole names, separated by commas; None for every topic but a cluster's own.
        log_dir: of the store, for all logs; None for the one with the fewest logs.
        allow_gaps: whether to take what is left of a log that has lost records.
        may_link: whether closed segments may be the same files under second names.
        now_ms: current time.
        settings: of topics, in place of those in the broker's folders.
    """

    folders: tuple[Path, ...]
    topics: str | None = None
    log_dir: str | None = None
    allow_gaps: bool = False
    may_link: bool = True
    now_ms: int = 0
    settings: Mapping[str, LogConfig] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportedLog:
    """One log and its row, as both will be in the store."""

    files: ImportedFiles
    state: LogState


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportPlan:
    """What is imported.

    Attributes:
        logs: by topic and partition.
        settings: of its topics.
        above: offsets above the high watermarks of the broker; a line for each log.
        left_out: directories that are not taken, and why; a line each.
    """

    logs: tuple[ImportedLog, ...]
    settings: ImportedSettings
    above: tuple[str, ...]
    left_out: tuple[str, ...]

    @property
    def size_bytes(self) -> int:
        """Bytes of batches."""
        return sum(each.files.size_bytes for each in self.logs)

    def topics(self) -> dict[str, list[ImportedLog]]:
        """Return the logs of each topic."""
        found: dict[str, list[ImportedLog]] = {}
        for each in self.logs:
            found.setdefault(each.state.topic, []).append(each)
        return found


def plan_import(
    store: Store, states: Mapping[TopicPartition, LogState], log_dirs: Collection[str], choice: ImportChoice
) -> ImportPlan:
    """Plan an import. To act on the plan, the caller keeps brokers away from before until after.

    Args:
        store: that gets the logs.
        states: of its ledger.
        log_dirs: names that the ledger has for its log directories, or that a new store has.

    Raises:
        InvalidConfigError: the folders are no roots of one broker; the store has such a log, or another topic of that
            name; a log is damaged or has gaps; no log directory is free for it.
        UnknownTopicError: no topic has such a name.
        CorruptFileError: a file that decides what is taken is damaged.
        LogDirOfflineError: no log directory can be used.
        StorageError: a disk refused, or has too little room.
    """
    found = _Found()
    roots = _load(choice, found)
    metadata = _merged(read_cluster_metadata(each.survey.path) for each in roots)
    taken = [each for root in roots for each in _of_root(root, found, metadata)]
    found.left_out += [
        f"{topic}: {count} {'log' if count == 1 else 'logs'} of a topic that a cluster keeps for itself"
        for topic, count in sorted(found.internal.items())
    ]
    found.left_out += [f"{root.survey.path / name}: set aside" for root in roots for name in root.survey.set_aside]
    if not taken:
        known = ", ".join(sorted(found.topics)) or "none"
        raise UnknownTopicError(f"no log to import: topics={choice.topics or 'all'} known={known}")
    topics = {files.loaded.log.topic for files, _ in taken}
    there = topics & {state.topic for state in states.values()}
    settings = plan_settings(store, topics, there, choice.settings, metadata.settings)
    _refuse_gaps([files for files, _ in taken], settings, allow_gaps=choice.allow_gaps)
    ids = _topic_ids(taken, states)
    _refuse_known(taken, ids, states)
    names = _places(store, states, log_dirs, [files.loaded.log for files, _ in taken], choice.log_dir)
    logs = sorted(
        (_row(files, ids, names, settings, choice.now_ms) for files, _ in taken), key=lambda log: log.state.log
    )
    for each in logs:
        check_new_log(store, each.state.log, each.state.log_dir)
    check_rooms(_room(store, each, may_link=choice.may_link) for each in logs)
    return ImportPlan(
        logs=tuple(logs),
        settings=settings,
        above=tuple(line for root in roots for line in _above(root, names)),
        left_out=(*settings.refused, *found.left_out),
    )


class _Found:
    """What is noticed on the way.

    Attributes:
        topics: of all logs.
        changes: that a broker's start would make, by log directory.
        left_out: lines about what is not taken.
        internal: number of logs of each topic of the cluster itself that is not taken.
    """

    def __init__(self) -> None:
        self.topics: set[str] = set()
        self.changes: dict[Path, NotedChanges] = {}
        self.left_out: list[str] = []
        self.internal = Counter[str]()

    def note(self, survey: LogSurvey) -> NotedChanges:
        """Return the changes of a log."""
        return self.changes.setdefault(survey.directory, NotedChanges())


def _load(choice: ImportChoice, found: _Found) -> list[LoadedRoot]:
    options = RootOptions(now_ms=choice.now_ms, jobs=len(os.sched_getaffinity(0)) * 4)
    logs = [folder for folder in choice.folders if is_log_directory(folder)]
    if logs and len(choice.folders) > 1:
        raise InvalidConfigError(f"give several roots, or one log alone: path={logs[0]}")
    if logs:
        return [plan_one_log(logs[0], options, found.note)]

    def is_wanted(log: TopicPartition) -> bool:
        found.topics.add(log.topic)
        if is_named(log.topic, choice.topics):
            return True
        if log.topic in INTERNAL_TOPICS:
            found.internal[log.topic] += 1
        return False

    return plan_roots(choice.folders, options, is_wanted, found.note)


def _merged(parts: Iterable[ClusterMetadata | None]) -> ClusterMetadata:
    """Return the metadata of one broker's roots, of which one has it; each may have that of its first start."""
    return max((each for each in parts if each), key=lambda each: len(each.topic_ids), default=ClusterMetadata())


def _of_root(root: LoadedRoot, found: _Found, metadata: ClusterMetadata) -> Iterator[tuple[ImportedFiles, str | None]]:
    """Yield a root's logs with the topic ids in their directories."""
    for survey, loaded in zip(root.survey.logs, root.logs, strict=True):
        topic_id, known = stored_topic_id(survey.directory), metadata.topic_ids.get(survey.log.topic)
        if topic_id is not None and known is not None and topic_id != known:
            found.left_out.append(
                f"{survey.directory}: of an earlier topic of that name: id={topic_id} the cluster has id={known}"
            )
            continue
        yield survey_files(survey, loaded, found.note(survey)), topic_id or known


def _above(root: LoadedRoot, taken: Collection[TopicPartition]) -> Iterator[str]:
    ends = {each.log: each.log_end_offset for each in root.logs if each.log in taken}
    return notes_above_high_watermarks(root.survey.path, ends)


def _refuse_gaps(logs: Sequence[ImportedFiles], settings: ImportedSettings, *, allow_gaps: bool) -> None:
    """Refuse lost records, unless gaps are allowed, and gaps of which nothing says whether records are lost in them."""
    lost, unknown = list[str](), list[str]()
    for files in logs:
        lost += [f"a broker's start would drop records of a log: {line}" for line in files.lost]
        config = settings.cleaned_by(files.loaded.log.topic)
        if config is None or not config.is_compacted:
            (unknown if config is None else lost).extend(
                f"records are missing between two segments: log={files.loaded.directory} offsets {first}..{last}"
                for first, last in files.gaps
            )
    if unknown:
        _refuse(unknown, "whether compaction dropped them is not known: name its cleanup.policy in --config FILE")
    if lost and not allow_gaps:
        _refuse(lost, "--allow-gaps takes what is left")


def _refuse(problems: Sequence[str], remedy: str) -> NoReturn:
    more = f" and {len(problems) - _MOST_NAMES} more" if problems[_MOST_NAMES:] else ""
    raise InvalidConfigError(f"{'; '.join(problems[:_MOST_NAMES])}{more}; {remedy}")


def _topic_ids(
    taken: Sequence[tuple[ImportedFiles, str | None]], states: Mapping[TopicPartition, LogState]
) -> dict[str, str]:
    """Return the id of each topic; a new one where the broker's files have none."""
    ids: dict[str, str] = {}
    for files, topic_id in taken:
        topic = files.loaded.log.topic
        if topic_id is not None and ids.setdefault(topic, topic_id) != topic_id:
            raise InvalidConfigError(
                f"partitions of a topic have different ids: topic={topic} ids={ids[topic]}, {topic_id}"
                f" path={files.loaded.directory}; move the older one away"
            )
    there = {state.topic for state in states.values()}
    for files, _ in taken:
        topic = files.loaded.log.topic
        if topic not in ids and topic in there:
            raise InvalidConfigError(
                f"topic {topic} is in the store already, and the broker's files have no id of it:"
                f" path={files.loaded.directory}; import into another store"
            )
        ids.setdefault(topic, random_id())
    return ids


def _refuse_known(
    taken: Sequence[tuple[ImportedFiles, str | None]],
    ids: Mapping[str, str],
    states: Mapping[TopicPartition, LogState],
) -> None:
    there = {state.topic: state.topic_id for state in states.values()}
    for files, _ in taken:
        log = files.loaded.log
        if log in states or there.get(log.topic, ids[log.topic]) != ids[log.topic]:
            raise InvalidConfigError(
                f"topic {log.topic} is in the store already: log={log} id={there[log.topic]};"
                " import into another store, or leave it out by --topics"
            )
        colliding = [name for name in {*there, *ids} if topic_names_collide(name, log.topic)]
        if colliding and log.topic not in there:
            raise InvalidConfigError(f"topic {log.topic} collides with topic {sorted(colliding)[0]!r}")


def _places(
    store: Store,
    states: Mapping[TopicPartition, LogState],
    log_dirs: Collection[str],
    logs: Sequence[TopicPartition],
    wanted: str | None,
) -> dict[TopicPartition, str]:
    """Return the log directory of each log: the wanted one, else the usable one with the fewest logs."""
    if wanted is not None:
        return dict.fromkeys(logs, known_log_dir(store, log_dirs, wanted))
    usable = [name for name in sorted(log_dirs) if is_unmade(store.log_dir(name)) or not check_root(store, name)]
    if not usable:
        raise LogDirOfflineError(f"no log directory can be used: log_dirs={', '.join(sorted(log_dirs))}")
    load = Counter(dict.fromkeys(usable, 0))
    load.update(state.log_dir for state in states.values() if state.log_dir in load)
    names = {}
    for log in sorted(logs):
        names[log] = min(usable, key=lambda name: (load[name], name))
        load[names[log]] += 1
    return names


def _row(
    files: ImportedFiles,
    ids: Mapping[str, str],
    names: Mapping[TopicPartition, str],
    settings: ImportedSettings,
    now_ms: int,
) -> ImportedLog:
    log, end = files.loaded.log, files.loaded.log_end_offset
    config, unstable = settings.cleaned_by(log.topic), files.loaded.producers.first_unstable_offset
    compacted = _compacted_offset(files) if config is None or config.is_compacted else -1
    state = LogState(
        topic=log.topic,
        partition=log.partition,
        log_dir=names[log],
        topic_id=ids[log.topic],
        log_start_offset=files.loaded.log_start_offset,
        log_end_offset=end,
        recovery_point=end,
        active_base_offset=end,
        active_size_bytes=0,
        max_timestamp_ms=files.max_timestamp_ms,
        leader_epoch=files.leader_epoch,
        updated_ms=now_ms,
        compacted_offset=compacted,
        first_unstable_offset=-1 if unstable is None else unstable,
    )
    return ImportedLog(files=files, state=state)


def _compacted_offset(files: ImportedFiles) -> int:
    """Return up to where the broker may have compacted a log: not its active segment, nor above what is stable.

    Source: Kafka LogCleanerManager.cleanableOffsets.
    """
    unstable, end = files.loaded.producers.first_unstable_offset, files.loaded.log_end_offset
    active = next((each.files.base_offset for each in files.segments if each.is_last), end)
    return min(active, end if unstable is None else unstable)


def _room(store: Store, each: ImportedLog, *, may_link: bool) -> tuple[Path, int]:
    """Return the log directory of a log, and how many bytes are copied there."""
    root, segments = store.log_dir(each.state.log_dir), each.files.segments
    shared = [segment for segment in segments if segment.is_whole and not segment.is_last]
    if not (shared and can_share(shared[0].source, each.state.log, root, may_link=may_link)):
        shared = []
    return root, each.files.index_bytes + each.files.size_bytes - sum(segment.size_bytes for segment in shared)
