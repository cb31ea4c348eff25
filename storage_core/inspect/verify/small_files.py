"""Checks what lies beside the segments of a log: topic id, leader epochs, producer snapshots, leftovers, foreign names.

Source: Kafka PartitionMetadataFile, LeaderEpochFileCache, ProducerStateManager, LogLoader.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Final

from sparklog.storage_core.checkpoint.leader_epochs import parse_leader_epochs
from sparklog.storage_core.checkpoint.partition_metadata import parse_partition_metadata, render_partition_metadata
from sparklog.storage_core.checkpoint.producer_snapshot import parse_producer_snapshot
from sparklog.storage_core.errors import CorruptFileError
from sparklog.storage_core.inspect.verify.findings import ExpectedLog, LogReport, Rule
from sparklog.storage_core.log.files.names import (
    CLEANED,
    DELETED,
    INDEX,
    LOG,
    SNAPSHOT,
    SWAP,
    TIMEINDEX,
    TXNINDEX,
    parse_base_offset,
)
from sparklog.storage_core.storage.local import storage_errors
from sparklog.storage_core.storage.open_regular import read_file

__all__ = ["EPOCH_FILE", "METADATA_FILE", "SmallFilesCheck"]

EPOCH_FILE: Final = "leader-epoch-checkpoint"
METADATA_FILE: Final = "partition.metadata"

_INDEXES: Final = (INDEX, TIMEINDEX, TXNINDEX)
_OWN: Final = (LOG, *_INDEXES, SNAPSHOT)
_RULES: Final[dict[str, Rule]] = {METADATA_FILE: "partition-metadata", EPOCH_FILE: "leader-epoch-checkpoint"}


@dataclass(frozen=True, slots=True)
class SmallFilesCheck:
    """The check of one log's directory but for its segments.

    Attributes:
        expected: what a ledger holds of the log; None in a plain folder.
    """

    report: LogReport
    expected: ExpectedLog | None

    def check_names(self, bases: set[int]) -> None:
        """Report files that belong to no segment, or to no log at all; `bases` are the segments' base offsets."""
        directory = self.report.directory
        with storage_errors(directory), os.scandir(directory) as entries:
            found = sorted((each.name, each.is_file()) for each in entries)  # as listed: it may have a new name by now
        for name, is_file in found:
            base = parse_base_offset(name)
            if not is_file:
                self.report.add("foreign", "name", name, "is no file; a log has no folders")
            elif name.endswith(SWAP):
                self.report.add(
                    "damage", "swap", name, "replacement of segments was not finished; opening the log does"
                )
            elif name.endswith(CLEANED):
                self.report.add("uncommitted", "cleaned", name, "segment that was not published")
            elif name.endswith(_INDEXES) and base is not None and base not in bases:
                if self.expected and bases and base < min(bases) <= self.expected.log_start_offset:
                    continue  # of a segment that retention takes away
                is_beyond = self.expected is not None and base > self.expected.active_base_offset
                self.report.add("uncommitted" if is_beyond else "index", "orphan-index", name, "index without its .log")
            elif name.endswith(_OWN) and base is None and not name.endswith(DELETED):
                self.report.add("foreign", "name", name, "is named like a file of a segment, but not by 20 digits")

    def check_metadata(self) -> None:
        """Check the topic id."""
        data = self._read(METADATA_FILE)
        if data is None:
            return
        try:
            topic_id = parse_partition_metadata(data)
        except CorruptFileError as error:
            self.report.add("checkpoint", "partition-metadata", METADATA_FILE, str(error))
            return
        if self.expected is not None and topic_id != self.expected.topic_id:
            what = f"has topic id {topic_id}, the ledger says {self.expected.topic_id}"
            self.report.add("checkpoint", "partition-metadata", METADATA_FILE, what)
        elif self.expected is not None and data != render_partition_metadata(topic_id):
            self.report.add("checkpoint", "partition-metadata", METADATA_FILE, "is not written as Kafka writes it")

    def read_epochs(self) -> list[tuple[int, int]] | None:
        """Return the entries of the epoch file; None where there is none that can be read."""
        data = self._read(EPOCH_FILE)
        if data is None:
            return None
        try:
            epochs = parse_leader_epochs(data)
        except CorruptFileError as error:
            self._add_epochs(str(error))
            return None
        if self.expected is not None and epochs and epochs[-1][0] > self.expected.leader_epoch:
            self._add_epochs(f"has epoch {epochs[-1][0]}, the ledger says {self.expected.leader_epoch}")
        return epochs

    def check_epoch_range(self, epochs: list[tuple[int, int]], end: int, first_unnamed: int | None) -> None:
        """Epochs start inside the log; where a ledger names it, the first is not above a batch that has one.

        Args:
            end: of the log.
            first_unnamed: lowest offset of a batch with an epoch below the first entry.
        """
        if epochs and epochs[-1][1] > end:
            self._add_epochs(f"epoch {epochs[-1][0]} starts at {epochs[-1][1]}, above the log's end {end}")
        if self.expected is None or first_unnamed is None:
            return
        start = max(self.expected.log_start_offset, first_unnamed)
        if not epochs:
            self._add_epochs(f"names no epoch for offsets from {start} on")
        elif start < epochs[0][1] < end:
            self._add_epochs(f"names no epoch for offsets {start}..{epochs[0][1] - 1}")

    def check_snapshots(self, end: int) -> None:
        """Check every producer snapshot: its CRC, and that it speaks of offsets before its own.

        Args:
            end: the log's end, above which no snapshot can have been taken.
        """
        directory = self.report.directory
        with storage_errors(directory):
            paths = sorted(path for path in directory.iterdir() if path.name.endswith(SNAPSHOT) and path.is_file())
            contents = {path.name: read_file(path) for path in paths}
        for name, data in contents.items():
            offset = parse_base_offset(name)
            what = None if offset is None else _snapshot_problem(data, offset, end)
            if what is not None:
                self.report.add("checkpoint", "snapshot", name, what)

    def _read(self, name: str) -> bytes | None:
        path = self.report.directory / name
        with storage_errors(path):
            if path.is_file():
                return read_file(path)
        if self.expected is not None:
            self.report.add("checkpoint", _RULES[name], name, "is missing")
        return None

    def _add_epochs(self, what: str) -> None:
        self.report.add("checkpoint", "leader-epoch-checkpoint", EPOCH_FILE, what)


def _snapshot_problem(data: bytes, offset: int, end: int) -> str | None:
    try:
        producers = parse_producer_snapshot(data)
    except CorruptFileError as error:
        return str(error)
    latest = max((max(each.last_offset, each.current_txn_first_offset) for each in producers), default=-1)
    if latest >= offset:
        return f"speaks of offset {latest}, but was taken at {offset}"
    return f"was taken at {offset}, above the log's end {end}" if offset > end else None
