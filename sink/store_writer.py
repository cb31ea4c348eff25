"""Appends staged micro-batches to the logs of a store, exactly once; knows nothing of Spark.

Opening takes the writer lock and recovers from a crash (`opening/open_store.py`). The caller stages a micro-batch; the
writer places, syncs and commits it. `docs/architecture.md` has the state of the disk after a crash at each step.
"""

import contextlib
import logging
import threading
import time
from dataclasses import asdict
from pathlib import Path

import numpy as np

from sparklog.sink.config import SinkConfig
from sparklog.sink.delta.damage import one_line
from sparklog.sink.ledger.rows import LogState
from sparklog.sink.locks.signed_off_version import sign_off_version
from sparklog.sink.locks.writer_lock import WriterLock
from sparklog.sink.metrics import CommitCosts, MicroBatchMetrics
from sparklog.sink.opening.access import WRITER_LOCK, keep_maintenance_out
from sparklog.sink.opening.open_sink_store import open_sink_store
from sparklog.sink.opening.unflushed import distrust_cache, flush_logs
from sparklog.sink.past.write_cuts import CutWriter
from sparklog.sink.place.end_offsets import EndOffsets
from sparklog.sink.place.placer import Placement
from sparklog.sink.place.staged_batches import StagedBatches
from sparklog.sink.stage.report import StageReport
from sparklog.sink.staging import RunStage, Staging, check_micro_batch
from sparklog.sink.store.derived_files import DerivedFiles
from sparklog.sink.store.store_folder import Store
from sparklog.storage_core.clock import Clock
from sparklog.storage_core.errors import (
    CommitStateUnknownError,
    InvalidConfigError,
    LogDirOfflineError,
    LogStorageError,
    StorageError,
    WriterFencedError,
)
from sparklog.storage_core.fault_points import reach
from sparklog.storage_core.log.append.roll import BackwardOffsetError
from sparklog.storage_core.storage.local import make_directory, storage_errors, write_file
from sparklog.storage_core.storage.owned_names import Owner, remove_empty_folder, remove_unique

__all__ = ["StoreWriter"]

logger = logging.getLogger(__name__)


