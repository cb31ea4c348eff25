"""Encoding and decoding of record batches on one core, beside a client library in pure Python."""

import statistics
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from kafka.record import MemoryRecords
from kafka.record.default_records import DefaultRecordBatchBuilder

from benchmarks.bench import Bench, noise_note
from benchmarks.rounds import Contender, Result, run_rounds
from benchmarks.rows import ROWS_TEXT, make_rows
from benchmarks.table import Table, Verdict
from sparklog.storage_core.record.batch_decode import iter_decoded
from sparklog.storage_core.record.v2.batch_encode import EncodeOptions, RecordColumns, encode_batches

__all__ = ["run"]

_BATCH_BYTES = 16_384
_ARROW_ROWS = 65_536  # what Spark hands over at a time
_LOGS = 8

_ENCODE, _ENCODE_MIXED, _ENCODE_ZSTD = "encode", f"encode, rows of {_LOGS} logs mixed", "encode, zstd level 1"
_LIBRARY_ENCODE = "encode, kafka-python"
_DECODE, _DECODE_ZSTD = "scan and decode to Arrow", "scan and decode to Arrow, zstd"
_LIBRARY_DECODE = "decode to objects, kafka-python"

_PlainRow = tuple[bytes, bytes, int]


def run(bench: Bench) -> None:
    """Time both directions."""
    chunks = [make_rows(_ARROW_ROWS, seed) for seed in range(bench.pick(30, 4))]
    library_rows = _plain_rows(chunks[0].slice(0, _ARROW_ROWS // 2))
    count = _ARROW_ROWS * len(chunks)
    columns = [RecordColumns.from_arrow(chunk) for chunk in chunks]
    data, packed = (b"".join(_encode(each, codec, 1) for each in columns) for codec in ("none", "zstd"))
    library_data = _encode_with_library(library_rows)
    contenders = [
        Contender(name=_ENCODE, units=count, run=lambda: _encode_all(columns, "none", 1)),
        Contender(name=_ENCODE_MIXED, units=count, run=lambda: _encode_all(columns, "none", _LOGS)),
        Contender(name=_ENCODE_ZSTD, units=count, run=lambda: _encode_all(columns, "zstd", 1)),
        Contender(name=_LIBRARY_ENCODE, units=len(library_rows), run=lambda: _encode_with_library(library_rows)),
        Contender(name=_DECODE, units=count, run=lambda: _decode(data)),
        Contender(name=_DECODE_ZSTD, units=count, run=lambda: _decode(packed)),
        Contender(name=_LIBRARY_DECODE, units=len(library_rows), run=lambda: _decode_with_library(library_data)),
    ]
    results = run_rounds(contenders, warmups=1, rounds=bench.pick(9, 3))
    bench.add(_table(results, len(data) / count))
    _judge(bench, results)


def _encode_all(columns: Sequence[RecordColumns], codec: str, logs: int) -> None:
    """Encode one piece after the other, each dropped before the next, as a task does that has written it."""
    for each in columns:
        _encode(each, codec, logs)


def _encode(columns: RecordColumns, codec: str, logs: int) -> memoryview:
    count = len(columns)
    log = np.arange(count) * 5 % logs
    rows = np.argsort(log, kind="stable") if logs > 1 else np.arange(count)
    starts = np.searchsorted(log[rows], np.arange(logs + 1)) if logs > 1 else np.array([0, count])
    options = EncodeOptions(codec=codec, level=int(codec == "zstd"), batch_size_bytes=_BATCH_BYTES)
    return encode_batches(columns, rows, starts, options).data.data


def _decode(data: bytes) -> int:
    return sum(batch.num_rows for batch in iter_decoded(data))


def _plain_rows(batch: pa.RecordBatch) -> list[_PlainRow]:
    columns = RecordColumns.from_arrow(batch)
    return list(zip(batch["key"].to_pylist(), batch["value"].to_pylist(), columns.timestamp.tolist(), strict=True))


def _new_builder() -> DefaultRecordBatchBuilder:
    return DefaultRecordBatchBuilder(2, 0, False, -1, -1, -1, _BATCH_BYTES)


def _encode_with_library(rows: Sequence[_PlainRow]) -> bytes:
    built, builder, offset = [], _new_builder(), 0
    for key, value, timestamp in rows:
        if builder.append(offset, timestamp, key, value, []) is None:
            built.append(bytes(builder.build()))
            builder, offset = _new_builder(), 0
            builder.append(offset, timestamp, key, value, [])
        offset += 1
    built.append(bytes(builder.build()))
    return b"".join(built)


def _decode_with_library(data: bytes) -> int:
    records, count = MemoryRecords(data), 0
    while (batch := records.next_batch()) is not None:
        for record in batch:
            count += record.value is not None
    return count


def _table(results: dict[str, Result], record_bytes: float) -> Table:
    library = {True: results[_LIBRARY_ENCODE], False: results[_LIBRARY_DECODE]}
    rows = []
    for name, result in results.items():
        faster = [1 / each for each in result.core_ratios(library[name.startswith("encode")])]
        megabytes = f"{result.core_rate * record_bytes / 1e6:.0f}"
        rows.append((name, f"{result.core_rate / 1e6:.2f}", megabytes, f"{statistics.median(faster):.1f}"))
    notes = (
        f"{ROWS_TEXT}; {_ARROW_ROWS:,} rows at a time, `batch.size={_BATCH_BYTES}`, CRC computed when encoding",
        "kafka-python has its compiled CRC (`crc32c`), rows as Python objects beforehand, and fewer of them;"
        " MB are uncompressed",
        "per second of CPU time of this one-threaded process",
        noise_note(results.values()),
    )
    headers = ("what", "M records/s", "MB/s", "speed against kafka-python")
    return Table("Record batches, one core", headers, rows, notes)


def _judge(bench: Bench, results: dict[str, Result]) -> None:
    encode = results[_ENCODE].core_rate / 1e6
    factor = statistics.median(1 / each for each in results[_ENCODE].core_ratios(results[_LIBRARY_ENCODE]))
    decode = results[_DECODE].core_rate / 1e6
    bench.judge(
        Verdict(
            what="encode, one core",
            wanted="8 M records/s and 10 x kafka-python",
            aim="12 M",
            measured=f"{encode:.1f} M records/s, {factor:.0f} x",
            is_met=encode >= 8 and factor >= 10,
            is_aim_met=encode >= 12,
        )
    )
    bench.judge(
        Verdict(
            what="decode to Arrow, one core",
            wanted="15 M records/s",
            aim="30 M",
            measured=f"{decode:.1f} M records/s",
            is_met=decode >= 15,
            is_aim_met=decode >= 30,
        )
    )
