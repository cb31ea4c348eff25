"""Everything that is read of log directory roots before the first of their files changes.

A broker finds some of this out half way through its start, and guesses at the rest. Here what is wrong is named, and
nothing is changed:

| what | a broker |
|---|---|
| a folder that is neither a log nor one on its way | does not start |
| two directories for one log | does not start |
| roots of different clusters or nodes, or twice the same one | does not start |
| a damaged `meta.properties` or file of leader epochs | does not start |
| a damaged checkpoint of recovery points or log starts | takes it for empty; deleted records are back |
| a segment that starts with a batch of another one's offsets | does not start, or takes it as it is |
| a damaged replacement of segments | takes it as it is |

Source: Kafka LogManager.loadLogs, MetaPropertiesEnsemble.verify, BrokerMetadataCheckpoint.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Final

from sparklog.storage_core.checkpoint.leader_epochs import parse_leader_epochs
from sparklog.storage_core.checkpoint.meta_properties import parse_meta_properties
from sparklog.storage_core.checkpoint.offset_checkpoint import parse_offset_checkpoint
from sparklog.storage_core.errors import CorruptFileError, InvalidConfigError
from sparklog.storage_core.log.files.clean_shutdown import had_clean_shutdown
from sparklog.storage_core.log.files.names import LOG, parse_base_offset, segment_file_name
from sparklog.storage_core.log.files.segments import SegmentFiles
from sparklog.storage_core.log.load.finish_leftovers import list_files, read_leftovers
from sparklog.storage_core.log.load.plan import LeftoverPlan, SegmentNames, plan_segments
from sparklog.storage_core.log.scan.segment_reader import SegmentReader
from sparklog.storage_core.storage.local import storage_errors
from sparklog.storage_core.storage.open_regular import read_if_there
from sparklog.storage_core.topic_partition import TopicPartition, parse_directory_name, parse_set_aside_name

__all__ = [
    "EPOCH_FILE",
    "LOG_STARTS_FILE",
    "RECOVERY_POINTS_FILE",
    "LogSurvey",
    "RootSurvey",
    "is_log_directory",
    "survey_log",
    "survey_root_of_log",
    "survey_roots",
]

EPOCH_FILE: Final = "leader-epoch-checkpoint"
_META_FILE: Final = "meta.properties"
_METADATA_FILE: Final = "partition.metadata"
RECOVERY_POINTS_FILE: Final = "recovery-point-offset-checkpoint"
LOG_STARTS_FILE: Final = "log-start-offset-checkpoint"

_NO_LOGS: Final = ("remote-log-index-cache", "__cluster_metadata-0")
_ZOOKEEPER_KEY: Final = b"broker.id="


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSurvey:
    """One log directory, before anything in it changes.

    Attributes:
        leftovers: what becomes of files on their way.
        segments: what is there then.
        files: the file that each name will stand for then, under the name that it has now.
        leader_epochs: (epoch, start offset) entries of its epoch file.
    """

    directory: Path
    log: TopicPartition
    leftovers: LeftoverPlan
    segments: SegmentNames
    files: Mapping[str, str]
    leader_epochs: tuple[tuple[int, int], ...]

    def segment(self, base_offset: int) -> SegmentFiles:
        """Return a segment that will be there, with the path that its `.log` has now."""
        return SegmentFiles(base_offset, self.directory / self.files[segment_file_name(base_offset, LOG)])


@dataclass(frozen=True, slots=True, kw_only=True)
class RootSurvey:
    """One root, before anything in it changes.

    Attributes:
        is_clean: whether it was shut down cleanly.
        is_brokers: whether it is a broker's or a store's: whether it has a `meta.properties`.
        recovery_points: as checkpointed; 0 for a log without entry.
        log_starts: as checkpointed; 0 for a log without entry.
        logs: of it, by topic and partition.
        set_aside: names of the `-delete`, `-future` and `-stray` directories, which are left alone.
    """

    path: Path
    is_clean: bool
    is_brokers: bool
    recovery_points: Mapping[TopicPartition, int]
    log_starts: Mapping[TopicPartition, int]
    logs: tuple[LogSurvey, ...]
    set_aside: tuple[str, ...]


def survey_roots(
    roots: Sequence[Path],
    jobs: int,
    progress: Callable[[LogSurvey], None] = lambda _log: None,
    is_wanted: Callable[[TopicPartition], bool] = lambda _log: True,
) -> list[RootSurvey]:
    """Return what lies in the roots of one node; nothing is changed.

    Args:
        roots: folders of log directories.
        jobs: threads.
        progress: called with each log.
        is_wanted: whether a log is looked at.

    Raises:
        InvalidConfigError: these folders can't be the roots of one node.
        CorruptFileError: a file that decides what happens to others is damaged.
        StorageError: a folder can't be read.
    """
    _check_distinct(roots)
    directories = {root: _directories(root) for root in roots}
    _check_owner(roots)
    _check_one_directory_each(directories)
    offsets = {root: [_offsets(root / name) for name in (RECOVERY_POINTS_FILE, LOG_STARTS_FILE)] for root in roots}
    with ThreadPoolExecutor(jobs) as pool:
        surveys = []
        for root in roots:
            logs = []
            for log in pool.map(survey_log, [path for path, log in directories[root][0] if is_wanted(log)]):
                progress(log)
                logs.append(log)
            surveys.append(_root(root, logs, directories[root][1], *offsets[root]))
    return surveys


def survey_root_of_log(directory: Path) -> RootSurvey:
    """Return what the files of a log's root hold about it; other logs and folders of that root are not looked at.

    Raises:
        As `survey_roots`.
    """
    root = directory.absolute().parent
    offsets = [_offsets(root / name) for name in (RECOVERY_POINTS_FILE, LOG_STARTS_FILE)]
    return _root(root, [survey_log(directory)], [], *offsets)


def survey_log(directory: Path) -> LogSurvey:
    """Return what lies in a log directory; nothing is changed.

    Raises:
        CorruptFileError: a segment's name disagrees with its first offset, or a replacement of segments or the epoch
            file is damaged.
        InvalidConfigError: the folder's name is no log's.
        StorageError: it can't be read.
    """
    log = parse_directory_name(directory.absolute().name)
    if log is None:
        raise InvalidConfigError(f"a folder is no log: path={directory}; a log's name is <topic>-<partition>")
    names = list_files(directory)
    leftovers = read_leftovers(directory, names)
    files = leftovers.names_after(names)
    survey = LogSurvey(
        directory=directory,
        log=log,
        leftovers=leftovers,
        segments=plan_segments(files),
        files=files,
        leader_epochs=_leader_epochs(directory / EPOCH_FILE),
    )
    bases = survey.segments.base_offsets
    for base, following in zip_longest(bases, bases[1:]):
        _check_first_offset(survey.segment(base), following)
    return survey


def is_log_directory(folder: Path) -> bool:
    """Whether a folder is a log, not a root: both may have the name `logs-1`.

    Raises:
        StorageError: it can't be read.
    """
    if parse_directory_name(folder.absolute().name) is None:
        return False
    with storage_errors(folder), os.scandir(folder) as entries:
        names = [each.name for each in entries if each.is_file()]
    return any(name == _METADATA_FILE or parse_base_offset(name) is not None for name in names)


def _root(
    root: Path,
    logs: list[LogSurvey],
    set_aside: list[str],
    recovery_points: Mapping[TopicPartition, int],
    log_starts: Mapping[TopicPartition, int],
) -> RootSurvey:
    return RootSurvey(
        path=root,
        is_clean=had_clean_shutdown(root),
        is_brokers=(root / _META_FILE).is_file(),
        recovery_points=recovery_points,
        log_starts=log_starts,
        logs=tuple(sorted(logs, key=lambda each: each.log)),
        set_aside=tuple(set_aside),
    )


def _check_distinct(roots: Sequence[Path]) -> None:
    seen: dict[Path, Path] = {}
    for root in roots:
        with storage_errors(root):
            real = root.resolve(strict=True)
        if real in seen:
            raise InvalidConfigError(f"two roots are one folder: paths={seen[real]}, {root}")
        seen[real] = root


def _directories(root: Path) -> tuple[list[tuple[Path, TopicPartition]], list[str]]:
    """Return a root's logs, and the names of directories that are set aside.

    Raises:
        InvalidConfigError: a folder is neither.
    """
    logs, set_aside = [], []
    with storage_errors(root), os.scandir(root) as entries:
        names = sorted(each.name for each in entries if each.is_dir() and each.name not in _NO_LOGS)
    for name in names:
        log = parse_directory_name(name)
        if log is not None:
            logs.append((root / name, log))
        elif parse_set_aside_name(name) is not None:
            set_aside.append(name)
        else:
            raise InvalidConfigError(f"a folder is no log: path={root / name}; move it out of the root")
    return logs, set_aside


def _check_one_directory_each(directories: Mapping[Path, tuple[list[tuple[Path, TopicPartition]], list[str]]]) -> None:
    seen: dict[TopicPartition, Path] = {}
    for logs, _ in directories.values():
        for path, log in logs:
            if log in seen:
                raise InvalidConfigError(
                    f"two directories for one log: log={log} paths={seen[log]}, {path}; move the older one away"
                )
            seen[log] = path


def _check_owner(roots: Sequence[Path]) -> None:
    """Refuse roots that do not belong to one node.

    Raises:
        InvalidConfigError: they belong to several.
        CorruptFileError: a `meta.properties` can't be read.
    """
    first: tuple[Path, dict[str, str]] | None = None
    seen: dict[str, Path] = {}
    for root in roots:
        values = _owner(root / _META_FILE)
        if not values:
            continue
        if first is None:
            first = (root, values)
        for key in ("cluster.id", "node.id"):
            if values.get(key) != first[1].get(key):
                raise InvalidConfigError(
                    f"roots of different owners: {key}={first[1].get(key)} in {first[0]}, {values.get(key)} in {root}"
                )
        directory_id = values.get("directory.id")
        if directory_id in seen:
            raise InvalidConfigError(
                f"one root is a copy of the other: directory.id={directory_id} in {seen[directory_id]} and {root}"
            )
        if directory_id is not None:
            seen[directory_id] = root


def _owner(path: Path) -> dict[str, str]:
    """Return the owner of a root; of a broker from before KRaft its own number stands for the node's."""
    with storage_errors(path):
        data = read_if_there(path) or b""
    if not data:
        return {}
    if _ZOOKEEPER_KEY in data:
        lines = (line.partition("=") for line in data.decode("latin-1").splitlines() if not line.startswith("#"))
        values = {key.strip(): value.strip() for key, _, value in lines}
        return {**values, "node.id": values.get("broker.id", "")}
    try:
        return parse_meta_properties(data)
    except CorruptFileError as error:
        raise CorruptFileError(f"{error}: path={path}") from error


