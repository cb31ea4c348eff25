"""The verb `verify`: every log of a place against itself and the ledger, side by side on all cores.

Findings come in the order of the logs, whatever finished first. What lies behind a store's committed end is no damage:
a running writer is adding it, or a killed one left it for the next start to cut.
"""

import contextlib
import os
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from sparklog.pipeline.places.forgotten_findings import forgotten_findings
from sparklog.pipeline.places.lost_view import known_lost
from sparklog.pipeline.places.newest_logs import NewestLogs
from sparklog.pipeline.places.store_view import LogView, StoreView, open_logs
from sparklog.pipeline.report import DONE, FAILED, show, to_json
from sparklog.pipeline.terminal import say
from sparklog.sink.ledger.ledger import Ledger
from sparklog.sink.store.store_folder import Store
from sparklog.storage_core.clock import wait_until
from sparklog.storage_core.inspect.verify.findings import HARMLESS_KINDS, Finding, LogReport, OffsetRange
from sparklog.storage_core.inspect.verify.segment_pass import Event
from sparklog.storage_core.inspect.verify.verify_log import VerifyOptions, verify_directory
from sparklog.storage_core.inspect.verify.verify_root import ExpectedRoot, verify_root
from sparklog.storage_core.log.files.names import LOG
from sparklog.storage_core.log.files.segments import SegmentFiles
from sparklog.storage_core.log_config import INT64_MAX
from sparklog.storage_core.quantity_text import size_text
from sparklog.storage_core.topic_partition import TopicPartition

__all__ = ["VerifyResult", "run", "verify"]

_AHEAD = 2
"""Segments that each thread may be ahead of the one whose results are taken in."""
_TRIES = 10
"""Checks of a log that is being cleaned, until one of them meets it between two changes."""
_OF_A_SWAP = frozenset({"swap", "segment", "unreadable", "orphan-index", "offset-index", "time-index", "txn-index"})
"""Rules that a log may seem to break while a new segment takes the place of others."""
_SWAP_S = 0.5
"""How long a cleaner may take to give a new segment its names."""


@dataclass(slots=True)
class VerifyResult:
    """What was found at a place.

    Attributes:
        logs: a report per log, in their order.
        findings: of all logs and roots, but for empty logs.
    """

    logs: list[LogReport] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)

    @property
    def is_sound(self) -> bool:
        """Whether nothing is wrong, and something was there to check, if it is only an empty store."""
        return self.is_clean and all(each.kind != "nothing" for each in self.findings)

    @property
    def is_clean(self) -> bool:
        """Whether nothing is wrong."""
        return all(each.kind in HARMLESS_KINDS for each in self.findings)

    def add(self, findings: Iterable[Finding], report: Callable[[Finding], None]) -> None:
        """Take findings in, and report them as they come."""
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
        """Return nothing: findings are reported as they come."""
        return ()

    def verdict(self) -> str:
        """Return the counts, for people."""
        counts = self.as_dict()
        found = ", ".join(f"{counts[name]:,} {name}" for name in ("logs", "segments", "batches"))
        return f"{'sound' if self.is_sound else 'NOT sound'}: {found}, {size_text(counts['bytes'])}"


def run(store: Path, deep: bool, jobs: int | None, keep_in: Path | None, as_json: bool) -> int:
    """Carry the verb out; return the exit code."""

    def report(each: Finding) -> None:
        say(to_json(each.as_dict()) if as_json else f"{each} -> {each.remedy}")

    view = open_logs(store)
    with _progress_bar(view) as progress:
        result = verify(view, report, deep=deep, jobs=jobs, keep_in=keep_in, progress=progress)
    result.add(forgotten_findings(view), report)
    show(result, as_json=as_json)
    return DONE if result.is_sound else FAILED


