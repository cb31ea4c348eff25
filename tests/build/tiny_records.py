"""Small batches that open to many tiny records, and what reads them."""

import struct
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import redirect_stdout
from os import devnull
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import crc32c
import numpy as np
import zstandard

from sparklog.pipeline.reader.plan import LogSplit, ReadTask
from sparklog.pipeline.reader.read_task import read_task
from sparklog.storage_core.cleaner.keys.build_map import DirtyRange, build_map
from sparklog.storage_core.cleaner.keys.dirty_keys import iter_dirty_keys
from sparklog.storage_core.cleaner.keys.offset_map import OffsetMap
from sparklog.storage_core.cleaner.keys.superseded import SupersededOffsets
from sparklog.storage_core.cleaner.rewrite.clean_segments import CleanRequest, clean_segments
from sparklog.storage_core.cleaner.survey.cleaned_transactions import CleanedTransactions
from sparklog.storage_core.inspect.dump.dump_log import DumpOptions, dump_log
from sparklog.storage_core.inspect.verify.verify_log import verify_directory
from sparklog.storage_core.log.convert_log import convert_log
from sparklog.storage_core.log.files.segments import SegmentFiles, list_segments
from sparklog.storage_core.log.read.log_reader import LogReader
from sparklog.storage_core.record.batch_convert import ConvertOptions
from sparklog.storage_core.record.batch_decode import iter_decoded
from sparklog.storage_core.record.batch_probe import MAGIC_V2
from sparklog.storage_core.record.v2.batch_header import HEADER_BYTES, BatchHeader, pack_header
from sparklog.storage_core.storage.owned_names import UNSHARED
from sparklog.storage_core.topic_partition import TopicPartition
from tests.plain.varint import pack_varint

__all__ = ["CLEANINGS", "OPERATIONS", "write_many_headers", "write_many_records"]

_TIME_MS: Final = 1_700_000_000_000
_ZSTD: Final = 4
_LOG: Final = "00000000000000000000.log"


def write_many_records(directory: Path, count: int, key: bytes | None = None) -> Path:
    """Write a log of one batch: records of one key and no bytes, or without key and value, of some 10 bytes each."""
    tail = b"\x01\x01\x00" if key is None else pack_varint(len(key)) + key + b"\x00\x00"
    deltas = np.arange(count, dtype=np.uint32) << 1
    parts = []
    for low, high in ((0, 1 << 7), (1 << 7, 1 << 14), (1 << 14, 1 << 21), (1 << 21, 1 << 28)):
        chosen = deltas[(deltas >= low) & (deltas < high)]
        width = len(pack_varint(low >> 1))
        rows = np.empty((len(chosen), 3 + width + len(tail)), np.uint8)
        rows[:, :3] = (2 * (2 + width + len(tail)), 0, 0)
        for place in range(width):
            more = 0x80 if place < width - 1 else 0
            rows[:, 3 + place] = (chosen >> (7 * place)) & 0x7F | more
        rows[:, 3 + width :] = np.frombuffer(tail, np.uint8)
        parts.append(rows.tobytes())
    return _write(directory, b"".join(parts), count)


def write_many_headers(directory: Path, count: int) -> Path:
    """Write a log of one batch with one record that has many headers, each of an empty key and no value."""
    body = bytes(3) + b"\x01\x01" + pack_varint(count) + b"\x00\x01" * count
    return _write(directory, pack_varint(len(body)) + body, 1)


def _write(directory: Path, section: bytes, count: int) -> Path:
    stream = zstandard.ZstdCompressor(level=3).compress(section)
    header = BatchHeader(
        base_offset=0,
        batch_length=HEADER_BYTES - 12 + len(stream),
        partition_leader_epoch=0,
        magic=MAGIC_V2,
        crc=0,
        attributes=_ZSTD,
        last_offset_delta=count - 1,
        base_timestamp=_TIME_MS,
        max_timestamp=_TIME_MS,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        records_count=count,
    )
    packed = bytearray(pack_header(header) + stream)
    packed[17:21] = struct.pack(">I", crc32c.crc32c(bytes(packed[21:])))
    directory.mkdir(parents=True)
    (directory / _LOG).write_bytes(packed)
    return directory


def _decode(directory: Path) -> None:
    deque(iter_decoded((directory / _LOG).read_bytes()), maxlen=0)


def _read(directory: Path) -> None:
    deque(LogReader(directory).read(0), maxlen=0)


def _find_time(directory: Path) -> None:
    LogReader(directory).offset_for_time(_TIME_MS)
    LogReader(directory).offset_of_max_timestamp()


def _run_task(directory: Path) -> None:
    end = LogReader(directory).log_end_offset
    split = LogSplit(
        directory=str(directory),
        log=TopicPartition("t", 0),
        log_start_offset=0,
        log_end_offset=end,
        last_stable_offset=None,
        start_offset=0,
        end_offset=end,
        isolation="read_uncommitted",
    )
    deque(read_task(ReadTask((split,), include_headers=True, fail_on_data_loss=True)), maxlen=0)


def _verify(directory: Path) -> None:
    found = verify_directory(directory, deep=True).findings
    if any(each.kind not in ("sparse", "checkpoint") for each in found):
        raise AssertionError(found)


def _dump(directory: Path) -> None:
    with open(devnull, "w") as out, redirect_stdout(out):
        dump_log([directory / _LOG], DumpOptions(print_data_log=True), out, out)


def _convert(directory: Path) -> None:
    with TemporaryDirectory() as folder:
        convert_log(directory, Path(folder) / directory.name, ConvertOptions(magic=1, codec="none"))


def _map_keys(directory: Path) -> OffsetMap:
    (segment,) = list_segments(directory)
    offset_map = OffsetMap(1 << 20, bytes(16))
    build_map(_dirty(segment), offset_map, lambda: None)
    return offset_map


def _dirty(segment: SegmentFiles) -> DirtyRange:
    return DirtyRange(segments=[segment], first_dirty_offset=0, first_uncleanable_offset=1 << 30)


def _clean(directory: Path) -> None:
    """Clean twice: once all records but the last one go, and once all stay, but one."""
    (segment,) = list_segments(directory)
    request = CleanRequest(now_ms=_TIME_MS, delete_retention_ms=1, cleaning_end_offset=1 << 30)
    latest = _map_keys(directory)
    for later in (latest, SupersededOffsets([np.array([7])], 1 << 30, bytes(16))):
        clean_segments([segment], later, CleanedTransactions(), request, UNSHARED)


def _list_keys(directory: Path) -> None:
    (segment,) = list_segments(directory)
    deque(iter_dirty_keys(_dirty(segment), bytes(16), lambda: None), maxlen=0)


OPERATIONS: Final[Mapping[str, Callable[[Path], None]]] = {
    "decode": _decode,
    "read": _read,
    "find time": _find_time,
    "read task": _run_task,
    "verify --deep": _verify,
    "dump-log": _dump,
    "convert": _convert,
}

CLEANINGS: Final[Mapping[str, Callable[[Path], object]]] = {
    "offset map": _map_keys,
    "dirty keys": _list_keys,
    "cleaning": _clean,
}
"""Of logs whose records have keys."""
