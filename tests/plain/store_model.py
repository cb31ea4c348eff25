"""What one can do to a store, done to a real one and to plain lists of records, and a comparison of the two.

The model knows nothing of segments but what it must look up: where batches end, for a truncation takes whole ones, and
which segments there are, for retention does. Both are read from the bytes here, by no code that is tested.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from sparklog.pipeline.checks.verify_logs import verify
from sparklog.pipeline.places.store_view import LogView, open_logs
from sparklog.pipeline.verbs.delete_records import planner
from sparklog.pipeline.verbs.delete_topic import execute_deletion
from sparklog.pipeline.verbs.move_log import execute_move
from sparklog.pipeline.verbs.retain import execute_retention
from sparklog.sink.ledger.ledger import Ledger
from sparklog.sink.ledger.rows import LogState
from sparklog.sink.operations.retain_logs import plan_logs
from sparklog.sink.operations.truncate_logs import truncate_fully_and_start_at
from sparklog.sink.store.store_folder import Store
from sparklog.sink.store_writer import StoreWriter
from sparklog.storage_core.errors import LogStorageError, StorageError
from sparklog.storage_core.topic_partition import TopicPartition
from tests.build.manual_clock import ManualClock
from tests.build.sink_store import in_process, open_store, rows
from tests.build.truncated import truncate_to

__all__ = ["LOGS", "NOW_MS", "RETENTION_MS", "Model", "Operation", "RunningStore"]

NOW_MS = 1_700_000_000_000
RETENTION_MS = 60_000
_RETENTION_BYTES = 2_500
_SETTINGS: dict[str, object] = {
    "segment.bytes": 700,
    "batch.size": 200,
    "index.interval.bytes": 150,
    "retention.bytes": _RETENTION_BYTES,
    "retention.ms": RETENTION_MS,
    "file.delete.delay.ms": 0,
}
_TOPICS = {"t": {"partitions": 2, **_SETTINGS}, "gone": {"partitions": 1, "flush.messages": "never", **_SETTINGS}}
LOGS = (TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("gone", 0))
"""The logs of a store: what is done to logs is done to the first two, and the topic of the last one is deleted."""

_LOG_DIRS = ("logs", "more")
_IDLE_COMMITS = 105
"""So many that the ledger is tidied, which happens every hundred commits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """One thing that is done to a store, with everything that it takes: it can be done again after a crash.

    Attributes:
        kind: `append`, `idle`, `truncate`, `empty`, `delete-records`, `retain`, `move`, `delete-topic` or `close`.
        log: index in `LOGS`.
        offset: of a truncation, or of a deletion of records.
        number: of the micro-batch.
        records: (log, timestamp, bytes of the value) of each row.
        log_dir: where a log moves to.
        now_ms: the time.
        beside_sink: whether a sink holds the store while its logs are retained: the active segments are its own then.
    """

    kind: str
    log: int = 0
    offset: int = 0
    number: int = 0
    records: tuple[tuple[int, int, int], ...] = ()
    log_dir: str = ""
    now_ms: int = NOW_MS
    beside_sink: bool = False

    def as_dict(self) -> dict[str, Any]:
        """Return the fields, for JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, fields: dict[str, Any]) -> Operation:
        """Return what `as_dict` was made from."""
        return cls(**{**fields, "records": tuple(tuple(each) for each in fields["records"])})

    def value(self, row: int) -> bytes:
        """Return the value of a row: no other one of the store is the same."""
        return f"{self.number}/{row}/".encode().ljust(self.records[row][2], b".")


class RunningStore:
    """A store, and its sink while there is one.

    Attributes:
        root: its folder.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self._writer: StoreWriter | None = None

    @property
    def has_sink(self) -> bool:
        """Whether a sink holds it."""
        return self._writer is not None

    def apply(self, operation: Operation) -> None:
        """Do it, beside the sink or without one."""
        clock, log = ManualClock(operation.now_ms), LOGS[operation.log]
        if operation.kind == "append":
            self.open().append("query", operation.number, in_process(_frame(operation)))
        elif operation.kind == "idle":
            for number in range(_IDLE_COMMITS):
                self.open().append("idle", number, in_process())
        elif operation.beside_sink:
            self.open()
        else:
            self.close()
        if operation.kind == "retain":
            self._retain(lambda store: plan_logs(store, clock), clock)
        elif operation.kind == "delete-records":
            self._retain(planner(log, operation.offset, clock), clock)
        elif operation.kind == "truncate":
            truncate_to(self.root, log, operation.offset, clock)
        elif operation.kind == "empty":
            truncate_fully_and_start_at(self.root, log, operation.offset, clock)
        elif operation.kind == "move" and self._states()[log].log_dir != operation.log_dir:
            execute_move(self.root, log, operation.log_dir)
        elif operation.kind == "delete-topic":
            if log in self._states():  # otherwise it was killed behind the commit
                execute_deletion(self.root, log.topic, clock, lambda *_: None, lambda _: None)
            self.open()  # makes it anew

    def open(self) -> StoreWriter:
        """Return the sink, a new one if there is none."""
        if self._writer is None:
            self._writer = open_store(self.root, _TOPICS, log_dirs=_LOG_DIRS)
        return self._writer

    def close(self) -> None:
        """End the sink."""
        writer, self._writer = self._writer, None
        if writer is not None:
            writer.close()

    def _retain(self, plan: Any, clock: ManualClock) -> None:
        done = execute_retention(self.root, plan, clock, lambda *_: None, lambda _: None)
        if failures := [each.failure for each in done if each.failure is not None]:
            raise StorageError("; ".join(failures))

    def _states(self) -> dict[TopicPartition, LogState]:
        return Ledger.open(Store.find(self.root).ledger_path).states()


