"""Filters batches in a cleaning: copies, rebuilds, empties or drops each.

| kept of a batch                              | output                                                             |
|----------------------------------------------|--------------------------------------------------------------------|
| every record, and it needs no delete horizon | the same bytes                                                     |
| some records, or it needs a delete horizon   | rebuilt: its offsets, producer, flags and leader epoch stay        |
| no record, but the batch has to stay         | its header: no codec, no delete horizon, base timestamp -1         |
| no record                                    | nothing                                                            |

A rebuilt batch has the timestamp of its first record, or its delete horizon, as base timestamp. Of v0 and v1 a plain
entry is one record, and a wrapper is rebuilt with the offset of its last record.

Source: Kafka MemoryRecords.filterTo, buildRetainedRecordsInto, DefaultRecordBatch.writeEmptyHeader; KIP-534.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from sparklog.storage_core.cleaner.keys.keyed_records import KeyedRecords, LargeBatch
from sparklog.storage_core.cleaner.rewrite.rebuild_kernels import MAX_GROWTH_BYTES, NO_BASE, write_survivors
from sparklog.storage_core.cleaner.rewrite.survivors import BatchFates, RecordFates
from sparklog.storage_core.cleaner.survey.cleaned_transactions import is_control
from sparklog.storage_core.log_config import CODECS, INT32_MAX
from sparklog.storage_core.record.attributes import CODEC_MASK, DELETE_HORIZON_BIT, LOG_APPEND_TIME_BIT
from sparklog.storage_core.record.batch_decode import decode_batches
from sparklog.storage_core.record.batch_probe import LOG_OVERHEAD_BYTES, MAGIC_V2, V2_CRC
from sparklog.storage_core.record.batch_scan import BatchScan
from sparklog.storage_core.record.compression import MAX_DECOMPRESSED_BYTES, compress
from sparklog.storage_core.record.legacy.encode import LEGACY_CODECS, LegacyEncodeOptions, encode_legacy
from sparklog.storage_core.record.schema import CREATE_TIME, LOG_APPEND_TIME
from sparklog.storage_core.record.v2.batch_header import HEADER_BYTES, HEADER_DTYPE, ByteSource
from sparklog.storage_core.record.v2.record_columns import RecordColumns

__all__ = ["Action", "FilteredBatches", "RebuildOptions", "choose_actions", "filter_batches", "filter_large"]

_NO_HORIZON: Final = -1
_KEPT_FLAGS: Final = 0x7F & ~CODEC_MASK & ~DELETE_HORIZON_BIT

_Int64s = npt.NDArray[np.int64]
_Part = tuple[int, int] | memoryview


class Action:
    """Treatment of a batch."""

    DROP: Final = 0
    COPY: Final = 1
    REBUILD: Final = 2
    EMPTY: Final = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class RebuildOptions:
    """Settings of rebuilt batches.

    Attributes:
        delete_horizon_ms: of batches that need one and have none.
        codec: of data batches; None keeps each one's own. A wrapper of v0 or v1 stays one, and keeps its own codec if
            this is none, or unknown to its format.
        level: of that codec; 0 is Kafka's default.
    """

    delete_horizon_ms: int
    codec: str | None = None
    level: int = 0


@dataclass(frozen=True, slots=True)
class FilteredBatches:
    """The c kept batches, in order.

    Attributes:
        parts: their bytes: (position, size) in the bytes of the log, or rebuilt bytes.
        size: (c,) of each.
        last_offset: (c,) of each.
        max_timestamp: (c,) of each header, -1 none.
        horizons_set: number of batches that got a delete horizon.
    """

    parts: list[_Part]
    size: _Int64s
    last_offset: _Int64s
    max_timestamp: _Int64s
    horizons_set: int = 0


@dataclass(frozen=True, slots=True)
class _Built:
    """The rebuilt batches, back to back, in order."""

    data: memoryview
    size: _Int64s
    last_offset: _Int64s
    max_timestamp: _Int64s


@dataclass(frozen=True, slots=True)
class _Left:
    """Numbers of each of b batches' records, kept records and kept tombstones."""

    before: _Int64s
    records: _Int64s
    tombstones: _Int64s


@dataclass(frozen=True, slots=True)
class _Written:
    """Sections of r rebuilt batches, back to back; (r + 1,) their borders, (r,) base and largest timestamps."""

    data: memoryview
    borders: _Int64s
    base_timestamps: _Int64s
    max_timestamps: _Int64s