def _offsets(path: Path) -> Mapping[TopicPartition, int]:
    with storage_errors(path):
        data = read_if_there(path) or b""
    try:
        return parse_offset_checkpoint(data)
    except CorruptFileError as error:
        raise CorruptFileError(
            f"{error}: path={path}; restore it, or delete it: every log is then loaded from its first segment on"
        ) from error


def _leader_epochs(path: Path) -> tuple[tuple[int, int], ...]:
    with storage_errors(path):
        data = read_if_there(path) or b""
    try:
        return tuple(parse_leader_epochs(data))
    except CorruptFileError as error:
        raise CorruptFileError(f"{error}: path={path}; restore it, or repair the log") from error


def _check_first_offset(files: SegmentFiles, following: int | None) -> None:
    """Refuse a segment that begins with a sound batch of another segment's offsets.

    A batch that is not sound is for recovery: its offset proves nothing.
    """
    with SegmentReader(files) as reader:
        first = reader.base_offset_at(0)
        if first is None or (files.base_offset <= first and (following is None or first < following)):
            return
        if reader.sound_batch_at(0) is None:
            return
    limit = "" if following is None else f" next_segment={following}"
    raise CorruptFileError(
        f"a segment's name disagrees with its first offset: file={files.log_path} first_offset={first}{limit}"
    )
