"""One pass over the bytes of a segment: which batches are sound in themselves, and where there is none.

Nothing here looks at another segment, so segments are passed over side by side. What covers which byte: the CRC
everything from the attributes on; the walk from batch to batch the length; the check of the magic number itself. Base
offset and leader epoch are outside the CRC and are judged where the batches of a log meet, in `verify_segment`.

After damage the next sound batch is searched, so that one changed byte is one finding.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import numpy.typing as npt

from sparklog.storage_core.errors import CorruptBatchError, StorageError, UnsupportedFormatError
from sparklog.storage_core.inspect.verify.findings import Rule
from sparklog.storage_core.inspect.verify.resync import LARGEST_BATCH_BYTES, BatchSearch
from sparklog.storage_core.log.scan.segment_reader import BatchChunk, SegmentReader, WalkFault
from sparklog.storage_core.log_config import INT32_MAX, INT64_MAX
from sparklog.storage_core.record.attributes import CODEC_MASK, CONTROL_BIT, LOG_APPEND_TIME_BIT, TRANSACTIONAL_BIT
from sparklog.storage_core.record.batch_decode import decode_batches, iter_decoded
from sparklog.storage_core.record.batch_probe import MAGIC_V2, UP_TO_MAGIC_BYTES, FirstFields, first_fields
from sparklog.storage_core.record.batch_scan import BatchScan, check_crcs
from sparklog.storage_core.record.control_records import NO_CONTROL_TYPE, control_types
from sparklog.storage_core.record.legacy.header import LEGACY_ATTRIBUTES_AT, MIN_ENTRY_BYTES
from sparklog.storage_core.record.v2.batch_header import HEADER_BYTES, ByteSource, unpack_header

__all__ = ["BatchFault", "DamagedBytes", "SoundBatches", "UnreadableBytes", "pass_over"]

_CHUNK_BYTES: Final = 4 << 20
_AFTER_DAMAGE_BYTES: Final = 64 << 10
"""Where there is damage there may be more: what lies past it is read once more."""
_MARKER_BYTES: Final = 128
"""A marker has 78; versions to come may add some."""


@dataclass(frozen=True, slots=True)
class BatchFault:
    """A batch under a right CRC that contradicts itself.

    Attributes:
        number: its place in the scan.
        due: the offset its header should name, if that is what is wrong.
    """

    number: int
    rule: Rule
    what: str
    due: int | None = None


@dataclass(frozen=True, slots=True)
class SoundBatches:
    """Batches back to back whose CRCs are right.

    Attributes:
        position: in the file, of the bytes that were scanned.
        scan: positions count from `position`; a wrapper's base offset and count are those of its inner entries.
        faults: what is wrong with them all the same.
        control_types: (b,) of `control_records.control_types`.
    """

    position: int
    scan: BatchScan
    faults: tuple[BatchFault, ...]
    control_types: npt.NDArray[np.int16]


@dataclass(frozen=True, slots=True)
class DamagedBytes:
    """Bytes that hold no sound batch.

    Attributes:
        position, end: in the file.
        claimed: (base offset, last offset) by the damaged header, where it can be one.
    """

    position: int
    end: int
    rule: Rule
    what: str
    claimed: tuple[int, int] | None


@dataclass(frozen=True, slots=True)
class UnreadableBytes:
    """The disk refused; nothing past `position` was looked at."""

    position: int
    what: str


Event = SoundBatches | DamagedBytes | UnreadableBytes


def pass_over(reader: SegmentReader, *, deep: bool) -> Iterator[Event]:
    """Yield what the bytes of a segment are, in order, up to the reader's `size_bytes`.

    Args:
        reader: of the segment.
        deep: whether every record is decoded too. Wrappers of v0 and v1 always are: only their inner entries show
            which offsets they hold.
    """
    base = reader.files.base_offset
    search = BatchSearch(reader, reader.size_bytes, base, min(base + INT32_MAX, INT64_MAX))
    position, first_bytes = 0, _CHUNK_BYTES
    try:
        while position < search.end:
            for chunk in reader.walk(position, _CHUNK_BYTES, first_bytes, fault_of_large=_fault_of_large):
                position = chunk.position
                sound, event = _sound_batches(chunk, deep)
                if event is not None:
                    yield event
                if sound < len(chunk.scan) or chunk.fault is not None:
                    damage = _damage_at(search, position + _end_of(chunk.scan, sound))
                    yield damage
                    position, first_bytes = damage.end, _AFTER_DAMAGE_BYTES
                    break
                position += chunk.scan.valid_bytes
    except StorageError as error:
        yield UnreadableBytes(position, f"can't be read: {error}")


def _fault_of_large(_position: int, first: FirstFields) -> WalkFault | None:
    return "length" if first.size > LARGEST_BATCH_BYTES else None


def _end_of(scan: BatchScan, count: int) -> int:
    """Return where the first `count` batches end."""
    return int(scan.position[count]) if count < len(scan) else scan.valid_bytes


def _sound_batches(chunk: BatchChunk, deep: bool) -> tuple[int, SoundBatches | None]:
    """Return how many batches there are before the first damaged one, and these."""
    data, scan = chunk.data, chunk.scan
    is_bad = (scan.magic < 0) | (scan.magic > MAGIC_V2)
    is_bad[check_crcs(data, scan)] = True
    good = int(np.argmax(is_bad)) if is_bad.any() else len(scan)
    scan, faults = _opened_wrappers(data, scan.take(slice(0, good)))
    if not len(scan):
        return 0, None
    faults += _count_faults(scan)
    if deep:
        faults += _record_faults(data, scan)
    types, control_faults = _control_types(data, scan)
    return len(scan), SoundBatches(chunk.position, scan, tuple(faults + control_faults), types)


def _opened_wrappers(data: ByteSource, scan: BatchScan) -> tuple[BatchScan, list[BatchFault]]:
    """Return the batches before the first wrapper that can't be opened, each with its true base offset and count."""
    wrappers = np.flatnonzero((scan.magic < MAGIC_V2) & (scan.attributes & CODEC_MASK != 0))
    if not len(wrappers):
        return scan, []
    base_offset, last_offset = scan.base_offset.copy(), scan.last_offset.copy()
    records_count = scan.records_count.copy()
    faults: list[BatchFault] = []
    opened = len(scan)
    for number in wrappers.tolist():
        try:
            records = decode_batches(data, scan.take(slice(number, number + 1)))
        except (CorruptBatchError, UnsupportedFormatError):
            opened = number
            break
        offsets, times = records.column("offset").to_numpy(), records.column("timestamp").to_numpy()
        if offsets[-1] != scan.last_offset[number]:
            what = f"its last inner offset is {offsets[-1]}, not its own, {scan.last_offset[number]}"
            faults.append(BatchFault(number, "base-offset", what, due=int(offsets[-1])))
        base_offset[number], last_offset[number], records_count[number] = offsets[0], offsets[-1], len(offsets)
        faults += _order_faults(scan, number, _RecordOrder.of(offsets, times))
    true = replace(scan, base_offset=base_offset, last_offset=last_offset, records_count=records_count)
    return true.take(slice(0, opened)), faults


