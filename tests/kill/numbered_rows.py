"""Rows that are told apart, file by file as a stream takes them, and what of them a store must hold.

The ledger says how many micro-batches are committed, and Spark's checkpoint which files those are, so both say which
rows must be there: nearly always file n is micro-batch n, but behind a kill between its two logs Spark takes two files
into one, the larger one first. They are counted by kafka-python's parser in the bytes of the segments up to the
ledger's end offsets, not by a reader of ours.
"""

import json
import os
import warnings
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from sparklog.sink.ledger.ledger import Ledger
from sparklog.sink.store.store_folder import Store
from sparklog.storage_core.topic_partition import TopicPartition

with warnings.catch_warnings():
    # kafka-python 3.0 reads its resources in a way that Python 3.11 deprecates and 3.13 allows again.
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka.record import MemoryRecords

__all__ = ["LOGS", "NumberedRows", "commits", "log_ends", "micro_batches", "problems_of_rows"]

_SCHEMA = pa.schema([("topic", pa.string()), ("partition", pa.int32()), ("key", pa.string()), ("value", pa.string())])
_ROWS = 160
_REFUSED_EVERY = 20
"""Every so manieth row has no topic, and is diverted to quarantine."""

_FIRST_S = 1_600_000_000
_SMALL: dict[str, object] = {
    "segment.bytes": 2_000,
    "batch.size": 600,
    "index.interval.bytes": 500,
    "file.delete.delay.ms": 3_000,
}
_TOPICS: dict[str, dict[str, object]] = {
    "plain": {**_SMALL, "partitions": 2, "retention.ms": -1},
    "kept": {**_SMALL, "cleanup.policy": "compact", "min.cleanable.dirty.ratio": 0.01, "compression.type": "gzip"},
    "short": {**_SMALL, "retention.ms": -1, "retention.bytes": 6_000},
}
"""Of `kept` every key is written once, so a cleaning takes no record; of `short` the oldest ones go."""

_DELETED_FROM = "short"
LOGS = (TopicPartition("plain", 0), TopicPartition("plain", 1), TopicPartition("kept", 0), TopicPartition("short", 0))


class NumberedRows:
    """The input of a stream, with its settings.

    Attributes:
        settings: the file.
        store: where the stream writes.

    Args:
        folder: of all of it.
    """

    def __init__(self, folder: Path) -> None:
        self._input, self._count = folder / "input", 0
        self._input.mkdir(parents=True)
        self.store, self.settings = folder / "store", folder / "settings.yaml"
        spark = {
            "spark.master": "local[2, 3]",  # a task whose worker dies is tried again, which users may ask for
            "spark.driver.memory": "600m",
            "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
            "spark.sql.shuffle.partitions": "2",
        }
        content = {
            "store": str(self.store),
            "checkpoint": str(folder / "checkpoint"),
            "source": {
                "format": "parquet",
                "path": str(self._input),
                "schema": "topic string, partition int, key string, value string",
                "options": {"maxFilesPerTrigger": 1},
            },
            "records": {
                "topic": "topic",
                "partition": "partition",
                "key": "key",
                "value": "value",
                "on_invalid": "quarantine",
            },
            "topics": _TOPICS,
            "maintenance": {"every": "12s"},
            "spark": spark,
        }
        self.settings.write_text(json.dumps(content))

    def extend(self, count: int) -> None:
        """Make sure that there are so many files; Spark takes them in the order of their times."""
        while self._count < count:
            path = self._input / f".{self._count:06}.parquet"
            pq.write_table(pa.Table.from_pylist(_rows_of(self._count), _SCHEMA), path)
            os.utime(path, (_FIRST_S + self._count, _FIRST_S + self._count))
            path.rename(path.with_name(path.name.removeprefix(".")))
            self._count += 1


def commits(store: Path) -> int:
    """Return how many micro-batches the ledger holds, 0 without a ledger."""
    if not (store / "ledger" / "_delta_log").is_dir():
        return 0
    query = next((path for path in (store.parent / "checkpoint").glob("metadata")), None)
    if query is None:
        return 0
    version = Ledger.open(Store.find(store).ledger_path).transaction_version(json.loads(query.read_text())["id"])
    return 0 if version is None else version + 1


