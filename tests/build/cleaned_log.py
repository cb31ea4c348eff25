"""Segments of a compacted log from short notes, and what a cleaning leaves of them."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import crc32c
import pyarrow as pa

from sparklog.storage_core.checkpoint.producer_snapshot import ProducerState
from sparklog.storage_core.cleaner.keys.build_map import BuiltMap, DirtyRange, build_map
from sparklog.storage_core.cleaner.keys.offset_map import KeySet, OffsetMap
from sparklog.storage_core.cleaner.rewrite.clean_segments import CleanedSegment, CleanRequest, clean_segments
from sparklog.storage_core.cleaner.survey.aborted_columns import AbortedColumns
from sparklog.storage_core.cleaner.survey.cleaned_transactions import CleanedTransactions
from sparklog.storage_core.index.transaction_index import AbortedTransaction
from sparklog.storage_core.log.files.names import LOG, segment_file_name
from sparklog.storage_core.log.files.segments import SegmentFiles
from sparklog.storage_core.record.attributes import CONTROL_BIT
from sparklog.storage_core.record.batch_scan import check_crcs, scan_batches
from sparklog.storage_core.record.control_records import ControlType
from sparklog.storage_core.record.v2.batch_encode import EncodeOptions
from sparklog.storage_core.record.v2.batch_header import HEADER_BYTES, BatchHeader, pack_header, unpack_header
from sparklog.storage_core.storage.owned_names import UNSHARED
from tests.build.control_fields import EndTransactionMarker, pack_end_transaction_marker
from tests.plain.scalar import Record, pack_batch

__all__ = [
    "HASH_KEY",
    "NOW_MS",
    "RETENTION_MS",
    "CleanedRound",
    "active",
    "clean",
    "data",
    "headers_of",
    "marker",
    "write",
]

NOW_MS = 1_700_000_000_000
RETENTION_MS = 1000
HASH_KEY = bytes(range(16))


def data(offset: int, *pairs: tuple[str | None, str | None], **options: Any) -> bytes:
    """Return a batch of records (key, value) with offsets from one on; options as of `EncodeOptions`."""
    records = [
        Record(
            offset=offset + number,
            timestamp=NOW_MS - 1000 + offset + number,
            key=None if key is None else key.encode(),
            value=None if value is None else value.encode(),
        )
        for number, (key, value) in enumerate(pairs)
    ]
    return pack_batch(records, EncodeOptions(**options))


def marker(offset: int, producer_id: int, control_type: ControlType, epoch: int = 0) -> bytes:
    """Return the batch that ends a producer's transaction."""
    key, value = pack_end_transaction_marker(EndTransactionMarker(control_type, 5))
    options = EncodeOptions(producer_id=producer_id, producer_epoch=epoch, base_sequence=0, is_transactional=True)
    batch = pack_batch([Record(offset=offset, timestamp=NOW_MS, key=key, value=value)], options)
    header = unpack_header(batch)
    header = replace(header, attributes=header.attributes | CONTROL_BIT, base_sequence=-1)
    crc = crc32c.crc32c(pack_header(header)[21:] + batch[HEADER_BYTES:])
    return pack_header(replace(header, crc=crc)) + batch[HEADER_BYTES:]


def active(producer_id: int, last_offset: int, epoch: int = 0) -> ProducerState:
    """Return what is known of a producer; `last_offset` -1 where it has no data."""
    return ProducerState(
        producer_id=producer_id,
        producer_epoch=epoch,
        last_sequence=-1,
        last_offset=last_offset,
        offset_delta=0,
        timestamp=NOW_MS,
        coordinator_epoch=-1,
        current_txn_first_offset=-1,
    )


def write(directory: Path, *segments: Sequence[bytes], first_base: int = 0) -> list[SegmentFiles]:
    """Write segments; each has the offset of its first batch as base, the first one `first_base`."""
    directory.mkdir(exist_ok=True)
    files = []
    for number, batches in enumerate(segments):
        base = unpack_header(batches[0]).base_offset if number else first_base
        path = directory / segment_file_name(base, LOG)
        path.write_bytes(b"".join(batches))
        files.append(SegmentFiles(base, path))
    return files


@dataclass(frozen=True)
class CleanedRound:
    """What a round over some segments did."""

    built: BuiltMap
    offset_map: OffsetMap
    segment: CleanedSegment

    @property
    def data(self) -> bytes:
        """What is left."""
        return self.segment.paths[0].read_bytes()


def clean(
    files: Sequence[SegmentFiles],
    end_offset: int,
    *,
    first_dirty: int = 0,
    aborted: Sequence[AbortedTransaction] = (),
    erased: Sequence[str] = (),
    map_bytes: int = 1 << 16,
    **options: Any,
) -> CleanedRound:
    """Map and clean segments as one group; options as of `CleanRequest`."""
    offset_map = OffsetMap(map_bytes, HASH_KEY)
    columns = AbortedColumns.of(aborted)
    dirty = DirtyRange(
        segments=files, first_dirty_offset=first_dirty, first_uncleanable_offset=end_offset, aborted=columns
    )
    built = build_map(dirty, offset_map, lambda: None)
    fields = {"now_ms": NOW_MS, "delete_retention_ms": RETENTION_MS, "cleaning_end_offset": end_offset, **options}
    if erased:
        fields["erased"] = KeySet(pa.array([each.encode() for each in erased]), HASH_KEY)
    request = CleanRequest(**fields)
    return CleanedRound(
        built, offset_map, clean_segments(files, offset_map, CleanedTransactions(columns), request, UNSHARED)
    )


def headers_of(data: bytes) -> list[BatchHeader]:
    """Return the headers of sound batches of format v2."""
    scan = scan_batches(data)
    if len(check_crcs(data, scan)) or scan.valid_bytes != len(data):
        raise ValueError("not a run of sound batches")
    return [unpack_header(data, position) for position in scan.position.tolist()]
