"""Writes batches that have their offsets into one object, and tells the extents that they are."""

from dataclasses import dataclass, field
from functools import partial
from hashlib import blake2b

import numpy as np
import numpy.typing as npt

from sparklog.sink.objects.extents import PIECE_BYTES, Extent, checksum_of, hash_batches
from sparklog.storage_core.objects.object_storage import NewObject
from sparklog.storage_core.record.batch_scan import BatchScan
from sparklog.storage_core.topic_partition import TopicPartition

__all__ = ["NewExtents"]


@dataclass(slots=True)
class _Piece:
    """An extent that may grow."""

    log: TopicPartition
    leader_epoch: int
    position: int
    base_offset: int
    end_offset: int
    size_bytes: int = 0
    max_timestamp_ms: int = -1
    records: int = 0
    hashed: blake2b = field(default_factory=partial(blake2b, digest_size=8))


class NewExtents:
    """The extents of an object while it is written.

    Args:
        name: of the object.
        writing: takes its bytes.
    """

    def __init__(self, name: str, writing: NewObject) -> None:
        self._name = name
        self._writing = writing
        self._position = 0
        self._piece: _Piece | None = None
        self._done: dict[TopicPartition, list[Extent]] = {}

    def add(
        self,
        log: TopicPartition,
        data: npt.NDArray[np.uint8],
        scan: BatchScan,
        base_offset: npt.NDArray[np.int64],
        epochs: npt.NDArray[np.int32],
    ) -> None:
        """Append the batches of a log, which come after those before.

        Args:
            data: their bytes, with base offsets and leader epochs.
            scan: (b,) their headers.
            base_offset: (b,) of each.
            epochs: (b,) of each.
        """
        end_offset = base_offset + scan.last_offset_delta + 1
        first = 0
        while first < len(scan):
            piece = self._piece_for(log, int(epochs[first]), int(base_offset[first]))
            room = int(scan.position[first]) + PIECE_BYTES - piece.size_bytes
            last = max(int(np.searchsorted(scan.position, room)), first + 1)
            others = np.flatnonzero(epochs[first:last] != epochs[first])
            last = first + int(others[0]) if len(others) else last
            mine = slice(first, last)
            size = int(scan.size[mine].sum())
            piece.end_offset = int(end_offset[last - 1])
            piece.size_bytes += size
            piece.max_timestamp_ms = max(piece.max_timestamp_ms, int(scan.max_timestamp[mine].max()))
            piece.records += int(scan.records_count[mine].sum())
            hash_batches(piece.hashed, base_offset[mine], scan.take(mine))
            self._position += size
            if piece.size_bytes >= PIECE_BYTES:
                self.end_run()
            first = last
        self._writing.write(data.data)

    def finish(self) -> dict[TopicPartition, list[Extent]]:
        """Return the extents of each log, by offset."""
        self.end_run()
        return self._done

    def _piece_for(self, log: TopicPartition, epoch: int, base_offset: int) -> _Piece:
        piece = self._piece
        if piece is None or (piece.log, piece.leader_epoch) != (log, epoch):
            self.end_run()
            piece = self._piece = _Piece(log, epoch, self._position, base_offset, base_offset)
        return piece

    def end_run(self) -> None:
        """Let the next batches begin an extent: others of their log lie between."""
        piece, self._piece = self._piece, None
        if piece is None:
            return
        self._done.setdefault(piece.log, []).append(
            Extent(
                base_offset=piece.base_offset,
                end_offset=piece.end_offset,
                object=self._name,
                position=piece.position,
                size_bytes=piece.size_bytes,
                max_timestamp_ms=piece.max_timestamp_ms,
                records=piece.records,
                leader_epoch=piece.leader_epoch,
                has_own_offsets=True,
                checksum=checksum_of(piece.hashed),
            )
        )
