"""Appends micro-batches to a store of objects, exactly once; knows nothing of Spark.

What a crash leaves at each step:
- objects of tasks, before the commit: no version names them;
- a data file of the ledger: no version names it;
- after the commit invalid rows are to be published: the next writer, or the next micro-batch, does it.
"""

import logging
import threading
import time
import uuid
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sparklog.sink.config import SinkConfig
from sparklog.sink.delta.damage import one_line
from sparklog.sink.ledger.rows import LedgerRows, LogState
from sparklog.sink.metrics import MicroBatchMetrics
from sparklog.sink.objects.diverted_objects import DivertedObject, diverted_table, publish_diverted
from sparklog.sink.objects.extents import plan_extents
from sparklog.sink.objects.ledger_files import changed_settings
from sparklog.sink.objects.object_ledger import ObjectLedger
from sparklog.sink.place.end_offsets import EndOffsets
from sparklog.sink.place.staged_batches import StagedBatches
from sparklog.sink.staging import RunStage, Staging, check_micro_batch
from sparklog.sink.store.store_folder import random_id
from sparklog.sink.store.topics import new_state, topic_problems
from sparklog.storage_core.clock import Clock
from sparklog.storage_core.errors import (
    CommitStateUnknownError,
    InvalidConfigError,
    InvalidRecordError,
    LogStorageError,
    StorageError,
    WriterFencedError,
)
from sparklog.storage_core.log.append.roll import (
    APPEND_STATE,
    ROLL_LIMITS,
    AppendPlan,
    BackwardOffsetError,
    BatchColumns,
    plan_appends,
)
from sparklog.storage_core.log_config import INT64_MAX
from sparklog.storage_core.objects.open_storage import StoragePlace
from sparklog.storage_core.storage.owned_names import Owner
from sparklog.storage_core.topic_partition import TopicPartition

__all__ = ["LOG_DIR", "ObjectWriter"]

logger = logging.getLogger(__name__)

_DATA = "data"
LOG_DIR = "objects"
"""Stands in the ledger's rows for the log directory that such a store does not have."""


