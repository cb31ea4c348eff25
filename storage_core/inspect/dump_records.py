"""The lines of a `.log` file: one per batch, and one per record under it.

Source: Kafka DumpLogSegments.dumpLog; 4.3.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, TextIO

import pyarrow as pa

from storage_core.errors import CorruptBatchError
from storage_core.inspect.dump_errors import DumpErrors
from storage_core.inspect.dump_options import NO_LIMIT, DumpOptions
from storage_core.log.segment_reader import BatchChunk, SegmentReader
from storage_core.log.segments import SegmentFiles
from storage_core.record.batch_decode import decode_batches
from storage_core.record.batch_header import MAGIC_V2, BatchHeader, unpack_header
from storage_core.record.batch_scan import check_crcs

__all__ = ["dump_log_file", "java_boolean", "java_optional"]

_TIMESTAMP_TYPES: Final = ("CreateTime", "LogAppendTime")
_CONTROL_TYPES: Final = {
    0: "ABORT",
    1: "COMMIT",
    2: "LEADER_CHANGE",
    3: "SNAPSHOT_HEADER",
    4: "SNAPSHOT_FOOTER",
    5: "KRAFT_VERSION",
    6: "KRAFT_VOTERS",
}
_INVALID_BYTES: Final = "Found {} invalid bytes at the end of {}"


def dump_log_file(path: Path, base_offset: int, options: DumpOptions, out: TextIO, errors: DumpErrors) -> None:
    """Write a `.log` file's lines to `out` and add what is wrong to `errors`."""
    print(f"Log starting offset: {base_offset}", file=out)
    with SegmentReader(SegmentFiles(base_offset, path)) as reader:
        reader.size_bytes = min(reader.size_bytes, options.max_bytes)
        try:
            for chunk in reader.chunks():
                _dump_chunk(path, chunk, options, out, errors)
        except CorruptBatchError as error:
            errors.add_other(f"{error.args[0]} position={error.position}")
        rest = reader.size_bytes - reader.valid_bytes
        if rest > 0 and options.max_bytes == NO_LIMIT:
            print(_INVALID_BYTES.format(rest, path.name), file=out)
            errors.is_damaged = True


def java_boolean(value: bool) -> str:
    """Return a boolean as Java prints it."""
    return "true" if value else "false"


def java_optional(value: int | None, none: int | None = None) -> str:
    """Return an OptionalLong as Java prints it; `none` stands for no value."""
    return "OptionalLong.empty" if value == none else f"OptionalLong[{value}]"


def _dump_chunk(path: Path, chunk: BatchChunk, options: DumpOptions, out: TextIO, errors: DumpErrors) -> None:
    damaged = set(check_crcs(chunk.data, chunk.scan).tolist())
    for number, start in enumerate(chunk.scan.position.tolist()):
        header = unpack_header(chunk.data, start)
        position = chunk.position + start
        if header.magic != MAGIC_V2:
            errors.add_other(f"message format of magic {header.magic} is not read: {path} position={position}")
            continue
        is_valid = number not in damaged
        errors.is_damaged |= not is_valid
        print(_batch_line(header, position, is_valid), file=out)
        if options.prints_records:
            try:
                records = decode_batches(chunk.data, chunk.scan.take(slice(number, number + 1)), include_control=True)
            except CorruptBatchError as error:
                errors.add_other(f"{error.args[0]}: {path} position={position}")
                continue
            _note_gaps(path, records.column("offset").to_pylist(), errors)
            out.writelines(_record_lines(header, records, options))


def _batch_line(header: BatchHeader, position: int, is_valid: bool) -> str:
    codec = header.attributes & 0x07
    return (
        f"baseOffset: {header.base_offset} lastOffset: {header.last_offset} count: {header.records_count}"
        f" baseSequence: {header.base_sequence} lastSequence: {header.last_sequence}"
        f" producerId: {header.producer_id} producerEpoch: {header.producer_epoch}"
        f" partitionLeaderEpoch: {header.partition_leader_epoch}"
        f" isTransactional: {java_boolean(header.is_transactional)} isControl: {java_boolean(header.is_control)}"
        f" deleteHorizonMs: {java_optional(header.delete_horizon_ms)} position: {position}"
        f" {_TIMESTAMP_TYPES[header.timestamp_type]}: {header.max_timestamp} size: {header.size_bytes}"
        f" magic: {header.magic} compresscodec: {header.codec if codec < 5 else f'unknown({codec})'}"
        f" crc: {header.crc} isvalid: {java_boolean(is_valid)}"
    )


def _note_gaps(path: Path, offsets: list[int], errors: DumpErrors) -> None:
    """Note offsets that do not follow each other, also from the batch before."""
    known = errors.last_offsets
    for offset in offsets:
        last = known.get(path)
        if last is not None and offset != last + 1:
            errors.non_consecutive.setdefault(str(path.absolute()), []).append((last, offset))
        known[path] = offset


def _record_lines(header: BatchHeader, records: pa.RecordBatch, options: DumpOptions) -> Iterator[str]:
    for record in records.to_pylist():
        line, separator = "", "| "
        if not options.skip_record_metadata:
            line, separator = separator + _metadata(header, record), " "
        if options.prints_contents and not header.is_control:
            if record["key"] is not None:
                line, separator = f"{line}{separator}key: {_text(record['key'])}", " "
            if record["value"] is not None:
                line = f"{line}{separator}payload: {_text(record['value'])}"
        yield line + "\n"


def _metadata(header: BatchHeader, record: dict[str, Any]) -> str:
    key, value = record["key"], record["value"]
    names = ",".join(each["key"] for each in record["headers"])
    line = (
        f"offset: {record['offset']} {_TIMESTAMP_TYPES[header.timestamp_type]}: {record['timestamp']}"
        f" keySize: {-1 if key is None else len(key)} valueSize: {-1 if value is None else len(value)}"
        f" sequence: {_sequence(header, record['offset'])} headerKeys: [{names}]"
    )
    return f"{line} {_control(key or b'', value or b'')}" if header.is_control else line


def _sequence(header: BatchHeader, offset: int) -> int:
    return -1 if header.base_sequence < 0 else (header.base_sequence + offset - header.base_offset) % (1 << 31)


def _control(key: bytes, value: bytes) -> str:
    """Return what a control record means: key = version and type; an end marker's value = version and epoch."""
    number = int.from_bytes(key[2:4], signed=True) if len(key) >= 4 else -1
    name = _CONTROL_TYPES.get(number, "UNKNOWN")
    if name in ("ABORT", "COMMIT") and len(value) >= 6:
        return f"endTxnMarker: {name} coordinatorEpoch: {int.from_bytes(value[2:6], signed=True)}"
    return f"controlType: {name}({number})"


def _text(data: bytes) -> str:
    return data.decode(errors="replace")