def _count_faults(scan: BatchScan) -> list[BatchFault]:
    """A batch never holds more records than it has offsets; compaction leaves fewer."""
    deltas = scan.last_offset - scan.base_offset
    bad = (scan.records_count < 0) | (scan.records_count > deltas + 1)
    return [
        BatchFault(
            number,
            "record-count",
            f"records_count={scan.records_count[number]} does not fit last_offset_delta={deltas[number]}",
        )
        for number in np.flatnonzero(bad & (scan.magic == MAGIC_V2)).tolist()
    ]


def _record_faults(data: ByteSource, scan: BatchScan) -> list[BatchFault]:
    """Decode every record of the v2 batches and compare each with its header."""
    chosen = np.flatnonzero(scan.magic == MAGIC_V2)
    faults: list[BatchFault] = []
    first = 0
    while first < len(chosen):
        try:
            for number, order in _orders_by_batch(data, scan, chosen[first:]):
                faults += _order_faults(scan, number, order)
            break
        except (CorruptBatchError, UnsupportedFormatError) as error:
            at = getattr(error, "position", int(scan.position[chosen[first]]))
            first = int(np.searchsorted(scan.position[chosen], at))
            faults.append(BatchFault(int(chosen[first]), "records", f"records contradict the batch: {error.args[0]}"))
            first += 1
    return faults


@dataclass(frozen=True, slots=True)
class _RecordOrder:
    """What of a batch's records is compared with its header.

    Attributes:
        is_increasing: whether each offset is above the one before.
    """

    first_offset: int
    last_offset: int
    is_increasing: bool
    largest_timestamp: int

    @classmethod
    def of(cls, offsets: npt.NDArray[np.int64], times: npt.NDArray[np.int64]) -> _RecordOrder:
        """Return it of some records, one at least."""
        is_increasing = bool((offsets[1:] > offsets[:-1]).all())
        return cls(int(offsets[0]), int(offsets[-1]), is_increasing, int(times.max()))

    def then(self, following: _RecordOrder) -> _RecordOrder:
        """Return it of these records and those that follow them."""
        is_increasing = self.is_increasing and following.is_increasing and self.last_offset < following.first_offset
        largest = max(self.largest_timestamp, following.largest_timestamp)
        return _RecordOrder(self.first_offset, following.last_offset, is_increasing, largest)


def _orders_by_batch(
    data: ByteSource, scan: BatchScan, chosen: npt.NDArray[np.int64]
) -> Iterator[tuple[int, _RecordOrder]]:
    """Yield the number of each batch that holds records, and their order; a large batch's records come in pieces."""
    filled = chosen[scan.records_count[chosen] > 0]
    countable = chosen[scan.records_count[chosen] >= 0]  # another count is a fault of its own
    at, begun = 0, None
    left = int(scan.records_count[filled[0]]) if len(filled) else 0
    for records in iter_decoded(data, scan.take(countable), include_control=True):
        offsets, times = records.column("offset").to_numpy(), records.column("timestamp").to_numpy()
        start = 0
        while start < len(offsets):
            stop = min(start + left, len(offsets))
            order = _RecordOrder.of(offsets[start:stop], times[start:stop])
            begun = order if begun is None else begun.then(order)
            left, start = left - (stop - start), stop
            if not left:
                yield int(filled[at]), begun
                at, begun = at + 1, None
                left = int(scan.records_count[filled[at]]) if at < len(filled) else 0


