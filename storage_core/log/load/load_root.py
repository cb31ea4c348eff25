"""Loads every log of one or more roots, side by side, as a broker's start does.

Order, and why:
1. everything is read and checked, nothing changed: an error leaves the folders as they were;
2. the marker of a clean shutdown goes: a start that dies is none that was shut down cleanly;
3. logs are loaded;
4. the checkpoints are written, in the roots of brokers: recovery points and log starts as they are now.

The marker is written by `close_root` alone: everything is synced, then the checkpoints are written, then the marker.

Source: Kafka LogManager.loadLogs, checkpointRecoveryOffsetsInDir, checkpointLogStartOffsetsInDir, shutdown.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

from sparklog.storage_core.checkpoint.offset_checkpoint import render_offset_checkpoint
from sparklog.storage_core.log.files.clean_shutdown import forget_clean_shutdown, mark_clean_shutdown
from sparklog.storage_core.log.files.names import INDEX, LOG, SNAPSHOT, TIMEINDEX, TXNINDEX, segment_file_name
from sparklog.storage_core.log.load.changes import DiskChanges, LoadChanges, PlannedChanges
from sparklog.storage_core.log.load.load_log import LoadedLog, LoadOptions, load_log
from sparklog.storage_core.log.load.survey import (
    LOG_STARTS_FILE,
    RECOVERY_POINTS_FILE,
    LogSurvey,
    RootSurvey,
    survey_root_of_log,
    survey_roots,
)
from sparklog.storage_core.storage.local import storage_errors, sync_directories, sync_files
from sparklog.storage_core.storage.owned_names import UNSHARED, replace_file
from sparklog.storage_core.topic_partition import TopicPartition

__all__ = ["LoadedRoot", "RootOptions", "close_root", "load_one_log", "load_roots", "plan_one_log", "plan_roots"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RootOptions:
    """How roots are loaded.

    Attributes:
        now_ms: current time, for the expiry of producers.
        jobs: threads.
        index_interval_bytes: Kafka's `index.interval.bytes`.
        surveyed: called with each log that was read.
        loaded: called with each log that was loaded.
    """

    now_ms: int
    jobs: int
    index_interval_bytes: int = 4096
    surveyed: Callable[[LogSurvey], None] = lambda _log: None
    loaded: Callable[[LoadedLog], None] = lambda _log: None


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedRoot:
    """One root whose logs are loaded.

    Attributes:
        survey: of it, from before.
        logs: by topic and partition.
    """

    survey: RootSurvey
    logs: tuple[LoadedLog, ...]


def plan_roots(
    roots: Sequence[Path],
    options: RootOptions,
    is_wanted: Callable[[TopicPartition], bool] = lambda _log: True,
    changes: Callable[[LogSurvey], LoadChanges] = lambda _log: PlannedChanges(),
) -> list[LoadedRoot]:
    """Return what `load_roots` would do, for the logs that are wanted. Errors are the same.

    Args:
        changes: of each log, which must change nothing.
    """
    return [
        _plan(survey, options, changes) for survey in survey_roots(roots, options.jobs, options.surveyed, is_wanted)
    ]


def load_roots(roots: Sequence[Path], options: RootOptions) -> list[LoadedRoot]:
    """Load the roots of one node.

    Args:
        roots: folders of log directories.
        options: how.

    Raises:
        InvalidConfigError: these folders can't be the roots of one node; nothing was changed.
        CorruptFileError: a file that decides what happens to others is damaged; nothing was changed, unless that is
            the middle of a segment that has to be split.
        CorruptBatchError: a batch is damaged that producers have to be followed over; other logs may be loaded.
        StorageError: the disk refused; what was done is done, and the next call continues.
    """
    return [_load(survey, options) for survey in survey_roots(roots, options.jobs, options.surveyed)]


def plan_one_log(
    directory: Path,
    options: RootOptions,
    changes: Callable[[LogSurvey], LoadChanges] = lambda _log: PlannedChanges(),
) -> LoadedRoot:
    """Return what `load_one_log` would do; nothing is changed. Errors are the same; `changes` as in `plan_roots`."""
    return _plan(survey_root_of_log(directory), options, changes)


def load_one_log(directory: Path, options: RootOptions) -> LoadedRoot:
    """Load a single log; the files of its root are read, and stay as they are.

    Raises:
        As `load_roots`.
    """
    survey = survey_root_of_log(directory)
    return LoadedRoot(survey=survey, logs=tuple(_load_logs(survey, options)))


def close_root(loaded: LoadedRoot) -> LoadedRoot:
    """Shut a loaded root down cleanly: the next start takes it on trust. Returns it with its recovery points.

    Nothing was appended since it was loaded.

    Raises:
        StorageError: the disk refused; the root is as after a crash.
    """
    root = loaded.survey.path
    with storage_errors(root):
        unflushed = [path for log in loaded.logs for path in _unflushed(log)]
        sync_files(unflushed)
        if not loaded.survey.is_clean:  # the process that crashed may not have synced the names of its files
            sync_directories(log.directory for log in loaded.logs)
    logs = tuple(replace(log, recovery_point=log.log_end_offset) for log in loaded.logs)
    closed = LoadedRoot(survey=loaded.survey, logs=logs)
    _write_checkpoints(closed)
    mark_clean_shutdown(root)
    return closed


def _plan(
    survey: RootSurvey,
    options: RootOptions,
    changes: Callable[[LogSurvey], LoadChanges] = lambda _log: PlannedChanges(),
) -> LoadedRoot:
    def plan(log: LogSurvey) -> LoadedLog:
        return load_log(log, _options(survey, log, options), changes(log))

    return LoadedRoot(survey=survey, logs=tuple(_each(survey.logs, plan, options)))


def _load(survey: RootSurvey, options: RootOptions) -> LoadedRoot:
    if survey.is_clean:
        loaded = _load_clean(survey, options)
    else:
        loaded = LoadedRoot(survey=survey, logs=tuple(_load_logs(survey, options)))
    if survey.is_brokers:
        _write_checkpoints(loaded)
    return loaded


def _load_clean(survey: RootSurvey, options: RootOptions) -> LoadedRoot:
    """Load a root that was shut down cleanly: to plan that is cheap, and mostly there is nothing to do.

    What can't be loaded shows before anything is changed.
    """
    planned = {each.log: each for each in _plan(survey, options).logs}
    changing = tuple(each for each in survey.logs if planned[each.log].steps)
    forget_clean_shutdown(survey.path)
    done = _load_logs(replace(survey, logs=changing), replace(options, loaded=lambda _log: None))
    return LoadedRoot(survey=survey, logs=tuple((planned | {each.log: each for each in done}).values()))


def _load_logs(survey: RootSurvey, options: RootOptions) -> Iterator[LoadedLog]:
    def load(log: LogSurvey) -> LoadedLog:
        return load_log(log, _options(survey, log, options), DiskChanges(log.directory))

    return _each(survey.logs, load, options)


def _each(
    logs: Iterable[LogSurvey], load: Callable[[LogSurvey], LoadedLog], options: RootOptions
) -> Iterator[LoadedLog]:
    """Yield loaded logs, in order; where one can't be loaded, the others are."""
    with ThreadPoolExecutor(options.jobs) as pool:
        for loaded in pool.map(load, logs):
            options.loaded(loaded)
            yield loaded


