"""A store without Spark: Arrow rows staged in this process by the code that executors run, and a look at the files.

What is read back here is read by the record format alone: neither ledger nor index is trusted with it.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from sparklog.sink.config import SinkConfig
from sparklog.sink.ledger.ledger import Ledger
from sparklog.sink.stage.report import StageReport
from sparklog.sink.stage.stage_rows import StagePlan, stage
from sparklog.sink.store.store_folder import Store
from sparklog.sink.store_writer import StoreWriter
from sparklog.storage_core.clock import Clock, SystemClock
from sparklog.storage_core.log.files.names import LOG, parse_base_offset
from sparklog.storage_core.record.batch_decode import decode_batches
from sparklog.storage_core.record.batch_scan import check_crcs, scan_batches

_TYPES = {
    "topic": pa.string(),
    "partition": pa.int64(),
    "offset": pa.int64(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "key": pa.binary(),
    "value": pa.binary(),
    "headers": pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])),
}


@dataclass(frozen=True, slots=True)
class Stored:
    """A record as its segment holds it."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None


def rows(**columns: Sequence[Any]) -> pa.RecordBatch:
    """Return rows with the types Spark hands over; integers in `timestamp` stay ms."""
    arrays = {}
    for name in (each for each in _TYPES if each in columns):
        values = [value.encode() if isinstance(value, str) and name != "topic" else value for value in columns[name]]
        is_ms = name == "timestamp" and any(isinstance(value, int) for value in values)
        arrays[name] = pa.array(values, pa.int64() if is_ms else _TYPES[name])
    return pa.RecordBatch.from_pydict(arrays)


def in_process(*splits: pa.RecordBatch | Iterable[pa.RecordBatch]) -> Callable[[StagePlan], list[StageReport]]:
    """Return a function that stages input splits one after the other, each as a Spark task would."""

    def run(plan: StagePlan) -> list[StageReport]:
        reports: list[StageReport] = []
        for task, split in enumerate(splits):
            batches = [split] if isinstance(split, pa.RecordBatch) else split
            reports += (
                StageReport.from_row(row) for output in stage(plan, task, batches) for row in output.to_pylist()
            )
        return reports

    return run


def open_store(
    path: Path,
    topics: Mapping[str, Mapping[str, object]],
    *,
    clock: Clock | None = None,
    take_lock_by_force: bool = False,
    **options: Any,
) -> StoreWriter:
    """Open a store for writing."""
    config = SinkConfig.from_options(path, topics, **options)
    return StoreWriter(config, clock or SystemClock(), take_lock_by_force=take_lock_by_force)


def read_log(directory: Path) -> list[Stored]:
    """Return every record of every segment in order, after checking every CRC and that no byte is left over."""
    found: list[Stored] = []
    for path in sorted(directory.glob(f"*{LOG}")):
        data = path.read_bytes()
        scan = scan_batches(data)
        assert scan.valid_bytes == len(data), f"torn tail: {path}"
        assert not len(check_crcs(data, scan)), f"wrong CRC: {path}"
        if len(scan):
            assert scan.base_offset[0] >= (parse_base_offset(path.name) or 0), f"offset below the name: {path}"
        table = decode_batches(data, scan)
        names = ("offset", "timestamp", "key", "value")
        found += (Stored(*row) for row in zip(*(table.column(name).to_pylist() for name in names), strict=True))
    return found


def log_directories(store: Path) -> dict[str, Path]:
    """Return the directory of every log that the ledger names, by its name."""
    found = Store.find(store)
    states = Ledger.open(found.ledger_path).states()
    return {str(log): found.log_path(state) for log, state in states.items()}


def read_store(store: Path) -> dict[str, list[Stored]]:
    """Return the records of every log."""
    return {name: read_log(directory) for name, directory in log_directories(store).items()}


def contents(folder: Path, *, without: tuple[str, ...] = ()) -> dict[str, bytes]:
    """Return every file below a folder with its bytes, to see whether anything changed."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name not in without
    }


def numbers(first: int, last: int) -> pa.RecordBatch:
    """Return rows whose values are the numbers of a range."""
    return rows(key=[f"key-{n % 7}" for n in range(first, last)], value=[str(n) for n in range(first, last)])


def stored_numbers(store: Path) -> list[int]:
    """Return the numbers of all logs, sorted."""
    return sorted(int(record.value or b"-1") for log in read_store(store).values() for record in log)


EVENTS: Mapping[str, Mapping[str, object]] = {"events": {"partitions": 2, "segment.bytes": 600, "batch.size": 200}}
"""A topic whose segments roll every few dozen numbers."""


def open_events(store: Path, **options: Any) -> StoreWriter:
    """Open a store of the topic `events`, where all rows go."""
    return open_store(store, EVENTS, topic="events", **options)