def _order_faults(scan: BatchScan, number: int, order: _RecordOrder) -> list[BatchFault]:
    faults = []
    is_wrapper = scan.magic[number] < MAGIC_V2
    is_inside = is_wrapper or (
        scan.base_offset[number] <= order.first_offset and order.last_offset <= scan.last_offset[number]
    )
    if not is_inside or not order.is_increasing:
        faults.append(BatchFault(number, "records", "offsets of its records do not increase inside the batch"))
    is_append_time = scan.attributes[number] & LOG_APPEND_TIME_BIT
    largest = order.largest_timestamp
    # Below -1 a cleaner writes -1 and an encoder the number itself.
    if not is_append_time and scan.max_timestamp[number] not in (largest, max(largest, -1)):
        what = f"max_timestamp={scan.max_timestamp[number]} is not the largest of its records, {largest}"
        faults.append(BatchFault(number, "records", what))
    return faults


def _control_types(data: ByteSource, scan: BatchScan) -> tuple[npt.NDArray[np.int16], list[BatchFault]]:
    """Read the control batches: few and small, and transactions can't be followed without."""
    try:
        return control_types(data, scan), []
    except (CorruptBatchError, UnsupportedFormatError):
        pass
    types, faults = np.full(len(scan), NO_CONTROL_TYPE, np.int16), []
    for number in np.flatnonzero(scan.attributes & CONTROL_BIT).tolist():
        try:
            types[number] = control_types(data, scan.take(slice(number, number + 1)))[0]
        except (CorruptBatchError, UnsupportedFormatError) as error:
            faults.append(BatchFault(number, "records", f"control record can't be read: {error.args[0]}"))
    return types, faults


def _damage_at(search: BatchSearch, position: int) -> DamagedBytes:
    """Return what is wrong at a position, and where the next sound batch starts."""
    reader, end = search.reader, search.end
    if reader.ends_in_zeros(position):
        return DamagedBytes(position, end, "zeros", f"the last {end - position} bytes are zeros", None)
    head = reader.read(position, min(HEADER_BYTES, end - position))
    first = first_fields(head)
    found = search.next_batch(position, first.size if first else 0)
    following = end if found is None else found
    if found is not None and following - position <= _MARKER_BYTES and _is_marker(head):
        what = f"damaged marker of a transaction's end; {following - position} bytes"
        return DamagedBytes(position, following, "marker", what, _claimed_offsets(head))
    rule, what = _describe(first, end - position)
    if rule == "crc" and search.is_sound(position):
        rule, what = "wrapper", "its inner entries can't be read"
    return DamagedBytes(position, following, rule, f"{what}; {following - position} bytes", _claimed_offsets(head))


def _describe(first: FirstFields | None, room: int) -> tuple[Rule, str]:
    """Return what is wrong with bytes whose header, if it is there, announces a batch; `room` is left in the file.

    Kafka does not look at a length or a magic that only a few bytes are left for: FileLogInputStream.
    """
    if room <= UP_TO_MAGIC_BYTES or first is None:
        return "length", "torn tail: too short for any batch"
    _, size, magic = first
    if not 0 <= magic <= MAGIC_V2:
        return "magic", f"magic is {magic}, not 0 to {MAGIC_V2}"
    least = HEADER_BYTES if magic == MAGIC_V2 else MIN_ENTRY_BYTES[magic]
    if size < least:
        return "length", f"batch size {size} is impossible, the least is {least}"
    if size > room:
        return "length", f"batch size {size} passes the end"
    return "crc", "wrong CRC"


def _is_marker(head: bytes) -> bool:
    """Whether a damaged header may be that of a marker; one of the fields that show it may be the damaged one."""
    if len(head) < HEADER_BYTES:
        return False
    header = unpack_header(head)
    signs = (
        bool(header.attributes & CONTROL_BIT),
        bool(header.attributes & TRANSACTIONAL_BIT),
        header.base_sequence == -1,
        header.producer_id >= 0,
        header.records_count == 1,
    )
    return sum(signs) >= len(signs) - 1


def _claimed_offsets(head: bytes) -> tuple[int, int] | None:
    """Return the offsets that a damaged header names; those of a v0 or v1 entry are one, or unknown in a wrapper."""
    first = first_fields(head)
    if first is None or len(head) < HEADER_BYTES or not 0 <= first.magic <= MAGIC_V2:
        return None
    if first.magic < MAGIC_V2:
        return None if head[LEGACY_ATTRIBUTES_AT] & CODEC_MASK else (first.offset, first.offset)
    header = unpack_header(head)
    return (header.base_offset, header.last_offset) if header.last_offset_delta >= 0 else None