def choose_actions(
    records: KeyedRecords, fates: BatchFates, stays: npt.NDArray[np.bool_]
) -> tuple[npt.NDArray[np.int8], npt.NDArray[np.bool_]]:
    """Return (b,) the action for each batch, and (b,) whether it gets a delete horizon.

    Args:
        records: of the batches.
        fates: (b,) of these.
        stays: (n,) whether each record does.
    """
    borders = _borders(records)
    tombstones = np.zeros(len(records.scan), np.int64)
    if not records.has_value.all():
        tombstones = _count(stays & ~records.has_value, borders)
    return _choose(records.scan, fates, _Left(np.diff(borders), _count(stays, borders), tombstones))


def _choose(scan: BatchScan, fates: BatchFates, left: _Left) -> tuple[npt.NDArray[np.int8], npt.NDArray[np.bool_]]:
    has_horizon = (scan.attributes & DELETE_HORIZON_BIT) != 0
    needs = (fates.is_done_marker & (left.records > 0)) | (left.tombstones > 0)
    needs &= (scan.magic == MAGIC_V2) & ~has_horizon
    actions = np.full(len(scan), Action.DROP, np.int8)
    actions[fates.stays_empty] = Action.EMPTY
    is_bare = (scan.size == HEADER_BYTES) & (scan.base_timestamp == -1) & ((scan.attributes & CODEC_MASK) == 0)
    actions[fates.stays_empty & is_bare & ~has_horizon & (scan.records_count == 0)] = Action.COPY
    actions[left.records > 0] = Action.REBUILD
    actions[(left.records > 0) & (left.records == left.before) & ~needs] = Action.COPY
    return actions, needs


def filter_batches(
    data: ByteSource, records: KeyedRecords, fates: BatchFates, judged: RecordFates, options: RebuildOptions
) -> tuple[FilteredBatches, npt.NDArray[np.int8]]:
    """Return the kept batches, and (b,) the action for each.

    Args:
        records: of some of its batches.
        fates: (b,) of these, and `judged` (n,) of their records.
    """
    actions, needs = choose_actions(records, fates, judged.stays)
    if records.scan.magic[0] < MAGIC_V2:
        built = _build_legacy(data, records, judged.stays, np.flatnonzero(actions == Action.REBUILD), options)
    else:
        built = _build(records, judged.stays, actions, needs, options)
    return _filtered(records.scan, actions, built, int(needs.sum())), actions


def filter_large(
    batch: LargeBatch,
    fates: BatchFates,
    judge: Callable[[KeyedRecords], RecordFates],
    options: RebuildOptions,
) -> tuple[FilteredBatches, npt.NDArray[np.int8]]:
    """As `filter_batches`, for one batch of very many records: holds a byte for each, and the kept ones.

    Args:
        fates: (1,) of it.
        judge: judges some of its records; called once for each piece, in order.
    """
    stays, tombstones = list[npt.NDArray[np.bool_]](), 0
    for records in batch.pieces():
        stays.append(judge(records).stays)
        tombstones += int(np.count_nonzero(stays[-1] & ~records.has_value))
    kept = sum(map(np.count_nonzero, stays))
    left = _Left(batch.scan.records_count.astype(np.int64), np.array([kept]), np.array([tombstones]))
    actions, needs = _choose(batch.scan, fates, left)
    scan, horizons = batch.scan, _horizons(batch.scan, needs, options)
    built = _Built(memoryview(b""), scan.size[:0], scan.last_offset[:0], scan.max_timestamp[:0])
    if actions[0] >= Action.REBUILD:
        built = _sealed(scan, left.records, horizons, _write_pieces(batch, stays, horizons), options)
    return _filtered(scan, actions, built, int(needs.sum())), actions


def _write_pieces(batch: LargeBatch, stays: list[npt.NDArray[np.bool_]], horizons: _Int64s) -> _Written:
    """Write the kept records of a batch; the first one gives the base timestamp for all pieces."""
    parts, bases, largest, only = list[memoryview](), _bases(horizons), np.array([-1]), np.zeros(1, np.int64)
    for records, chosen in zip(batch.pieces(), stays, strict=True):
        if chosen.any():
            written = _write(records, chosen, only, bases)
            parts.append(memoryview(bytes(written.data[: written.borders[-1]])))
            bases, largest = written.base_timestamps, np.maximum(largest, written.max_timestamps)
    data = memoryview(b"".join(parts))
    return _Written(data, np.array([0, len(data)]), bases, largest)


def _filtered(scan: BatchScan, actions: npt.NDArray[np.int8], built: _Built, horizons_set: int) -> FilteredBatches:
    chosen = np.flatnonzero(actions)
    scan = scan.take(chosen) if len(chosen) < len(scan) else scan
    is_built = actions[chosen] != Action.COPY
    size, last_offset, max_timestamp = scan.size, scan.last_offset, scan.max_timestamp
    if is_built.any():
        size, last_offset, max_timestamp = size.copy(), last_offset.copy(), max_timestamp.copy()
        size[is_built], last_offset[is_built] = built.size, built.last_offset
        max_timestamp[is_built] = built.max_timestamp
    return FilteredBatches(_parts(scan, is_built, built), size, last_offset, max_timestamp, horizons_set)


