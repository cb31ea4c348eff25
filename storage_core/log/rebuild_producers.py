"""State of a log's producers at an offset: from the newest snapshot that can be read, and the batches behind it.

Source: Kafka UnifiedLog.rebuildProducerState, ProducerStateManager.truncateAndReload.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from storage_core.checkpoint.producer_snapshot import ProducerState
from storage_core.errors import CorruptBatchError
from storage_core.log.producer_snapshots import find_snapshot
from storage_core.log.producer_states import PRODUCER_ID_EXPIRATION_MS, ProducerStates
from storage_core.log.segment_reader import BatchChunk, SegmentReader
from storage_core.log.segments import SegmentFiles
from storage_core.log.transactions import read_control_types
from storage_core.record.control_records import coordinator_epochs

__all__ = ["RebuiltProducers", "follow_producers", "rebuild_producers"]


@dataclass(frozen=True, slots=True)
class RebuiltProducers:
    """The state at an offset, and what a broker leaves in the directory when it rebuilds it.

    Attributes:
        producers: the state.
        snapshot_offset: of the snapshot it began with; None if there was none.
        damaged: offsets of snapshots that can't be read; a broker deletes them.
        snapshots: entries of the snapshots to write, by offset.
    """

    producers: ProducerStates
    snapshot_offset: int | None
    damaged: tuple[int, ...]
    snapshots: dict[int, list[ProducerState]]


def rebuild_producers(
    segments: Sequence[SegmentFiles],
    log_start_offset: int,
    end_offset: int,
    now_ms: int,
    snapshot_bases: Collection[int] = (),
) -> RebuiltProducers:
    """Return the state of a log's producers as of `end_offset`; nothing is changed on the disk.

    Producers that expired are left out of what a snapshot says, not of what is scanned, as in Kafka.

    Args:
        segments: of the log, in order; at least one.
        log_start_offset: snapshots there or below are not looked at, nor batches below.
        end_offset: where the state is wanted: the log's end, or the base of a segment to recover. A batch that holds
            it is left out.
        now_ms: current time, for the expiry of producers.
        snapshot_bases: bases of segments at which a snapshot is wanted, too, if the scan passes them.

    Raises:
        CorruptBatchError: a batch that is to be followed is damaged.
        StorageError: the disk refused.
    """
    found = find_snapshot(segments[0].log_path.parent, log_start_offset, end_offset)
    began_at = log_start_offset if found.offset is None else found.offset
    producers = ProducerStates(began_at, found.producers)
    producers.remove_expired(now_ms, PRODUCER_ID_EXPIRATION_MS)
    snapshots = follow_producers(producers, segments, end_offset, snapshot_bases)
    return RebuiltProducers(producers, found.offset, found.damaged, snapshots)


def follow_producers(
    producers: ProducerStates, segments: Sequence[SegmentFiles], end_offset: int, snapshot_bases: Collection[int] = ()
) -> dict[int, list[ProducerState]]:
    """Let a state follow a log's batches to an offset; return the entries of the snapshots to write, by offset.

    Args:
        producers: the state; afterwards, as of `end_offset`.
        segments: as in `rebuild_producers`, as are the other arguments and errors.
        end_offset: where the state is wanted.
        snapshot_bases: see there.
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
            scan = chunk.scan
            wanted = scan.take((scan.last_offset >= producers.map_end_offset) & (scan.last_offset < end_offset))
            if len(wanted):
                part = BatchChunk(chunk.data, chunk.position, wanted)
                types = read_control_types(reader, part)
                try:
                    epochs = coordinator_epochs(chunk.data, wanted, types)
                except CorruptBatchError as error:
                    raise reader.corrupt_batch(str(error.args[0]), chunk.position + error.position) from error
                producers.follow(wanted, types, epochs)
            if scan.last_offset[-1] >= end_offset - 1:
                return