def verify(
    view: StoreView,
    report: Callable[[Finding], None],
    *,
    deep: bool = False,
    jobs: int | None = None,
    keep_in: Path | None = None,
    progress: Callable[[int], None] = lambda _bytes: None,
) -> VerifyResult:
    """Check every log of a place, and the roots they lie in; report findings as they are met.

    An empty log is no finding, unless all are in a folder without a ledger: it may be the wrong one.

    Args:
        view: what to check.
        report: gets each finding.
        deep: whether every record is decoded, not only its batch's CRC computed.
        jobs: threads; as many as there are cores if None.
        keep_in: folder where a repair of a plain place keeps what it cut off, if it is not the default one.
        progress: is told how many bytes were done.
    """
    result = VerifyResult()
    lost = known_lost(view, keep_in)

    for each in _verify_logs(view, lost, keep_in, deep=deep, jobs=jobs, progress=progress):
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


@contextlib.contextmanager
def _progress_bar(view: StoreView) -> Iterator[Callable[[int], None]]:
    """Show on a terminal's standard error how many bytes are done; yields what is to be told."""
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TimeRemainingColumn

    console = Console(stderr=True)
    if not console.is_terminal:
        yield lambda _bytes: None
        return
    columns = (BarColumn(None), DownloadColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("", total=sum(_log_bytes(each.directory) for each in view.logs))
        yield lambda count: bar.update(task, advance=count)


def _verify_logs(
    view: StoreView,
    lost: Mapping[tuple[str, int], Sequence[OffsetRange]],
    keep_in: Path | None,
    *,
    deep: bool,
    jobs: int | None,
    progress: Callable[[int], None],
) -> Iterator[LogReport]:
    """Yield the report of each log, in order."""
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
    """Whether a log has become another one than was checked; what is appended to it changes nothing below its end."""
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
    """Whether what was found may come of a cleaning that replaced segments meanwhile, or is about to finish that."""
    rules = {finding.rule for finding in found.findings}
    if each.expected is None or not rules & _OF_A_SWAP:
        return False
    patience_s = _SWAP_S if "swap" in rules else 0
    return wait_until(lambda: _changed_ns(each.directory) != before_ns, patience_s, _SWAP_S / 20)


def _changed_ns(directory: Path) -> int:
    """Return when names in a directory were changed last; 0 where it can't be read, of which the check tells."""
    try:
        return directory.stat().st_mtime_ns
    except OSError:
        return 0


def _offline_report(each: LogView) -> LogReport:
    """Name a log that can't be looked at; what is offline is not lost."""
    report = LogReport(each.directory)
    what = f"its log directory is offline: log_dir={each.directory.parent} reason={each.offline}"
    if each.expected is None:
        report.add("missing", "unreadable", report.log, what)
    else:
        offsets = (each.expected.log_start_offset, each.expected.log_end_offset - 1)
        report.add_offsets("missing", "unreadable", report.log, what, offsets)
    return report


class _SideBySide:
    """Passes over segments on some threads, a few of them ahead of the one whose results are wanted."""

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
    """Check the folders that the logs lie in, unless a single log was asked for."""
    ends: dict[Path, dict[TopicPartition, int]] = defaultdict(dict)
    for each, log in zip(view.logs, reports, strict=True):
        if each.offline is not None:
            continue  # each of its logs says so
        end = each.expected.log_end_offset if each.expected else log.log_end_offset
        if end is not None and each.directory != view.root:
            ends[each.directory.parent][each.log] = end
    store = None if view.ledger_version is None else Store.find(view.root)
    for root, known in sorted(ends.items()):
        if not root.is_dir():
            continue  # of a lost disk each log says so
        yield verify_root(root, ExpectedRoot(ends=known)) if store is None else _verify_own_root(store, root, known)


def _verify_own_root(store: Store, root: Path, ends: Mapping[TopicPartition, int]) -> LogReport:
    """Check a root of a store; its files may be newer than the view, so that the ledger has to be read again.

    Older ones belong to logs that are truncated, moved or deleted: the ledger is read before the files, and its
    rows say so until these are written.
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
    """Return an end that bounds nothing for each log of which checkpoint files may still say what it was."""
    return {state.log: INT64_MAX for state in Ledger.open(store.ledger_path).all_states() if state.intent}


def _log_bytes(directory: Path) -> int:
    try:
        return sum(path.stat().st_size for path in directory.glob(f"*{LOG}"))
    except OSError:
        return 0
