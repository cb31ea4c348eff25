"""Ends of mirrored logs whose source ends above the last record: in transaction markers, aborted or compacted records.

Without this a log with preserved offsets would end right above its last record. A broker that gets the log would give
the offsets above it to new records, and a group that has read the source to its end would miss those. Likewise a new
log would start at its first record, and a group that waits below it at the source would be out of range.

An empty batch stands for the offsets up to the end, as a broker's cleaner writes one for the last batch of a log. The
driver stages it as the last batch of its log, so it is placed, synced, committed and undone like all others. Another
one, the first batch of a new log, stands for the offsets from the micro-batch's start to its first record. If the start
is unknown, or is the end, a log without records starts one offset below its end.

Source: Kafka Cleaner, "keep the last batch of the cleaned range"; DefaultRecordBatch.writeEmptyHeader.
"""

import logging
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from sparklog.sink.config import SinkConfig
from sparklog.sink.ledger.rows import CommittedLogs
from sparklog.sink.place.staged_batches import StagedBatches
from sparklog.storage_core.errors import InvalidConfigError, InvalidRecordError
from sparklog.storage_core.log_config import INT32_MAX, INT64_MAX
from sparklog.storage_core.record.v2.batch_header import HEADER_BYTES
from sparklog.storage_core.record.v2.empty_batch import pack_empty_batch
from sparklog.storage_core.topic_partition import TopicPartition

__all__ = ["EndBatches", "EndOffsets", "PlannedEnds", "check_end_offsets"]

logger = logging.getLogger(__name__)

EndOffsets: TypeAlias = Mapping[tuple[str, int], int]
"""The offset above a log's last one, by topic and partition."""

_STARTS_NAME, _ENDS_NAME = "starts.batches", "ends.batches"


class PlannedEnds(dict[tuple[str, int], int]):
    """End offsets of a source's plan; one that goes back with its source only warns.

    Attributes:
        starts: known start offsets of the micro-batch in the source's logs: there new logs start.
    """

    def __init__(self, ends: EndOffsets, starts: EndOffsets = MappingProxyType({})) -> None:
        super().__init__(ends)
        self.starts = starts


def check_end_offsets(config: SinkConfig, end_offsets: EndOffsets) -> None:
    """Refuse end offsets that no micro-batch of this sink can have.

    Raises:
        InvalidConfigError: with every problem.
    """
    problems = []
    if end_offsets and config.offsets != "preserved":
        problems.append("end_offsets are only used with offsets: preserved")
    for (topic, partition), end in end_offsets.items():
        if topic not in config.topics or partition not in range(config.topics[topic].partitions):
            problems.append(f"end_offsets name a log that the sink does not have: log={topic}-{partition}")
        if isinstance(end, bool) or not isinstance(end, int) or not 0 <= end <= INT64_MAX:
            problems.append(f"end_offsets: {end!r} is no offset: log={topic}-{partition}")
    if problems:
        raise InvalidConfigError("; ".join(problems))


