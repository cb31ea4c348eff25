"""What a dump is printed with: one way for people, one for programs.

`dump_text` prints the lines of Kafka's tool, `dump_json` one object a line. Both are given what was found, never how it
was read.
"""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

import numpy as np
import numpy.typing as npt

from sparklog.storage_core.checkpoint.producer_snapshot import ProducerState
from sparklog.storage_core.index.transaction_index import AbortedTransaction
from sparklog.storage_core.record.batch_decode import InspectedRecords
from sparklog.storage_core.record.batch_scan import BatchScan

__all__ = ["DumpPrinter"]


class DumpPrinter(Protocol):
    """Prints what a dump finds, in the order it is given."""

    def file(self, path: Path) -> None:
        """A file begins."""

    def log_start(self, base_offset: int) -> None:
        """It is the log of a segment."""

    def checkpoint(self, snapshot: tuple[int, int] | None) -> None:
        """It is a KRaft snapshot: (end offset, epoch), or None for the one that a storage folder is born with."""

    def batches(self, position: int, scan: BatchScan, is_valid: npt.NDArray[np.bool_]) -> None:
        """Batches come, without their records; `position` is added to theirs."""

    def records(self, position: int, found: InspectedRecords, is_valid: npt.NDArray[np.bool_]) -> None:
        """Batches come, each followed by its records."""

    def invalid_bytes(self, count: int) -> None:
        """The log ends in bytes that are no batch."""

    def offset_entry(self, offset: int, position: int) -> None:
        """An entry of an offset index."""

    def time_entry(self, timestamp: int, offset: int) -> None:
        """An entry of a time index."""

    def aborted_transaction(self, entry: AbortedTransaction) -> None:
        """An entry of a transaction index."""

    def producer(self, state: ProducerState) -> None:
        """A producer of a snapshot."""

    def empty_index(self) -> None:
        """The offset index has no entries."""

    def sane_index(self) -> None:
        """The index passed Kafka's own check."""
