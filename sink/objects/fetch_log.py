"""Makes Kafka segments of a log's extents in a folder of this machine: for readers, and for maintenance to publish."""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import numpy.typing as npt

from sparklog.sink.objects.extents import Extent
from sparklog.sink.objects.read_extents import read_extents
from sparklog.sink.place.split_appends import split_appends
from sparklog.sink.place.staged_batches import StagedBatches
from sparklog.sink.topic_settings import roll_limits
from sparklog.storage_core.checkpoint.leader_epochs import EPOCHS_NAME, render_leader_epochs
from sparklog.storage_core.log.append.roll import APPEND_STATE, ROLL_LIMITS, BatchColumns, plan_appends
from sparklog.storage_core.log.append.segment_writer import SegmentWriter, WrittenFiles
from sparklog.storage_core.log_config import LogConfig
from sparklog.storage_core.objects.object_storage import ObjectStorage
from sparklog.storage_core.record.batch_scan import BatchScan
from sparklog.storage_core.storage.local import storage_errors, write_all, write_file
from sparklog.storage_core.storage.open_regular import open_to_change
from sparklog.storage_core.storage.owned_names import UNSHARED, remove_file

__all__ = ["fetch_log"]

_FETCHED = "fetched.batches"


def fetch_log(storage: ObjectStorage, extents: Sequence[Extent], directory: Path, config: LogConfig) -> None:
    """Write extents of a log as its segments, with indexes and leader epochs.

    Holds about 100 MiB of batches in memory.

    Args:
        extents: of one log, by offset.
        directory: of the log, empty; it is not synced.
        config: when a segment is full.

    Raises:
        ObjectMissingError: an object is gone.
        CorruptFileError: an object is damaged, or has other batches than the ledger names.
        StorageError: storage or disk refuse.
    """
    fetched = directory / _FETCHED
    columns: list[tuple[BatchScan, int, npt.NDArray[np.int64]]] = []
    position = 0
    with storage_errors(fetched), _new_file(fetched) as file:
        for part in read_extents(storage, extents):
            for each in part:
                write_all(file, each.data.data, position)
                columns.append((each.scan, position, each.base_offset))
                position += len(each.data)
    _write_segments(columns, directory, config)
    remove_file(UNSHARED, fetched)
    epochs: list[tuple[int, int]] = []
    for extent in extents:
        if not epochs or extent.leader_epoch > epochs[-1][0]:
            epochs.append((extent.leader_epoch, extent.base_offset))
    with storage_errors(directory):
        write_file(directory / EPOCHS_NAME, render_leader_epochs(epochs))


@contextmanager
def _new_file(path: Path) -> Iterator[int]:
    descriptor = open_to_change(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _write_segments(
    columns: Sequence[tuple[BatchScan, int, npt.NDArray[np.int64]]], directory: Path, config: LogConfig
) -> None:
    """Write the fetched batches as segments, as an append of a sink does."""
    base_offset = np.concatenate([base for _, _, base in columns])
    count = len(base_offset)
    zeros = np.zeros(count, np.int64)
    staged = StagedBatches(
        files=[directory / _FETCHED],
        row=zeros,
        file=zeros,
        position=np.concatenate([scan.position + start for scan, start, _ in columns]),
        size=np.concatenate([scan.size for scan, _, _ in columns]),
        records_count=np.concatenate([scan.records_count for scan, _, _ in columns]).astype(np.int64),
        last_offset_delta=np.concatenate([scan.last_offset_delta for scan, _, _ in columns]),
        base_offset=base_offset,
        max_timestamp=np.concatenate([scan.max_timestamp for scan, _, _ in columns]),
    )
    state = np.zeros(1, APPEND_STATE)
    state["next_offset"], state["segment_base"] = base_offset[0], -1
    batches = BatchColumns(zeros, staged.size, staged.last_offset_delta, staged.max_timestamp, base_offset)
    plan = plan_appends(state, np.array([roll_limits(config)], ROLL_LIMITS), batches, 0, 0)
    (appends,) = split_appends(staged, zeros, plan, state)
    SegmentWriter(directory, "fetched", UNSHARED).append(appends, WrittenFiles([], [], []))
