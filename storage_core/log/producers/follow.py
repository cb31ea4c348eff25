"""The state of a log's producers, followed over its batches from a snapshot or from where a segment was recovered.

Source: Kafka UnifiedLog.rebuildProducerState, loadProducersFromRecords.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from sparklog.storage_core.checkpoint.producer_snapshot import ProducerState
from sparklog.storage_core.log.files.segments import SegmentFiles
from sparklog.storage_core.log.producers.states import ProducerStates
from sparklog.storage_core.log.producers.transactions import read_control_types
from sparklog.storage_core.log.scan.segment_reader import SegmentReader
from sparklog.storage_core.record.control_records import coordinator_epochs

__all__ = ["follow_producers"]


def follow_producers(
    producers: ProducerStates, segments: Sequence[SegmentFiles], end_offset: int, snapshot_bases: Collection[int] = ()
) -> dict[int, list[ProducerState]]:
    """Let a state follow a log's batches to an offset; return the entries of the snapshots to write, by offset.

    Nothing is changed on the disk. A segment that lies below the state is not looked at.

    Args:
        producers: the state at some offset; afterwards, as of `end_offset`.
        segments: of the log, in order.
        end_offset: where the state is wanted: the log's end, or the base of a segment to recover. A batch that holds
            it is left out.
        snapshot_bases: bases of segments at which a snapshot is wanted, too, if the scan passes them.

    Raises:
        CorruptBatchError: a batch that is to be followed is damaged.
        StorageError: the disk refused.
    """
    began_at, snapshots = producers.map_end_offset, {}
    for number, files in enumerate(segments):
        following = segments[number + 1].base_offset if number + 1 < len(segments) else end_offset
        if files.base_offset >= end_offset or following <= producers.map_end_offset:
            continue
        producers.move_to(max(files.base_offset, producers.map_end_offset))
        if files.base_offset in snapshot_bases and files.base_offset > began_at:
            snapshots[files.base_offset] = producers.states()
        _follow(files, producers, end_offset)
    producers.move_to(end_offset)
    if end_offset > began_at:
        snapshots[end_offset] = producers.states()
    return snapshots


def _follow(files: SegmentFiles, producers: ProducerStates, end_offset: int) -> None:
    """Follow a segment's batches from where the state is up to an offset."""
    with SegmentReader(files) as reader:
        for chunk in reader.chunks_from(producers.map_end_offset):
            last = chunk.scan.last_offset
            part = chunk.take((last >= producers.map_end_offset) & (last < end_offset))
            if len(part.scan):
                types = read_control_types(reader, part)
                with reader.errors_in(chunk):
                    epochs = coordinator_epochs(chunk.data, part.scan, types)
                producers.follow(part.scan, types, epochs)
            if last[-1] >= end_offset - 1:
                return