class ObjectWriter:
    """The one writer of a store of objects. Safe to call from several threads: one micro-batch runs at a time.

    Opening fences the writer before it: that one ends with its next commit.

    Raises:
        InvalidConfigError: the settings do not fit the store, or the storage can't be reached with them.
        LedgerDamagedError: the ledger can't be read.
    """

    def __init__(self, config: SinkConfig, place: StoragePlace, clock: Clock) -> None:
        self._config = config
        self._clock = clock
        self._place = place
        self._storage = place.open()
        self._token = uuid.uuid4().hex[:8]
        self._one_at_a_time = threading.Lock()
        self._is_open = True
        self._ledger = self._open_ledger()
        self._unpublished = self._ledger.diverted()
        self._names_diverted = bool(self._unpublished)
        self._complete_quarantine()
        self._staging = Staging(config, clock, self._ledger, self._write_staged, self._clear)

    def append(
        self, query_id: str, batch_id: int, run_stage: RunStage, end_offsets: EndOffsets | None = None
    ) -> MicroBatchMetrics:
        """Append one micro-batch, unless it was committed before; as `StoreWriter.append`."""
        end_offsets = end_offsets or {}
        check_micro_batch(self._config, query_id, batch_id, end_offsets)
        with self._one_at_a_time:
            if not self._is_open:
                raise InvalidConfigError(
                    f"the sink is closed, or gave up after an error: make a new one store={self._place.address}"
                )
            known = self._ledger.transaction_version(query_id)
            if known is not None and known >= batch_id:
                logger.info("Micro-batch was committed before query_id=%s batch_id=%d", query_id, batch_id)
                return MicroBatchMetrics(query_id=query_id, batch_id=batch_id, replayed=True)
            directory = Path(_DATA, query_id, str(batch_id), self._token)
            try:
                return self._append(query_id, batch_id, run_stage, end_offsets, directory)
            except BaseException as error:
                self._is_open &= isinstance(error, Exception) and not isinstance(error, WriterFencedError)
                raise

    @property
    def owner(self) -> Owner:
        """A store of objects has no lock that other tables could share.

        Raises:
            InvalidConfigError: always.
        """
        raise InvalidConfigError(f"a store of objects can't hold tables beside its ledger: {self._place.address}")

    def close(self) -> None:
        """Take no more micro-batches; nothing is left to do."""
        with self._one_at_a_time:
            self._is_open = False

    def _open_ledger(self) -> ObjectLedger:
        ledger = ObjectLedger.find(self._place)
        if ledger is None:
            ledger = ObjectLedger.create(self._place)
        else:
            self._check_topics(ledger)  # before another writer is fenced
            ledger.fence()
        ledger.begin_writing()
        self._check_topics(ledger)
        added = _new_logs(ledger, self._config, self._clock.now_ms())
        if added or _settings(ledger, self._config) is not None:
            ledger.change(
                lambda rows: rows.with_added(added) if added else rows,
                settings=lambda: _settings(ledger, self._config),
            )
        if added:
            logger.info("Created logs count=%d", len(added))
        return ledger

    def _check_topics(self, ledger: ObjectLedger) -> None:
        if problems := topic_problems(self._config, ledger.rows):
            raise InvalidConfigError(*problems)

    def _append(
        self, query_id: str, batch_id: int, run_stage: RunStage, end_offsets: EndOffsets, directory: Path
    ) -> MicroBatchMetrics:
        started = time.monotonic()
        self._complete_quarantine()  # the commit lets go of the rows before
        try:
            reports, staged = self._staging.run(run_stage, directory, batch_id, end_offsets)
        except BaseException:
            self._clear(directory)
            raise
        staged_at = time.monotonic()
        diverted = [
            DivertedObject(str(directory / report.quarantine), query_id, batch_id)
            for report in reports
            if report.quarantine
        ]
        try:
            self._commit(staged, (query_id, batch_id), diverted)
        except (InvalidRecordError, StorageError, WriterFencedError):
            self._clear(directory)
            raise
        except BaseException as error:  # a version may name the objects
            self._is_open = False
            if isinstance(error, LogStorageError) or not isinstance(error, Exception):
                raise
            told = f"the ledger did not answer: {one_line(error)}"
            raise CommitStateUnknownError(told, query_id, batch_id) from error
        committed_at = time.monotonic()
        self._names_diverted, self._unpublished = bool(diverted), diverted
        try:
            self._complete_quarantine()
        except StorageError as error:
            logger.warning("Invalid rows are not in quarantine yet, the next micro-batch retries: %s", error)
        metrics = MicroBatchMetrics(
            query_id=query_id,
            batch_id=batch_id,
            records=sum(report.records for report in reports),
            quarantined=sum(report.quarantined for report in reports),
            bytes=int(staged.size.sum()) if staged else 0,
            logs=len(np.unique(staged.row)) if staged else 0,
            stage_ms=int((staged_at - started) * 1000),
            commit_ms=int((committed_at - staged_at) * 1000),
            total_ms=int((time.monotonic() - started) * 1000),
        )
        logger.info("%s", metrics)
        return metrics

    def _complete_quarantine(self) -> None:
        """Publish invalid rows of a committed micro-batch.

        Raises:
            StorageError: the storage refuses; a later call completes it.
        """
        if self._unpublished:
            publish_diverted(self._storage, self._unpublished)
            self._unpublished = []

    def _commit(
        self, staged: StagedBatches | None, micro_batch: tuple[str, int], diverted: list[DivertedObject]
    ) -> None:
        """Give the staged batches their offsets in one commit; without batches it only records the micro-batch."""
        named = diverted_table(diverted) if diverted or self._names_diverted else None
        if staged is None:
            self._ledger.change(lambda rows: rows, None, micro_batch, diverted=named)
            return
        ledger, now_ms = self._ledger, self._clock.now_ms()
        rows, log = np.unique(staged.row, return_inverse=True)
        try:
            plan = self._plan(staged, rows, log)
        except BackwardOffsetError as error:
            raise self._staging.backward(staged, error) from error
        starts = np.searchsorted(staged.row, rows)
        newest = np.maximum.reduceat(staged.max_timestamp, starts)
        end = ledger.column("log_end_offset")[rows]
        values = {
            # An emptied log starts where it ended: a group that waits there must find its offset.
            "log_start_offset": np.where(end == 0, plan.base_offset[starts], ledger.column("log_start_offset")[rows]),
            "log_end_offset": plan.state["next_offset"],
            "recovery_point": plan.state["next_offset"],
            "max_timestamp_ms": np.maximum(newest, ledger.column("max_timestamp_ms")[rows]),
            "updated_ms": np.full(len(rows), now_ms, np.int64),
        }
        extents = plan_extents(
            staged,
            plan.base_offset,
            np.array(ledger.text("topic"), object),
            ledger.column("partition"),
            ledger.column("leader_epoch"),
            preserved=self._config.offsets == "preserved",
        )

        def changed(held: LedgerRows) -> LedgerRows:
            return held.with_risen(rows, values)  # maintenance may have raised a start meanwhile

        ledger.change(changed, extents, micro_batch, diverted=named)

    def _plan(self, staged: StagedBatches, rows: npt.NDArray[np.int64], log: npt.NDArray[np.int64]) -> AppendPlan:
        state = np.zeros(len(rows), APPEND_STATE)
        state["next_offset"], state["segment_base"] = self._ledger.column("log_end_offset")[rows], -1
        limits = np.zeros(len(rows), ROLL_LIMITS)
        for name in ROLL_LIMITS.names or ():
            limits[name] = 0 if name == "max_jitter_ms" else INT64_MAX // 2
        is_preserved = self._config.offsets == "preserved"
        preserved = staged.base_offset if is_preserved else np.full(len(log), -1, np.int64)
        columns = BatchColumns(log, staged.size, staged.last_offset_delta, staged.max_timestamp, preserved)
        return plan_appends(state, limits, columns, 0, 0)

    def _write_staged(self, path: Path, data: bytes) -> None:
        self._storage.create(str(path), data)

    def _clear(self, directory: Path) -> None:
        """Remove this writer's objects of a micro-batch that is not committed."""
        try:
            self._storage.remove([each.name for each in self._storage.list(str(directory))])
        except StorageError as error:
            logger.warning("Objects that no version names were not removed: folder=%s (%s)", directory, error)


def _new_logs(ledger: ObjectLedger, config: SinkConfig, now_ms: int) -> list[LogState]:
    """Return the logs that the settings name and the ledger lacks."""
    ids = {state.topic: state.topic_id for state in ledger.states().values()}
    added = []
    for topic in config.topics.values():
        mirrored = config.mirrored.get(topic.name)
        topic_id = ids.get(topic.name) or (mirrored and mirrored.topic_id) or random_id()
        for partition in range(topic.partitions):
            if TopicPartition(topic.name, partition) not in ledger.rows:
                start = mirrored.starts.get(partition, 0) if mirrored else 0
                added.append(new_state(topic.name, partition, LOG_DIR, topic_id, start, now_ms))
    return added


def _settings(ledger: ObjectLedger, config: SinkConfig) -> pa.Table | None:
    """Return the settings of all topics with those of this writer; None if they are recorded already."""
    own = {name: topic.log for name, topic in config.topics.items()}
    own |= {name: topic.settings for name, topic in config.mirrored.items()}
    return changed_settings(ledger.settings(), own)