@dataclass(eq=False)
class _Log:
    """A log as a list of records, those included that lie below its start in its first segment."""

    start: int = 0
    end: int = 0
    records: list[tuple[int, int, bytes]] = field(default_factory=list)

    def visible(self) -> list[tuple[int, int, bytes]]:
        return [each for each in self.records if each[0] >= self.start]


class Model:
    """The logs of a store as plain lists of (offset, timestamp, value)."""

    def __init__(self) -> None:
        self.logs = {log: _Log() for log in LOGS}

    def apply(self, operation: Operation, root: Path) -> None:
        """Do it to the lists; the store is as it was before."""
        log = self.logs[LOGS[operation.log]]
        if operation.kind == "append":
            self._append(operation)
        elif operation.kind == "truncate":
            self._truncate(LOGS[operation.log], operation.offset, root)
        elif operation.kind == "empty":
            self.logs[LOGS[operation.log]] = _Log(operation.offset, operation.offset)
        elif operation.kind == "delete-records":
            log.start = max(log.start, operation.offset)
        elif operation.kind == "retain":
            for each in LOGS:
                self._retain(each, operation, root)
        elif operation.kind == "delete-topic":
            self.logs[LOGS[operation.log]] = _Log()

    def problems(self, root: Path) -> list[str]:
        """Return how a store differs from the lists, by what readers and look-ups give, and what a check finds."""
        view = open_logs(root)
        found: list[str] = []
        verify(view, lambda each: found.append(str(each)) if each.kind not in ("known", "nothing") else None, deep=True)
        if [each.log for each in view.logs] != sorted(LOGS):
            return [*found, f"logs are {[str(each.log) for each in view.logs]}"]
        return [*found, *(problem for log in LOGS for problem in self.problems_of(root, log))]

    def problems_of(self, root: Path, log: TopicPartition) -> Iterator[str]:
        """Yield how one log differs from its list."""
        try:
            found = [each for each in open_logs(root).logs if each.log == log]
            if not found and self.logs[log].end:  # one of a deleted topic is made anew, and empty, by a sink
                yield f"{log}: is gone"
            for view in found:
                yield from self._differences(view)
        except LogStorageError as error:
            yield f"{log}: {error}"

    def _append(self, operation: Operation) -> None:
        for row, (number, timestamp, _) in enumerate(operation.records):
            log = self.logs[LOGS[number]]
            log.records.append((log.end, timestamp, operation.value(row)))
            log.end += 1

    def _truncate(self, log: TopicPartition, offset: int, root: Path) -> None:
        known = self.logs[log]
        if offset >= known.end:
            return
        kept = [last for _, _, batches in _segments(root, log) for _, last in batches if last < offset]
        if not kept:
            self.logs[log] = _Log(offset, offset)
            return
        known.records = [each for each in known.records if each[0] <= max(kept)]
        known.start, known.end = min(known.start, offset), offset

    def _retain(self, log: TopicPartition, operation: Operation, root: Path) -> None:
        """Kafka's three passes, each from the oldest segment to the first that stays."""
        known, segments = self.logs[log], list(_segments(root, log))
        if not segments:
            return
        bases = [base for base, _, _ in segments]
        ends = [*bases[1:], known.end]
        is_kept = operation.beside_sink or segments[-1][1] == 0  # the sink's, or there is nothing in it to delete
        last = len(segments) - is_kept
        first = 0
        while first < last and first + 1 < len(segments) and ends[first] <= known.start:
            first += 1
        excess = sum(size for _, size, _ in segments[first:]) - _RETENTION_BYTES
        while first < last and excess >= segments[first][1]:
            excess -= segments[first][1]
            first += 1
        while first < last and self._is_old(known, bases[first], ends[first], operation.now_ms):
            first += 1
        known.start = max(known.start, bases[first] if first < len(segments) else known.end)

    @staticmethod
    def _is_old(known: _Log, base: int, end: int, now_ms: int) -> bool:
        """Whether all records are too old; what has none is as old as its file, which is young here."""
        latest = max((timestamp for offset, timestamp, _ in known.records if base <= offset < end), default=None)
        return latest is not None and now_ms - latest > RETENTION_MS

    def _differences(self, view: LogView) -> Iterator[str]:
        known, reader = self.logs[view.log], view.reader()
        wanted = known.visible()
        found = [
            row
            for batch in reader.read(reader.log_start_offset)
            for row in zip(*(batch.column(name).to_pylist() for name in ("offset", "timestamp", "value")), strict=True)
        ]
        if (reader.log_start_offset, reader.log_end_offset) != (known.start, known.end):
            yield f"{view.log}: {reader.log_start_offset}..{reader.log_end_offset}, not {known.start}..{known.end}"
        if found != wanted:
            yield f"{view.log}: holds {_short(found)}, not {_short(wanted)}"
            return
        for timestamp in {timestamp + by for _, timestamp, _ in wanted[:: len(wanted) // 5 + 1] for by in (0, 1)}:
            first = next(((offset, at) for offset, at, _ in wanted if at >= timestamp), None)
            if reader.offset_for_time(timestamp) != first:
                yield f"{view.log}: time {timestamp} is at {reader.offset_for_time(timestamp)}, not at {first}"
        for offset in range(known.start, known.end, (known.end - known.start) // 5 + 1):
            later = [each[0] for each in wanted if each[0] >= offset]
            got = [number for batch in reader.read(offset) for number in batch.column("offset").to_pylist()]
            if got != later:
                yield f"{view.log}: from {offset} on there is {got[:3]}.., not {later[:3]}.."


def _segments(root: Path, log: TopicPartition) -> Iterator[tuple[int, int, list[tuple[int, int]]]]:
    """Yield base offset, committed bytes, and (first, last offset) of the batches of each segment."""
    store = Store.find(root)
    state = Ledger.open(store.ledger_path).states()[log]
    for path in sorted(store.log_path(state).glob("*.log")):
        base, data = int(path.stem), path.read_bytes()
        if base == state.active_base_offset:
            data = data[: state.active_size_bytes]
        if base > state.active_base_offset:
            continue
        batches, position = [], 0
        while position < len(data):
            first, size = struct.unpack_from(">qi", data, position)
            (delta,) = struct.unpack_from(">i", data, position + 23)
            batches.append((first, first + delta))
            position += 12 + size
        yield base, len(data), batches


def _frame(operation: Operation) -> Any:
    logs = [LOGS[number] for number, _, _ in operation.records]
    return rows(
        topic=[log.topic for log in logs],
        partition=[log.partition for log in logs],
        timestamp=[timestamp for _, timestamp, _ in operation.records],
        value=[operation.value(row) for row in range(len(logs))],
    )


def _short(records: Sequence[tuple[int, int, bytes]]) -> str:
    return f"{len(records)} records {[(each[0], each[2][:8]) for each in (*records[:2], *records[-2:])]}"