class EndBatches:
    """Adds to each micro-batch of a writer the empty batches up to the ends of its logs.

    Args:
        ledger: has the committed ends.
        config: `on_invalid` decides whether an end offset that is too low is refused or skipped; a planned one is
            always skipped.
        write: writes a staged file.
    """

    def __init__(self, ledger: CommittedLogs, config: SinkConfig, write: Callable[[Path, bytes], None]) -> None:
        self._ledger = ledger
        self._write = write
        self._is_refused = config.on_invalid == "fail"
        self._warned = set[tuple[str, int]]()

    def add_to(self, staged: StagedBatches | None, end_offsets: EndOffsets, directory: Path) -> StagedBatches | None:
        """Return the staged batches, and an empty one wherever a log ends above, or starts below, its records.

        Args:
            staged: by the tasks of the micro-batch; None without a batch.
            end_offsets: checked.

        Raises:
            InvalidRecordError: a log holds, or gets, offsets that are not below its end offset.
        """
        if isinstance(end_offsets, PlannedEnds) and (spans := list(self._spans_of_starts(staged, end_offsets))):
            row, first, last = np.array(spans, np.int64).T
            staged = _merge(self._stage(row, first, last, directory / _STARTS_NAME), staged)
        reached = self._ledger.column("log_end_offset").copy()
        if staged is not None:
            np.maximum.at(reached, staged.row, staged.base_offset + staged.last_offset_delta + 1)
        rows = {self._ledger.rows[TopicPartition(*log)]: end for log, end in end_offsets.items()}
        self._check_too_low(reached, end_offsets)
        due = np.array(sorted(row for row, end in rows.items() if end > reached[row]), np.int64)
        if not len(due):
            return staged
        ends = np.array([rows[row] for row in due.tolist()], np.int64)
        first = np.where(reached[due] == 0, ends - 1, np.maximum(reached[due], ends - 1 - INT32_MAX))
        return _merge(staged, self._stage(due, first, ends - 1, directory / _ENDS_NAME))

    def _spans_of_starts(self, staged: StagedBatches | None, planned: PlannedEnds) -> Iterator[tuple[int, int, int]]:
        """Yield ledger row, first and last offset of the gap below a new log's first record, in order of rows."""
        below = {self._ledger.rows[TopicPartition(*log)]: end for log, end in planned.items()}
        if staged is not None:
            rows, position = np.unique(staged.row, return_index=True)
            below.update(zip(rows.tolist(), staged.base_offset[position].tolist(), strict=True))
        starts = {self._ledger.rows[TopicPartition(*log)]: start for log, start in planned.starts.items()}
        is_new = self._ledger.column("log_end_offset") == 0
        for row, start in sorted(starts.items()):
            if is_new[row] and start < below.get(row, 0):
                yield row, start, min(below[row] - 1, start + INT32_MAX)

    def _check_too_low(self, reached: npt.NDArray[np.int64], end_offsets: EndOffsets) -> None:
        """Refuse end offsets below the ends of their logs, or warn once for each log."""
        problems = {
            log: f"end offset is too low: log={log[0]}-{log[1]} end_offset={end} needed={needed}"
            for log, end in end_offsets.items()
            if end < (needed := int(reached[self._ledger.rows[TopicPartition(*log)]]))
        }
        if problems and self._is_refused and not isinstance(end_offsets, PlannedEnds):
            raise InvalidRecordError("; ".join(problems.values()))
        for log in sorted(problems.keys() - self._warned):
            logger.warning("The log keeps its end: %s", problems[log])
        self._warned |= problems.keys()

    def _stage(
        self, rows: npt.NDArray[np.int64], first: npt.NDArray[np.int64], last: npt.NDArray[np.int64], path: Path
    ) -> StagedBatches:
        """Write an empty batch for each log; the placer sets the leader epochs."""
        batches = [pack_empty_batch(*span, -1) for span in zip(first.tolist(), last.tolist(), strict=True)]
        self._write(path, b"".join(batches))
        zeros = np.zeros(len(rows), np.int64)
        return StagedBatches(
            files=[path],
            row=rows,
            file=zeros,
            position=np.arange(len(rows)) * HEADER_BYTES,
            size=zeros + HEADER_BYTES,
            records_count=zeros,
            last_offset_delta=last - first,
            base_offset=first,
            max_timestamp=zeros - 1,
        )


def _merge(first: StagedBatches | None, second: StagedBatches | None) -> StagedBatches | None:
    """Return all batches sorted by log; in each log those of `second` come after the others."""
    if first is None or second is None:
        return first or second
    order = np.argsort(np.concatenate([first.row, second.row]), kind="stable")
    file = np.concatenate([first.file, second.file + len(first.files)])[order]
    names = ("row", "position", "size", "records_count", "last_offset_delta", "base_offset", "max_timestamp")
    columns = {name: np.concatenate([getattr(first, name), getattr(second, name)])[order] for name in names}
    return StagedBatches(files=[*first.files, *second.files], file=file, **columns)
