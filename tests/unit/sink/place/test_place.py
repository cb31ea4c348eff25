"""Staged batches get their offsets and their place in a segment."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from sparklog.sink.ledger.ledger import Ledger
from sparklog.sink.ledger.rows import LogState
from sparklog.sink.locks.writer_lock import WriterLock
from sparklog.sink.place.flush_policy import FLUSH_LIMITS, LogLimits
from sparklog.sink.place.placer import Placement, Placer
from sparklog.sink.place.staged_batches import StagedBatches
from sparklog.storage_core.errors import StorageError, WriterFencedError
from sparklog.storage_core.index.time_index import TimeIndex
from sparklog.storage_core.log.append.roll import ROLL_LIMITS, BackwardOffsetError
from sparklog.storage_core.record.batch_scan import check_crcs, scan_batches
from sparklog.storage_core.storage.owned_names import UNSHARED
from tests.build.manual_clock import ManualClock
from tests.build.sink_store import contents, read_log
from tests.build.written_log import Batch, encode_batch

_LOGS = 6


_EPOCHS = ("leader-epoch-checkpoint",)
"""Of the logs with an epoch above 0: its line is there before the first batch."""


@dataclass
class _Logs:
    """Logs 0..5 of a topic with a ledger, and what places into them."""

    folder: Path
    ledger: Ledger
    lock: WriterLock
    limits: LogLimits
    placer: Placer

    def log(self, row: int) -> Path:
        return self.folder / f"t-{row}"

    def stage(self, name: str, *batches: tuple[int, Batch]) -> tuple[Path, list[tuple[int, bytes, Batch]]]:
        """Write a staging file of (log, batch)."""
        encoded = [(row, encode_batch(batch, 0), batch) for row, batch in batches]
        (self.folder / name).write_bytes(b"".join(data for _, data, _ in encoded))
        return self.folder / name, encoded

    def commit(self, placement: Placement, batch_id: int) -> None:
        self.placer.sync(placement.written)
        self.ledger.update(placement.rows, placement.values, ("query", batch_id), 0, UNSHARED)
        self.placer.install(placement)


def _staged(*files: tuple[Path, list[tuple[int, bytes, Batch]]], base_offset: int = 0) -> StagedBatches:
    lines = []
    for number, (_, batches) in enumerate(files):
        position = 0
        for row, data, batch in batches:
            count = len(batch.timestamps)
            lines.append((row, number, position, len(data), count, count - 1, base_offset, max(batch.timestamps)))
            position += len(data)
    columns = np.array(sorted(lines), np.int64).T
    return StagedBatches([path for path, _ in files], *(column.copy() for column in columns))


@pytest.fixture
def logs(memory_path: Path) -> Iterator[_Logs]:
    ledger = Ledger.create(memory_path / "ledger", UNSHARED)
    ledger.add(
        [
            LogState(
                topic="t",
                partition=row,
                log_dir="",
                topic_id="id",
                log_start_offset=0,
                log_end_offset=0,
                recovery_point=0,
                active_base_offset=0,
                active_size_bytes=0,
                max_timestamp_ms=-1,
                leader_epoch=row,
                updated_ms=0,
            )
            for row in range(_LOGS)
        ],
        UNSHARED,
    )
    limits = np.zeros(_LOGS, ROLL_LIMITS)
    for name, value in {"segment_bytes": 400, "segment_ms": 1 << 40, "index_interval_bytes": 150}.items():
        limits[name] = value
    limits["max_offset_entries"] = limits["max_time_entries"] = 1000
    directories = [memory_path / f"t-{row}" for row in range(_LOGS)]
    for directory in directories:
        directory.mkdir()
    lock = WriterLock.acquire(memory_path / "lock")
    flush = np.zeros(_LOGS, FLUSH_LIMITS)
    flush["messages"] = 1
    placer = Placer(ledger, lock, ManualClock(99), directories, LogLimits(limits, flush), preserved=False)
    yield _Logs(memory_path, ledger, lock, LogLimits(limits, flush), placer)
    placer.stop()
    lock.release()


def test_place_assigns_dense_offsets_in_order_of_files_and_positions(logs: _Logs) -> None:
    """Logs are independent; every header has the log's leader epoch, and its CRC still holds."""
    first = logs.stage("first", (1, Batch([5, 6])), (0, Batch([7])), (1, Batch([8, 9, 1])))
    second = logs.stage("second", (1, Batch([10])), (5, Batch([11])))

    placement = logs.placer.place(_staged(first, second))
    logs.commit(placement, 0)

    assert placement.rows.tolist() == [0, 1, 5]
    assert [record.timestamp for record in read_log(logs.log(1))] == [5, 6, 8, 9, 1, 10]
    for row in (0, 1, 5):
        (path,) = logs.log(row).glob("*.log")
        scan = scan_batches(path.read_bytes())
        assert scan.base_offset.tolist() == {0: [0], 1: [0, 2, 5], 5: [0]}[row]
        assert set(scan.leader_epoch.tolist()) == {row}
        assert not len(check_crcs(path.read_bytes(), scan))
    state = logs.ledger.state(1)
    assert (state.log_end_offset, state.max_timestamp_ms, state.updated_ms, state.log_start_offset) == (6, 10, 99, 0)
    assert state.active_size_bytes == sum(path.stat().st_size for path in logs.log(1).glob("*.log"))


