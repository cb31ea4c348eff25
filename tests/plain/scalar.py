"""One record at a time, in plain Python: what the compiled encoder and decoder are checked against.

Nothing here is fast and nothing here is clever; each function is the format's table read aloud. Property tests demand
the same bytes and the same records from both. One record is read by what the product has for a few of them.

Source: Kafka DefaultRecord.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Final

from sparklog.storage_core.errors import CorruptBatchError, InvalidRecordError
from sparklog.storage_core.log_config import INT32_MAX
from sparklog.storage_core.record.attributes import pack_attributes
from sparklog.storage_core.record.batch_probe import LOG_OVERHEAD_BYTES, MAGIC_V2, V2_CRC
from sparklog.storage_core.record.compression import MAX_DECOMPRESSED_BYTES, compress, decompress
from sparklog.storage_core.record.few_batches import Record, unpack_record
from sparklog.storage_core.record.schema import LOG_APPEND_TIME
from sparklog.storage_core.record.v2.batch_encode import EncodeOptions
from sparklog.storage_core.record.v2.batch_header import HEADER_BYTES, BatchHeader, pack_header, unpack_header
from tests.plain.varint import pack_varint

__all__ = ["Record", "decode_records", "encode_records", "pack_batch", "pack_record", "unpack_record"]

_NULL: Final = pack_varint(-1)


def encode_records(records: Sequence[Record], options: EncodeOptions, *, assigned: bool = True) -> list[bytes]:
    """Return the batches of one log's records.

    Args:
        records: in the order of their offsets.
        options: as for `encode_batches`.
        assigned: whether each batch's base offset is 0; otherwise it is its first record's offset.

    Raises:
        InvalidRecordError: a record is too large, or an offset goes back.
    """
    if any(after.offset <= before.offset for before, after in pairwise(records)):
        raise InvalidRecordError("offset is not above the one before it")
    compressed = options.codec != "none"
    refuse_bytes = MAX_DECOMPRESSED_BYTES if compressed else options.max_message_bytes
    batches: list[bytes] = []
    sequence = options.base_sequence
    pending = list(_split(records, min(options.batch_size_bytes, refuse_bytes)))
    while pending:
        chosen = pending.pop(0)
        batch = pack_batch(chosen, replace(options, base_sequence=sequence))
        size = _plain_size(chosen)
        if size > refuse_bytes or (len(chosen) == 1 and len(batch) > options.max_message_bytes):
            raise InvalidRecordError("record is too large")
        if len(batch) > options.max_message_bytes:
            pending[:0] = _split(chosen, size // 2)
            continue
        batches.append(bytes(8) + batch[8:] if assigned else batch)
        used = chosen[-1].offset - chosen[0].offset + 1
        sequence = (sequence + used) % (INT32_MAX + 1) if sequence >= 0 else -1
    return batches


def pack_batch(records: Sequence[Record], options: EncodeOptions) -> bytes:
    """Return one batch that holds exactly these records, at least one, whatever its size."""
    first, append_time = records[0], options.log_append_time_ms
    section = b"".join(pack_record(record, first.offset, first.timestamp) for record in records)
    stream = bytes(compress(options.codec, section, options.level))
    header = BatchHeader(
        base_offset=first.offset,
        batch_length=HEADER_BYTES - LOG_OVERHEAD_BYTES + len(stream),
        partition_leader_epoch=options.partition_leader_epoch,
        magic=MAGIC_V2,
        crc=0,
        attributes=pack_attributes(
            options.codec, log_append_time=append_time is not None, transactional=options.is_transactional
        ),
        last_offset_delta=records[-1].offset - first.offset,
        base_timestamp=first.timestamp,
        max_timestamp=max(record.timestamp for record in records) if append_time is None else append_time,
        producer_id=options.producer_id,
        producer_epoch=options.producer_epoch,
        base_sequence=options.base_sequence,
        records_count=len(records),
    )
    crc = V2_CRC.update(pack_header(header)[V2_CRC.covers_from :] + stream)
    return pack_header(replace(header, crc=crc)) + stream


def pack_record(record: Record, base_offset: int, base_timestamp: int) -> bytes:
    """Return one record's bytes, its length first."""
    delta = _wrap(record.timestamp - base_timestamp)
    parts = [b"\x00", pack_varint(delta), pack_varint(record.offset - base_offset)]
    parts += [_pack_field(record.key), _pack_field(record.value), pack_varint(len(record.headers))]
    for name, content in record.headers:
        parts += [_pack_field(name.encode()), _pack_field(content)]
    body = b"".join(parts)
    return pack_varint(len(body)) + body


def decode_records(data: bytes, *, max_batch_bytes: int = MAX_DECOMPRESSED_BYTES) -> list[Record]:
    """Return the records of complete batches back to back; control batches are passed over.

    Raises:
        CorruptBatchError: a batch's bytes contradict themselves.
    """
    records: list[Record] = []
    position = 0
    while position < len(data):
        header = unpack_header(data, position)
        end = position + header.size_bytes
        if end > len(data) or header.size_bytes < HEADER_BYTES:
            raise CorruptBatchError("batch length lies", position)
        if not header.is_control:
            stream = data[position + HEADER_BYTES : end]
            section = bytes(decompress(header.codec, stream, max_batch_bytes, position))
            records += _unpack_section(section, header, position)
        position = end
    return records


def _plain_size(records: Sequence[Record]) -> int:
    first = records[0]
    return HEADER_BYTES + sum(len(pack_record(record, first.offset, first.timestamp)) for record in records)


def _split(records: Sequence[Record], limit_bytes: int) -> Iterator[Sequence[Record]]:
    first = 0
    for place in range(1, len(records) + 1):
        chosen = records[first : place + 1]
        delta = chosen[-1].offset - chosen[0].offset
        if place == len(records) or _plain_size(chosen) > limit_bytes or delta > INT32_MAX:
            yield records[first:place]
            first = place


def _unpack_section(section: bytes, header: BatchHeader, position: int) -> list[Record]:
    records, at = [], 0
    if header.records_count < 0:
        raise CorruptBatchError("records count is negative", position)
    try:
        for _ in range(header.records_count):
            record, at = unpack_record(section, at, header.base_offset, header.base_timestamp)
            if header.timestamp_type == LOG_APPEND_TIME:
                record = replace(record, timestamp=header.max_timestamp)
            records.append(record)
    except ValueError as error:
        raise CorruptBatchError(str(error), position) from error
    if at != len(section):
        raise CorruptBatchError("bytes remain after the last record", position)
    return records


def _pack_field(content: bytes | None) -> bytes:
    return _NULL if content is None else pack_varint(len(content)) + content


def _wrap(value: int) -> int:
    return (value + (1 << 63)) % (1 << 64) - (1 << 63)