def micro_batches(store: Path) -> dict[int, int]:
    """Return in which micro-batch each file is that one was planned for, from the logs of Spark's checkpoint.

    Raises:
        AssertionError: a file is there twice.
    """
    checkpoint = store.parent / "checkpoint"
    plans = sorted(
        (json.loads(path.read_text().splitlines()[2])["logOffset"], int(path.name))
        for path in (checkpoint / "offsets").glob("[0-9]*")
    )
    entries: dict[int, int] = {}
    for path in (checkpoint / "sources" / "0").glob("[0-9]*"):
        for line in path.read_text().splitlines()[1:]:
            entry = json.loads(line)
            number = int(Path(entry["path"]).name.removesuffix(".parquet"))
            assert entries.setdefault(number, entry["batchId"]) == entry["batchId"], f"Spark takes {number} twice"
    places = {number: bisect_left(plans, (entry, 0)) for number, entry in entries.items()}
    return {number: plans[place][1] for number, place in places.items() if place < len(plans)}


def _acknowledged(store: Path) -> list[int]:
    """Return the numbers of the files whose micro-batches are committed.

    Raises:
        AssertionError: Spark left one out.
    """
    count = commits(store)
    found = sorted(number for number, batch in micro_batches(store).items() if batch < count)
    assert found == list(range(len(found))), f"Spark left a file out: {found}"
    return found


def log_ends(store: Path) -> dict[TopicPartition, int]:
    """Return how far each log is committed."""
    return {log: state.log_end_offset for log, state in Ledger.open(Store.find(store).ledger_path).states().items()}


def problems_of_rows(store: Path) -> list[str]:
    """Return which acknowledged rows are missing, or there more than once, in the logs or in quarantine."""
    wanted = [row for number in _acknowledged(store) for row in _rows_of(number)]
    found: Counter[str] = Counter()
    problems, root = [], Store.find(store)
    for log, state in Ledger.open(root.ledger_path).states().items():
        offsets = []
        for offset, value in _parsed(root.log_path(state), state.log_end_offset):
            if offset >= state.log_start_offset:
                offsets.append(offset)
                found[f"{log.topic}/{value}"] += 1
        if offsets != list(range(state.log_start_offset, state.log_end_offset)):
            problems.append(f"{log}: {len(offsets)} offsets, not {state.log_start_offset}..{state.log_end_offset}")
    expected = Counter(f"{row['topic']}/{row['value']}" for row in wanted if row["topic"])
    if not expected:
        problems.append("nothing was acknowledged")
    lost = [row for row in expected - found if not row.startswith(_DELETED_FROM)]
    more = list(found - expected)
    diverted = Counter(row["value"] for row in wanted if not row["topic"])
    problems += [f"lost: {len(lost)} {sorted(lost)[:5]}"] if lost else []
    problems += [f"twice, or not acknowledged: {len(more)} {sorted(more)[:5]}"] if more else []
    quarantined = _quarantined(store)
    problems += [f"quarantine lacks {list(diverted - quarantined)[:5]}"] if diverted - quarantined else []
    problems += [f"quarantine has too many {list(quarantined - diverted)[:5]}"] if quarantined - diverted else []
    return problems


def _rows_of(number: int) -> list[dict[str, Any]]:
    places = [LOGS[row % len(LOGS)] for row in range(_ROWS)]
    return [
        {
            "topic": None if row % _REFUSED_EVERY == 7 else log.topic,
            "partition": log.partition,
            "key": f"{number}/{row}",
            "value": f"{number:06}/{row:03}",
        }
        for row, log in enumerate(places)
    ]


def _parsed(directory: Path, end: int) -> Iterator[tuple[int, str]]:
    """Yield offset and value of each record below an end, as kafka-python reads them."""
    for path in sorted(directory.glob("*.log")):
        batches = MemoryRecords(path.read_bytes())
        while (batch := batches.next_batch()) is not None:
            if batch.base_offset >= end:
                return
            if not batch.validate_crc():
                raise AssertionError(f"kafka-python finds a wrong CRC: {path} {batch.base_offset}")
            yield from ((record.offset, record.value.decode()) for record in batch)


def _quarantined(store: Path) -> Counter[str]:
    found = Counter[str]()
    for path in (store / "quarantine").rglob("*.parquet"):
        found.update(pq.read_table(path).column("value").to_pylist())
    return found
