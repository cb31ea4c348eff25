"""A mirror that tests kill: the end offsets of its source come with each micro-batch, and hold offsets without records.

One log ends in such offsets behind its records, one has nothing else, one begins with them and ends in a record.
"""

import os
import traceback
from collections.abc import Iterator
from multiprocessing.context import ForkServerContext
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from sparklog.pipeline.checks.verify_logs import verify
from sparklog.pipeline.places.store_view import open_logs
from sparklog.sink.ledger.ledger import Ledger
from sparklog.sink.place.end_offsets import PlannedEnds
from sparklog.sink.store.store_folder import Store
from sparklog.storage_core.inspect.verify.findings import Finding
from sparklog.storage_core.record.batch_scan import scan_batches
from tests.build.sink_store import in_process, open_store, read_log, rows
from tests.kill.harness import exit_code

__all__ = ["QUERY", "finish_mirror", "mirror", "planned_ends", "problems_of_mirror"]

QUERY = "mirror"
_MICRO_BATCHES = 3
_TOPIC = "m"
_SETTINGS = {"partitions": 3, "segment.bytes": 600, "batch.size": 200, "index.interval.bytes": 100}
"""Segments roll in every micro-batch."""

_SOUND = ("known", "nothing", "gap")


def planned_ends(number: int) -> dict[tuple[str, int], int]:
    """Return where the source's logs end behind a micro-batch; behind -1, before the first one."""
    done = number + 1
    return {(_TOPIC, 0): max(100 * number + 50, 0), (_TOPIC, 1): 10 * done, (_TOPIC, 2): 40 * done + 20 * (done > 0)}


def _planned_starts(number: int) -> dict[tuple[str, int], int]:
    return planned_ends(number - 1) if number else {(_TOPIC, 0): 0, (_TOPIC, 1): 3, (_TOPIC, 2): 5}


def mirror(store: Path) -> None:
    """Bring the mirror up to date; micro-batches that are committed are skipped."""
    writer = open_store(store, {_TOPIC: _SETTINGS}, topic=_TOPIC, offsets="preserved", on_invalid="quarantine")
    for number in range(_MICRO_BATCHES):
        diverted = rows(
            partition=[0], offset=[_diverted(number)], key=["k"], value=[f"0/{_diverted(number):05}"], timestamp=[-9]
        )
        splits = [_rows(0, number), _rows(2, number), diverted]
        writer.append(QUERY, number, in_process(*splits), PlannedEnds(planned_ends(number), _planned_starts(number)))
    writer.close()


def finish_mirror(context: ForkServerContext, store: Path, **environment: str) -> int:
    """Run the job until it ends; return its exit code, negative for a signal; a refusal goes to `error.txt`."""
    process = context.Process(target=_run, args=(store, environment))
    process.start()
    return exit_code(process)


def problems_of_mirror(store: Path) -> list[str]:
    """Return everything that is wrong with the store of a job that has ended well."""
    root, starts, ends = Store.find(store), _planned_starts(0), planned_ends(_MICRO_BATCHES - 1)
    problems = [f"left over: {path}" for path in (store / "staging").rglob("*") if path.is_file()]
    for log, state in Ledger.open(root.ledger_path).states().items():
        start, end = starts[log.topic, log.partition], ends[log.topic, log.partition]
        directory = root.log_path(state)
        if (state.log_start_offset, state.log_end_offset, state.recovery_point) != (start, end, end):
            problems.append(f"{log}: planned {start}..{end}, the ledger has {state}")
        if min(directory.glob("*.log")).name != f"{start:020}.log":
            problems.append(f"{log}: planned start {start}: {sorted(directory.glob('*.log'))}")
        if (last := _last_batch(directory)) != (end - 1, log.partition != 2):
            problems.append(f"{log}: last offset and whether its batch has no records: {last}, planned end {end}")
        found = [(each.offset, (each.value or b"").decode()) for each in read_log(directory)]
        if found != [(offset, _value(log.partition, offset)) for offset in _all_offsets(log.partition)]:
            problems.append(f"{log}: records are not the source's: {found}")
    files = (store / "quarantine").rglob("*.parquet")
    values = sorted(each for path in files for each in pq.read_table(path).column("value").to_pylist())
    if values != [_value(0, _diverted(number)).encode() for number in range(_MICRO_BATCHES)]:
        problems.append(f"diverted: {values}")
    findings: list[Finding] = []
    verify(open_logs(store), findings.append, deep=True)
    return problems + [str(each) for each in findings if each.kind not in _SOUND]


def _offsets(partition: int, number: int) -> range:
    return {0: range(100 * number, 100 * number + 30), 1: range(0), 2: range(40 * number + 20, 40 * number + 60)}[
        partition
    ]


def _diverted(number: int) -> int:
    return 100 * number + 30


def _value(partition: int, offset: int) -> str:
    return f"{partition}/{offset:05}"


def _rows(partition: int, number: int) -> pa.RecordBatch:
    offsets = _offsets(partition, number)
    values = [_value(partition, offset) for offset in offsets]
    times = [1000 + offset for offset in offsets]
    return rows(partition=[partition] * len(offsets), offset=list(offsets), key=values, value=values, timestamp=times)


def _all_offsets(partition: int) -> Iterator[int]:
    for number in range(_MICRO_BATCHES):
        yield from _offsets(partition, number)


def _last_batch(directory: Path) -> tuple[int, bool]:
    """Return a log's last offset, and whether the batch that holds it has no records."""
    scan = scan_batches(max(directory.glob("*.log")).read_bytes())
    return int(scan.last_offset[-1]), int(scan.records_count[-1]) == 0


def _run(store: Path, environment: dict[str, str]) -> None:
    os.environ.update(environment)
    try:
        mirror(store)
    except BaseException:
        (store.parent / "error.txt").write_text(traceback.format_exc())
        os._exit(3)
    os._exit(0)
