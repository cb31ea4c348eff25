"""A cleaning in plain Python, one record at a time: what the product's kernels and masks must agree with.

Format v2 alone. Nothing here is fast and nothing is clever; the tables of `survivors` and `filter_batches` are read
aloud.

Source: Kafka Cleaner.cleanInto, MemoryRecords.filterTo, CleanedTransactionMetadata.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import crc32c

from sparklog.storage_core.checkpoint.producer_snapshot import ProducerState
from sparklog.storage_core.index.transaction_index import AbortedTransaction
from sparklog.storage_core.log_config import CODECS, INT64_MAX
from sparklog.storage_core.record.attributes import CODEC_MASK, DELETE_HORIZON_BIT
from sparklog.storage_core.record.compression import MAX_DECOMPRESSED_BYTES, compress, decompress
from sparklog.storage_core.record.control_records import ControlType
from sparklog.storage_core.record.schema import LOG_APPEND_TIME
from sparklog.storage_core.record.v2.batch_header import HEADER_BYTES, BatchHeader, pack_header, unpack_header
from tests.build.control_fields import unpack_control_type
from tests.plain.scalar import Record, pack_record, unpack_record

__all__ = ["PlainCleaning", "clean_plainly", "digest_key"]

_WORD_BITS: Final = 64
_WORDS: Final = (1 << _WORD_BITS) - 1
_STARTS: Final = (0x736F6D6570736575, 0x646F72616E646F6D, 0x6C7967656E657261, 0x7465646279746573)


def digest_key(key: bytes, hash_key: bytes) -> bytes:
    """Return SipHash-2-4-128 of a key."""
    low, high = int.from_bytes(hash_key[:8], "little"), int.from_bytes(hash_key[8:], "little")
    state = [start ^ (high if number % 2 else low) for number, start in enumerate(_STARTS)]
    state[1] ^= 0xEE
    whole = len(key) - len(key) % 8
    last = key[whole:].ljust(7, b"\0") + bytes([len(key) & 0xFF])
    for word in [*(key[at : at + 8] for at in range(0, whole, 8)), last]:
        value = int.from_bytes(word, "little")
        state[3] ^= value
        _rounds(state, 2)
        state[0] ^= value
    halves = []
    for number, mark in ((2, 0xEE), (1, 0xDD)):
        state[number] ^= mark
        _rounds(state, 4)
        halves.append(state[0] ^ state[1] ^ state[2] ^ state[3])
    return b"".join(half.to_bytes(8, "little") for half in halves)


def _rounds(state: list[int], count: int) -> None:
    for _ in range(count):
        for to, of, bits, half in ((0, 1, 13, 32), (2, 3, 16, 0), (0, 3, 21, 0), (2, 1, 17, 32)):
            state[to] = (state[to] + state[of]) & _WORDS
            state[of] = _rotated(state[of], bits) ^ state[to]
            state[to] = _rotated(state[to], half)


def _rotated(value: int, bits: int) -> int:
    return (value << bits | value >> (_WORD_BITS - bits)) & _WORDS


@dataclass(frozen=True, slots=True, kw_only=True)
class PlainCleaning:
    """What a cleaning is told, and what it knows of keys.

    Attributes:
        known: latest offset of each key, up to `latest_offset`.
        codec: of batches that are built again; None keeps each one's own.
    """

    known: Mapping[bytes, int]
    latest_offset: int
    now_ms: int
    delete_retention_ms: int
    cleaning_end_offset: int
    producers: Sequence[ProducerState] = ()
    aborted: Sequence[AbortedTransaction] = ()
    erased: frozenset[bytes] = frozenset()
    codec: str | None = None


@dataclass(slots=True)
class _Met:
    """Producers of whose transactions a batch was met since their last marker."""

    aborted: set[int] = field(default_factory=set)
    committed: set[int] = field(default_factory=set)


def clean_plainly(data: bytes, told: PlainCleaning) -> bytes:
    """Return what is left of complete batches of format v2."""
    out, met, position = bytearray(), _Met(), 0
    while position < len(data):
        header = unpack_header(data, position)
        batch = data[position : position + header.size_bytes]
        records = list(_records(header, batch))
        out += _clean_batch(header, batch, records, _may_go(header, records, told, met), told)
        position += header.size_bytes
    return bytes(out)


def _records(header: BatchHeader, batch: bytes) -> Iterator[Record]:
    if not header.records_count:
        return
    section, at = bytes(decompress(header.codec, batch[HEADER_BYTES:], MAX_DECOMPRESSED_BYTES, 0)), 0
    for _ in range(header.records_count):
        record, at = unpack_record(section, at, header.base_offset, header.base_timestamp)
        has_append_time = header.timestamp_type == LOG_APPEND_TIME
        yield replace(record, timestamp=header.max_timestamp) if has_append_time else record


def _may_go(header: BatchHeader, records: list[Record], told: PlainCleaning, met: _Met) -> bool:
    """Return whether a batch may go because of its transaction."""
    if not header.is_control:
        if not header.is_transactional or header.producer_id < 0:
            return False
        is_aborted = any(
            each.producer_id == header.producer_id
            and each.first_offset <= header.last_offset
            and header.base_offset < each.last_offset
            for each in told.aborted
        )
        (met.aborted if is_aborted else met.committed).add(header.producer_id)
        return is_aborted
    if not records:
        return True
    control_type = unpack_control_type(records[0].key or b"")
    if control_type not in (ControlType.ABORT, ControlType.COMMIT):
        return False
    producers = met.aborted if control_type == ControlType.ABORT else met.committed
    if header.producer_id not in producers:
        return True
    producers.remove(header.producer_id)
    return False


def _clean_batch(header: BatchHeader, batch: bytes, records: list[Record], may_go: bool, told: PlainCleaning) -> bytes:
    horizon = header.delete_horizon_ms
    is_over = horizon is not None and horizon <= told.now_ms
    loses_all = may_go and (is_over or not header.is_control)
    kept = [] if loses_all else [record for record in records if header.is_control or _stays(record, is_over, told)]
    if not kept:
        stays = header.next_offset == told.cleaning_end_offset or _is_last_of_producer(header, told)
        return _emptied(header) if stays else b""
    has_tombstone = any(record.value is None for record in kept)
    if horizon is None and (has_tombstone or (may_go and header.is_control)):
        return _rebuilt(header, kept, min(told.now_ms + told.delete_retention_ms, INT64_MAX), told)
    return batch if len(kept) == len(records) else _rebuilt(header, kept, horizon, told)


def _stays(record: Record, is_over: bool, told: PlainCleaning) -> bool:
    if record.key in told.erased:
        return False
    if record.offset > told.latest_offset:
        return True
    if record.key is None or record.offset < told.known.get(record.key, -1):
        return False
    return record.value is not None or not is_over


def _is_last_of_producer(header: BatchHeader, told: PlainCleaning) -> bool:
    for each in told.producers:
        if header.producer_id == each.producer_id >= 0:
            if each.last_offset >= 0:
                return header.last_offset == each.last_offset
            return header.is_control and header.producer_epoch == each.producer_epoch
    return False


def _emptied(header: BatchHeader) -> bytes:
    attributes = header.attributes & 0x7F & ~CODEC_MASK & ~DELETE_HORIZON_BIT
    return _sealed(replace(header, attributes=attributes, base_timestamp=-1, records_count=0), b"")


def _rebuilt(header: BatchHeader, kept: list[Record], horizon: int | None, told: PlainCleaning) -> bytes:
    base = kept[0].timestamp if horizon is None else horizon
    section = b"".join(pack_record(record, header.base_offset, base) for record in kept)
    codec = header.codec if told.codec is None or header.is_control else told.codec
    attributes = header.attributes & 0x7F & ~CODEC_MASK & ~DELETE_HORIZON_BIT | CODECS.index(codec)
    attributes |= DELETE_HORIZON_BIT if horizon is not None else 0
    largest = max(-1, *(record.timestamp for record in kept))
    has_append_time = header.timestamp_type == LOG_APPEND_TIME
    fields = replace(
        header,
        attributes=attributes,
        base_timestamp=base,
        max_timestamp=header.max_timestamp if has_append_time else largest,
        records_count=len(kept),
    )
    return _sealed(fields, bytes(compress(codec, section)))


def _sealed(header: BatchHeader, stream: bytes) -> bytes:
    header = replace(header, batch_length=HEADER_BYTES - 12 + len(stream))
    return pack_header(replace(header, crc=crc32c.crc32c(pack_header(header)[21:] + stream))) + stream