def _borders(records: KeyedRecords) -> _Int64s:
    """Return (b + 1,) the first record number of each batch."""
    borders = np.zeros(len(records.scan) + 1, np.int64)
    np.cumsum(records.counts, out=borders[1:])
    return borders


def _count(mask: npt.NDArray[np.bool_], borders: _Int64s) -> _Int64s:
    """Return (b,) the number of each batch's records in a mask."""
    sums = np.zeros(len(mask) + 1, np.int64)
    np.cumsum(mask, out=sums[1:])
    counts: _Int64s = np.diff(sums[borders])
    return counts


def _parts(scan: BatchScan, is_built: npt.NDArray[np.bool_], built: _Built) -> list[_Part]:
    """Return the bytes of the kept batches, in as few pieces as possible."""
    if not len(scan):
        return []
    follows = (scan.position[1:] == scan.position[:-1] + scan.size[:-1]) | is_built[1:]
    starts = np.flatnonzero(np.append(True, ~follows | (is_built[1:] != is_built[:-1])))
    ends = np.append(starts[1:], len(scan))
    built_ends = np.append(0, np.cumsum(built.size))
    before = np.append(0, np.cumsum(is_built))
    parts: list[_Part] = []
    for start, end in zip(starts.tolist(), ends.tolist(), strict=True):
        if is_built[start]:
            parts.append(built.data[built_ends[before[start]] : built_ends[before[end]]])
        else:
            position = int(scan.position[start])
            parts.append((position, int(scan.position[end - 1] + scan.size[end - 1]) - position))
    return parts


def _build(
    records: KeyedRecords,
    stays: npt.NDArray[np.bool_],
    actions: npt.NDArray[np.int8],
    needs: npt.NDArray[np.bool_],
    options: RebuildOptions,
) -> _Built:
    """Build batches of format v2: those that lost records, got a horizon, or are empty."""
    chosen = np.flatnonzero(actions >= Action.REBUILD)
    scan = records.scan.take(chosen)
    if not len(chosen):
        return _Built(memoryview(b""), scan.size, scan.last_offset, scan.max_timestamp)
    left = _count(stays, _borders(records))[chosen]
    horizons = _horizons(scan, needs[chosen], options)
    return _sealed(scan, left, horizons, _write(records, stays, chosen, _bases(horizons)), options)


def _horizons(scan: BatchScan, needs: npt.NDArray[np.bool_], options: RebuildOptions) -> _Int64s:
    """Return (b,) the delete horizon of each batch."""
    has_horizon = (scan.attributes & DELETE_HORIZON_BIT) != 0
    horizons: _Int64s = np.where(has_horizon, scan.base_timestamp, _NO_HORIZON)
    horizons[needs] = options.delete_horizon_ms
    return horizons


def _bases(horizons: _Int64s) -> _Int64s:
    """Return (b,) the base timestamps of delete horizons."""
    return np.where(horizons == _NO_HORIZON, NO_BASE, horizons)


def _write(records: KeyedRecords, stays: npt.NDArray[np.bool_], chosen: _Int64s, bases: _Int64s) -> _Written:
    """Write the kept records of some batches."""
    borders = _borders(records)
    room = np.append(0, np.cumsum(np.where(stays, records.end - records.start + MAX_GROWTH_BYTES, 0)))
    out = np.empty(int(np.diff(room[borders])[chosen].sum()), np.uint8)
    base_timestamps, max_timestamps = np.empty((2, len(chosen)), np.int64)
    ends = np.empty(len(chosen) + 1, np.int64)
    rebuilt = (stays, records.table, borders, chosen, bases, base_timestamps, max_timestamps, ends, out)
    write_survivors(records.source, records.start, records.end, *rebuilt)
    return _Written(out.data, ends, base_timestamps, max_timestamps)


def _sealed(scan: BatchScan, left: _Int64s, horizons: _Int64s, written: _Written, options: RebuildOptions) -> _Built:
    """Return the batches of written sections."""
    is_empty = left == 0
    base_timestamps = np.where(is_empty, -1, written.base_timestamps)
    is_fixed = is_empty | ((scan.attributes & LOG_APPEND_TIME_BIT) != 0)
    max_timestamps = np.where(is_fixed, scan.max_timestamp, written.max_timestamps)
    codecs = _codecs(scan, is_empty, options)
    headers = _headers(scan, left, base_timestamps, max_timestamps)
    headers["attributes"] = (scan.attributes & _KEPT_FLAGS) | codecs
    headers["attributes"] |= np.where(~is_empty & (horizons != _NO_HORIZON), DELETE_HORIZON_BIT, 0).astype(np.int16)
    return _seal(scan, headers, codecs, written.data, written.borders, options)


