"""Batches of format v2 with any header, for logs that no producer of ours would write."""

import struct
from collections.abc import Sequence
from dataclasses import dataclass

import crc32c

from sparklog.storage_core.record.v2.batch_header import HEADER_BYTES, BatchHeader, pack_header

__all__ = ["BatchSpec", "batch_bytes", "segment_bytes"]

_TIME_MS = 1_700_000_000_000


@dataclass(frozen=True)
class BatchSpec:
    """One batch.

    Attributes:
        gap: offsets left out before it.
        last_offset_delta: last offset minus base offset.
        time: ms after the start of time here.
        marker: control type of a transaction's end; None for data.
        coordinator_epoch: of a marker.
        body: bytes behind the header of a data batch; a recovery does not look at them.
        records_count: 0 is what a cleaner leaves of a batch.
    """

    gap: int = 0
    last_offset_delta: int = 0
    leader_epoch: int = 0
    time: int = 0
    producer_id: int = -1
    producer_epoch: int = -1
    base_sequence: int = -1
    is_transactional: bool = False
    marker: int | None = None
    coordinator_epoch: int = 0
    body: bytes = b""
    records_count: int = 1


def batch_bytes(spec: BatchSpec, base_offset: int) -> bytes:
    """Return the batch at an offset."""
    is_marker, body = spec.marker is not None, spec.body
    if is_marker and spec.records_count:
        body = b"\x20\x00\x00\x00\x08" + struct.pack(">hh", 0, spec.marker) + b"\x0c"
        body += struct.pack(">hi", 0, spec.coordinator_epoch) + b"\x00"
    header = BatchHeader(
        base_offset=base_offset,
        batch_length=HEADER_BYTES - 12 + len(body),
        partition_leader_epoch=spec.leader_epoch,
        magic=2,
        crc=0,
        attributes=(0x10 if spec.is_transactional or is_marker else 0) | (0x20 if is_marker else 0),
        last_offset_delta=0 if is_marker else spec.last_offset_delta,
        base_timestamp=_TIME_MS + spec.time,
        max_timestamp=_TIME_MS + spec.time,
        producer_id=spec.producer_id,
        producer_epoch=spec.producer_epoch,
        base_sequence=-1 if is_marker else spec.base_sequence,
        records_count=spec.records_count,
    )
    packed = pack_header(header)
    crc: int = crc32c.crc32c(packed[21:] + body)
    return packed[:17] + crc.to_bytes(4, "big") + packed[21:] + body


def segment_bytes(specs: Sequence[BatchSpec], base_offset: int) -> bytes:
    """Return batches back to back."""
    data, offset = bytearray(), base_offset
    for spec in specs:
        offset += spec.gap
        data += batch_bytes(spec, offset)
        offset += 1 + (spec.last_offset_delta if spec.marker is None else 0)
    return bytes(data)
