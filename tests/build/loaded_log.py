"""Loads log directories in tests, on the disk or in a plan."""

from pathlib import Path
from typing import Any

from sparklog.storage_core.log.load.changes import DiskChanges, PlannedChanges
from sparklog.storage_core.log.load.load_log import LoadedLog, LoadOptions, load_log
from sparklog.storage_core.log.load.survey import survey_log

__all__ = ["NOW_MS", "execute_load", "plan_load"]

NOW_MS = 1_000


def plan_load(directory: Path, **options: Any) -> LoadedLog:
    """Return what a loading would do; `options` as those of `LoadOptions`, each with a default."""
    return load_log(survey_log(directory), _options(**options), PlannedChanges())


def execute_load(directory: Path, **options: Any) -> LoadedLog:
    """Load a log."""
    return load_log(survey_log(directory), _options(**options), DiskChanges(directory))


def _options(
    *, recovery_point: int = 0, log_start_offset: int = 0, is_clean: bool = False, index_interval_bytes: int = 200
) -> LoadOptions:
    return LoadOptions(
        now_ms=NOW_MS,
        recovery_point=recovery_point,
        log_start_offset=log_start_offset,
        is_clean=is_clean,
        index_interval_bytes=index_interval_bytes,
    )
