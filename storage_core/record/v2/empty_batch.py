"""An empty batch, as of a compaction: it keeps a log's end, and a reader gets past the gap.

Source: Kafka DefaultRecordBatch.writeEmptyHeader.
"""

from dataclasses import replace

from sparklog.storage_core.record.batch_probe import LOG_OVERHEAD_BYTES, MAGIC_V2, V2_CRC
from sparklog.storage_core.record.v2.batch_header import HEADER_BYTES, BatchHeader, pack_header

__all__ = ["pack_empty_batch"]


def pack_empty_batch(first_offset: int, last_offset: int, leader_epoch: int) -> bytes:
    """Return a v2 batch without records or producer for these offsets, both included."""
    header = BatchHeader(
        base_offset=first_offset,
        batch_length=HEADER_BYTES - LOG_OVERHEAD_BYTES,
        partition_leader_epoch=leader_epoch,
        magic=MAGIC_V2,
        crc=0,
        attributes=0,
        last_offset_delta=last_offset - first_offset,
        base_timestamp=-1,
        max_timestamp=-1,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        records_count=0,
    )
    return pack_header(replace(header, crc=V2_CRC.update(pack_header(header)[V2_CRC.covers_from :])))
