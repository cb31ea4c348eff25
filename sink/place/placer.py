"""On the driver: gives staged batches their offsets, copies them into segments and syncs them in fsync order.

The steps: plan in columns, patch base offset and leader epoch in the staging files (the CRC does not cover them),
copy inside the kernel, add index entries, sync. Nothing counts before the ledger's commit; after a failure at any step
the touched logs are cut back.
"""

import mmap
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from sparklog.sink.ledger.ledger import Ledger
from sparklog.sink.locks.writer_lock import WriterLock
from sparklog.sink.place.flush_policy import LogLimits, is_flush_due_by_log
from sparklog.sink.place.patch_headers import patch_headers
from sparklog.sink.place.split_appends import split_appends
from sparklog.sink.place.staged_batches import StagedBatches
from sparklog.storage_core.clock import Clock
from sparklog.storage_core.errors import StorageError
from sparklog.storage_core.fault_points import reach
from sparklog.storage_core.index.time_index import pack_time_entries
from sparklog.storage_core.log.append.begin_epoch import begin_epoch
from sparklog.storage_core.log.append.cut_back import cut_back_logs
from sparklog.storage_core.log.append.roll import APPEND_STATE, AppendPlan, BatchColumns, plan_appends
from sparklog.storage_core.log.append.segment_writer import SegmentAppend, SegmentWriter, WrittenFiles
from sparklog.storage_core.log.append.state import load_append_state
from sparklog.storage_core.log.files.committed_end import CommittedEnd
from sparklog.storage_core.log.files.names import INDEX, LOG, TIMEINDEX, segment_file_name
from sparklog.storage_core.storage.local import storage_errors, sync_directories, sync_files, write_all
from sparklog.storage_core.storage.open_regular import open_to_change

__all__ = ["Placement", "Placer"]

_THREADS = 4


@dataclass(frozen=True, slots=True)
class Placement:
    """A micro-batch that lies in its segments, not committed.

    Attributes:
        rows: (n,) ledger rows of the touched logs, then of idle ones that are due to be synced.
        values: (n,) new value of each ledger column that changed.
        rolls: segments started.
        state: (touched logs,) `APPEND_STATE` once it is committed.
        flushed: (f,) the rows of logs that are synced as a whole once `written` is synced.
        written: files to sync before it may be committed.
    """

    rows: npt.NDArray[np.int64]
    values: dict[str, npt.NDArray[np.int64]]
    rolls: int
    state: npt.NDArray[np.void]
    flushed: npt.NDArray[np.int64]
    written: WrittenFiles


