"""Appends staged micro-batches to the logs of a store, exactly once; knows nothing of Spark.

Opening takes the store's writer lock and undoes what a crash left. A micro-batch is staged by whoever calls, then
placed, made durable and committed here; see `docs/architecture.md` for what each step leaves when it is the last one.
"""

import logging
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from sink.config import SinkConfig
from sink.derived_files import DerivedFiles
from sink.ledger import Ledger
from sink.metrics import MicroBatchMetrics
from sink.place import Placement, Placer, StagedBatches
from sink.quarantine import publish_quarantine
from sink.stage import StagePlan
from sink.stage_reports import StageReport, check_reports, collect_batches
from sink.store import Store
from sink.topic_settings import number_logs, roll_limits, with_append_time
from sink.topics import create_topics
from sink.writer_lock import WriterLock
from storage_core.clock import Clock
from storage_core.errors import (
    CommitStateUnknownError,
    InvalidConfigError,
    InvalidRecordError,
    LogStorageError,
    StorageError,
    WriterFencedError,
)
from storage_core.fault_points import reach
from storage_core.log.cut_back import has_segment_beyond, needs_cut_back, renew_active_segment
from storage_core.log.roll import BackwardOffsetError
from storage_core.storage.local import storage_errors

__all__ = ["StoreWriter"]

logger = logging.getLogger(__name__)


