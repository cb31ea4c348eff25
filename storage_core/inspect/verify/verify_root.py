"""Checks the folder that holds log directories: what may lie there, and the files that speak of all its logs.

Source: Kafka LogManager.loadLogs, OffsetCheckpointFile, MetaProperties.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from sparklog.storage_core.checkpoint.meta_properties import parse_meta_properties
from sparklog.storage_core.checkpoint.offset_checkpoint import parse_offset_checkpoint
from sparklog.storage_core.errors import CorruptFileError
from sparklog.storage_core.inspect.verify.findings import FindingKind, LogReport
from sparklog.storage_core.storage.local import storage_errors
from sparklog.storage_core.storage.open_regular import read_if_there
from sparklog.storage_core.topic_partition import TopicPartition, parse_directory_name, parse_set_aside_name

__all__ = ["META_FILE", "OFFSET_CHECKPOINTS", "ExpectedRoot", "verify_root"]

META_FILE: Final = "meta.properties"
OFFSET_CHECKPOINTS: Final = (
    "recovery-point-offset-checkpoint",
    "replication-offset-checkpoint",
    "log-start-offset-checkpoint",
    "cleaner-offset-checkpoint",
)

_BOUNDED_BY_END: Final = frozenset(OFFSET_CHECKPOINTS) - {"log-start-offset-checkpoint"}
"""Of an entry above a log's end a broker takes the end, as after a tail was truncated; a log that should start there
it would empty."""
_OTHER_FILES: Final = ("bootstrap.checkpoint", ".kafka_cleanshutdown", ".lock")
_FOLDERS: Final = ("remote-log-index-cache",)
_ZOOKEEPER_KEY: Final = b"broker.id="


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpectedRoot:
    """What a root's files are compared with.

    Attributes:
        ends: end offset of each of its logs, as far as it is known.
        cluster_id: of its owner; None in a plain folder, where other files and logs may lie too.
    """

    ends: Mapping[TopicPartition, int]
    cluster_id: str | None = None


def verify_root(root: Path, expected: ExpectedRoot) -> LogReport:
    """Check a root; a plain folder is one only if it has a `meta.properties`, but readers believe its checkpoints.

    Returns:
        findings; the report counts neither segments nor batches.
    """
    report = LogReport(root)
    with storage_errors(root):
        is_root = expected.cluster_id is not None or (root / META_FILE).is_file()
        entries = sorted((path.name, path.is_dir()) for path in root.iterdir()) if is_root else []
    for name, is_folder in entries:
        _check_entry(report, name, is_folder, expected)
    if is_root:
        _check_meta(report, expected)
    for name in OFFSET_CHECKPOINTS:
        _check_offsets(report, name, expected)
    return report


def _check_entry(report: LogReport, name: str, is_folder: bool, expected: ExpectedRoot) -> None:
    if is_folder:
        is_log = parse_directory_name(name) is not None or parse_set_aside_name(name) is not None
        if not is_log and name not in _FOLDERS:
            report.add("foreign", "root-entry", name, "is a folder, but no log")
    elif expected.cluster_id is not None:
        own = name.removesuffix(".tmp")
        if own not in (META_FILE, *OFFSET_CHECKPOINTS, *_OTHER_FILES):
            report.add("foreign", "root-entry", name, "is no file of a log directory root")


def _check_meta(report: LogReport, expected: ExpectedRoot) -> None:
    data = _read(report.directory / META_FILE)
    if data is None:
        report.add("checkpoint", "meta-properties", META_FILE, "is missing")
        return
    if expected.cluster_id is None and _ZOOKEEPER_KEY in data:
        return  # of a broker from before KRaft: version 0
    try:
        owner = parse_meta_properties(data)["cluster.id"]
    except CorruptFileError as error:
        report.add("checkpoint", "meta-properties", META_FILE, str(error))
        return
    if expected.cluster_id not in (None, owner):
        what = f"has cluster.id {owner}, the store's id is {expected.cluster_id}"
        report.add("checkpoint", "meta-properties", META_FILE, what)


def _check_offsets(report: LogReport, name: str, expected: ExpectedRoot) -> None:
    data = _read(report.directory / name)
    if data is None:
        return  # a broker starts without, and so does a sink
    try:
        offsets = parse_offset_checkpoint(data)
    except CorruptFileError as error:
        report.add("checkpoint", "offset-checkpoint", name, str(error))
        return
    for log, offset in offsets.items():
        end = expected.ends.get(log)
        if end is not None and offset > end:
            is_normal = expected.cluster_id is None and name in _BOUNDED_BY_END
            kind: FindingKind = "uncommitted" if is_normal else "checkpoint"
            report.add(kind, "offset-checkpoint", name, f"says {offset} of {log}, which ends at {end}")
        elif end is None and expected.cluster_id is not None:
            report.add("checkpoint", "offset-checkpoint", name, f"names {log}, which the ledger does not know")


def _read(path: Path) -> bytes | None:
    with storage_errors(path):
        return read_if_there(path)