def test_place_when_it_continues_then_goes_on_where_the_last_commit_ended(logs: _Logs) -> None:
    """Over rolls: every byte of every micro-batch is in some segment, in order."""
    for number in range(8):
        batches = [(row, Batch([number * 10 + row])) for row in range(_LOGS) for _ in range(2)]
        logs.commit(logs.placer.place(_staged(logs.stage("staged", *batches))), number)

    for row in range(_LOGS):
        records = read_log(logs.log(row))
        assert [record.offset for record in records] == list(range(16))
        assert [record.timestamp for record in records] == [n * 10 + row for n in range(8) for _ in range(2)]
        assert len(list(logs.log(row).glob("*.log"))) > 2
    assert logs.ledger.column("log_end_offset").tolist() == [16] * _LOGS


def test_undo_when_a_placement_was_not_committed_then_the_next_one_takes_its_place(logs: _Logs) -> None:
    """In a log with committed records, and in one without."""
    logs.commit(logs.placer.place(_staged(logs.stage("a", *[(0, Batch([1]))] * 3))), 0)
    before = contents(logs.log(0))
    lost = logs.placer.place(_staged(logs.stage("b", *[(row, Batch([2, 3])) for row in (0, 1) for _ in range(9)])))

    logs.placer.undo(lost.rows)

    assert contents(logs.log(0)) == before
    assert contents(logs.log(1), without=_EPOCHS) == {}
    logs.commit(logs.placer.place(_staged(logs.stage("c", (0, Batch([4])), (1, Batch([5]))))), 1)
    assert [record.timestamp for record in read_log(logs.log(0))] == [1, 1, 1, 4]
    assert [record.timestamp for record in read_log(logs.log(1))] == [5]


def test_place_when_one_log_fails_then_no_other_is_still_being_written(logs: _Logs) -> None:
    """Whoever undoes it must not race with a thread that still writes."""
    logs.log(3).rmdir()
    batches = [(row, Batch([number])) for row in range(_LOGS) for number in range(20)]

    with pytest.raises(StorageError, match=r"path=.*t-3"):
        logs.placer.place(_staged(logs.stage("staged", *batches)))

    found = contents(logs.folder)
    assert contents(logs.folder) == found
    logs.log(3).mkdir()
    logs.placer.undo(np.arange(_LOGS))
    assert all(contents(logs.log(row), without=_EPOCHS) == {} for row in range(_LOGS))


def test_place_when_the_store_is_lost_then_writes_nothing(logs: _Logs) -> None:
    """Another writer took the lock by force."""
    taker = WriterLock.take_by_force(logs.folder / "lock")

    with pytest.raises(WriterFencedError):
        logs.placer.place(_staged(logs.stage("staged", (0, Batch([1])), (1, Batch([1])))))

    assert all(contents(logs.log(row), without=_EPOCHS) == {} for row in range(_LOGS))
    taker.release()


def test_place_when_a_preserved_offset_goes_back_then_writes_nothing(logs: _Logs) -> None:
    """It is found before the first byte is written."""
    placer = Placer(logs.ledger, logs.lock, ManualClock(), [logs.log(0)], logs.limits, preserved=True)
    staged = logs.stage("staged", (0, Batch([1, 2])), (0, Batch([3])))

    with pytest.raises(BackwardOffsetError):
        placer.place(_staged(staged, base_offset=70))

    assert contents(logs.log(0)) == {}
    placer.stop()


def test_close_writes_the_last_time_entry_of_every_log_written_to(logs: _Logs) -> None:
    """As a broker does when it closes a log; a second entry for the same time is not written."""
    logs.commit(logs.placer.place(_staged(logs.stage("staged", (0, Batch([5])), (0, Batch([9, 3]))))), 0)

    logs.placer.close()

    (path,) = logs.log(0).glob("*.timeindex")
    index = TimeIndex(path.read_bytes(), 0)
    assert (index.timestamps.tolist(), index.offsets.tolist()) == ([9], [2])
    assert contents(logs.log(1)) == {}
