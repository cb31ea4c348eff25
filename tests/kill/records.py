"""What a job that will be killed reads, and what a store must hold once it is done."""

from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from sparklog.sink.ledger.ledger import Ledger
from sparklog.sink.store.store_folder import Store
from sparklog.storage_core.checkpoint.offset_checkpoint import parse_offset_checkpoint
from sparklog.storage_core.inspect.verify.findings import ExpectedLog
from tests.build.sink_store import read_log
from tests.build.verified_logs import findings_of
from tests.plain.plain_murmur2 import murmur2

TOPICS: dict[str, dict[str, object]] = {
    "plain": {"partitions": 2, "segment.bytes": 3_000, "batch.size": 500, "index.interval.bytes": 600},
    "packed": {
        "partitions": 2,
        "segment.bytes": 1_000,
        "batch.size": 900,
        "index.interval.bytes": 300,
        "compression.type": "zstd",
    },
}
"""Four logs whose segments roll in every micro-batch."""

FILES_PER_MICRO_BATCH = 2
SCHEMA = pa.schema(
    [
        ("topic", pa.string()),
        ("timestamp", pa.timestamp("us", tz="UTC")),
        ("key", pa.string()),
        ("value", pa.string()),
    ]
)
SPARK_SCHEMA = "topic string, timestamp timestamp, key string, value string"
_START_US = 1_600_000_000_000_000


def write_input(folder: Path, *, files: int = 6, rows: int = 300, name: str = "input") -> None:
    """Write the job's files; a value is `<name>/<file>/<row>`, every 40th row has no topic, every 5th no key."""
    folder.mkdir(parents=True)
    for file in range(files):
        numbers = range(rows)
        columns = {
            "topic": [None if row % 40 == 7 else ("plain", "packed")[row // 3 % 2] for row in numbers],
            "timestamp": [_START_US + 1_000 * (file * rows + row) for row in numbers],
            "key": [None if row % 5 == 0 else f"key-{row % 17}" for row in numbers],
            "value": [f"{name}/{file:03}/{row:05}" for row in numbers],
        }
        pq.write_table(pa.table(columns).cast(SCHEMA), folder / f"{file:03}.parquet")


def reverse_rows(folder: Path) -> None:
    """Rewrite every file with its rows in the opposite order."""
    for path in sorted(folder.glob("*.parquet")):
        table = pq.read_table(path)
        pq.write_table(table.take(pa.array(range(table.num_rows - 1, -1, -1))), path)


def read_input(*folders: Path) -> list[dict[str, object]]:
    """Return the rows of all files in order."""
    return [
        row
        for folder in folders
        for path in sorted(folder.glob("*.parquet"))
        for row in pq.read_table(path).to_pylist()
    ]


def problems_of(store: Path, expected: list[dict[str, object]]) -> list[str]:
    """Return everything that is wrong with a store whose job has ended well, given the rows it was to write."""
    return [
        *record_problems(store, [row for row in expected if row["topic"] is not None]),
        *_quarantine_problems(store, [row for row in expected if row["topic"] is None]),
        *_file_problems(store),
    ]


def record_problems(store: Path, expected: list[dict[str, object]]) -> list[str]:
    """Return what is wrong with the records of a store: missing, there twice, out of order, in another partition."""
    problems: list[str] = []
    found: Counter[tuple[object, ...]] = Counter()
    root = Store.find(store)
    for log, state in Ledger.open(root.ledger_path).states().items():
        records = read_log(root.log_path(state))
        if [record.offset for record in records] != list(range(state.log_end_offset)):
            problems.append(f"{log}: offsets are not 0..{state.log_end_offset - 1}")
        last_row: dict[str, str] = {}
        for record in records:
            value = (record.value or b"").decode()
            file, row = value.rsplit("/", 1)
            if row <= last_row.get(file, ""):
                problems.append(f"{log}: {value} comes after {last_row[file]}")
            last_row[file] = row
            key = None if record.key is None else record.key.decode()
            if record.key is not None and (murmur2(record.key) & 0x7FFFFFFF) % 2 != log.partition:
                problems.append(f"{log}: {value} belongs to another partition")
            found[log.topic, key, value, record.timestamp] += 1
    wanted: Counter[tuple[object, ...]] = Counter(
        (row["topic"], row["key"], row["value"], int(row["timestamp"].timestamp() * 1000 + 0.5))  # type: ignore[attr-defined]
        for row in expected
    )
    problems += [f"missing {count} x {record}" for record, count in list((wanted - found).items())[:5]]
    problems += [f"too many {count} x {record}" for record, count in list((found - wanted).items())[:5]]
    return problems


def _quarantine_problems(store: Path, expected: list[dict[str, object]]) -> list[str]:
    files = sorted((store / "quarantine").rglob("*.parquet"))
    values = Counter(value for path in files for value in pq.read_table(path).column("value").to_pylist())
    wanted = Counter(row["value"] for row in expected)
    return [] if values == wanted else [f"quarantine lacks {wanted - values}, has too many {values - wanted}"]


def _file_problems(store: Path) -> list[str]:
    problems = [f"left over: {path}" for path in (store / "staging").rglob("*") if path.is_file()]
    problems += [f"left over: {path}" for path in store.rglob("*") if path.name.endswith((".cleaned", ".tmp"))]
    root = Store.find(store)
    states = Ledger.open(root.ledger_path).states()
    logs = [
        (
            root.log_path(state),
            ExpectedLog(
                log_start_offset=state.log_start_offset,
                log_end_offset=state.log_end_offset,
                active_base_offset=state.active_base_offset,
                active_size_bytes=state.active_size_bytes,
                topic_id=state.topic_id,
                leader_epoch=state.leader_epoch,
                has_gaps=False,
            ),
        )
        for state in states.values()
    ]
    problems += [str(finding) for finding in findings_of(logs)]
    ends = {log: state.log_end_offset for log, state in states.items()}
    for name in ("recovery-point-offset-checkpoint", "replication-offset-checkpoint"):
        if parse_offset_checkpoint((store / "logs" / name).read_bytes()) != ends:
            problems.append(f"{name} differs from the ledger")
    return problems
