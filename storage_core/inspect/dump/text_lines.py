"""The lines of Kafka's dump tool.

Source: Kafka DumpLogSegments; 4.3.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Final, TextIO

import numpy as np
import numpy.typing as npt

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
from sparklog.storage_core.inspect.dump.line_program import LineProgram, Lines
from sparklog.storage_core.inspect.dump.options import DumpOptions
from sparklog.storage_core.record.batch_decode import InspectedRecords
from sparklog.storage_core.record.batch_probe import MAGIC_V2
from sparklog.storage_core.record.batch_scan import BatchScan

__all__ = ["TextPrinter"]

_Bools = npt.NDArray[np.bool_]

_BOOLEANS: Final = ("false", "true")
_TIMESTAMP_TYPES: Final = ("CreateTime", "LogAppendTime", "NoTimestampType")
_CODECS: Final = ("none", "gzip", "snappy", "lz4", "zstd", "unknown(5)", "unknown(6)", "unknown(7)")


def _end_of_batch(program: LineProgram) -> LineProgram:
    program.text(" position: ").number(BatchNumber.POSITION)
    program.text(" ").choice(BatchNumber.TIMESTAMP_TYPE, *_TIMESTAMP_TYPES)
    program.text(": ").number(BatchNumber.MAX_TIMESTAMP).text(" size: ").number(BatchNumber.SIZE)
    program.text(" magic: ").number(BatchNumber.MAGIC)
    program.text(" compresscodec: ").choice(BatchNumber.CODEC, *_CODECS)
    program.text(" crc: ").number(BatchNumber.CRC)
    return program.text(" isvalid: ").choice(BatchNumber.IS_VALID, *_BOOLEANS).text("\n")


def _batch_program() -> LineProgram:
    program = LineProgram().text("baseOffset: ").number(BatchNumber.BASE_OFFSET)
    program.text(" lastOffset: ").number(BatchNumber.LAST_OFFSET)
    program.text(" count: ").number(BatchNumber.COUNT)
    program.text(" baseSequence: ").number(BatchNumber.BASE_SEQUENCE)
    program.text(" lastSequence: ").number(BatchNumber.LAST_SEQUENCE)
    program.text(" producerId: ").number(BatchNumber.PRODUCER_ID)
    program.text(" producerEpoch: ").number(BatchNumber.PRODUCER_EPOCH)
    program.text(" partitionLeaderEpoch: ").number(BatchNumber.LEADER_EPOCH)
    program.text(" isTransactional: ").choice(BatchNumber.IS_TRANSACTIONAL, *_BOOLEANS)
    program.text(" isControl: ").choice(BatchNumber.IS_CONTROL, *_BOOLEANS)
    has_horizon = BatchNumber.HAS_DELETE_HORIZON
    program.text(" deleteHorizonMs: ").choice(has_horizon, "OptionalLong.empty", "OptionalLong[")
    program.number(BatchNumber.DELETE_HORIZON, shown_by=has_horizon).choice(has_horizon, "", "]")
    return _end_of_batch(program)


def _start_of_record() -> LineProgram:
    program = LineProgram().text("| offset: ").number(RecordNumber.OFFSET)
    program.text(" ").choice(RecordNumber.TIMESTAMP_TYPE, *_TIMESTAMP_TYPES)
    program.text(": ").number(RecordNumber.TIMESTAMP)
    program.text(" keySize: ").number(RecordNumber.KEY_SIZE)
    return program.text(" valueSize: ").number(RecordNumber.VALUE_SIZE)


def _end_of_record(program: LineProgram) -> LineProgram:
    program.choice(RecordNumber.SHOWS_KEY, "", " key: ").content(RecordContent.KEY)
    program.choice(RecordNumber.SHOWS_VALUE, "", " payload: ", " payload: ").content(RecordContent.VALUE)
    return program.text("\n")


def _record_program() -> LineProgram:
    program = _start_of_record().text(" sequence: ").number(RecordNumber.SEQUENCE)
    program.text(" headerKeys: [").content(RecordContent.HEADER_KEYS).text("]")
    program.choice(RecordNumber.IS_CONTROL, "", " ").content(RecordContent.CONTROL)
    return _end_of_record(program)


def _legacy_record_program() -> LineProgram:
    program = _start_of_record().text(" isValid: ").choice(RecordNumber.IS_VALID, *_BOOLEANS)
    return _end_of_record(program.text(" crc: ").number(RecordNumber.CRC))


def _contents_program() -> LineProgram:
    program = LineProgram().choice(RecordNumber.SHOWS_KEY, "", "| key: ").content(RecordContent.KEY)
    program.choice(RecordNumber.SHOWS_VALUE, "", "| payload: ", " payload: ").content(RecordContent.VALUE)
    return program.text("\n")


_BATCH: Final = _batch_program()
_LEGACY_BATCH: Final = _end_of_batch(LineProgram().text("offset: ").number(BatchNumber.LAST_OFFSET))
_RECORD: Final = _record_program()
_LEGACY_RECORD: Final = _legacy_record_program()
_CONTENTS: Final = _contents_program()


class TextPrinter:
    """Prints what Kafka's tool prints; see `DumpPrinter`."""

    def __init__(self, out: TextIO, options: DumpOptions) -> None:
        self._out = out
        self._options = options
        self._path = Path()

    def file(self, path: Path) -> None:
        self._path = path
        self._print(f"Dumping {path}")

    def log_start(self, base_offset: int) -> None:
        self._print(f"Log starting offset: {base_offset}")

    def checkpoint(self, snapshot: tuple[int, int] | None) -> None:
        end = "KRaft bootstrap snapshot"
        self._print(end if snapshot is None else f"Snapshot end offset: {snapshot[0]}, epoch: {snapshot[1]}")

    def batches(self, position: int, scan: BatchScan, is_valid: _Bools) -> None:
        _batch_lines(position, scan, is_valid).write_to(self._out)

    def records(self, position: int, found: InspectedRecords, is_valid: _Bools) -> None:
        columns = record_columns(position, found, self._options)
        if not self._options.raw:
            columns = replace(columns, contents=columns.contents.visible())
        batches = None if found.is_continued else _batch_lines(position, found.scan, is_valid)
        for lines in interleaved(batches, found.counts, lambda rows: self._record_lines(columns.rows(rows))):
            lines.write_to(self._out)

    def invalid_bytes(self, count: int) -> None:
        self._print(f"Found {count} invalid bytes at the end of {self._path.name}")

    def offset_entry(self, offset: int, position: int) -> None:
        self._print(f"offset: {offset} position: {position}")

    def time_entry(self, timestamp: int, offset: int) -> None:
        self._print(f"timestamp: {timestamp} offset: {offset}")

    def aborted_transaction(self, entry: AbortedTransaction) -> None:
        self._print(
            f"version: {entry.version} producerId: {entry.producer_id} firstOffset: {entry.first_offset} "
            f"lastOffset: {entry.last_offset} lastStableOffset: {entry.last_stable_offset}"
        )

    def producer(self, state: ProducerState) -> None:
        """Print a producer; the line of one without a known data batch ends at its last timestamp."""
        first = state.current_txn_first_offset
        line = (
            f"producerId: {state.producer_id} producerEpoch: {state.producer_epoch} "
            f"coordinatorEpoch: {state.coordinator_epoch} "
            f"currentTxnFirstOffset: {'OptionalLong.empty' if first == -1 else f'OptionalLong[{first}]'} "
            f"lastTimestamp: {state.timestamp}"
        )
        if state.last_offset >= 0:
            first_sequence = (state.last_sequence - state.offset_delta) % (1 << 31)
            line += (
                f" firstSequence: {first_sequence} lastSequence: {state.last_sequence} lastOffset: {state.last_offset} "
                f"offsetDelta: {state.offset_delta} timestamp: {state.timestamp}"
            )
        self._print(line)

    def empty_index(self) -> None:
        self._print(f"{self._path} is empty.")

    def sane_index(self) -> None:
        self._print(f"{self._path} passed sanity check.")

    def _print(self, line: str) -> None:
        self._out.write(self._options.shown(line) + "\n")

    def _record_lines(self, columns: RecordColumns) -> Iterator[PlacedLines]:
        if self._options.skip_record_metadata:
            yield _CONTENTS.render(columns.numbers, columns.contents), np.arange(len(columns.is_legacy))
            return
        for program, is_mine in ((_RECORD, ~columns.is_legacy), (_LEGACY_RECORD, columns.is_legacy)):
            if is_mine.any():
                mine = columns if is_mine.all() else columns.rows(is_mine)
                yield program.render(mine.numbers, mine.contents), np.flatnonzero(is_mine)


def _batch_lines(position: int, scan: BatchScan, is_valid: _Bools) -> Lines:
    numbers = batch_numbers(position, scan, is_valid)
    is_legacy = scan.magic < MAGIC_V2
    if not is_legacy.any():
        return _BATCH.render(numbers)
    return merge_lines(
        [
            (program.render([column[mine] for column in numbers]), np.flatnonzero(mine))
            for program, mine in ((_BATCH, ~is_legacy), (_LEGACY_BATCH, is_legacy))
        ]
    )