class StoreWriter:
    """The one writer of a store. Safe to call from several threads: one micro-batch runs at a time.

    Args:
        take_lock_by_force: takes the store from a writer that can't be stopped.

    Raises:
        InvalidConfigError: the settings do not fit the store.
        StoreLockedError: another writer holds it; by force, a maintenance run or an owner of both locks.
    """

    def __init__(self, config: SinkConfig, clock: Clock, *, take_lock_by_force: bool = False) -> None:
        self._config = config
        self._clock = clock
        self._one_at_a_time = threading.Lock()
        Store.check_folder(config.store, config.log_dirs)
        with storage_errors(config.store):
            make_directory(config.store)
        acquire = _take_by_force if take_lock_by_force else WriterLock.acquire
        self._lock: WriterLock | None = acquire(config.store / WRITER_LOCK)
        try:
            self._open(self._lock)
        except BaseException:
            self._lock.release()
            raise

    def append(
        self,
        query_id: str,
        batch_id: int,
        run_stage: RunStage,
        end_offsets: EndOffsets | None = None,
    ) -> MicroBatchMetrics:
        """Append one micro-batch, unless it was committed before.

        This writer closes itself after an error that gives the store to another writer, or to the next opening.

        Args:
            query_id: names the writer of this sequence of micro-batches; a file name.
            batch_id: from 0, grows by each micro-batch of the sequence.
            run_stage: stages every input split.
            end_offsets: where logs with preserved offsets end, if that is above their last record.

        Raises:
            LogStorageError: it failed as a whole; nothing of it is visible.
        """
        end_offsets = end_offsets or {}
        check_micro_batch(self._config, query_id, batch_id, end_offsets)
        with self._one_at_a_time:
            lock = self._lock
            if lock is None:
                raise InvalidConfigError(
                    f"the sink is closed, or gave up after an error: make a new one store={self._config.store}"
                )
            known = self._ledger.transaction_version(query_id)
            if known is not None and known >= batch_id:
                logger.info("Micro-batch was committed before query_id=%s batch_id=%d", query_id, batch_id)
                return MicroBatchMetrics(query_id=query_id, batch_id=batch_id, replayed=True)
            directory = self._store.staging_path / query_id / str(batch_id) / lock.token
            try:
                return self._append(lock, query_id, batch_id, run_stage, end_offsets, directory)
            except Exception as error:
                self._clear_staging(directory)
                if isinstance(error, WriterFencedError | CommitStateUnknownError):
                    self._abandon()
                elif self._is_lost():
                    raise WriterFencedError(f"another writer took the store by force: {error}") from error
                elif isinstance(error, StorageError):
                    is_doubtful = distrust_cache(self._ledger, self._store.log_path)
                    if is_doubtful and not isinstance(error, LogDirOfflineError):  # offline logs get no appends
                        self._abandon()
                raise
            except BaseException:
                self._abandon()
                raise

    @property
    def owner(self) -> Owner:
        """The writer's hold of the store, for tables that come with its micro-batches.

        Raises:
            InvalidConfigError: this writer is closed.
        """
        if self._lock is None:
            raise InvalidConfigError(f"the sink is closed: make a new one store={self._config.store}")
        return self._lock

    def close(self) -> None:
        """Complete indexes and checkpoint files, and release the store."""
        with self._one_at_a_time:
            if self._lock is None:
                return
            try:
                self._lock.check()
                self._leave_failed()
                self._placer.close()
                flush_logs(self._ledger, self._store.log_path, self._lock, self._log_dirs.offline)
                self._derived.write()
                self._store.sweep_staging(self._lock)
                sign_off_version(self._store.ledger_path, self._lock, self._ledger.version)
                self._lock.sign_off()
            except WriterFencedError as error:
                logger.warning("%s", error)
            finally:
                self._abandon()

    def _open(self, lock: WriterLock) -> None:
        self._opened = opened = open_sink_store(self._config, self._clock, lock)
        self._store, self._ledger, self._log_dirs = opened.store, opened.ledger, opened.log_dirs
        self._placer, self._quarantine = opened.placer, opened.quarantine
        self._derived = DerivedFiles(self._store, self._ledger, lock, self._log_dirs.offline)
        self._write_derived()
        self._staging = Staging(self._config, self._clock, self._ledger, _write_staged, self._clear_staging)
        self._cuts = CutWriter(self._store.root, self._ledger, lock, self._config.cuts)

    def _append(
        self,
        lock: WriterLock,
        query_id: str,
        batch_id: int,
        run_stage: RunStage,
        end_offsets: EndOffsets,
        directory: Path,
    ) -> MicroBatchMetrics:
        started = time.monotonic()
        lock.check()
        reports, staged = self._staging.run(run_stage, directory, batch_id, end_offsets)
        staged_at = time.monotonic()
        if staged is not None and self._log_dirs.offline:
            self._log_dirs.require([self._ledger.state(row) for row in np.unique(staged.row).tolist()])
        costs = self._commit(staged, reports, directory, query_id, batch_id)
        lock.check()  # after a takeover the checkpoint files are the new writer's
        self._write_derived()
        reach("clean.derived")
        if any(report.quarantined for report in reports):
            self._quarantine.merge(query_id, batch_id)
        self._clear_staging(directory)
        reach("clean.staging")
        metrics = MicroBatchMetrics(
            query_id=query_id,
            batch_id=batch_id,
            records=sum(report.records for report in reports),
            quarantined=sum(report.quarantined for report in reports),
            bytes=int(staged.size.sum()) if staged else 0,
            stage_ms=int((staged_at - started) * 1000),
            total_ms=int((time.monotonic() - started) * 1000),
            **asdict(costs),
        )
        logger.info("%s", metrics)
        return metrics

    def _write_derived(self) -> None:
        """Write the checkpoint files; a failure only warns, as the micro-batch is committed."""
        try:
            self._derived.write_if_due(self._clock.monotonic_ms())
        except StorageError as error:
            logger.warning("Checkpoint files were not written; a later micro-batch retries: %s", error)

    def _commit(
        self, staged: StagedBatches | None, reports: list[StageReport], directory: Path, query_id: str, batch_id: int
    ) -> CommitCosts:
        """Place the staged batches, sync and commit them; a micro-batch without records is committed, too."""
        started = time.monotonic()
        quarantined = [directory / report.quarantine for report in reports if report.quarantine]
        try:
            placement = self._placer.place(staged) if staged is not None else self._placer.place_nothing()
            placed = time.monotonic()
            self._placer.sync(placement.written)
            if quarantined or self._quarantine.holds(query_id, batch_id):
                self._quarantine.publish(quarantined, query_id, batch_id)
            now_ms = self._clock.now_ms()  # the time of this commit: its rows are in no cut of this moment or before
            self._cuts.write_if_due(now_ms)
            synced = time.monotonic()
            self._update_ledger(placement, query_id, batch_id, now_ms)
        except BackwardOffsetError as error:
            raise self._staging.backward(staged, error) from error
        except (WriterFencedError, CommitStateUnknownError):
            raise  # only the new writer, or the next opening, may change the store now
        except Exception:
            self._undo(staged)
            raise
        self._placer.install(placement)
        return CommitCosts(
            logs=len(placement.state),
            rolls=placement.rolls,
            place_ms=int((placed - started) * 1000),
            sync_ms=int((synced - placed) * 1000),
            commit_ms=int((time.monotonic() - synced) * 1000),
        )

    def _update_ledger(self, placement: Placement, query_id: str, batch_id: int, now_ms: int) -> None:
        try:
            micro_batch = (query_id, batch_id)
            self._ledger.update(placement.rows, placement.values, micro_batch, now_ms, self._placer.owner)
        except LogStorageError:
            raise
        except Exception as error:  # any error: the commit may have succeeded
            raise CommitStateUnknownError(
                f"the ledger did not answer: {one_line(error)}", query_id, batch_id
            ) from error

    def _undo(self, staged: StagedBatches | None) -> None:
        """Cut the touched logs back; if that fails, this writer closes and the next opening cuts them.

        Raises:
            WriterFencedError: another writer owns the store.
            LogDirOfflineError: a log directory failed; the writer continues with the others.
        """
        self._placer.owner.check()
        rows = [] if staged is None else np.unique(staged.row).tolist()
        states = {row: self._ledger.state(row) for row in rows}
        failed: list[LogState] = []
        try:
            failed = self._leave_failed()
            online = [row for row, state in states.items() if state.log_dir not in self._log_dirs.offline]
            if online:
                self._placer.undo(np.array(online, np.int64))
        except WriterFencedError:
            raise
        except Exception as error:  # noqa: BLE001 - the next opening undoes it after any error
            logger.error("An unfinished micro-batch was not undone; the next opening does it: %s", error)
            self._abandon()
        self._log_dirs.require([*states.values(), *failed])

    def _leave_failed(self) -> list[LogState]:
        """Return the logs whose directories have failed since; they stay offline until the next opening."""
        online = self._log_dirs.online(self._ledger.states())
        self._log_dirs.check_again(online.values())
        self._opened.skip_offline()
        return [state for state in online.values() if state.log_dir in self._log_dirs.offline]

    def _abandon(self) -> None:
        """Release the lock without signing off, after all threads have ended."""
        self._placer.stop()
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def _is_lost(self) -> bool:
        """Whether another writer owns the store; then this one is closed."""
        if self._lock is None:
            return False
        try:
            self._lock.check()
        except WriterFencedError:
            self._abandon()
            return True
        except StorageError:
            self._abandon()
        return False

    def _clear_staging(self, directory: Path) -> None:
        """Remove this writer's staging files of a micro-batch, and folders above that are empty then."""
        with contextlib.suppress(OSError, WriterFencedError):
            if not directory.exists():
                return
            remove_unique(directory)
            remove_empty_folder(self._placer.owner, directory.parent)
            remove_empty_folder(self._placer.owner, directory.parent.parent)


def _write_staged(path: Path, data: bytes) -> None:
    with storage_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_file(path, data)


def _take_by_force(path: Path) -> WriterLock:
    """Take the store from a sink that can't be stopped.

    Maintenance must have stopped: a suspended run could later rename or remove files of the new writer that have the
    same names. A run that takes the maintenance lock after this sees that the writer lock is lost.
    """
    with keep_maintenance_out(path.parent):
        return WriterLock.take_by_force(path)
