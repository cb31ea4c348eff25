"""One entry of format v0 or v1 at a time, in plain Python: what the compiled reader and writer are checked against.

As `scalar` is for format v2: each function is the table of `legacy_header` read aloud.

Source: Kafka LegacyRecord, AbstractLegacyRecordBatch.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from sparklog.storage_core.errors import CorruptBatchError
from sparklog.storage_core.log_config import CODECS
from sparklog.storage_core.record.attributes import CODEC_MASK, CONTROL_BIT
from sparklog.storage_core.record.batch_probe import LEGACY_CRC, LOG_OVERHEAD_BYTES, MAGIC_AT, MAGIC_V2
from sparklog.storage_core.record.compression import MAX_DECOMPRESSED_BYTES, compress, decompress, decompress_v0
from sparklog.storage_core.record.legacy.header import (
    FIXED_BYTES,
    MIN_ENTRY_BYTES,
    LegacyHeader,
    pack_legacy_header,
)
from sparklog.storage_core.record.schema import LOG_APPEND_TIME, NO_TIMESTAMP
from sparklog.storage_core.record.v2.batch_header import HEADER_BYTES, unpack_header
from tests.plain.scalar import Record, decode_records

__all__ = ["TypedRecord", "decode_log", "pack_entry", "pack_wrapper", "unpack_legacy_header"]

TypedRecord = tuple[Record, int]
"""A record and its timestamp type."""

_LENGTH: Final = struct.Struct(">i")
_LEGACY_CODECS: Final = 4
_FIXED_FIELDS: Final = (struct.Struct(">qiIbb"), struct.Struct(">qiIbbq"))
_V0_LZ4_CHECKSUM: Final = 0x1A
_LZ4_CHECKSUM_AT: Final = 6


def pack_entry(record: Record, magic: int, attributes: int = 0) -> bytes:
    """Return one record as an entry; headers, and in v0 the timestamp, are lost.

    Args:
        record: its key and value are written as they are; its offset as it is, too.
        magic: 0 or 1.
        attributes: codec and timestamp type as they shall stand.
    """
    body = _pack_part(record.key) + _pack_part(record.value)
    size = FIXED_BYTES[magic] - LOG_OVERHEAD_BYTES + len(body)
    header = LegacyHeader(
        offset=record.offset,
        message_size=size,
        crc=0,
        magic=magic,
        attributes=attributes,
        timestamp=record.timestamp if magic else NO_TIMESTAMP,
    )
    crc = LEGACY_CRC.update(pack_legacy_header(header)[LEGACY_CRC.covers_from :] + body)
    return pack_legacy_header(replace(header, crc=crc)) + body


def pack_wrapper(records: Sequence[Record], magic: int, codec: str, log_append_time_ms: int | None = None) -> bytes:
    """Return records, at least one, as a wrapper.

    Args:
        records: with absolute offsets.
        magic: 0 or 1.
        codec: none of `none` and `zstd`.
        log_append_time_ms: for v1, the wrapper's time where it is that of the append.
    """
    base = records[0].offset if magic else 0
    inner = b"".join(pack_entry(replace(each, offset=each.offset - base), magic) for each in records)
    stream = bytearray(compress(codec, inner))
    if codec == "lz4" and magic == 0:
        stream[_LZ4_CHECKSUM_AT] = _V0_LZ4_CHECKSUM
    latest = max(record.timestamp for record in records)
    wrapper = Record(
        offset=records[-1].offset,
        timestamp=latest if log_append_time_ms is None else log_append_time_ms,
        key=None,
        value=bytes(stream),
    )
    return pack_entry(wrapper, magic, CODECS.index(codec) | (0 if log_append_time_ms is None else 8))


def decode_log(data: bytes, *, max_batch_bytes: int = MAX_DECOMPRESSED_BYTES) -> list[TypedRecord]:
    """Return the records of complete batches of any format, back to back; control batches are passed over.

    Raises:
        CorruptBatchError: a batch's bytes contradict themselves.
    """
    found: list[TypedRecord] = []
    position = 0
    while position < len(data):
        if len(data) - position <= MAGIC_AT:
            raise CorruptBatchError("fewer bytes than a batch has", position)
        magic = int.from_bytes(data[position + MAGIC_AT : position + MAGIC_AT + 1], signed=True)
        end = position + LOG_OVERHEAD_BYTES + _LENGTH.unpack_from(data, position + 8)[0]
        if magic not in (0, 1, MAGIC_V2) or end > len(data) or end - position < (*MIN_ENTRY_BYTES, HEADER_BYTES)[magic]:
            raise CorruptBatchError("batch length or magic lies", position)
        batch = data[position:end]
        found += _decode_v2(batch, max_batch_bytes) if magic == MAGIC_V2 else _decode_entry(batch, max_batch_bytes)
        position = end
    return found


def unpack_legacy_header(data: bytes, position: int = 0) -> LegacyHeader:
    """Return the fixed fields of the entry that starts at `position`; nothing but the magic is judged.

    Raises:
        CorruptBatchError: fewer bytes remain than the fields take, or the magic is neither 0 nor 1.
    """
    try:
        *fields, magic, attributes = _FIXED_FIELDS[0].unpack_from(data, position)
        if magic not in (0, 1):
            raise CorruptBatchError(f"entry is of neither format v0 nor v1: magic={magic}", position)
        timestamp = _FIXED_FIELDS[1].unpack_from(data, position)[-1] if magic else NO_TIMESTAMP
    except struct.error as error:
        raise CorruptBatchError("fewer bytes than a message has", position) from error
    offset, message_size, crc = fields
    return LegacyHeader(
        offset=offset, message_size=message_size, crc=crc, magic=magic, attributes=attributes, timestamp=timestamp
    )


def _decode_v2(batch: bytes, max_batch_bytes: int) -> list[TypedRecord]:
    header = unpack_header(batch)
    if header.attributes & CONTROL_BIT:
        return []
    return [(each, header.timestamp_type) for each in decode_records(batch, max_batch_bytes=max_batch_bytes)]


def _decode_entry(entry: bytes, max_batch_bytes: int) -> list[TypedRecord]:
    header = unpack_legacy_header(entry)
    key, value = _unpack_parts(entry, header.magic)
    if not header.is_wrapper:
        record = Record(offset=header.offset, timestamp=header.timestamp, key=key, value=value)
        return [(record, header.timestamp_type)]
    codec = header.attributes & CODEC_MASK
    if codec >= _LEGACY_CODECS or value is None:
        raise CorruptBatchError("a wrapper has no codec or no value", 0)
    inner = bytes((decompress if header.magic else decompress_v0)(CODECS[codec], value, max_batch_bytes, 0))
    records = _unpack_set(inner, header.magic)
    base = 0
    if header.magic == 1 and header.offset != 0:
        last = records[-1].offset
        if not 0 <= last <= header.offset:
            raise CorruptBatchError("a wrapper's offset is below its last message's", 0)
        base = header.offset - last
    records = [replace(each, offset=_wrap(base + each.offset)) for each in records]
    if header.timestamp_type == LOG_APPEND_TIME:
        records = [replace(each, timestamp=header.timestamp) for each in records]
    return [(each, header.timestamp_type) for each in records]


def _unpack_set(inner: bytes, magic: int) -> list[Record]:
    """Return the complete entries of a wrapper; there is at least one."""
    records: list[Record] = []
    position = 0
    while len(inner) - position >= LOG_OVERHEAD_BYTES:
        size = _LENGTH.unpack_from(inner, position + 8)[0]
        if size < MIN_ENTRY_BYTES[0] - LOG_OVERHEAD_BYTES:
            raise CorruptBatchError("a message's length lies", 0)
        entry = inner[position : position + LOG_OVERHEAD_BYTES + size]
        if len(entry) < LOG_OVERHEAD_BYTES + size:
            break
        if entry[MAGIC_AT] != magic or len(entry) < MIN_ENTRY_BYTES[magic]:
            raise CorruptBatchError("a message is of another format", 0)
        header = unpack_legacy_header(entry)
        if header.is_wrapper or header.crc != LEGACY_CRC.update(entry[LEGACY_CRC.covers_from :]):
            raise CorruptBatchError("a message is compressed or damaged", 0)
        key, value = _unpack_parts(entry, magic)
        records.append(Record(offset=header.offset, timestamp=header.timestamp, key=key, value=value))
        position += len(entry)
    if not records:
        raise CorruptBatchError("a wrapper holds no message", 0)
    return records


def _unpack_parts(entry: bytes, magic: int) -> tuple[bytes | None, bytes | None]:
    """Return key and value; what follows the value is passed over."""
    key, position = _unpack_part(entry, FIXED_BYTES[magic])
    value, _ = _unpack_part(entry, position)
    return key, value


def _pack_part(content: bytes | None) -> bytes:
    return _LENGTH.pack(-1) if content is None else _LENGTH.pack(len(content)) + content


def _unpack_part(entry: bytes, position: int) -> tuple[bytes | None, int]:
    if len(entry) - position < _LENGTH.size:
        raise CorruptBatchError("a length reaches past the message", 0)
    size = _LENGTH.unpack_from(entry, position)[0]
    position += _LENGTH.size
    if size < 0:
        return None, position
    if size > len(entry) - position:
        raise CorruptBatchError("a length reaches past the message", 0)
    return entry[position : position + size], position + size


def _wrap(value: int) -> int:
    return (value + (1 << 63)) % (1 << 64) - (1 << 63)
