"""Checks every log of a place, in a store also against the ledger, in parallel on all cores.

Findings come in the order of the logs. Bytes past a store's committed end are no damage: a running writer appends them,
or they are the partial write of a crashed one, which the next opening truncates.
"""

import os
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from sparklog.pipeline.places.lost_view import known_lost
from sparklog.pipeline.places.newest_logs import NewestLogs
from sparklog.pipeline.places.store_view import LogView, StoreView
from sparklog.sink.ledger.ledger import Ledger
from sparklog.sink.store.store_folder import Store
from sparklog.storage_core.clock import wait_until
from sparklog.storage_core.inspect.verify.findings import HARMLESS_KINDS, Finding, LogReport
from sparklog.storage_core.inspect.verify.segment_pass import Event
from sparklog.storage_core.inspect.verify.verify_log import VerifyOptions, verify_directory
from sparklog.storage_core.inspect.verify.verify_root import ExpectedRoot, verify_root
from sparklog.storage_core.log.files.segments import SegmentFiles
from sparklog.storage_core.log_config import INT64_MAX
from sparklog.storage_core.quantity_text import size_text
from sparklog.storage_core.topic_partition import TopicPartition

__all__ = ["VerifyResult", "verify", "verify_logs"]

_AHEAD = 2
"""Segments that each thread may be ahead of the one whose results are read."""
_TRIES = 10
"""Most checks of a log that is being cleaned, until one falls between two changes."""
_OF_A_SWAP = frozenset({"swap", "segment", "unreadable", "orphan-index", "offset-index", "time-index", "txn-index"})
"""Rules that a log may seem to break while a new segment takes the place of others."""
_SWAP_S = 0.5
"""Time that a cleaner may need for the renames of a new segment."""


@dataclass(slots=True)
class VerifyResult:
    """Reports and findings of a check.

    Attributes:
        logs: a report per log, in their order.
        findings: of all logs and roots, except empty logs.
    """

    logs: list[LogReport] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)

    @property
    def is_sound(self) -> bool:
        """Whether there was something to check, an empty store at least, and no damage was found."""
        return self.is_clean and all(each.kind != "nothing" for each in self.findings)

    @property
    def is_clean(self) -> bool:
        """Whether no damage was found."""
        return all(each.kind in HARMLESS_KINDS for each in self.findings)

    def add(self, findings: Iterable[Finding], report: Callable[[Finding], None]) -> None:
        """Add findings, and report each at once."""
        for finding in findings:
            self.findings.append(finding)
            report(finding)

    def as_dict(self) -> dict[str, Any]:
        """Return the counts, for JSON."""
        return {
            "sound": self.is_sound,
            "logs": len(self.logs),
            "segments": sum(each.segments for each in self.logs),
            "batches": sum(each.batches for each in self.logs),
            "bytes": sum(each.bytes_checked for each in self.logs),
            "findings": len(self.findings),
        }

    def lines(self) -> Sequence[str]:
        """Return nothing: findings are reported at once."""
        return ()

    def verdict(self) -> str:
        """Return the counts, for people."""
        counts = self.as_dict()
        found = ", ".join(f"{counts[name]:,} {name}" for name in ("logs", "segments", "batches"))
        return f"{'sound' if self.is_sound else 'NOT sound'}: {found}, {size_text(counts['bytes'])}"


def verify(
    view: StoreView,
    report: Callable[[Finding], None],
    *,
    deep: bool = False,
    jobs: int | None = None,
    keep_in: Path | None = None,
    progress: Callable[[int], None] = lambda _bytes: None,
    reports_of: Callable[[StoreView], Iterable[LogReport]] | None = None,
) -> VerifyResult:
    """Check every log of a place, and their roots; report findings at once.

    An empty log is no finding, unless all logs of a plain folder are empty: it may be the wrong folder.

    Args:
        deep: also decode every record, not only check the CRC of its batch.
        jobs: threads; one a core if None.
        keep_in: folder where a repair of a plain folder kept dropped bytes; None for the default.
        progress: gets the number of bytes after each step.
        reports_of: checks the logs alone, and returns their reports in order; None for threads.
    """
    result = VerifyResult()
    reports = reports_of(view) if reports_of else verify_logs(view, keep_in, deep=deep, jobs=jobs, progress=progress)
    for each in reports:
        result.logs.append(each)
        result.add((finding for finding in each.findings if finding.kind != "nothing"), report)
    for root in _verify_roots(view, result.logs):
        result.add(root.findings, report)
    if view.surplus is not None:
        name = view.root.absolute().name
        result.add([Finding(log=name, file="ledger", kind="missing", rule="ledger-surplus", what=view.surplus)], report)
    if view.damaged_control is not None:
        damage = Finding(
            log=view.root.absolute().name,
            file="control",
            kind="checkpoint",
            rule="control-file",
            what=view.damaged_control,
        )
        result.add([damage], report)
    for path in view.unknown:
        what = "is not in the ledger"
        found = Finding(log=path.parent.name, file=path.name, kind="uncommitted", rule="directory", what=what)
        result.add([found], report)
    if view.ledger_version is None and not any(each.batches for each in result.logs):
        what = "no batch was found, so there is nothing to check"
        name = view.root.absolute().name
        result.add([Finding(log=name, file=name, kind="nothing", rule="nothing", what=what)], report)
    return result


