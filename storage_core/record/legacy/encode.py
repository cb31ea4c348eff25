"""Encodes columns into entries of format v0 or v1, vectorised.

Without a codec each record is an entry of its own. With one, the entries of a set become the value of a *wrapper*: in
v0 they keep their absolute offsets, in v1 they count from the set's first record; the wrapper's own offset is that of
its last record. Headers are dropped: these formats have none.

As in Kafka's rebuilt sets, the entries inside a wrapper have the LogAppendTime bit, too; readers use the wrapper's.

Source: Kafka MemoryRecordsBuilder, LegacyRecord, AbstractLegacyRecordBatch; KIP-31, KIP-32.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

from sparklog.storage_core.errors import InvalidConfigError, InvalidRecordError, RecordTooLargeError
from sparklog.storage_core.log_config import CODECS, INT32_MAX, INT64_MAX
from sparklog.storage_core.record.attributes import pack_attributes
from sparklog.storage_core.record.batch_probe import LEGACY_CRC, LOG_OVERHEAD_BYTES
from sparklog.storage_core.record.compression import MAX_DECOMPRESSED_BYTES, check_level, compress
from sparklog.storage_core.record.legacy.encode_kernels import measure_entries, plan_sets, write_entries
from sparklog.storage_core.record.legacy.header import (
    MIN_ENTRY_BYTES,
    LegacyHeader,
    pack_legacy_header,
)
from sparklog.storage_core.record.schema import CREATE_TIME, LOG_APPEND_TIME, NO_TIMESTAMP
from sparklog.storage_core.record.v2.batch_encode import EncodedBatches, starts_of
from sparklog.storage_core.record.v2.encode_kernels import PlanColumn
from sparklog.storage_core.record.v2.record_columns import RecordColumns, kernel_columns

__all__ = ["LEGACY_CODECS", "LegacyEncodeOptions", "encode_legacy"]

LEGACY_CODECS: Final = CODECS[:4]
"""zstd came with format v2."""

_NO_KEY_AND_VALUE_LENGTH: Final = struct.Struct(">ii")
_LZ4_CHECKSUM_AT: Final = 6
_LZ4_OLD_HEAD: Final = bytes.fromhex("04224d18604082")
_LZ4_OLD_CHECKSUM: Final = b"\x1a"

_Int64s: TypeAlias = npt.NDArray[np.int64]
_Stream: TypeAlias = bytes | memoryview


@dataclass(frozen=True, slots=True, kw_only=True)
class LegacyEncodeOptions:
    """Settings of an encoding.

    Attributes:
        magic: 0 or 1.
        codec: one of `LEGACY_CODECS`.
        level: in Kafka's range for the codec; 0 is Kafka's default.
        timestamp_type: `LOG_APPEND_TIME` if the given timestamps are those of the append; v0 has no types.
        batch_size_bytes: uncompressed size that closes a wrapper's set; one record is always allowed.
        max_message_bytes: size of the largest entry, after compression.
    """

    magic: int
    codec: str = "none"
    level: int = 0
    timestamp_type: int = CREATE_TIME
    batch_size_bytes: int = 16384
    max_message_bytes: int = 1048588

    def __post_init__(self) -> None:
        problems = [problem for problem in [check_level(self.codec, self.level)] if problem]
        if self.magic not in (0, 1):
            problems.append(f"magic={self.magic} is neither 0 nor 1")
        if self.codec in CODECS and self.codec not in LEGACY_CODECS:
            problems.append(f"codec={self.codec!r} is unknown in format v{self.magic}")
        if self.timestamp_type not in (CREATE_TIME, LOG_APPEND_TIME):
            problems.append(f"timestamp_type={self.timestamp_type} is neither {CREATE_TIME} nor {LOG_APPEND_TIME}")
        problems += [
            f"{name}={getattr(self, name)} is outside 0..{INT32_MAX}"
            for name in ("batch_size_bytes", "max_message_bytes")
            if not 0 <= getattr(self, name) <= INT32_MAX
        ]
        if problems:
            raise InvalidConfigError("; ".join(problems))


def encode_legacy(
    columns: RecordColumns, rows: _Int64s, group_starts: _Int64s, options: LegacyEncodeOptions
) -> EncodedBatches:
    """Return the entries of every group; a wrapper is one entry.

    Args:
        columns: of n records; without offsets, those of each group count from 0.
        rows: row numbers, sorted by group, in record order inside a group.
        group_starts: (g + 1,) borders of the groups inside `rows`.

    Returns:
        one element per entry; `base_offset` and `last_offset_delta` are those of the records in it.

    Raises:
        InvalidRecordError: a row can't become a record: too large, an offset going back, a timestamp before 1970.
    """
    starts = np.ascontiguousarray(group_starts, np.int64)
    rows = np.ascontiguousarray(rows, np.int64)
    if not starts.size or starts[0] < 0 or starts[-1] > rows.size or (np.diff(starts) < 0).any():
        raise ValueError("group_starts are no borders inside rows")
    run = _Run(columns, rows[starts[0] : starts[-1]], starts - starts[0], options)
    return run.encode_plain() if options.codec == "none" else run.encode_wrapped()


class _Run:
    """State of one call: its columns, and the r records of all groups."""

    def __init__(self, columns: RecordColumns, rows: _Int64s, starts: _Int64s, options: LegacyEncodeOptions) -> None:
        self.options = options
        self.rows = rows
        self.starts = starts
        self.keys, self.values, _, _, _, timestamps, offsets = kernel_columns(columns)
        self.sizes = np.empty(rows.size, np.int64)
        self._measure()
        self.offsets = offsets[rows] if offsets.size else _counted(starts)
        self._check_offsets()
        self.timestamps = timestamps[rows] if options.magic else np.full(rows.size, NO_TIMESTAMP, np.int64)
        if (self.timestamps < NO_TIMESTAMP).any():
            row = rows[int(np.argmax(self.timestamps < NO_TIMESTAMP))]
            raise InvalidRecordError(f"timestamp is before 1970, which format v1 can't represent row={row}")

    def encode_plain(self) -> EncodedBatches:
        """Return an entry per record."""
        self._refuse_above(self.options.max_message_bytes)
        starts = starts_of(self.sizes)
        return EncodedBatches(
            data=self._entries(slice(None), self.offsets),
            group=np.repeat(np.arange(self.starts.size - 1, dtype=np.int32), np.diff(self.starts)),
            position=starts,
            size=self.sizes.astype(np.int32),
            records_count=np.ones(self.rows.size, np.int32),
            last_offset_delta=np.zeros(self.rows.size, np.int32),
            base_offset=self.offsets,
            max_timestamp=self.timestamps,
        )

    def encode_wrapped(self) -> EncodedBatches:
        """Return a wrapper per set of records."""
        self._refuse_above(MAX_DECOMPRESSED_BYTES)
        plan: list[_Int64s] = []
        parts: list[_Stream] = []
        sizes: list[int] = []
        limit_bytes = min(self.options.batch_size_bytes, MAX_DECOMPRESSED_BYTES)
        for each, head, stream in self._wrappers(self._plan(self.starts, limit_bytes)):
            plan.append(each)
            parts += (head, stream)
            sizes.append(len(head) + len(stream))
        done = np.array(plan, np.int64).reshape(len(plan), PlanColumn.WIDTH)
        size_column = np.array(sizes, np.int64)
        return EncodedBatches(
            data=np.frombuffer(bytearray().join(parts), np.uint8),
            group=done[:, PlanColumn.GROUP].astype(np.int32),
            position=starts_of(size_column),
            size=size_column.astype(np.int32),
            records_count=done[:, PlanColumn.COUNT].astype(np.int32),
            last_offset_delta=done[:, PlanColumn.LAST_DELTA].astype(np.int32),
            base_offset=self.offsets[done[:, PlanColumn.FIRST]],
            max_timestamp=done[:, PlanColumn.MAX_TIMESTAMP].copy(),
        )

    def _measure(self) -> None:
        (key_offsets, _, key_flags), (value_offsets, _, value_flags) = self.keys, self.values
        fixed_bytes = MIN_ENTRY_BYTES[self.options.magic]
        fields = (key_offsets, key_flags, value_offsets, value_flags)
        outside = measure_entries(*fields, self.rows, fixed_bytes, self.sizes)
        if outside >= 0:
            raise ValueError(f"rows hold a number outside the columns row={self.rows[outside]}")

    def _check_offsets(self) -> None:
        bad = (self.offsets < 0) | (self.offsets == INT64_MAX)
        bad[1:] |= self.offsets[1:] <= self.offsets[:-1]
        firsts = self.starts[:-1][np.diff(self.starts) > 0]
        bad[firsts] = (self.offsets[firsts] < 0) | (self.offsets[firsts] == INT64_MAX)
        if bad.any():
            row = self.rows[int(np.argmax(bad))]
            raise InvalidRecordError(f"offset is negative, the largest int64, or not above the one before it row={row}")

    def _refuse_above(self, limit_bytes: int) -> None:
        if (self.sizes > limit_bytes).any():
            place = int(np.argmax(self.sizes > limit_bytes))
            raise RecordTooLargeError(int(self.rows[place]), int(self.sizes[place]), limit_bytes)

    def _plan(self, starts: _Int64s, limit_bytes: int) -> _Int64s:
        sets = np.empty((int(starts[-1] - starts[0]), PlanColumn.WIDTH), np.int64)
        planned = plan_sets(self.offsets, self.timestamps, self.sizes, starts, limit_bytes, sets)
        return sets[:planned]

    def _wrappers(self, plan: _Int64s) -> Iterator[tuple[_Int64s, bytes, _Stream]]:
        """Yield each set with its wrapper's fields and compressed value, divided if it is too large."""
        for each in plan:
            first, count = int(each[PlanColumn.FIRST]), int(each[PlanColumn.COUNT])
            chosen = slice(first, first + count)
            base_offset = self.offsets[first] if self.options.magic else 0
            entries = self._entries(chosen, self.offsets[chosen] - base_offset)
            stream = compress(self.options.codec, entries.data, self.options.level)
            if self.options.codec == "lz4" and self.options.magic == 0:
                stream = _with_old_checksum(stream)
            head = self._wrapper_head(each, stream)
            size = len(head) + len(stream)
            if size <= self.options.max_message_bytes:
                yield each, head, stream
            elif count == 1:
                raise RecordTooLargeError(int(self.rows[first]), size, self.options.max_message_bytes)
            else:
                smaller = self._plan(np.array([first, first + count]), int(each[PlanColumn.SIZE]) // 2)
                smaller[:, PlanColumn.GROUP] = each[PlanColumn.GROUP]
                yield from self._wrappers(smaller)

    def _entries(self, chosen: slice, offsets: _Int64s) -> npt.NDArray[np.uint8]:
        """Return the entries of some records, back to back."""
        sizes = self.sizes[chosen]
        out = np.empty(int(sizes.sum()), np.uint8)
        kind = (self.options.magic, self._attributes("none"))
        records = (self.rows[chosen], offsets, self.timestamps[chosen], starts_of(sizes), sizes)
        write_entries(*self.keys, *self.values, *records, kind, out)
        return out

    def _wrapper_head(self, plan: _Int64s, stream: _Stream) -> bytes:
        """Return a wrapper's bytes before its value, CRC included."""
        magic = self.options.magic
        last = int(self.offsets[int(plan[PlanColumn.FIRST])]) + int(plan[PlanColumn.LAST_DELTA])
        header = LegacyHeader(
            offset=last,
            message_size=MIN_ENTRY_BYTES[magic] - LOG_OVERHEAD_BYTES + len(stream),
            crc=0,
            magic=magic,
            attributes=self._attributes(self.options.codec),
            timestamp=int(plan[PlanColumn.MAX_TIMESTAMP]),
        )
        lengths = _NO_KEY_AND_VALUE_LENGTH.pack(-1, len(stream))
        covered = pack_legacy_header(header)[LEGACY_CRC.covers_from :] + lengths
        crc = LEGACY_CRC.update(stream, LEGACY_CRC.update(covered))
        return pack_legacy_header(replace(header, crc=crc)) + lengths

    def _attributes(self, codec: str) -> int:
        has_append_time = self.options.magic > 0 and self.options.timestamp_type == LOG_APPEND_TIME
        return pack_attributes(codec, log_append_time=has_append_time)


def _counted(starts: _Int64s) -> _Int64s:
    """Return 0, 1, 2, ... of each group."""
    lengths = np.diff(starts)
    counted: _Int64s = np.arange(int(starts[-1]), dtype=np.int64) - np.repeat(starts[:-1], lengths)
    return counted


def _with_old_checksum(frame: _Stream) -> bytes:
    """Return an LZ4 frame with the header checksum that format v0's writers computed, from the magic number on."""
    if bytes(frame[: len(_LZ4_OLD_HEAD)]) != _LZ4_OLD_HEAD:
        raise ValueError("the LZ4 library writes another header than Kafka's")
    return b"".join((frame[:_LZ4_CHECKSUM_AT], _LZ4_OLD_CHECKSUM, frame[_LZ4_CHECKSUM_AT + 1 :]))
