"""A writer, a maintenance and a reader of one store, each in a process of its own that can be killed and started again.

What is written follows from the offset alone, so a reader knows every record that it meets: partition p's record at
offset n is number 2 n + p. A refusal goes to `<role>-error.txt`.
"""

import os
import secrets
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import closing
from multiprocessing.context import ForkServerContext, ForkServerProcess
from pathlib import Path

import pyarrow as pa

from sink.clean_logs import CleanerBudget, clean_logs, pending_removals, plan_cleanings
from sink.forget_keys import prepare_erasure, settle_requests
from sink.forgotten_keys import add_request, erased_keys, read_requests
from sink.ledger import Ledger
from sink.retain_logs import RetentionRun, execute_plans, plan_logs, remove_deleted
from sink.store import Store
from sink.store_access import maintaining
from sink.store_writer import StoreWriter
from storage_core.clock import SystemClock
from storage_core.errors import StoreLockedError
from storage_core.log.log_reader import LogReader
from storage_core.topic_partition import TopicPartition
from tests.sink_store import in_process, open_store, rows

__all__ = [
    "FORGOTTEN",
    "FORGOTTEN_UNTIL",
    "PARTITIONS",
    "ROLES",
    "TOPIC",
    "live",
    "maintain_once",
    "read_log",
    "record_of",
    "start",
]

TOPIC = "lively"
PARTITIONS = 2
FORGOTTEN = "k3"
"""Written up to `FORGOTTEN_UNTIL`, then never again."""

FORGOTTEN_UNTIL = 400
"""A number of a record."""

_KEYS = 11
_ROWS = 20
_SETTINGS: dict[str, object] = {
    "partitions": PARTITIONS,
    "cleanup.policy": "compact,delete",
    "retention.ms": -1,
    "segment.bytes": 1500,
    "batch.size": 300,
    "index.interval.bytes": 100,
    "min.cleanable.dirty.ratio": 0.01,
    "delete.retention.ms": 0,
    "file.delete.delay.ms": 200,
}
_BUDGET_BYTES = 24 * 40  # a map of 36 keys, more than there are


def record_of(number: int) -> tuple[str, str | None]:
    """Return key and value of the record of a number; one in thirteen is a tombstone."""
    key = f"k{number // PARTITIONS % _KEYS}"
    if key == FORGOTTEN and number >= FORGOTTEN_UNTIL:
        key = "k4"
    return key, None if number % 13 == 0 else str(number)


def live(partition: int, end_offset: int) -> dict[str, str | None]:
    """Return the latest value of each key of a log; None where it is a tombstone, which may be gone."""
    return dict(record_of(PARTITIONS * offset + partition) for offset in range(end_offset))


def read_log(store: Path, partition: int) -> tuple[int, dict[int, tuple[str, str | None]]]:
    """Return where a log ends, and its records by offset.

    Raises:
        AssertionError: offsets do not rise, or a record is not what was written.
    """
    found = Store.find(store)
    log = TopicPartition(TOPIC, partition)
    state = Ledger.open(found.ledger_path).states()[log]
    reader = LogReader(
        found.log_path(state),
        log_start_offset=state.log_start_offset,
        log_end_offset=state.log_end_offset,
        last_stable_offset=state.log_end_offset,
    )
    read: dict[int, tuple[str, str | None]] = {}
    last = -1
    for batch in reader.read(state.log_start_offset):
        for row in batch.select(["offset", "key", "value"]).to_pylist():
            offset, value = row["offset"], row["value"]
            record = row["key"].decode(), None if value is None else value.decode()
            if offset <= last or record != record_of(PARTITIONS * offset + partition):
                raise AssertionError(f"{log} offset={offset} last={last} record={record}")
            last, read[offset] = offset, record
    return state.log_end_offset, read


def maintain_once(store: Path) -> None:
    """Do what a maintenance run does, in this process."""
    clock = SystemClock()
    with maintaining(store) as maintained:
        requests = prepare_erasure(maintained, clock)
        budget = CleanerBudget(
            map_bytes=_BUDGET_BYTES, hash_key=secrets.token_bytes(16), erased_keys=erased_keys(requests)
        )
        run = execute_plans(maintained, plan_logs(maintained.store, clock), clock)
        plans = plan_cleanings(maintained.store, {}, clock)
        done = list(clean_logs(maintained, plans, budget, clock))
        settle_requests(maintained.store, requests, clock)
    if wrong := [row for row in done if row.outcome not in ("cleaned", "stopped")]:
        raise AssertionError(str(wrong))
    if failed := remove_deleted(RetentionRun([], run.pending + pending_removals(plans, clock)), clock):
        raise AssertionError(str(failed))


def _open(store: Path) -> StoreWriter:
    """Open the store as a writer, again and again while the maintenance rolls active segments."""
    while True:
        try:
            return open_store(store, {TOPIC: _SETTINGS}, topic=TOPIC)
        except StoreLockedError:
            time.sleep(0.1)


def _write(store: Path) -> Iterator[None]:
    """Append a batch after the other, from where the one before was killed."""
    with closing(_open(store)) as writer:
        done = Ledger.open(Store.find(store).ledger_path).transaction_version("q")
        batch = -1 if done is None else done
        while True:
            batch += 1
            numbers = range(batch * _ROWS, (batch + 1) * _ROWS)
            records = [record_of(number) for number in numbers]
            keys, values = [key for key, _ in records], [value for _, value in records]
            partitions = [number % PARTITIONS for number in numbers]
            writer.append("q", batch, in_process(rows(partition=partitions, key=keys, value=values)))
            yield


def _maintain(store: Path) -> Iterator[None]:
    while True:
        found = Store.find(store)
        states = Ledger.open(found.ledger_path).states()
        written = min((state.log_end_offset for state in states.values()), default=0)
        if written * PARTITIONS > FORGOTTEN_UNTIL and not read_requests(found):
            add_request(found, TOPIC, pa.array([FORGOTTEN.encode()], pa.binary()), states, SystemClock().now_ms())
        maintain_once(store)
        yield


def _read(store: Path) -> Iterator[None]:
    """Read all again and again: a key's latest value never becomes an older one."""
    seen: dict[tuple[int, str], int] = {}
    while True:
        for partition in range(PARTITIONS):
            _, read = read_log(store, partition)
            latest = {key: offset for offset, (key, _) in read.items()}
            for key, offset in latest.items():
                if offset < seen.get((partition, key), -1):
                    raise AssertionError(f"an older record is the latest one: {partition=} {key=} {offset=}")
                seen[partition, key] = offset
        yield


ROLES: dict[str, tuple[Callable[[Path], Iterator[None]], float]] = {
    "writer": (_write, 0.02),
    "maintenance": (_maintain, 0.0),
    "reader": (_read, 0.05),
}
"""What each does, and how long it rests between two rounds."""


def start(context: ForkServerContext, store: Path, role: str) -> ForkServerProcess:
    """Start one of them; it goes on until it is killed."""
    process = context.Process(target=_run, args=(store, role))
    process.start()
    return process


def _run(store: Path, role: str) -> None:
    rounds, rest_s = ROLES[role]
    try:
        for _ in rounds(store):
            time.sleep(rest_s)
    except BaseException:
        store.with_name(f"{role}-error.txt").write_text(traceback.format_exc())
        os._exit(3)
