"""The verb `recover`: the crash recovery of a broker's start, for log directories, without a broker.

Plans by default. Loads a root under its broker's own lock. Refuses a store: its recovery is its opening, by its ledger.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from sparklog.pipeline.places.refuse_store import refuse_store
from sparklog.pipeline.report import DONE, FAILED, show, to_json
from sparklog.pipeline.terminal import say
from sparklog.sink.locks.broker_lock import lock_roots, lock_roots_to_read
from sparklog.storage_core.clock import Clock, SystemClock
from sparklog.storage_core.errors import InvalidConfigError
from sparklog.storage_core.log.load.load_log import LoadedLog
from sparklog.storage_core.log.load.load_root import (
    LoadedRoot,
    RootOptions,
    close_root,
    load_one_log,
    load_roots,
    plan_one_log,
    plan_roots,
)
from sparklog.storage_core.log.load.steps import LoadStep
from sparklog.storage_core.log.load.survey import is_log_directory
from sparklog.storage_core.quantity_text import size_text
from sparklog.storage_core.topic_partition import parse_directory_name

__all__ = [
    "RecoverOptions",
    "RecoverResult",
    "execute_and_close",
    "execute_recovery",
    "plan_recovery",
    "run",
]

_Lock = Callable[[Iterable[Path]], AbstractContextManager[None]]

_JOBS_PER_CORE = 4
"""A recovery mostly waits for the disk: it syncs each file it writes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoverOptions:
    """Options of a recovery.

    Attributes:
        index_interval_bytes: Kafka's `index.interval.bytes`, for rebuilt indexes.
        jobs: threads; four a core if None.
        progress: called for each log when it is read, and again when it is loaded.
    """

    index_interval_bytes: int = 4096
    jobs: int | None = None
    progress: Callable[[], None] = lambda: None


@dataclass(frozen=True, slots=True)
class RecoverResult:
    """The steps of a recovery, done or planned, for each root."""

    roots: tuple[LoadedRoot, ...]
    is_executed: bool = True

    @property
    def logs(self) -> list[LoadedLog]:
        """Every log of the roots."""
        return [log for root in self.roots for log in root.logs]

    @property
    def steps(self) -> list[LoadStep]:
        """Every step, log by log."""
        return [step for log in self.logs for step in log.steps]

    @property
    def lost_bytes(self) -> int:
        """Bytes that the recovery takes out of logs."""
        return sum(log.lost_bytes for log in self.logs)

    def as_dict(self) -> dict[str, Any]:
        """Return the summary, for JSON."""
        roots = [
            {
                "path": str(root.survey.path),
                "was_clean": root.survey.is_clean,
                "set_aside": list(root.survey.set_aside),
                "logs": [_log_as_dict(log) for log in root.logs],
            }
            for root in self.roots
        ]
        counts = {"steps": len(self.steps), "lost_bytes": self.lost_bytes}
        return {"roots": roots, **counts, "executed": self.is_executed}

    def lines(self) -> list[str]:
        """Return the roots that need no recovery, for people."""
        clean = (each.survey.path for each in self.roots if each.survey.is_clean)
        return [f"shut down cleanly, nothing is recovered: {path}" for path in clean]

    def verdict(self) -> str:
        """Return the counts, for people."""
        changed, logs = sum(bool(log.steps) for log in self.logs), f"{len(self.logs):,} logs"
        if not changed:
            return f"{logs}, nothing to do"
        lost = f"{size_text(self.lost_bytes) if self.lost_bytes else 'nothing'} truncated or deleted"
        words = "changed" if self.is_executed else "would change"
        done = f"{logs}, {changed:,} {words}: {len(self.steps):,} steps, {lost}"
        return done if self.is_executed else f"{done}; --execute does them"


def run(
    folders: tuple[Path, ...],
    execute: bool,
    clean_shutdown: bool,
    index_interval_bytes: int,
    jobs: int | None,
    as_json: bool,
) -> int:
    """Carry the verb out; return the exit code."""
    if clean_shutdown and not execute:
        raise click.UsageError("--clean-shutdown needs --execute")
    recover = execute_and_close if clean_shutdown else execute_recovery if execute else plan_recovery
    with _progress_bar(folders) as progress:
        options = RecoverOptions(index_interval_bytes=index_interval_bytes, jobs=jobs, progress=progress)
        result = recover(folders, options, SystemClock())
    for step in result.steps:
        say(to_json(step.as_dict()) if as_json else str(step))
    show(result, as_json=as_json)
    if not as_json and execute and any("deleted with" in step.what for step in result.steps):
        say("deleted segments stay beside the log as .deleted files until the next load")
    return DONE if execute or not result.lost_bytes else FAILED


