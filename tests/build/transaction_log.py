"""Writes logs with transactions as a broker would leave them, and says what a consumer gets from them.

What is said comes from a plain look at the events: a batch of a transaction is aborted if its producer's next marker is
an abort, and the stable part ends where the oldest transaction without a marker begins.
"""

import struct
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import crc32c

from sparklog.storage_core.index.transaction_index import AbortedTransaction, pack_transaction_entries
from sparklog.storage_core.log.files.names import LOG, TXNINDEX, segment_file_name
from sparklog.storage_core.record.attributes import CONTROL_BIT, TRANSACTIONAL_BIT
from sparklog.storage_core.record.control_records import ControlType
from sparklog.storage_core.record.v2.batch_encode import EncodeOptions
from sparklog.storage_core.record.v2.batch_header import HEADER_BYTES, BatchHeader, pack_header
from tests.build.control_fields import EndTransactionMarker, pack_end_transaction_marker
from tests.plain.scalar import Record, pack_batch, pack_record

__all__ = ["Data", "Event", "Marker", "TransactionLog", "control_batch", "data_batch", "write_transaction_log"]

_TIME_MS = 1_700_000_000_000
_COORDINATOR_EPOCH = 11


@dataclass(frozen=True)
class Data:
    """A batch of records; of a transaction of a producer, or plain with producer id -1."""

    count: int = 1
    producer_id: int = -1
    epoch: int = 0
    value_bytes: int = 3


@dataclass(frozen=True)
class Marker:
    """The end of a producer's transaction; its epoch may be a raised one."""

    producer_id: int
    control_type: ControlType = ControlType.COMMIT
    epoch: int = 1


Event = Data | Marker


@dataclass
class TransactionLog:
    """A log directory and what a consumer gets.

    Attributes:
        offsets: of all records, markers left out.
        committed: of the records that a read_committed consumer gets.
        markers: offsets of markers.
        batches: (file, position, size, base offset) of every batch.
        aborted: of every segment, by base offset, what its transaction index holds.
    """

    directory: Path
    log_end_offset: int = 0
    last_stable_offset: int = 0
    offsets: list[int] = field(default_factory=list)
    committed: list[int] = field(default_factory=list)
    markers: list[int] = field(default_factory=list)
    batches: list[tuple[Path, int, int, int]] = field(default_factory=list)
    aborted: dict[int, list[AbortedTransaction]] = field(default_factory=dict)


def data_batch(event: Data, base_offset: int, codec: str = "none") -> bytes:
    """Return a batch of records with the offsets from `base_offset` on."""
    records = [
        Record(offset=base_offset + number, timestamp=_TIME_MS + base_offset + number, key=None, value=b"v" * size)
        for number, size in enumerate([event.value_bytes] * event.count)
    ]
    is_transactional = event.producer_id >= 0
    options = EncodeOptions(
        codec=codec,
        producer_id=event.producer_id,
        producer_epoch=event.epoch if is_transactional else -1,
        base_sequence=0 if is_transactional else -1,
        is_transactional=is_transactional,
    )
    return pack_batch(records, options)


def control_batch(
    event: Marker,
    offset: int,
    *,
    key: bytes | None = None,
    value: bytes | None = None,
    timestamp: int | None = None,
) -> bytes:
    """Return a marker's batch; key and value are the marker's unless given, its time follows its offset."""
    own_key, own_value = pack_end_transaction_marker(EndTransactionMarker(event.control_type, _COORDINATOR_EPOCH))
    timestamp = _TIME_MS + offset if timestamp is None else timestamp
    record = Record(
        offset=offset,
        timestamp=timestamp,
        key=own_key if key is None else key,
        value=own_value if value is None else value,
    )
    section = pack_record(record, offset, timestamp)
    header = BatchHeader(
        base_offset=offset,
        batch_length=HEADER_BYTES - 12 + len(section),
        partition_leader_epoch=-1,
        magic=2,
        crc=0,
        attributes=TRANSACTIONAL_BIT | CONTROL_BIT,
        last_offset_delta=0,
        base_timestamp=timestamp,
        max_timestamp=timestamp,
        producer_id=event.producer_id,
        producer_epoch=event.epoch,
        base_sequence=-1,
        records_count=1,
    )
    crc = crc32c.crc32c(pack_header(header)[21:] + section)
    return pack_header(replace(header, crc=crc)) + section


def write_transaction_log(
    directory: Path, segments: Sequence[Sequence[Event]], *, start_offset: int = 0, codec: str = "none"
) -> TransactionLog:
    """Write a log, with the transaction indexes that a broker would have made; offset indexes have an entry a batch."""
    directory.mkdir(parents=True, exist_ok=True)
    log = TransactionLog(directory)
    events = [event for segment in segments for event in segment]
    offset, place, begun = start_offset, 0, dict[int, int]()
    for segment in segments:
        base, data, index = offset, bytearray(), bytearray()
        path = directory / segment_file_name(base, LOG)
        entries: list[AbortedTransaction] = []
        for event in segment:
            count = 1 if isinstance(event, Marker) else event.count
            if isinstance(event, Marker):
                batch = control_batch(event, offset)
                log.markers.append(offset)
                _end(event, offset, begun, entries)
            else:
                batch = data_batch(event, offset, codec)
                log.offsets += range(offset, offset + count)
                if event.producer_id >= 0:
                    begun.setdefault(event.producer_id, offset)
                if not _is_aborted(event, events[place + 1 :]):
                    log.committed += range(offset, offset + count)
            if data:
                index += struct.pack(">ii", offset + count - 1 - base, len(data))
            log.batches.append((path, len(data), len(batch), offset))
            data += batch
            offset, place = offset + count, place + 1
        path.write_bytes(data)
        path.with_suffix(".index").write_bytes(index)
        log.aborted[base] = entries
        if entries:
            (directory / segment_file_name(base, TXNINDEX)).write_bytes(pack_transaction_entries(entries))
    log.log_end_offset = offset
    log.last_stable_offset = min(begun.values(), default=offset)
    log.committed = [each for each in log.committed if each < log.last_stable_offset]
    return log


def _is_aborted(event: Data, later: Sequence[Event]) -> bool:
    if event.producer_id < 0:
        return False
    ends = (each for each in later if isinstance(each, Marker) and each.producer_id == event.producer_id)
    end = next(ends, None)
    return end is not None and end.control_type == ControlType.ABORT


def _end(event: Marker, offset: int, begun: dict[int, int], entries: list[AbortedTransaction]) -> None:
    first = begun.pop(event.producer_id, None)
    if first is not None and event.control_type == ControlType.ABORT:
        stable = min(begun.values(), default=offset + 1)
        entries.append(AbortedTransaction(0, event.producer_id, first, offset, stable))
