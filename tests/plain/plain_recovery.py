"""What a recovery makes of a segment's bytes, one batch at a time and in the order of Kafka's own code.

Nothing here is shared with what it judges: headers are unpacked field by field, CRCs computed batch by batch, states
kept as a broker's classes keep them. Uncompressed logs of format v2 alone.
"""

import struct
from collections import deque
from dataclasses import dataclass, field

import crc32c

__all__ = ["PlainProducer", "PlainRecovery", "recover_plainly"]

_HEADER = struct.Struct(">qiibIhiqqqhii")
_SEQUENCES = 1 << 31


@dataclass
class PlainProducer:
    """A broker's entry of one producer."""

    epoch: int = -1
    coordinator_epoch: int = -1
    timestamp: int = -1
    first_offset: int = -1
    batches: deque[tuple[int, int, int, int]] = field(default_factory=lambda: deque(maxlen=5))


@dataclass
class PlainRecovery:
    """The outcome; index files as their bytes."""

    valid_bytes: int = 0
    is_overflowed: bool = False
    next_offset: int = 0
    offset_index: bytes = b""
    time_index: bytes = b""
    txn_index: bytes = b""
    epochs: list[tuple[int, int]] = field(default_factory=list)
    producers: dict[int, PlainProducer] = field(default_factory=dict)


def recover_plainly(data: bytes, base_offset: int, interval_bytes: int) -> PlainRecovery:
    """Return what a broker's recovery makes of these bytes of a `.log`.

    Raises:
        ValueError: offsets go back, which no CRC tells.
    """
    found = PlainRecovery(next_offset=base_offset)
    largest, largest_offset, last_time, last_entry = -1, base_offset, -1, 0
    while (fields := _next_batch(data, found.valid_bytes, found.next_offset)) is not None:
        position, size, offset = found.valid_bytes, fields[1] + 12, fields[0] + fields[6]
        if offset - base_offset >= _SEQUENCES:
            found.is_overflowed = True
            break
        if fields[3] > 2 and fields[5] & 0x20 and fields[12]:  # no CRC covers the format: a marker that can't be read
            break
        if fields[8] > largest:
            largest, largest_offset = fields[8], offset
        if position - last_entry > interval_bytes:
            found.offset_index += struct.pack(">ii", offset - base_offset, position)
            last_entry = position
            if largest > last_time:
                found.time_index += struct.pack(">qi", largest, largest_offset - base_offset)
                last_time = largest
        found.valid_bytes, found.next_offset = position + size, offset + 1
        if fields[2] >= 0 and (not found.epochs or fields[2] > found.epochs[-1][0]):
            while found.epochs and found.epochs[-1][1] >= fields[0]:
                found.epochs.pop()
            found.epochs.append((fields[2], fields[0]))
        if fields[9] >= 0:
            _follow(found, fields, data[position : position + size])
    if largest > last_time:
        found.time_index += struct.pack(">qi", largest, largest_offset - base_offset)
    return found


def _next_batch(data: bytes, position: int, next_offset: int) -> tuple[int, ...] | None:
    if len(data) - position < 61:
        return None
    fields = _HEADER.unpack_from(data, position)
    size = fields[1] + 12
    if fields[3] < 2 or size < 61 or position + size > len(data):
        return None
    if crc32c.crc32c(data[position + 21 : position + size]) != fields[4]:
        return None
    last_offset = fields[0] + fields[6]
    if fields[0] < next_offset or last_offset < fields[0]:
        raise ValueError("offsets go back")
    return fields


def _follow(found: PlainRecovery, fields: tuple[int, ...], batch: bytes) -> None:
    producer = found.producers.setdefault(fields[9], PlainProducer())
    if fields[5] & 0x20 and not fields[12]:
        return
    if producer.epoch != fields[10]:
        producer.batches.clear()
        producer.epoch = fields[10]
    producer.timestamp = fields[8]
    if fields[5] & 0x20:
        _end(found, producer, fields, batch)
        return
    sequence = -1 if fields[11] < 0 else (fields[11] + fields[6]) % _SEQUENCES
    producer.batches.append((sequence, fields[0] + fields[6], fields[6], fields[8]))
    if fields[5] & 0x10 and producer.first_offset < 0:
        producer.first_offset = fields[0]


def _end(found: PlainRecovery, producer: PlainProducer, fields: tuple[int, ...], batch: bytes) -> None:
    """A marker's record: length, attributes, time and offset deltas of a byte each, key of 4 bytes, value of 6."""
    control_type, coordinator_epoch = (
        struct.unpack_from(">h", batch, 61 + 7)[0],
        struct.unpack_from(">i", batch, 61 + 12)[0],
    )
    producer.coordinator_epoch = coordinator_epoch
    first, producer.first_offset = producer.first_offset, -1
    if first < 0 or control_type != 0:
        return
    stable = min(
        (each.first_offset for each in found.producers.values() if each.first_offset >= 0), default=fields[0] + 1
    )
    found.txn_index += struct.pack(">hqqqq", 0, fields[9], first, fields[0], stable)
