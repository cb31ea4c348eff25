"""The figures of a maintenance run as a Prometheus text file, replaced as a whole by each run.

Prometheus' node exporter reads such files (`--collector.textfile.directory`); `sparklog_maintenance_success` and the
time of the run are what to alert on.
"""

from __future__ import annotations

import errno
import logging
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from pipeline.maintain_command import MaintenanceRun
from storage_core.clock import Clock
from storage_core.errors import LogStorageError, StoreLockedError
from storage_core.storage.local import make_directory, replace_file, storage_errors

__all__ = ["make_metrics_folder", "metrics_text", "telling_failure", "write_metrics"]

logger = logging.getLogger(__name__)

_PREFIX: Final = "sparklog_maintenance"

Samples = Iterable[tuple[Mapping[str, str], float]]


def make_metrics_folder(path: Path) -> None:
    """Make the folder of the file, so that a run that can't leave its figures is refused before it begins.

    Raises:
        StorageError: it can't be made or written, or the path is a folder.
    """
    folder = path.absolute().parent
    with storage_errors(path):
        make_directory(folder)
        if path.is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        if not os.access(folder, os.W_OK | os.X_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))


def write_metrics(path: Path, run: MaintenanceRun, ended_ms: int, duration_ms: int) -> bool:
    """Replace the file, atomically and durably; return whether that was done: what the run did, it did without it."""
    return _try_replace(path, metrics_text(run, ended_ms, duration_ms))


@contextmanager
def telling_failure(path: Path | None, clock: Clock) -> Iterator[None]:
    """Replace the file by the failure of a run that ends by an exception; one that finds another at work leaves it.

    Args:
        path: of the file; None for none.
        clock: tells the time.
    """
    began_ms = clock.monotonic_ms()
    try:
        yield
    except StoreLockedError:
        raise
    except Exception:
        if path is not None:
            _try_replace(path, "".join(_outcome(0.0, clock.now_ms(), clock.monotonic_ms() - began_ms)))
        raise


def metrics_text(run: MaintenanceRun, ended_ms: int, duration_ms: int) -> str:
    """Return a run's figures in Prometheus' text format."""
    return "".join(_lines(run, ended_ms, duration_ms))


def _lines(run: MaintenanceRun, ended_ms: int, duration_ms: int) -> Iterator[str]:
    results = run.results
    decisions = Counter[tuple[str, str]]((each.action, each.decision) for each in run.plan.works)
    outcomes = Counter[tuple[str, str]]((each.action, each.outcome) for each in results)
    before, after = (sum(getattr(each, f"bytes_{when}") or 0 for each in results) for when in ("before", "after"))
    read, kept = (sum(getattr(each, f"records_{when}") or 0 for each in results) for when in ("before", "after"))
    dirtiest = max((_dirty_ratio(each.cleaning) for each in run.plan.works if each.cleaning), default=0.0)
    left = sum(each.records_count for each in run.erasures)
    unsearched = {log for each in run.erasures for log in each.unsearched}
    yield from _outcome(float(not run.has_failures), ended_ms, duration_ms)
    yield from _gauge("logs_checked", "logs that it looked at", [({}, run.plan.logs_checked)])
    yield from _gauge("works", "works by decision", _pairs(decisions, "decision"))
    yield from _gauge("results", "works done by outcome", _pairs(outcomes, "outcome"))
    yield from _gauge("read_bytes", "bytes of what it worked on", [({}, before)])
    yield from _gauge("freed_bytes", "bytes that are gone", [({}, before - after)])
    yield from _gauge("read_records", "records that cleanings read", [({}, read)])
    yield from _gauge("removed_records", "records that are gone", [({}, read - kept)])
    yield from _gauge("dirtiest_ratio", "largest dirty ratio before the run", [({}, dirtiest)])
    yield from _gauge("forgotten_records_left", "records of forgotten keys that are left", [({}, left)])
    yield from _gauge("unsearched_logs", "logs that may hold more of them", [({}, len(unsearched))])


def _outcome(success: float, ended_ms: int, duration_ms: int) -> Iterator[str]:
    yield from _gauge("success", "1 if nothing failed", [({}, success)])
    yield from _gauge("run_timestamp_seconds", "when the last run ended", [({}, ended_ms / 1000)])
    yield from _gauge("run_duration_seconds", "how long it took", [({}, duration_ms / 1000)])


def _try_replace(path: Path, text: str) -> bool:
    try:
        with storage_errors(path):
            make_directory(path.absolute().parent)
            replace_file(path, text.encode())
    except LogStorageError as error:
        logger.warning("The metrics file can't be written: %s", error)
        return False
    return True


def _dirty_ratio(cleaning: object) -> float:
    plan = getattr(cleaning, "plan", None)
    return 0.0 if plan is None else float(plan.dirty_ratio)


def _pairs(counts: Counter[tuple[str, str]], name: str) -> Samples:
    return [({"action": action, name: value}, count) for (action, value), count in sorted(counts.items())]


def _gauge(name: str, words: str, samples: Samples) -> Iterator[str]:
    yield f"# HELP {_PREFIX}_{name} {words}\n# TYPE {_PREFIX}_{name} gauge\n"
    for labels, value in samples:
        inside = ",".join(f'{key}="{text}"' for key, text in labels.items())
        yield f"{_PREFIX}_{name}{'{' + inside + '}' if inside else ''} {value:.15g}\n"
