"""Converts batches between formats, as Kafka does.

Batches of the wanted format are copied byte for byte. The others are decoded and rebuilt, with their offsets, codec and
timestamp type. Down to v0 or v1, as for an old consumer: control batches, headers and all fields of producers are
dropped, v0 drops timestamps, too. Up to v2, as for an old producer: records get no producer, those of v0 no timestamp,
and the batch gets the leader epoch of the one before it, as if the leader had appended it.

A batch becomes one batch; one of v2 with more than 131,072 records becomes several wrappers. Entries without a codec,
each its own batch in v0 and v1, are first joined into sets of 16 KiB, a producer's default, if the result is a batch of
v2 or a wrapper.

Source: Kafka RecordsUtil.downConvert, LogValidator.convertAndAssignOffsetsNonCompressed; KIP-31, KIP-98.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sparklog.storage_core.errors import CorruptBatchError, InvalidConfigError, UnsupportedFormatError
from sparklog.storage_core.log_config import CODECS, INT32_MAX
from sparklog.storage_core.record.attributes import (
    CODEC_MASK,
    CONTROL_BIT,
    DELETE_HORIZON_BIT,
    LOG_APPEND_TIME_BIT,
    TRANSACTIONAL_BIT,
)
from sparklog.storage_core.record.batch_decode import iter_decoded
from sparklog.storage_core.record.batch_probe import MAGIC_V2, V2_CRC
from sparklog.storage_core.record.batch_scan import BatchScan
from sparklog.storage_core.record.compression import MAX_DECOMPRESSED_BYTES
from sparklog.storage_core.record.legacy.encode import LEGACY_CODECS, LegacyEncodeOptions, encode_legacy
from sparklog.storage_core.record.schema import CREATE_TIME, LOG_APPEND_TIME, NO_TIMESTAMP
from sparklog.storage_core.record.v2.batch_encode import EncodedBatches, EncodeOptions, encode_batches
from sparklog.storage_core.record.v2.batch_header import ByteSource, place_of
from sparklog.storage_core.record.v2.record_columns import RecordColumns

__all__ = ["ConversionCounts", "ConvertOptions", "ConvertedBatches", "convert_batches"]

_SET_BYTES: Final = 16384
_LOW_ATTRIBUTES_AT: Final = place_of("attributes") + 1

_Int64s: TypeAlias = npt.NDArray[np.int64]
_Bools: TypeAlias = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True)
class ConvertOptions:
    """Settings of a conversion.

    Attributes:
        magic: 0, 1 or 2, of the wanted format.
        codec: of every rebuilt batch; None keeps each one's own.
    """

    magic: int
    codec: str | None = None

    def __post_init__(self) -> None:
        if self.magic not in (0, 1, MAGIC_V2):
            raise InvalidConfigError(f"magic={self.magic} is of no format")
        known = CODECS if self.magic == MAGIC_V2 else LEGACY_CODECS
        if self.codec is not None and self.codec not in known:
            raise InvalidConfigError(f"codec={self.codec!r} is none of {', '.join(known)}, those of v{self.magic}")


@dataclass(slots=True, kw_only=True)
class ConversionCounts:
    """Numbers of batches and records, and of their lost fields.

    Attributes:
        copied_batches: already of the wanted format.
        rebuilt_batches: decoded ones, and `rebuilt_records` in them.
        control_batches: dropped ones, which leave a gap in the offsets; so do `empty_batches`.
        records_without_headers: records that lost headers.
        records_without_timestamp: records that lost a timestamp.
        batches_without_producer: batches that lost a producer id.
        batches_without_transaction: batches of transactions; aborted records are ordinary ones now.
        batches_without_delete_horizon: batches that lost the time at which their tombstones may be dropped.
    """

    copied_batches: int = 0
    rebuilt_batches: int = 0
    rebuilt_records: int = 0
    control_batches: int = 0
    empty_batches: int = 0
    records_without_headers: int = 0
    records_without_timestamp: int = 0
    batches_without_producer: int = 0
    batches_without_transaction: int = 0
    batches_without_delete_horizon: int = 0


@dataclass(frozen=True, slots=True)
class ConvertedBatches:
    """Some batches of the result, in order; b is their number.

    Attributes:
        parts: their bytes, in pieces.
        first_offset: of the first record; of a wrapper that was copied, of its last one.
        size: (b,) bytes of each.
        last_offset: (b,) of each.
        max_timestamp: (b,) of each header, -1 none.
        leader_epoch: (b,) of each, -1 none.
    """

    parts: list[memoryview]
    first_offset: int
    size: _Int64s
    last_offset: _Int64s
    max_timestamp: _Int64s
    leader_epoch: _Int64s


def convert_batches(
    data: ByteSource, scan: BatchScan, options: ConvertOptions, leader_epoch: int, counts: ConversionCounts
) -> Iterator[ConvertedBatches]:
    """Yield the batches of `scan` in the wanted format.

    Args:
        data: bytes of a log; the CRCs were checked.
        scan: of its batches, or of some; their offsets rise, which gives each record's batch.
        leader_epoch: of the batch before them, for those that have none.
        counts: updated.

    Raises:
        CorruptBatchError: a batch's bytes contradict themselves; earlier ones were yielded.
        UnsupportedFormatError: the wanted format has no such codec.
        InvalidRecordError: the wanted format can't represent a record's timestamp.
    """
    view = np.frombuffer(data, np.uint8).data
    if not len(scan):
        return
    is_wanted = scan.magic == options.magic
    borders = np.flatnonzero(np.diff(is_wanted)) + 1
    for first, end in zip([0, *borders.tolist()], [*borders.tolist(), len(scan)], strict=True):
        chosen = scan.take(slice(first, end))
        if is_wanted[first]:
            counts.copied_batches += len(chosen)
            yield _copied(view, chosen)
        else:
            yield from _Rebuild(data, chosen, options, leader_epoch, counts).batches()
        leader_epoch = max(leader_epoch, int(chosen.leader_epoch.max()))


def _copied(view: memoryview, scan: BatchScan) -> ConvertedBatches:
    start, end = int(scan.position[0]), int(scan.position[-1] + scan.size[-1])
    return ConvertedBatches(
        parts=[view[start:end]],
        first_offset=int(scan.base_offset[0]),
        size=scan.size,
        last_offset=scan.last_offset,
        max_timestamp=scan.max_timestamp,
        leader_epoch=scan.leader_epoch.astype(np.int64),
    )


@dataclass(frozen=True, slots=True)
class _Kind:
    """Common settings of the batches of one encoder call."""

    codec: str
    timestamp_type: int
    is_set: bool


@dataclass(slots=True)
class _Rebuild:
    """A run of batches, none of the wanted format."""

    data: ByteSource
    scan: BatchScan
    options: ConvertOptions
    leader_epoch: int
    counts: ConversionCounts
    _is_plain_entry: _Bools = field(init=False)
    _codec: npt.NDArray[np.int16] = field(init=False)
    _has_append_time: _Bools = field(init=False)

    def batches(self) -> Iterator[ConvertedBatches]:
        is_control = (self.scan.magic == MAGIC_V2) & ((self.scan.attributes & CONTROL_BIT) != 0)
        is_empty = self.scan.records_count == 0
        self.counts.control_batches += int(is_control.sum())
        self.counts.empty_batches += int((is_empty & ~is_control).sum())
        self.scan = self.scan.take(~(is_control | is_empty))
        if not len(self.scan):
            return
        self._read_attributes()
        self._count_batches()
        for records in iter_decoded(self.data, self.scan):
            if records.num_rows:
                yield self._encode(records)

    def _read_attributes(self) -> None:
        own = self.scan.attributes & CODEC_MASK
        self._is_plain_entry = (self.scan.magic < MAGIC_V2) & (own == 0)
        wanted = self.options.codec
        self._codec = own if wanted is None else np.full(len(own), CODECS.index(wanted), np.int16)
        self._has_append_time = (self.scan.magic > 0) & ((self.scan.attributes & LOG_APPEND_TIME_BIT) != 0)
        unknown = self._codec >= (len(CODECS) if self.options.magic == MAGIC_V2 else len(LEGACY_CODECS))
        if unknown.any():
            first = int(np.argmax(unknown))
            if int(self._codec[first]) >= len(CODECS):
                raise CorruptBatchError("attributes name no codec", int(self.scan.position[first]))
            raise UnsupportedFormatError(
                f"format v{self.options.magic} has no {CODECS[int(self._codec[first])]}, another codec has to be given:"
                f" offset={self.scan.base_offset[first]}"
            )

    def _count_batches(self) -> None:
        scan, counts = self.scan, self.counts
        counts.rebuilt_batches += len(scan)
        v2 = scan.magic == MAGIC_V2
        counts.batches_without_producer += int((v2 & (scan.producer_id >= 0)).sum())
        counts.batches_without_transaction += int((v2 & ((scan.attributes & TRANSACTIONAL_BIT) != 0)).sum())
        counts.batches_without_delete_horizon += int((v2 & ((scan.attributes & DELETE_HORIZON_BIT) != 0)).sum())

    def _count_records(self, records: pa.RecordBatch) -> None:
        self.counts.rebuilt_records += records.num_rows
        if self.options.magic < MAGIC_V2:
            headers = records.column("headers")
            lengths = np.diff(np.frombuffer(headers.buffers()[1], np.int32)[headers.offset :][: len(headers) + 1])
            self.counts.records_without_headers += int((lengths > 0).sum())
        if self.options.magic == 0:
            timestamps = records.column("timestamp").to_numpy()
            self.counts.records_without_timestamp += int((timestamps != NO_TIMESTAMP).sum())

    def _encode(self, records: pa.RecordBatch) -> ConvertedBatches:
        """Return decoded records as batches, by one encoder call for each kind of batch."""
        self._count_records(records)
        columns, batch = _columns(records), self._batch_of(records)
        group = self._groups(records, batch)
        first_rows = np.flatnonzero(np.diff(group, prepend=-1))
        kinds = self._kinds(batch[first_rows])
        names, kind_of_group = np.unique(kinds, axis=0, return_inverse=True)
        encoded = []
        for number, name in enumerate(names):
            groups = np.flatnonzero(kind_of_group.reshape(-1) == number)
            rows = np.flatnonzero(np.isin(group, groups)) if len(names) > 1 else np.arange(len(group))
            lengths = np.diff(first_rows, append=len(group))[groups]
            starts = np.concatenate([[0], np.cumsum(lengths)])
            kind = _Kind(CODECS[int(name[0])], int(name[1]), bool(name[2]))
            encoded.append((groups, self._encode_kind(columns, rows, starts, kind)))
        return self._joined(encoded)

    def _batch_of(self, records: pa.RecordBatch) -> _Int64s:
        """Return (n,) the place in the scan of each record's batch."""
        offsets = records.column("offset").to_numpy()
        batch: _Int64s = np.searchsorted(self.scan.last_offset, offsets).astype(np.int64)
        goes_back = offsets[1:] <= offsets[:-1]
        if goes_back.any() or batch[-1] == len(self.scan):
            row = int(np.argmax(goes_back)) + 1 if batch[-1] < len(self.scan) else len(offsets) - 1
            place = min(int(batch[row]), len(self.scan) - 1)
            what = f"a record's offset goes back, or is outside of its batch: offset={offsets[row]}"
            raise CorruptBatchError(what, int(self.scan.position[place]))
        return batch

    def _groups(self, records: pa.RecordBatch, batch: _Int64s) -> _Int64s:
        """Return (n,) the number of each record's set: its batch, or adjacent plain entries."""
        starts = np.ones(len(batch), np.bool_)
        before, after = batch[:-1], batch[1:]
        plain = self._is_plain_entry
        joined = plain[before] & plain[after] & (self._has_append_time[before] == self._has_append_time[after])
        timestamps = records.column("timestamp").to_numpy()
        joined &= ~self._has_append_time[after] | (timestamps[1:] == timestamps[:-1])
        starts[1:] = ~joined & (before != after)
        numbers: _Int64s = np.cumsum(starts) - 1
        return numbers

    def _kinds(self, first_batches: _Int64s) -> _Int64s:
        """Return (g, 3) codec, timestamp type, and whether it is a set of plain entries, of each group."""
        kinds = np.empty((len(first_batches), 3), np.int64)
        kinds[:, 0] = self._codec[first_batches]
        kinds[:, 1] = np.where(self._has_append_time[first_batches], LOG_APPEND_TIME, CREATE_TIME)
        kinds[:, 2] = self._is_plain_entry[first_batches]
        return kinds

    def _encode_kind(self, columns: RecordColumns, rows: _Int64s, starts: _Int64s, kind: _Kind) -> EncodedBatches:
        limit_bytes = _SET_BYTES if kind.is_set else MAX_DECOMPRESSED_BYTES
        if self.options.magic < MAGIC_V2:
            legacy = LegacyEncodeOptions(
                magic=self.options.magic,
                codec=kind.codec,
                timestamp_type=kind.timestamp_type,
                batch_size_bytes=limit_bytes,
                max_message_bytes=INT32_MAX,
            )
            return encode_legacy(columns, rows, starts, legacy)
        options = EncodeOptions(
            codec=kind.codec,
            batch_size_bytes=limit_bytes,
            max_message_bytes=INT32_MAX,
            partition_leader_epoch=self.leader_epoch,
        )
        encoded = encode_batches(columns, rows, starts, options)
        if kind.timestamp_type == LOG_APPEND_TIME:
            _mark_append_time(encoded)
        return encoded

    def _joined(self, encoded: list[tuple[_Int64s, EncodedBatches]]) -> ConvertedBatches:
        """Return the batches of several calls in the order of their groups."""
        group = np.concatenate([groups[each.group] for groups, each in encoded])
        call = np.repeat(np.arange(len(encoded)), [len(each.group) for _, each in encoded])
        order = np.argsort(group, kind="stable")
        position, size, base_offset, last_delta, max_timestamp = (
            np.concatenate([getattr(each, name) for _, each in encoded]).astype(np.int64)[order]
            for name in ("position", "size", "base_offset", "last_offset_delta", "max_timestamp")
        )
        call = call[order]
        borders = np.flatnonzero(np.diff(call)) + 1
        views = [each.data.data for _, each in encoded]
        parts = [
            views[call[first]][int(position[first]) : int(position[end - 1] + size[end - 1])]
            for first, end in zip([0, *borders.tolist()], [*borders.tolist(), len(call)], strict=True)
        ]
        epoch = self.leader_epoch if self.options.magic == MAGIC_V2 else -1
        return ConvertedBatches(
            parts=parts,
            first_offset=int(base_offset[0]),
            size=size,
            last_offset=base_offset + last_delta,
            max_timestamp=max_timestamp,
            leader_epoch=np.full(len(size), epoch, np.int64),
        )


def _columns(records: pa.RecordBatch) -> RecordColumns:
    """Return the columns of both formats: one of the two has no headers."""
    return RecordColumns(
        key=records.column("key"),
        value=records.column("value"),
        timestamp=records.column("timestamp").to_numpy(),
        offset=records.column("offset").to_numpy(),
    )


def _mark_append_time(encoded: EncodedBatches) -> None:
    """Turn batches into LogAppendTime batches; their records already have the append's time."""
    view = encoded.data.data
    ends = (encoded.position + encoded.size).tolist()
    for start, end in zip(encoded.position.tolist(), ends, strict=True):
        view[start + _LOW_ATTRIBUTES_AT] |= LOG_APPEND_TIME_BIT
        crc = V2_CRC.update(view[start + V2_CRC.covers_from : end])
        view[start + V2_CRC.at : start + V2_CRC.covers_from] = crc.to_bytes(4, "big")
