"""A store that is written, maintained and read at once, and what its logs must hold at any moment.

What is written follows from log and offset alone, so whoever reads knows every record: number n is the record of log
n mod 4 at offset n div 4. The topics differ in what maintenance makes of them:

| topic    | is                                                                      |
|----------|-------------------------------------------------------------------------|
| lively   | compacted, two logs whose keys fit into a map                           |
| crowded  | compacted, more keys than a map takes                                   |
| fleeting | deleted by size                                                         |

One key of the compacted logs is written up to some offset, and then forgotten.
"""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from sparklog.pipeline.maintenance.forget import forget_keys
from sparklog.sink.erasure.request_files import read_requests
from sparklog.sink.ledger.ledger import Ledger
from sparklog.sink.store.store_folder import Store
from sparklog.storage_core.clock import Clock
from sparklog.storage_core.errors import OffsetOutOfRangeError
from sparklog.storage_core.log.read.log_reader import LogReader
from sparklog.storage_core.topic_partition import TopicPartition
from tests.build.sink_store import rows

__all__ = [
    "FORGOTTEN_UNTIL",
    "MAP_BYTES",
    "TOPICS",
    "columns_of",
    "forget",
    "forgotten_records",
    "log_ends",
    "problems_of_records",
]

_LOGS = (
    TopicPartition("lively", 0),
    TopicPartition("lively", 1),
    TopicPartition("crowded", 0),
    TopicPartition("fleeting", 0),
)
MAP_BYTES = 24 * 40
"""Of an offset map: 36 keys."""

FORGOTTEN_UNTIL = 100
"""The offset from which on the forgotten key is not written any more."""

_KEYS = {"lively": 11, "crowded": 120, "fleeting": 5}
_FORGOTTEN = "k3"
_NUMBERS_PER_MICRO_BATCH = 40
_DELETE_RETENTION_MS = 300
_SMALL: dict[str, object] = {
    "segment.bytes": 1500,
    "batch.size": 300,
    "index.interval.bytes": 100,
    "file.delete.delay.ms": 200,
}
_COMPACTED: dict[str, object] = {
    **_SMALL,
    "cleanup.policy": "compact,delete",
    "retention.ms": -1,
    "min.cleanable.dirty.ratio": 0.01,
    "delete.retention.ms": _DELETE_RETENTION_MS,
}
TOPICS: Mapping[str, Mapping[str, object]] = {
    "lively": {**_COMPACTED, "partitions": 2},
    "crowded": _COMPACTED,
    "fleeting": {**_SMALL, "cleanup.policy": "delete", "retention.ms": -1, "retention.bytes": 4000},
}

_Record = tuple[str, str | None]


def columns_of(micro_batch: int) -> pa.RecordBatch:
    """Return the rows of a micro-batch, ten for each log."""
    first = micro_batch * _NUMBERS_PER_MICRO_BATCH
    places = [divmod(number, len(_LOGS)) for number in range(first, first + _NUMBERS_PER_MICRO_BATCH)]
    logs = [_LOGS[log] for _, log in places]
    records = [_record_of(_LOGS[log], offset) for offset, log in places]
    return rows(
        topic=[log.topic for log in logs],
        partition=[log.partition for log in logs],
        key=[key for key, _ in records],
        value=[value for _, value in records],
    )


def log_ends(store: Path) -> dict[TopicPartition, int]:
    """Return how far each log is written."""
    states = Ledger.open(Store.find(store).ledger_path).states()
    return {log: state.log_end_offset for log, state in states.items()}


def forget(store: Path, clock: Clock) -> None:
    """Put the forgotten key of both compacted topics on the list."""
    for topic in ("lively", "crowded"):
        forget_keys(store, topic, pa.array([_FORGOTTEN.encode()], pa.binary()), clock)


def problems_of_records(store: Path) -> list[str]:
    """Return what is wrong with the records of a store, while others write and maintain it or when nobody does.

    A read that takes a while sees a log of several moments, so what a later record replaces meanwhile may be missing,
    and a tombstone that was there for `delete.retention.ms`. An older record is never the latest one of its key.
    """
    return [problem for log in _LOGS for problem in _problems_of_log(store, log)]


def forgotten_records(store: Path) -> list[str]:
    """Return the records of the forgotten key."""
    return [
        f"{log} offset={offset}"
        for log in _LOGS
        if log.topic != "fleeting"
        for offset, (key, _) in _read(store, log).records.items()
        if key == _FORGOTTEN
    ]


def _record_of(log: TopicPartition, offset: int) -> _Record:
    """Return key and value of a record; one in thirteen of a compacted log is a tombstone."""
    number = offset % _KEYS[log.topic]
    if number == int(_FORGOTTEN[1:]) and offset >= FORGOTTEN_UNTIL:
        number += 1
    is_tombstone = offset % 13 == 0 and log.topic != "fleeting"
    return f"k{number}", None if is_tombstone else f"{log}/{offset}"


@dataclass(frozen=True)
class _Read:
    """A read of a log.

    Attributes:
        start, end: of the log, before it was read.
        records: by offset.
    """

    start: int
    end: int
    records: Mapping[int, _Record]


def _problems_of_log(store: Path, log: TopicPartition) -> list[str]:
    began_s = time.monotonic()
    try:
        found = _read(store, log)
    except OffsetOutOfRangeError:
        if log.topic != "fleeting":
            raise
        found = _read(store, log)  # retention was faster
    spent_ms = (time.monotonic() - began_s) * 1000
    wrong = [
        f"{log} offset={offset} record={record}"
        for offset, record in found.records.items()
        if record != _record_of(log, offset)
    ]
    if log.topic == "fleeting":
        is_whole = list(found.records) == list(range(found.start, found.end))
        return wrong if is_whole else [*wrong, f"{log} has gaps: {found.start}..{found.end} {list(found.records)}"]
    may_lack = set(_latest(log, found.end, log_ends(store)[log]))
    may_lack |= {_FORGOTTEN} if read_requests(Store.find(store)) else set()
    latest = {key: offset for offset, (key, _) in found.records.items()}
    for key, offset in _latest(log, 0, found.end).items():
        is_old_tombstone = _record_of(log, offset)[1] is None and (key not in latest or spent_ms > _DELETE_RETENTION_MS)
        if latest.get(key) != offset and key not in may_lack and not is_old_tombstone:
            wrong.append(f"{log} {key=} latest={latest.get(key)} wanted={offset} end={found.end} {spent_ms=:.0f}")
    return wrong


def _latest(log: TopicPartition, first: int, end: int) -> dict[str, int]:
    """Return the offset of the latest record of each key that is written there."""
    return {_record_of(log, offset)[0]: offset for offset in range(first, end)}


def _read(store: Path, log: TopicPartition) -> _Read:
    found = Store.find(store)
    state = Ledger.open(found.ledger_path).states()[log]
    start, end = state.log_start_offset, state.log_end_offset
    reader = LogReader(found.log_path(state), log_start_offset=start, log_end_offset=end, last_stable_offset=end)
    found_rows: list[dict[str, Any]] = [
        row for batch in reader.read(start) for row in batch.select(["offset", "key", "value"]).to_pylist()
    ]
    offsets = [row["offset"] for row in found_rows]
    if offsets != sorted(set(offsets)):
        raise AssertionError(f"offsets do not rise: {log} {offsets}")
    return _Read(start, end, {row["offset"]: (row["key"].decode(), _text(row["value"])) for row in found_rows})


def _text(value: bytes | None) -> str | None:
    return None if value is None else value.decode()
