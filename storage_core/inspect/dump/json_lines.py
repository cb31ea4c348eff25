"""A dump as lines of JSON: one object a line, each with its `type` and the `file` it is from.

| type                  | other fields                                                                                |
|-----------------------|---------------------------------------------------------------------------------------------|
| `log`, `checkpoint`   | where it starts; or which snapshot it is                                                    |
| `batch`               | the header; v0 and v1 have `offset` instead of what only v2 has                             |
| `record`              | `batch_position`, the record, and with contents `key`, `value`, `headers` as `read --json`  |
| `invalid_bytes`       | `count`, past the last batch                                                                |
| `offset_entry`, `time_entry`, `aborted_transaction`, `producer` | the entry's own                                   |
| `empty_index`, `sane_index` | none                                                                                  |
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Final, TextIO

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sparklog.storage_core.checkpoint.producer_snapshot import ProducerState
from sparklog.storage_core.index.transaction_index import AbortedTransaction
from sparklog.storage_core.inspect.dump.columns import (
    BatchNumber,
    RecordColumns,
    RecordContent,
    RecordNumber,
    batch_numbers,
    record_columns,
)
from sparklog.storage_core.inspect.dump.line_order import PlacedLines, interleaved, merge_lines
from sparklog.storage_core.inspect.dump.line_program import Contents, LineProgram, Lines
from sparklog.storage_core.inspect.dump.options import DumpOptions
from sparklog.storage_core.inspect.dump.record_lines import base64_texts, header_texts
from sparklog.storage_core.record.batch_decode import InspectedRecords
from sparklog.storage_core.record.batch_probe import MAGIC_V2
from sparklog.storage_core.record.batch_scan import BatchScan

__all__ = ["JsonPrinter"]

_Bools = npt.NDArray[np.bool_]

_BOOLEANS: Final = ("false", "true")
_TIMESTAMP_TYPES: Final = ('"CreateTime"', '"LogAppendTime"', '"NoTimestampType"')
_CODECS: Final = ('"none"', '"gzip"', '"snappy"', '"lz4"', '"zstd"', "null", "null", "null")

_V2_NUMBERS: Final = (
    BatchNumber.BASE_OFFSET,
    BatchNumber.LAST_OFFSET,
    BatchNumber.COUNT,
    BatchNumber.BASE_SEQUENCE,
    BatchNumber.LAST_SEQUENCE,
    BatchNumber.PRODUCER_ID,
    BatchNumber.PRODUCER_EPOCH,
    BatchNumber.LEADER_EPOCH,
)


class JsonPrinter:
    """Prints objects; see `DumpPrinter`."""

    def __init__(self, out: TextIO, options: DumpOptions) -> None:
        self._out = out
        self._prints_contents = options.prints_contents
        self._options = replace(options, print_data_log=False)
        self.file(Path())

    def file(self, path: Path) -> None:
        """Remember the file, which is named in each of its objects."""
        self._file = json.dumps(str(path))
        self._batch, self._legacy_batch = _batch_program(self._file), _legacy_batch_program(self._file)
        self._record = _record_program(self._file, self._prints_contents)
        self._legacy_record = _legacy_record_program(self._file, self._prints_contents)

    def log_start(self, base_offset: int) -> None:
        self._print("log", start_offset=base_offset)

    def checkpoint(self, snapshot: tuple[int, int] | None) -> None:
        end, epoch = snapshot or (None, None)
        self._print("checkpoint", end_offset=end, epoch=epoch)

    def batches(self, position: int, scan: BatchScan, is_valid: _Bools) -> None:
        self._batch_lines(position, scan, is_valid).write_to(self._out)

    def records(self, position: int, found: InspectedRecords, is_valid: _Bools) -> None:
        columns = record_columns(position, found, self._options)
        columns = replace(columns, contents=_contents(columns, found.records, self._prints_contents))
        batches = None if found.is_continued else self._batch_lines(position, found.scan, is_valid)
        for lines in interleaved(batches, found.counts, lambda rows: self._record_lines(columns.rows(rows))):
            lines.write_to(self._out)

    def invalid_bytes(self, count: int) -> None:
        self._print("invalid_bytes", count=count)

    def offset_entry(self, offset: int, position: int) -> None:
        self._print("offset_entry", offset=offset, position=position)

    def time_entry(self, timestamp: int, offset: int) -> None:
        self._print("time_entry", timestamp=timestamp, offset=offset)

    def aborted_transaction(self, entry: AbortedTransaction) -> None:
        self._print("aborted_transaction", **asdict(entry))

    def producer(self, state: ProducerState) -> None:
        self._print("producer", **asdict(state))

    def empty_index(self) -> None:
        self._print("empty_index")

    def sane_index(self) -> None:
        self._print("sane_index")

    def _print(self, kind: str, **fields: Any) -> None:
        rest = "".join(f',"{name}":{json.dumps(value)}' for name, value in fields.items())
        self._out.write(f'{{"type":"{kind}","file":{self._file}{rest}}}\n')

    def _batch_lines(self, position: int, scan: BatchScan, is_valid: _Bools) -> Lines:
        numbers, is_legacy = batch_numbers(position, scan, is_valid), scan.magic < MAGIC_V2
        return merge_lines(
            [
                (program.render([column[mine] for column in numbers]), np.flatnonzero(mine))
                for program, mine in ((self._batch, ~is_legacy), (self._legacy_batch, is_legacy))
            ]
        )

    def _record_lines(self, columns: RecordColumns) -> Iterator[PlacedLines]:
        for program, is_mine in ((self._record, ~columns.is_legacy), (self._legacy_record, columns.is_legacy)):
            if is_mine.any():
                mine = columns.rows(is_mine)
                yield program.render(mine.numbers, mine.contents), np.flatnonzero(is_mine)


def _contents(columns: RecordColumns, records: pa.RecordBatch, prints_contents: bool) -> Contents:
    """Return key, value, headers and control text as JSON."""
    controls = pa.array(_control_texts(columns), pa.string())
    if not prints_contents:
        nothing = pa.nulls(len(controls), pa.string())
        return Contents.of_columns([nothing, nothing, nothing, controls])
    key, value = (pa.array(base64_texts(records.column(name)), pa.string()) for name in ("key", "value"))
    headers = pa.array(header_texts(records.column("headers")), pa.string())
    return Contents.of_columns([key, value, headers, controls])


def _control_texts(columns: RecordColumns) -> list[str]:
    texts, contents = ["null"] * len(columns.is_legacy), columns.contents
    for row in np.flatnonzero(columns.numbers[RecordNumber.IS_CONTROL]).tolist():
        start = int(contents.starts[RecordContent.CONTROL, row])
        end = start + int(contents.sizes[RecordContent.CONTROL, row])
        texts[row] = json.dumps(contents.source[start:end].tobytes().decode())
    return texts


def _start_of_batch(file: str) -> LineProgram:
    program = LineProgram().text(f'{{"type":"batch","file":{file}')
    for column in (BatchNumber.POSITION, BatchNumber.SIZE, BatchNumber.MAGIC):
        program.text(f',"{column.name.lower()}":').number(column)
    program.text(',"timestamp_type":').choice(BatchNumber.TIMESTAMP_TYPE, *_TIMESTAMP_TYPES)
    program.text(',"max_timestamp":').number(BatchNumber.MAX_TIMESTAMP)
    program.text(',"codec":').choice(BatchNumber.CODEC, *_CODECS)
    program.text(',"crc":').number(BatchNumber.CRC)
    return program.text(',"is_valid":').choice(BatchNumber.IS_VALID, *_BOOLEANS)


def _batch_program(file: str) -> LineProgram:
    program = _start_of_batch(file)
    for column in _V2_NUMBERS:
        program.text(f',"{column.name.lower()}":').number(column)
    for column in (BatchNumber.IS_TRANSACTIONAL, BatchNumber.IS_CONTROL):
        program.text(f',"{column.name.lower()}":').choice(column, *_BOOLEANS)
    has_horizon = BatchNumber.HAS_DELETE_HORIZON
    program.text(',"delete_horizon_ms":').choice(has_horizon, "null", "")
    return program.number(BatchNumber.DELETE_HORIZON, shown_by=has_horizon).text("}\n")


def _legacy_batch_program(file: str) -> LineProgram:
    return _start_of_batch(file).text(',"offset":').number(BatchNumber.LAST_OFFSET).text("}\n")


def _start_of_record(file: str) -> LineProgram:
    program = LineProgram().text(f'{{"type":"record","file":{file},"batch_position":')
    program.number(RecordNumber.BATCH_POSITION).text(',"offset":').number(RecordNumber.OFFSET)
    program.text(',"timestamp":').number(RecordNumber.TIMESTAMP)
    program.text(',"timestamp_type":').choice(RecordNumber.TIMESTAMP_TYPE, *_TIMESTAMP_TYPES)
    program.text(',"key_size":').number(RecordNumber.KEY_SIZE)
    return program.text(',"value_size":').number(RecordNumber.VALUE_SIZE)


def _end_of_record(program: LineProgram, prints_contents: bool) -> LineProgram:
    if prints_contents:
        program.text(',"key":').content(RecordContent.KEY).text(',"value":').content(RecordContent.VALUE)
        program.text(',"headers":').content(RecordContent.HEADER_KEYS)
    return program.text("}\n")


def _record_program(file: str, prints_contents: bool) -> LineProgram:
    program = _start_of_record(file).text(',"sequence":').number(RecordNumber.SEQUENCE)
    return _end_of_record(program.text(',"control":').content(RecordContent.CONTROL), prints_contents)


def _legacy_record_program(file: str, prints_contents: bool) -> LineProgram:
    program = _start_of_record(file).text(',"crc":').number(RecordNumber.CRC)
    return _end_of_record(program.text(',"is_valid":').choice(RecordNumber.IS_VALID, *_BOOLEANS), prints_contents)
