"""A disk that can't write back what it took, and then loses its power: what a failed sync was for is not believed.

The disk is a file on a small file system in memory: once that is full, the disk below the store fails.
"""

import contextlib
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from sparklog.pipeline.places.lost_view import lost_ranges
from sparklog.pipeline.places.store_view import open_logs
from sparklog.pipeline.verbs.repair import RepairOptions, execute_repair, plan_repairs
from sparklog.sink.ledger.ledger import Ledger
from sparklog.storage_core.clock import SystemClock
from sparklog.storage_core.errors import LogStorageError, StorageError, UnflushedRecordsLostError
from tests.build.lost_offsets import lost_offsets
from tests.build.sink_store import in_process, open_store, read_store, rows
from tests.kill.loop_disk import LoopDisk, unmount
from tests.kill.power_job import IS_LONG, mounted

pytestmark = pytest.mark.kill

_LOG = {"partitions": 2, "segment.bytes": 1 << 30, "batch.size": 100_000}
_POLICIES: dict[str, dict[str, object]] = {"every commit": {}, "never": {"flush.messages": "never"}}
_EACH = 1000
_PADDING = "x" * 1000
_MOST = 30
_ROOMS_KB = (3000, 3400, 3900, 4500) if IS_LONG else (3000,)
_OPENINGS = 3
"""Each opening may meet an error of a file that nobody has been told yet."""


@pytest.fixture
def disk(request: pytest.FixtureRequest, memory_path: Path) -> Iterator[LoopDisk]:
    """A disk of the file system asked for, on another file system that can be made small."""
    below = memory_path / "below"
    below.mkdir()
    done = subprocess.run(["mount", "-t", "tmpfs", "tmpfs", str(below)], check=False, capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"no file system in memory: {done.stderr.strip()}")
    try:
        disk = mounted(below, request.param)
        try:
            yield disk
        finally:
            disk.remove()
    finally:
        unmount(below)


def _resize(disk: LoopDisk, size_kb: int) -> None:
    below = str(disk.folder.parent)
    subprocess.run(["mount", "-o", f"remount,size={size_kb}k", below], check=True)


def _used_kb(disk: LoopDisk) -> int:
    done = subprocess.run(["df", "-k", "--output=used", str(disk.folder.parent)], check=True, capture_output=True)
    return int(done.stdout.split()[-1])


def _batch(number: int) -> pa.RecordBatch:
    return rows(
        partition=[each % 2 for each in range(_EACH)],
        value=[f"{each}:{_PADDING}" for each in range(number * _EACH, (number + 1) * _EACH)],
    )


def _fill(disk: LoopDisk, store: Path, topics: dict[str, dict[str, object]], room_kb: int) -> int:
    """Append until the disk fails; return how many micro-batches were acknowledged."""
    writer = open_store(store, topics, topic="t")
    writer.append("q", 0, in_process(_batch(0)))
    disk.settle()
    _resize(disk, _used_kb(disk) + room_kb)
    acknowledged = 1
    with pytest.raises(LogStorageError):  # noqa: PT012 - which call it is depends on the flush policy
        for number in range(1, _MOST):
            writer.append("q", number, in_process(_batch(number)))
            acknowledged = number + 1
        writer.close()
    with contextlib.suppress(LogStorageError):
        writer.close()
    return acknowledged


def _reopen(store: Path, topics: dict[str, dict[str, object]]) -> int:
    """Open the store as soon as the disk lets us; return how many micro-batches it then says are committed."""
    for _ in range(_OPENINGS):
        try:
            open_store(store, topics, topic="t").close()
        except UnflushedRecordsLostError:
            with contextlib.suppress(StorageError):
                execute_repair(store, RepairOptions(jobs=1), SystemClock(), lambda _step: None)
        except StorageError:
            continue
        else:
            return (Ledger.open(store / "ledger").transaction_version("q") or 0) + 1
    return 0


@pytest.mark.parametrize("room_kb", _ROOMS_KB)
@pytest.mark.parametrize(
    ("disk", "policy"),
    [("xfs", "every commit"), ("xfs", "never"), ("ext4", "every commit")],
    indirect=["disk"],
)
def test_power_cut_when_the_disk_failed_before_then_takes_nothing_that_was_acknowledged(
    disk: LoopDisk, policy: str, room_kb: int
) -> None:
    """A sync that failed succeeds the next time without what it was for: no opening may count on that."""
    store, topics = disk.folder / "s", {"t": {**_LOG, **_POLICIES[policy]}}
    acknowledged = _fill(disk, store, topics, room_kb)
    _resize(disk, 500_000)
    told = max(acknowledged, _reopen(store, topics))

    disk.cut_power()
    disk.plug_in()
    held = _reopen(store, topics)

    assert held >= told
    lost = len(lost_offsets(lost_ranges(open_logs(store))))
    found = sorted(int((each.value or b"").split(b":")[0]) for log in read_store(store).values() for each in log)
    assert len(set(found)) == len(found) == held * _EACH - lost
    assert found[-1] < held * _EACH
    assert lost == 0 or policy == "never"
    assert plan_repairs(store, RepairOptions(jobs=1)).is_sound