class StoreWriter:
    """The one writer of a store.

    Args:
        config: the sink's settings.
        clock: tells append times.
        take_lock_by_force: takes the store from a writer that can't be stopped.

    Raises:
        InvalidConfigError: the settings do not fit the store.
        StoreLockedError: another writer holds it.
    """

    def __init__(self, config: SinkConfig, clock: Clock, *, take_lock_by_force: bool = False) -> None:
        self._config = config
        self._clock = clock
        with storage_errors(config.store):
            config.store.mkdir(parents=True, exist_ok=True)
        acquire = WriterLock.take_by_force if take_lock_by_force else WriterLock.acquire
        self._lock: WriterLock | None = acquire(config.store / "writer.lock")
        try:
            self._open(self._lock, take_lock_by_force)
        except BaseException:
            self._lock.release()
            raise

    def append(
        self, query_id: str, batch_id: int, run_stage: Callable[[StagePlan], list[StageReport]]
    ) -> MicroBatchMetrics:
        """Append one micro-batch, unless it was committed before.

        Args:
            query_id: names the writer of this sequence of micro-batches.
            batch_id: grows by each micro-batch of the sequence.
            run_stage: stages every input split by `stage`, and returns the reports in the order of the splits.

        Raises:
            LogStorageError: it failed as a whole; nothing of it is visible.
        """
        if self._lock is None:
            raise InvalidConfigError(f"the sink is closed: store={self._config.store}")
        started = time.monotonic()
        known = self._ledger.transaction_version(query_id)
        if known is not None and known >= batch_id:
            logger.info("Micro-batch was committed before query_id=%s batch_id=%d", query_id, batch_id)
            return MicroBatchMetrics(query_id=query_id, batch_id=batch_id, replayed=True)
        directory = self._store.staging_path / query_id / str(batch_id)
        try:
            self._lock.check()
            shutil.rmtree(directory, ignore_errors=True)
            reports = run_stage(self._stage_plan(directory))
            check_reports(reports)
            staged_at = time.monotonic()
            staged = collect_batches(reports, directory, self._log_rows)
            counts = self._commit(staged, reports, directory, query_id, batch_id)
        except WriterFencedError:
            raise  # the store is somebody else's: touch nothing
        except CommitStateUnknownError:
            self._abandon()
            raise
        except Exception:
            shutil.rmtree(directory, ignore_errors=True)
            raise
        self._derived.write_if_due(self._clock.now_ms())
        reach("clean.derived")
        shutil.rmtree(directory, ignore_errors=True)
        reach("clean.staging")
        now = time.monotonic()
        metrics = MicroBatchMetrics(
            query_id=query_id,
            batch_id=batch_id,
            records=sum(report["records"] for report in reports),
            quarantined=sum(report["quarantined"] for report in reports),
            bytes=int(staged.size.sum()) if staged else 0,
            stage_ms=int((staged_at - started) * 1000),
            total_ms=int((now - started) * 1000),
            logs=counts["logs"],
            rolls=counts["rolls"],
            place_ms=counts["place_ms"],
            sync_ms=counts["sync_ms"],
            commit_ms=counts["commit_ms"],
        )
        logger.info("%s", metrics)
        return metrics

    def close(self) -> None:
        """Bring indexes and checkpoint files up to date, and give the store back."""
        if self._lock is None:
            return
        try:
            self._lock.check()
            self._placer.close()
            self._derived.write(self._clock.now_ms())
            self._store.sweep_staging()
        except WriterFencedError as error:
            logger.warning("%s", error)
        finally:
            self._lock.release()
            self._lock = None

    def _open(self, lock: WriterLock, by_force: bool) -> None:
        config = self._config
        self._store = Store.find_or_create(config.store, config.log_dirs)
        self._ledger = Ledger.open_for_writing(self._store.ledger_path)
        if by_force:
            self._ledger.fence()  # from here on the earlier writer can't commit
        self._store.sweep_staging()
        self._store.prepare_log_dirs(config.log_dirs)
        create_topics(self._store, self._ledger, config, self._clock.now_ms())
        directories = [self._store.log_path(state) for state in self._ledger.states().values()]
        limits = roll_limits(config, self._ledger)
        self._placer = Placer(self._ledger, lock, self._clock, directories, limits, config.offsets == "preserved")
        self._undo_crash(directories, by_force)
        self._derived = DerivedFiles(self._store, self._ledger)
        self._derived.write(self._clock.now_ms())
        self._stage_topics, self._log_rows = number_logs(config, self._ledger)

    def _undo_crash(self, directories: list[Path], by_force: bool) -> None:
        """Cut every log back to the ledger where anything lies behind its end."""
        preserved = self._config.offsets == "preserved"
        torn = []
        for row, directory in enumerate(directories):
            end = self._placer.committed_end(row)
            if by_force:
                renew_active_segment(directory, end, self._placer.check_owner)
            elif needs_cut_back(directory, end) or (preserved and has_segment_beyond(directory, end)):
                torn.append(row)
        self._placer.undo(np.array(torn, np.int64))

    def _stage_plan(self, directory: Path) -> StagePlan:
        config, now_ms = self._config, self._clock.now_ms()
        names = [topic.name for topic in self._stage_topics]
        return StagePlan(
            directory=str(directory),
            topics=tuple(with_append_time(each, config.topics[each.name].log, now_ms) for each in self._stage_topics),
            fixed_topic=names.index(config.topic) if config.topic is not None else None,
            preserved=config.offsets == "preserved",
            quarantine=config.on_invalid == "quarantine",
            now_ms=now_ms,
            buffer_bytes=config.stage_buffer_bytes,
        )

    def _commit(
        self, staged: StagedBatches | None, reports: list[StageReport], directory: Path, query_id: str, batch_id: int
    ) -> dict[str, int]:
        """Place what was staged and make it count; a micro-batch without records is recorded all the same."""
        started = time.monotonic()
        quarantined = [directory / report["quarantine"] for report in reports if report["quarantine"]]
        placement: Placement | None = None
        try:
            if staged is not None:
                placement = self._placer.place(staged)
                placed = time.monotonic()
                self._placer.sync(placement.written)
            else:
                placed = started
            if quarantined:
                publish_quarantine(quarantined, self._config.quarantine / query_id / str(batch_id))
            synced = time.monotonic()
            rows = placement.rows if placement else np.zeros(0, np.int64)
            self._ledger.update(rows, placement.values if placement else {}, query_id, batch_id)
        except BackwardOffsetError as error:
            raise InvalidRecordError(self._describe_backward(staged, error.batch)) from error
        except (StorageError, OSError):
            self._undo(staged)
            raise
        if placement is not None:
            self._placer.install(placement)
        return {
            "logs": len(rows),
            "rolls": placement.rolls if placement else 0,
            "place_ms": int((placed - started) * 1000),
            "sync_ms": int((synced - placed) * 1000),
            "commit_ms": int((time.monotonic() - synced) * 1000),
        }

    def _abandon(self) -> None:
        """Give the store up as it is: nobody knows what the ledger says, so only a new start may touch the logs."""
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def _undo(self, staged: StagedBatches | None) -> None:
        """Cut the touched logs back, unless the store is somebody else's by now."""
        if staged is None or self._lock is None:
            return
        try:
            self._lock.check()
            self._placer.undo(np.unique(staged.row))
        except LogStorageError as error:
            logger.error("An unfinished micro-batch was not undone, the next start will: %s", error)

    def _describe_backward(self, staged: StagedBatches | None, batch: int) -> str:
        if staged is None:
            return "a preserved offset goes back or repeats"
        state = self._ledger.state(int(staged.row[batch]))
        return (
            f"invalid row: column 'offset' goes back or repeats: topic={state.topic} partition={state.partition}"
            f" offset={staged.base_offset[batch]} log_end_offset={state.log_end_offset}"
            f" row=first of staged batch {batch}"
        )