def plan_recovery(folders: Sequence[Path], options: RecoverOptions, clock: Clock) -> RecoverResult:
    """Return what `execute_recovery` would do; nothing is changed.

    Args:
        folders: the roots of one broker, or one log directory.
        clock: for the expiry of producers.

    Raises:
        InvalidConfigError: a folder belongs to a store, is no root, or belongs to another broker than the others.
        CorruptFileError: a file that the recovery needs is damaged.
        StoreLockedError: a broker runs.
    """
    with _opened(folders, options, clock, lock_roots_to_read) as (how, one_log):
        return RecoverResult(
            (plan_one_log(one_log, how),) if one_log else tuple(plan_roots(folders, how)), is_executed=False
        )


def execute_recovery(folders: Sequence[Path], options: RecoverOptions, clock: Clock) -> RecoverResult:
    """Load the logs as a broker's start would; without a clean-shutdown marker the next start recovers them again.

    Args and errors are those of `plan_recovery`; in addition:

    Raises:
        StorageError: the disk refused; the next call continues. Or the lock file of a root can't be written.
    """
    with _opened(folders, options, clock, lock_roots) as (how, one_log):
        return RecoverResult((load_one_log(one_log, how),) if one_log else tuple(load_roots(folders, how)))


def execute_and_close(folders: Sequence[Path], options: RecoverOptions, clock: Clock) -> RecoverResult:
    """Load the logs, then shut their roots down cleanly, as a broker that is started and stopped.

    Raises:
        InvalidConfigError: the folder is a single log: only a root has the clean-shutdown marker.
    """
    with _opened(folders, options, clock, lock_roots) as (how, one_log):
        if one_log:
            raise InvalidConfigError(f"--clean-shutdown needs a root, and this is a log: path={one_log}")
        return RecoverResult(tuple(close_root(each) for each in load_roots(folders, how)))


@contextlib.contextmanager
def _progress_bar(folders: Sequence[Path]) -> Iterator[Callable[[], None]]:
    """Show on a terminal's standard error how many logs are read and loaded; yields the function that counts one."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeRemainingColumn

    console = Console(stderr=True)
    if not console.is_terminal:
        yield lambda: None
        return
    columns = (BarColumn(None), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True) as bar:
        logs = sum(parse_directory_name(name) is not None for folder in folders for name in os.listdir(folder))
        task = bar.add_task("", total=2 * max(logs, 1))
        yield lambda: bar.update(task, advance=1)


@contextlib.contextmanager
def _opened(
    folders: Sequence[Path], options: RecoverOptions, clock: Clock, lock: _Lock
) -> Iterator[tuple[RootOptions, Path | None]]:
    """Keep brokers out; yields the options of the load, and the log if the folder is a single one."""
    refuse_store(folders)
    logs = [folder for folder in folders if is_log_directory(folder)]
    if logs and len(folders) > 1:
        raise InvalidConfigError(f"give several roots, or one log alone: path={logs[0]}")
    roots = [folder.absolute().parent if folder in logs else folder for folder in folders]
    with lock(roots):
        how = RootOptions(
            now_ms=clock.now_ms(),
            jobs=options.jobs or len(os.sched_getaffinity(0)) * _JOBS_PER_CORE,
            index_interval_bytes=options.index_interval_bytes,
            surveyed=lambda _log: options.progress(),
            loaded=lambda _log: options.progress(),
        )
        yield how, logs[0] if logs else None


def _log_as_dict(log: LoadedLog) -> dict[str, Any]:
    names = ("log_start_offset", "log_end_offset", "recovery_point", "lost_bytes")
    numbers = {name: getattr(log, name) for name in names}
    return {"log": str(log.log), "segments": len(log.base_offsets), **numbers, "steps": len(log.steps)}