def _codecs(scan: BatchScan, is_empty: npt.NDArray[np.bool_], options: RebuildOptions) -> npt.NDArray[np.int16]:
    """Return (b,) the number of each batch's codec; control batches are never compressed."""
    own = scan.attributes & CODEC_MASK
    codecs = own if options.codec is None else np.full(len(scan), CODECS.index(options.codec), np.int16)
    return np.where(is_empty, 0, np.where(is_control(scan), own, codecs)).astype(np.int16)


def _headers(scan: BatchScan, left: _Int64s, base_timestamps: _Int64s, max_timestamps: _Int64s) -> npt.NDArray[np.void]:
    headers = np.zeros(len(scan), HEADER_DTYPE)
    headers["base_offset"] = scan.base_offset
    headers["partition_leader_epoch"] = scan.leader_epoch
    headers["magic"] = MAGIC_V2
    headers["last_offset_delta"] = scan.last_offset_delta
    headers["base_timestamp"] = base_timestamps
    headers["max_timestamp"] = max_timestamps
    headers["producer_id"] = scan.producer_id
    headers["producer_epoch"] = scan.producer_epoch
    headers["base_sequence"] = scan.base_sequence
    headers["records_count"] = left
    return headers


def _seal(
    scan: BatchScan,
    headers: npt.NDArray[np.void],
    codecs: npt.NDArray[np.int16],
    sections: memoryview,
    ends: _Int64s,
    options: RebuildOptions,
) -> _Built:
    """Join headers and sections, compressed if needed, and set each batch's CRC."""
    level = options.level if options.codec is not None else 0
    streams: list[bytes | memoryview] = []
    borders = ends.tolist()
    for codec, start, end in zip(codecs.tolist(), borders, borders[1:], strict=False):
        streams.append(compress(CODECS[codec], sections[start:end], level) if codec else sections[start:end])
    sizes = np.fromiter(map(len, streams), np.int64, len(streams)) + HEADER_BYTES
    headers["batch_length"] = sizes - LOG_OVERHEAD_BYTES
    raw = headers.view(np.uint8).data
    parts: list[bytes | memoryview] = []
    for number, stream in enumerate(streams):
        header = raw[number * HEADER_BYTES : (number + 1) * HEADER_BYTES]
        crc = V2_CRC.update(stream, V2_CRC.update(header[V2_CRC.covers_from :]))
        header[V2_CRC.at : V2_CRC.covers_from] = crc.to_bytes(4, "big")
        parts += (header, stream)
    return _Built(memoryview(b"".join(parts)), sizes, scan.last_offset, headers["max_timestamp"].astype(np.int64))


def _build_legacy(
    data: ByteSource, records: KeyedRecords, stays: npt.NDArray[np.bool_], rebuilt: _Int64s, options: RebuildOptions
) -> _Built:
    """Build wrappers of format v0 and v1 that lost some of their records."""
    borders, parts = _borders(records), list[npt.NDArray[np.uint8]]()
    last_offsets, max_timestamps = list[int](), list[int]()
    for number in rebuilt.tolist():
        one = records.scan.take(slice(number, number + 1))
        kept = decode_batches(data, one).filter(stays[borders[number] : borders[number + 1]])
        codec = LEGACY_CODECS[int(one.attributes[0]) & CODEC_MASK]
        has_append_time = bool(one.attributes[0] & LOG_APPEND_TIME_BIT) and one.magic[0] == 1
        encoded = encode_legacy(
            RecordColumns(
                key=kept.column("key"),
                value=kept.column("value"),
                timestamp=kept.column("timestamp").to_numpy(),
                offset=kept.column("offset").to_numpy(),
            ),
            np.arange(kept.num_rows),
            np.array([0, kept.num_rows]),
            LegacyEncodeOptions(
                magic=int(one.magic[0]),
                codec=options.codec if options.codec in LEGACY_CODECS[1:] else codec,
                level=options.level if options.codec in LEGACY_CODECS[1:] else 0,
                timestamp_type=LOG_APPEND_TIME if has_append_time else CREATE_TIME,
                batch_size_bytes=MAX_DECOMPRESSED_BYTES,
                max_message_bytes=INT32_MAX,
            ),
        )
        parts.append(encoded.data)
        last_offsets.append(int(encoded.base_offset[0]) + int(encoded.last_offset_delta[0]))
        max_timestamps.append(int(encoded.max_timestamp[0]))
    sizes = np.fromiter(map(len, parts), np.int64, len(parts))
    joined = memoryview(b"".join(part.data for part in parts))
    return _Built(joined, sizes, np.array(last_offsets, np.int64), np.array(max_timestamps, np.int64))
