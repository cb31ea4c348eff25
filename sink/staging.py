"""Stages the micro-batches of a writer: plans the tasks, and checks what they report."""

import re
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np

from sparklog.sink.config import SinkConfig
from sparklog.sink.ledger.rows import CommittedLogs
from sparklog.sink.place.end_offsets import EndBatches, EndOffsets, check_end_offsets
from sparklog.sink.place.stage_reports import check_reports, collect_batches, split_floors
from sparklog.sink.place.staged_batches import StagedBatches
from sparklog.sink.stage.report import StageReport
from sparklog.sink.stage.stage_rows import StagePlan
from sparklog.sink.topic_settings import number_logs, with_append_time
from sparklog.storage_core.clock import Clock
from sparklog.storage_core.errors import InvalidConfigError, InvalidRecordError
from sparklog.storage_core.log.append.roll import BackwardOffsetError

__all__ = ["RunStage", "Staging", "check_micro_batch"]

RunStage = Callable[[StagePlan], list[StageReport]]
"""Stages every input split by `stage`, and returns the reports in the order of the splits."""

_QUERY_ID = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,199}")


def check_micro_batch(config: SinkConfig, query_id: str, batch_id: int, end_offsets: EndOffsets) -> None:
    """Refuse ids and end offsets that no micro-batch of a sink can have.

    Raises:
        InvalidConfigError: with every problem of its kind.
    """
    if not _QUERY_ID.fullmatch(query_id) or batch_id < 0:
        raise InvalidConfigError(f"query_id={query_id!r} is no file name, or batch_id={batch_id} is negative")
    check_end_offsets(config, end_offsets)


class Staging:
    """Stages the micro-batches of one writer.

    Args:
        ledger: has the committed ends; its rows keep their numbers.
        write: writes a staged file that comes from no task.
        clear: removes what is left in the folder of a micro-batch.
    """

    def __init__(
        self,
        config: SinkConfig,
        clock: Clock,
        ledger: CommittedLogs,
        write: Callable[[Path, bytes], None],
        clear: Callable[[Path], None],
    ) -> None:
        self._config = config
        self._clock = clock
        self._ledger = ledger
        self._clear = clear
        self._topics, self._log_rows = number_logs(config, ledger)
        self._end_batches = EndBatches(ledger, config, write)

    def run(
        self, run_stage: RunStage, directory: Path, batch_id: int, end_offsets: EndOffsets
    ) -> tuple[list[StageReport], StagedBatches | None]:
        """Stage a micro-batch; return the reports of its tasks, and its batches, None without one.

        Stages again if a preserved offset goes back from one split to a later one: no task can see that alone, so in
        the second pass each gets the offsets of the splits before it and finds the row.

        Args:
            directory: of this micro-batch alone.
            end_offsets: checked.

        Raises:
            InvalidRecordError: a row can't become a record.
            StorageError: a task could not write.
        """
        floors: Mapping[int, Mapping[int, int]] = {}
        while True:
            self._clear(directory)
            reports = run_stage(self._plan(directory, batch_id, floors))
            check_reports(reports)
            staged = collect_batches(reports, directory, self._log_rows)
            if not floors and staged is not None and self._config.offsets == "preserved":
                floors = split_floors(staged, reports, self._log_rows)
                if floors:
                    continue
            return reports, self._end_batches.add_to(staged, end_offsets, directory)

    def backward(self, staged: StagedBatches | None, error: BackwardOffsetError) -> InvalidRecordError:
        """Return the error for a preserved offset that lies below the end of its log."""
        if staged is None:
            return error
        state = self._ledger.state(int(staged.row[error.batch]))
        return InvalidRecordError(
            f"invalid row: column 'offset' goes back or repeats: topic={state.topic} partition={state.partition}"
            f" offset={staged.base_offset[error.batch]} log_end_offset={state.log_end_offset}"
            f" row=first of staged batch {error.batch}"
        )

    def _plan(self, directory: Path, batch_id: int, floors: Mapping[int, Mapping[int, int]]) -> StagePlan:
        config, now_ms = self._config, self._clock.now_ms()
        names = [topic.name for topic in self._topics]
        preserved = config.offsets == "preserved"
        last_offsets = self._ledger.column("log_end_offset")[self._log_rows] - 1 if preserved else np.zeros(0, np.int64)
        return StagePlan(
            directory=str(directory),
            topics=tuple(with_append_time(each, config.topics[each.name].log, now_ms) for each in self._topics),
            fixed_topic=names.index(config.topic) if config.topic is not None else None,
            preserved=preserved,
            quarantine=config.on_invalid == "quarantine",
            now_ms=now_ms,
            buffer_bytes=config.stage_buffer_bytes,
            batch_id=batch_id,
            last_offsets=tuple(last_offsets.tolist()),
            split_floors=floors,
            objects=config.objects,
        )