def verify_logs(
    view: StoreView,
    keep_in: Path | None,
    *,
    deep: bool,
    jobs: int | None = None,
    progress: Callable[[int], None] = lambda _bytes: None,
) -> Iterator[LogReport]:
    """Yield the report of each log, in order; arguments as of `verify`."""
    lost = known_lost(view, keep_in)
    count = jobs or len(os.sched_getaffinity(0))
    with ThreadPoolExecutor(count) as segment_threads, ThreadPoolExecutor(count) as log_threads:
        side_by_side, newest = _SideBySide(segment_threads, count * _AHEAD), NewestLogs(view)

        def check(each: LogView) -> LogReport:
            known = lost.get((each.log.topic, each.log.partition), ())
            for _ in range(_TRIES):
                before_ns = _changed_ns(each.directory)
                options = VerifyOptions(deep=deep, known_lost=known, run=side_by_side.run, progress=progress)
                found = _verify_log(each, options)
                if all(finding.kind in HARMLESS_KINDS for finding in found.findings):
                    break
                now = newest.view(each)
                later = next((other for other in now.logs if other.log == each.log), None)
                if later is None:
                    return LogReport(each.directory)  # it was deleted meanwhile
                known_now = known_lost(now, keep_in).get((each.log.topic, each.log.partition), ())
                if not _differs(each, later) and known == known_now and not _changes(each, found, before_ns):
                    break
                each, known = later, known_now
            return found

        yield from log_threads.map(check, view.logs)


def _verify_log(each: LogView, options: VerifyOptions) -> LogReport:
    if each.offline is not None:
        return _offline_report(each)
    return verify_directory(each.directory, each.expected, options)


def _differs(each: LogView, later: LogView) -> bool:
    """Whether a log has changed since its check, other than by appends above its end."""
    before, now = each.expected, later.expected
    if before is None or now is None:
        return False
    has_fallen = now.log_end_offset < before.log_end_offset
    grown = replace(
        before,
        log_end_offset=now.log_end_offset,
        active_size_bytes=now.active_size_bytes,
        recovery_point=now.recovery_point,
    )
    return has_fallen or grown != now or (each.directory, each.offline) != (later.directory, later.offline)


def _changes(each: LogView, found: LogReport, before_ns: int) -> bool:
    """Whether findings may come from a cleaning that replaced segments during the check, or is about to."""
    rules = {finding.rule for finding in found.findings}
    if each.expected is None or not rules & _OF_A_SWAP:
        return False
    patience_s = _SWAP_S if "swap" in rules else 0
    return wait_until(lambda: _changed_ns(each.directory) != before_ns, patience_s, _SWAP_S / 20)


def _changed_ns(directory: Path) -> int:
    """Return the time of the last rename in a directory; 0 if it can't be read, which is a finding of the check."""
    try:
        return directory.stat().st_mtime_ns
    except OSError:
        return 0


def _offline_report(each: LogView) -> LogReport:
    """Return a finding for an offline log; its records are not lost."""
    report = LogReport(each.directory)
    what = f"its log directory is offline: log_dir={each.directory.parent} reason={each.offline}"
    if each.expected is None:
        report.add("missing", "unreadable", report.log, what)
    else:
        offsets = (each.expected.log_start_offset, each.expected.log_end_offset - 1)
        report.add_offsets("missing", "unreadable", report.log, what, offsets)
    return report


class _SideBySide:
    """Reads segments on some threads, a few segments ahead of the consumer."""

    def __init__(self, threads: ThreadPoolExecutor, ahead: int) -> None:
        self._threads, self._ahead = threads, ahead

    def run(
        self, segments: Sequence[SegmentFiles], pass_over_one: Callable[[SegmentFiles], Iterator[Event]]
    ) -> Iterator[Iterator[Event]]:
        waiting = iter(segments)
        running: deque[Future[Iterator[Event]]] = deque()
        try:
            for segment in waiting:
                running.append(self._threads.submit(pass_over_one, segment))
                if len(running) > self._ahead:
                    yield running.popleft().result()
            while running:
                yield running.popleft().result()
        finally:
            for each in running:
                each.cancel()


def _verify_roots(view: StoreView, reports: Sequence[LogReport]) -> Iterator[LogReport]:
    """Check the roots of the logs, unless the place is a single log."""
    ends: dict[Path, dict[TopicPartition, int]] = defaultdict(dict)
    for each, log in zip(view.logs, reports, strict=True):
        if each.offline is not None:
            continue  # each of its logs is a finding
        end = each.expected.log_end_offset if each.expected else log.log_end_offset
        if end is not None and each.directory != view.root:
            ends[each.directory.parent][each.log] = end
    store = None if view.ledger_version is None else Store.find(view.root)
    for root, known in sorted(ends.items()):
        if not root.is_dir():
            continue  # lost disk: each of its logs is a finding
        yield verify_root(root, ExpectedRoot(ends=known)) if store is None else _verify_own_root(store, root, known)


def _verify_own_root(store: Store, root: Path, ends: Mapping[TopicPartition, int]) -> LogReport:
    """Check a root of a store; if a writer updated its files after the view was read, read the ledger again.

    Files of truncated, moved or deleted logs may be older: the ledger is read before the files, and its rows name
    these changes until the files are written.
    """
    for _ in range(_TRIES):
        under_way = _under_way(store)
        found = verify_root(root, ExpectedRoot(ends={**ends, **under_way}, cluster_id=store.store_id))
        if all(each.rule != "offset-checkpoint" for each in found.findings):
            break
        before, states = (ends, under_way), Ledger.open(store.ledger_path).states()
        ends = {log: state.log_end_offset for log, state in states.items() if store.log_path(state).parent == root}
        if before == (ends, _under_way(store)):
            break
    return found


def _under_way(store: Store) -> dict[TopicPartition, int]:
    """Return an unlimited end for each log whose entries in checkpoint files may still be those before a change."""
    return {state.log: INT64_MAX for state in Ledger.open(store.ledger_path).all_states() if state.intent}
