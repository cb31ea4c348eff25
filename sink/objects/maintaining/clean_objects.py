"""Compaction in a store of objects: copies a log into a folder, cleans it there as any log, and writes what is left.

The whole log is cleaned up to its end, as after a roll: in such a store nothing is appended to. The ledger's row has
how far it was cleaned, in the commit that brings the result.
"""

import tempfile
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from sparklog.sink.ledger.rows import LogState
from sparklog.sink.objects.extents import Extent
from sparklog.sink.objects.fetch_log import fetch_log
from sparklog.sink.objects.merge_extents import MERGED, Replacement
from sparklog.sink.objects.new_extents import NewExtents
from sparklog.storage_core.cleaner.clean_log import CleanedLog, LogToClean, clean_log
from sparklog.storage_core.cleaner.survey.cleanable import CleaningPlan
from sparklog.storage_core.cleaner.survey.plan_log import LogFacts, plan_log
from sparklog.storage_core.errors import CorruptFileError
from sparklog.storage_core.log.files.committed_end import CommittedEnd
from sparklog.storage_core.log.files.names import INDEX, LOG, TIMEINDEX, segment_file_name
from sparklog.storage_core.log.files.segments import list_segments
from sparklog.storage_core.log.scan.segment_reader import SegmentReader
from sparklog.storage_core.log_config import LogConfig
from sparklog.storage_core.objects.object_storage import ObjectStorage
from sparklog.storage_core.storage.local import storage_errors, write_file
from sparklog.storage_core.storage.owned_names import UNSHARED
from sparklog.storage_core.topic_partition import TopicPartition

__all__ = ["CleanedObjects", "LogErasure", "clean_objects", "may_be_due"]


_SEGMENTS_PER_OBJECT = 16
"""Storages limit the number of an object's parts."""


@dataclass(frozen=True, slots=True)
class LogErasure:
    """What a cleaning of a log is to erase.

    Attributes:
        keys: binary; None for none.
        is_found: whether the log has records of them, so that it is cleaned although it is not due.
    """

    keys: pa.Array | None = None
    is_found: bool = False


NO_LOG_ERASURE = LogErasure()


@dataclass(frozen=True, slots=True)
class CleanedObjects:
    """The result for one log.

    Attributes:
        plan: for people, also if nothing was due.
        cleaned: figures; None if nothing was due.
        replacement: of all its extents; None if nothing was due.
    """

    plan: CleaningPlan
    cleaned: CleanedLog | None = None
    replacement: Replacement | None = None


def may_be_due(state: LogState, extents: Sequence[Extent], config: LogConfig, now_ms: int) -> bool:
    """Whether a log has to be looked at: dirty bytes reach the ratio, or are older than they may get.

    Bytes that are too young to be cleaned do not count; those of records without a timestamp do.
    """
    if not config.is_compacted:
        return False
    cleanable_ms, overdue_ms = now_ms - config.min_compaction_lag_ms, now_ms - config.max_compaction_lag_ms
    dirty = [
        each
        for each in extents
        if each.end_offset > max(state.compacted_offset, 0) and each.max_timestamp_ms <= cleanable_ms
    ]
    if any(0 <= each.max_timestamp_ms <= overdue_ms for each in dirty):
        return True
    dirty_bytes, all_bytes = (sum(each.size_bytes for each in held) for held in (dirty, extents))
    return dirty_bytes > 0 and dirty_bytes >= config.min_cleanable_dirty_ratio * all_bytes


def clean_objects(
    storage: ObjectStorage,
    log: TopicPartition,
    state: LogState,
    extents: Sequence[Extent],
    config: LogConfig,
    now_ms: int,
    map_bytes: int,
    hash_key: bytes,
    erasure: LogErasure = NO_LOG_ERASURE,
) -> CleanedObjects:
    """Clean a log in a folder of its own, and write an object of what is left; the caller commits it.

    Raises:
        CorruptBatchError, CorruptFileError, InvalidRecordError: the log can't be cleaned.
        StorageError: storage or disk refuse.
    """
    with storage_errors(tempfile.gettempdir()), tempfile.TemporaryDirectory(prefix="sparklog-") as folder:
        directory = Path(folder, log.directory_name)
        directory.mkdir()
        fetch_log(storage, extents, directory, config)
        end_offset = extents[-1].end_offset
        for suffix in (LOG, INDEX, TIMEINDEX):
            write_file(directory / segment_file_name(end_offset, suffix), b"")
        end, start = CommittedEnd(end_offset, 0, end_offset), max(state.log_start_offset, extents[0].base_offset)
        if erasure.is_found:  # no retention cuts an extent
            start = extents[0].base_offset
        checkpoint = state.compacted_offset if state.compacted_offset >= 0 else None
        facts = LogFacts(directory=directory, end=end, log_start_offset=start, checkpoint=checkpoint)
        plan = plan_log(facts, config, now_ms)
        if not plan.is_due and not erasure.is_found:
            return CleanedObjects(plan)
        cleaned = clean_log(
            LogToClean(
                directory=directory,
                end=end,
                log_start_offset=start,
                first_dirty_offset=plan.first_dirty_offset,
                first_uncleanable_offset=plan.first_uncleanable_offset,
                config=config,
                now_ms=now_ms,
                map_bytes=map_bytes,
                hash_key=hash_key,
                erased_keys=erasure.keys,
            ),
            UNSHARED,
        )
        if not plan.is_due and not cleaned.erased:  # records of these keys may be too young
            return CleanedObjects(plan, cleaned)
        new = _write(storage, log, directory, end_offset)
    return CleanedObjects(plan, cleaned, Replacement(log, tuple(extents), tuple(new)))


def _write(storage: ObjectStorage, log: TopicPartition, directory: Path, end_offset: int) -> list[Extent]:
    """Write the segments below an offset as objects; return their extents."""
    found: list[Extent] = []
    segments = [each for each in list_segments(directory) if each.base_offset < end_offset]
    for first in range(0, len(segments), _SEGMENTS_PER_OBJECT):
        name = f"{MERGED}/{uuid.uuid4().hex}.batches"
        with storage.writing(name) as writing:
            new = NewExtents(name, writing)
            for segment in segments[first : first + _SEGMENTS_PER_OBJECT]:
                with SegmentReader(segment) as reader:
                    for chunk in reader.chunks():
                        data = np.frombuffer(chunk.data, np.uint8)[: chunk.scan.valid_bytes]
                        new.add(log, data, chunk.scan, chunk.scan.base_offset, chunk.scan.leader_epoch)
                    reader.check_end()
            found += new.finish().get(log, [])
    if not found or found[-1].end_offset != end_offset:
        raise CorruptFileError(f"a cleaned log ends elsewhere than before: log={log} end={end_offset}")
    return found
