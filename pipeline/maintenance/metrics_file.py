"""Metrics of a maintenance run as a Prometheus text file, replaced by each run.

Alert on `sparklog_maintenance_success` and on the age of `sparklog_maintenance_run_timestamp_seconds`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from sparklog.pipeline.maintenance.run import MaintenanceRun
from sparklog.pipeline.prometheus import Samples, figure_lines, try_replace
from sparklog.storage_core.clock import Clock
from sparklog.storage_core.errors import StoreLockedError, WriterFencedError

__all__ = ["metrics_text", "recording_failure", "write_metrics"]

_PREFIX: Final = "sparklog_maintenance"


def write_metrics(path: Path, run: MaintenanceRun, ended_ms: int, duration_ms: int) -> bool:
    """Replace the file atomically and fsync it; return whether it was written. A failure does not undo the run."""
    return try_replace(path, metrics_text(run, ended_ms, duration_ms))


@contextmanager
def recording_failure(path: Path | None, clock: Clock) -> Iterator[None]:
    """If a run ends by an exception, replace the file by that of a failed run; if another run has the store, keep it.

    Args:
        path: of the file; None for no file.
    """
    began_ms = clock.monotonic_ms()
    try:
        yield
    except (StoreLockedError, WriterFencedError):
        raise
    except Exception:
        if path is not None:
            try_replace(path, "".join(_outcome(0.0, clock.now_ms(), clock.monotonic_ms() - began_ms)))
        raise


def metrics_text(run: MaintenanceRun, ended_ms: int, duration_ms: int) -> str:
    """Return a run's metrics in Prometheus' text format."""
    return "".join(_lines(run, ended_ms, duration_ms))


def _lines(run: MaintenanceRun, ended_ms: int, duration_ms: int) -> Iterator[str]:
    results = run.results
    decisions = Counter[tuple[str, str]]((each.action, each.decision) for each in run.plan.tasks)
    outcomes = Counter[tuple[str, str]]((each.action, each.outcome) for each in results)
    before, after = (sum(getattr(each, f"bytes_{when}") or 0 for each in results) for when in ("before", "after"))
    read, kept = (sum(getattr(each, f"records_{when}") or 0 for each in results) for when in ("before", "after"))
    dirtiest = max((_dirty_ratio(each.cleaning) for each in run.plan.tasks if each.cleaning), default=0.0)
    left = sum(each.records_count for each in run.erasures)
    unsearched = {log for each in run.erasures for log in each.unsearched}
    yield from _outcome(float(not run.has_failures), ended_ms, duration_ms)
    yield from _gauge("logs_checked", "logs that the run checked", [({}, run.plan.logs_checked)])
    yield from _gauge("tasks", "tasks by decision", _pairs(decisions, "decision"))
    yield from _gauge("results", "finished tasks by outcome", _pairs(outcomes, "outcome"))
    yield from _gauge("read_bytes", "bytes of the logs with finished tasks, before them", [({}, before)])
    yield from _gauge("freed_bytes", "bytes deleted or compacted away", [({}, before - after)])
    yield from _gauge("read_records", "records that cleanings read", [({}, read)])
    yield from _gauge("removed_records", "records that cleanings removed", [({}, read - kept)])
    yield from _gauge("dirtiest_ratio", "largest dirty ratio before the run", [({}, dirtiest)])
    yield from _gauge("forgotten_records_left", "records of forgotten keys not erased yet", [({}, left)])
    yield from _gauge("unsearched_logs", "logs that could not be searched for forgotten keys", [({}, len(unsearched))])


def _outcome(success: float, ended_ms: int, duration_ms: int) -> Iterator[str]:
    yield from _gauge("success", "1 if nothing failed", [({}, success)])
    yield from _gauge("run_timestamp_seconds", "end of the last run", [({}, ended_ms / 1000)])
    yield from _gauge("run_duration_seconds", "duration of the last run", [({}, duration_ms / 1000)])


def _dirty_ratio(cleaning: object) -> float:
    plan = getattr(cleaning, "plan", None)
    return 0.0 if plan is None else float(plan.dirty_ratio)


def _pairs(counts: Counter[tuple[str, str]], name: str) -> Samples:
    return [({"action": action, name: value}, count) for (action, value), count in sorted(counts.items())]


def _gauge(name: str, words: str, samples: Samples) -> Iterator[str]:
    return figure_lines(f"{_PREFIX}_{name}", words, samples)