def _options(survey: RootSurvey, log: LogSurvey, options: RootOptions) -> LoadOptions:
    return LoadOptions(
        now_ms=options.now_ms,
        recovery_point=survey.recovery_points.get(log.log, 0),
        log_start_offset=survey.log_starts.get(log.log, 0),
        is_clean=survey.is_clean,
        index_interval_bytes=options.index_interval_bytes,
    )


def _write_checkpoints(loaded: LoadedRoot) -> None:
    """Write recovery points and log starts, where they changed; one that is its first segment's base is left out."""
    survey = loaded.survey
    points = {each.log: each.recovery_point for each in loaded.logs}
    starts = {each.log: each.log_start_offset for each in loaded.logs if each.log_start_offset > each.base_offsets[0]}
    _write_checkpoint(survey.path / RECOVERY_POINTS_FILE, points, survey.recovery_points)
    _write_checkpoint(survey.path / LOG_STARTS_FILE, starts, survey.log_starts)


def _write_checkpoint(path: Path, offsets: Mapping[TopicPartition, int], before: Mapping[TopicPartition, int]) -> None:
    if dict(offsets) != dict(before):
        with storage_errors(path):
            replace_file(UNSHARED, path, render_offset_checkpoint(offsets))


def _unflushed(log: LoadedLog) -> Iterator[Path]:
    """Yield the files that may not be on the disk."""
    first = max((base for base in log.base_offsets if base <= log.recovery_point), default=log.base_offsets[0])
    for base in log.base_offsets:
        for suffix in (LOG, INDEX, TIMEINDEX, TXNINDEX, SNAPSHOT) if base >= first else ():
            path = log.directory / segment_file_name(base, suffix)
            if path.exists():
                yield path