class Placer:
    """Appends to the logs of a store; keeps the state of each active segment.

    Args:
        directories: of each log, by ledger row.
        limits: of each log, by ledger row.
        preserved: whether batches bring their own base offsets.
    """

    def __init__(
        self,
        ledger: Ledger,
        lock: WriterLock,
        clock: Clock,
        directories: list[Path],
        limits: LogLimits,
        preserved: bool,
    ) -> None:
        self._ledger = ledger
        self.owner = lock
        self._clock = clock
        self._directories = directories
        self._limits = limits
        self._preserved = preserved
        self._state = np.zeros(len(directories), APPEND_STATE)
        self._is_loaded = np.zeros(len(directories), np.bool_)
        self._is_offline = np.zeros(len(directories), np.bool_)
        self._synced_ms = np.full(len(directories), clock.monotonic_ms(), np.int64)
        self._random = np.random.default_rng(clock.now_ms())
        self._pool = ThreadPoolExecutor(_THREADS, thread_name_prefix="place")

    def place(self, staged: StagedBatches) -> Placement:
        """Put the batches into their segments.

        Raises:
            BackwardOffsetError: a preserved offset goes back or repeats; nothing was written.
            StorageError, WriterFencedError: the caller decides whether to undo.
        """
        rows, log = np.unique(staged.row, return_inverse=True)
        self._load(rows)
        before = self._state[rows]
        plan = self._plan(staged, rows, log)
        reach("place.planned")
        self._patch(staged, plan)
        values = self._new_values(staged, rows, plan)
        is_due = self._is_flush_due(rows, values["log_end_offset"])
        is_due |= plan.state["segment_base"] != before["segment_base"]  # the new segment's name, and the closed segment
        written = self._write(rows, split_appends(staged, log, plan, before), is_due)
        return self._with_flushes(Placement(rows, values, plan.rolls, plan.state, rows[is_due], written))

    def place_nothing(self) -> Placement:
        """Return the placement of a micro-batch without records: idle logs may still be due to be synced."""
        none = np.zeros(0, np.int64)
        return self._with_flushes(Placement(none, {}, 0, self._state[none], none, WrittenFiles([], [], [])))

    def sync(self, written: WrittenFiles) -> None:
        """Sync a placement's files in fsync order: logs, then indexes, then names."""
        if not written.logs:
            return
        with storage_errors("log directories"):
            sync_files(written.logs)
            if written.indexes:
                sync_files(written.indexes)
            sync_directories(sorted(set(written.directories)))
        reach("place.synced")

    def install(self, placement: Placement) -> None:
        """Take over the state of a placement that was committed."""
        self._state[placement.rows[: len(placement.state)]] = placement.state
        self._synced_ms[placement.flushed] = self._clock.monotonic_ms()

    def undo(self, rows: npt.NDArray[np.int64]) -> None:
        """Cut logs back to their committed ends."""
        cut_back_logs([(self._directories[row], self.committed_end(row)) for row in rows.tolist()], self.owner)
        self._is_loaded[rows] = False

    def skip(self, rows: npt.NDArray[np.int64]) -> None:
        """Skip these logs from now on: their disk has failed."""
        self._is_loaded[rows] = False
        self._is_offline[rows] = True

    def committed_end(self, row: int) -> CommittedEnd:
        """Return where the ledger says a log ends."""
        names = ("active_base_offset", "active_size_bytes", "log_end_offset")
        return CommittedEnd(*(int(self._ledger.column(name)[row]) for name in names))

    def stop(self) -> None:
        """Wait for the threads to end."""
        self._pool.shutdown()

    def close(self) -> None:
        """Write the last time entry of every active segment written to, as a broker does when it closes a log."""
        self.stop()
        touched = []
        for row in np.flatnonzero(self._is_loaded).tolist():
            state = self._state[row]
            if state["max_timestamp"] > state["last_entry_timestamp"]:
                touched.append(self._close_time_index(row, state))
        if touched:
            with storage_errors("log directories"):
                sync_files(touched)

    def _close_time_index(self, row: int, state: np.void) -> Path:
        path = self._directories[row] / segment_file_name(int(state["segment_base"]), TIMEINDEX)
        entry = pack_time_entries([state["max_timestamp"]], [state["max_timestamp_offset"] - state["segment_base"]])
        with storage_errors(path):
            descriptor = open_to_change(path, os.O_WRONLY)
            try:
                self.owner.check()
                write_all(descriptor, entry, int(state["time_entries"]) * len(entry))
            finally:
                os.close(descriptor)
        return path

    def _load(self, rows: npt.NDArray[np.int64]) -> None:
        monotonic_ms, new = self._clock.monotonic_ms(), rows[~self._is_loaded[rows]].tolist()
        for row in new:
            most = int(self._limits.roll[row]["max_jitter_ms"])
            jitter_ms = int(self._random.integers(most)) if most else 0
            self._state[row] = load_append_state(
                self._directories[row], self.committed_end(row), monotonic_ms, jitter_ms, self.owner
            )
        self._begin_epochs([row for row in new if self._ledger.column("leader_epoch")[row]])
        self._is_loaded[new] = True

    def _begin_epochs(self, rows: list[int]) -> None:
        """Let the next batches of logs be of their ledger's epoch; the first one, 0, begins with the log."""
        epochs, ends = self._ledger.column("leader_epoch"), self._ledger.column("log_end_offset")

        def begin(number: int) -> None:
            row = rows[number]
            begin_epoch(self._directories[row], int(epochs[row]), int(ends[row]), self.owner)

        self._run_all(begin, len(rows))

    def _plan(self, staged: StagedBatches, rows: npt.NDArray[np.int64], log: npt.NDArray[np.int64]) -> AppendPlan:
        preserved = staged.base_offset if self._preserved else np.full(len(log), -1, np.int64)
        columns = BatchColumns(log, staged.size, staged.last_offset_delta, staged.max_timestamp, preserved)
        seed = int(self._random.integers(1 << 62))
        return plan_appends(self._state[rows], self._limits.roll[rows], columns, self._clock.monotonic_ms(), seed)

    def _patch(self, staged: StagedBatches, plan: AppendPlan) -> None:
        """Write base offset and leader epoch into the staged headers."""
        epochs = self._ledger.column("leader_epoch")[staged.row].astype(np.int32)
        order = np.argsort(staged.file, kind="stable")
        borders = np.searchsorted(staged.file[order], np.arange(len(staged.files) + 1))

        def patch_file(number: int) -> None:
            mine = order[borders[number] : borders[number + 1]]
            path = staged.files[number]
            wanted = int((staged.position[mine] + staged.size[mine]).max())
            with storage_errors(path), os.fdopen(open_to_change(path, os.O_RDWR), "r+b") as file:
                if os.fstat(file.fileno()).st_size < wanted:
                    raise StorageError(f"staged file is shorter than its task reported: wanted={wanted} path={path}")
                mapping = mmap.mmap(file.fileno(), wanted)
            with mapping:
                data = np.frombuffer(mapping, np.uint8)
                patch_headers(data, staged.position[mine], plan.base_offset[mine], epochs[mine])
                del data

        self._run_all(patch_file, len(staged.files))

    def _write(
        self,
        rows: npt.NDArray[np.int64],
        appends: list[list[SegmentAppend]],
        is_due: npt.NDArray[np.bool_],
    ) -> WrittenFiles:
        """Write the appends of each log, and return the files of those logs that this commit has to sync."""
        written, unsynced = WrittenFiles([], [], []), WrittenFiles([], [], [])

        def write_log(each: int) -> None:
            files = written if is_due[each] else unsynced
            SegmentWriter(self._directories[rows[each]], self.owner.token, self.owner).append(appends[each], files)

        self._run_all(write_log, len(rows))
        return written

    def _is_flush_due(
        self, rows: npt.NDArray[np.int64], log_end_offset: npt.NDArray[np.int64]
    ) -> npt.NDArray[np.bool_]:
        return is_flush_due_by_log(
            self._limits.flush[rows],
            log_end_offset,
            self._ledger.column("recovery_point")[rows],
            self._synced_ms[rows],
            self._clock.monotonic_ms(),
        )

    def _with_flushes(self, placement: Placement) -> Placement:
        """Add files that earlier micro-batches left in the page cache: of logs that are synced now, and of idle ones.

        They are active segments: a commit that begins a segment syncs its log as a whole.
        """
        end, point = self._ledger.column("log_end_offset"), self._ledger.column("recovery_point")
        behind = np.flatnonzero(point < end)
        idle = np.setdiff1d(behind, placement.rows)
        idle = idle[self._is_flush_due(idle, end[idle]) & ~self._is_offline[idle]]
        rows, flushed = np.concatenate([placement.rows, idle]), np.concatenate([placement.flushed, idle])
        written = self._with_active_files(placement.written, np.intersect1d(behind, flushed))
        values = {name: np.append(new, self._ledger.column(name)[idle]) for name, new in placement.values.items()}
        ends = values.get("log_end_offset", end[rows])
        values["recovery_point"] = np.where(np.isin(rows, flushed), ends, point[rows])
        return replace(placement, rows=rows, values=values, flushed=flushed, written=written)

    def _with_active_files(self, written: WrittenFiles, rows: npt.NDArray[np.int64]) -> WrittenFiles:
        """Add the files of committed active segments, each once."""
        bases = self._ledger.column("active_base_offset")[rows].tolist()
        places = list(zip((self._directories[row] for row in rows.tolist()), bases, strict=True))
        logs = [directory / segment_file_name(base, LOG) for directory, base in places]
        indexes = [
            directory / segment_file_name(base, suffix) for directory, base in places for suffix in (INDEX, TIMEINDEX)
        ]
        return WrittenFiles(
            list(dict.fromkeys([*written.logs, *logs])),
            list(dict.fromkeys([*written.indexes, *indexes])),
            written.directories,
        )

    def _run_all(self, work: Callable[[int], None], count: int) -> None:
        """Run `work(0) .. work(count - 1)` on the threads; raise only after all of them have ended.

        The undo of a failed micro-batch must not race with a thread that still writes it.
        """

        def run_share(share: int) -> None:
            for number in range(share, count, _THREADS):
                work(number)

        futures = [self._pool.submit(run_share, share) for share in range(min(_THREADS, count))]
        wait(futures)
        for future in futures:
            future.result()

    def _new_values(
        self, staged: StagedBatches, rows: npt.NDArray[np.int64], plan: AppendPlan
    ) -> dict[str, npt.NDArray[np.int64]]:
        starts = np.searchsorted(staged.row, rows)
        newest = np.maximum.reduceat(staged.max_timestamp, starts)
        start, end = self._ledger.column("log_start_offset")[rows], self._ledger.column("log_end_offset")[rows]
        return {
            # An emptied log starts where it ended: a group that waits there must find its offset.
            "log_start_offset": np.where(end == 0, plan.base_offset[starts], start),
            "log_end_offset": plan.state["next_offset"],
            "active_base_offset": plan.state["segment_base"],
            "active_size_bytes": plan.state["segment_size"],
            "max_timestamp_ms": np.maximum(newest, self._ledger.column("max_timestamp_ms")[rows]),
            "updated_ms": np.full(len(rows), self._clock.now_ms(), np.int64),
        }
