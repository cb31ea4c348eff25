"""Which logs a commit brings onto the disk."""

from pathlib import Path

import numpy as np
import pytest

from sparklog.sink.ledger.ledger import Ledger
from sparklog.sink.place.flush_policy import flush_limits
from sparklog.sink.store.store_folder import Store
from sparklog.storage_core.errors import InvalidConfigError, StorageError
from sparklog.storage_core.log_config import INT64_MAX, LogConfig
from tests.build.manual_clock import ManualClock
from tests.build.sink_store import in_process, numbers, open_store, read_store, rows

_BIG = {"segment.bytes": 1 << 20, "batch.size": 200}


def _points(store: Path) -> dict[str, tuple[int, int]]:
    """Return recovery point and end of each log."""
    states = Ledger.open(Store.find(store).ledger_path).states()
    return {str(log): (state.recovery_point, state.log_end_offset) for log, state in states.items()}


def _checkpoint(store: Path) -> str:
    return (store / "logs" / "recovery-point-offset-checkpoint").read_text()


def test_limits_when_a_topic_has_no_settings_then_its_logs_are_synced_by_every_commit() -> None:
    """Such a log may have been written under another policy."""
    limits = flush_limits({"a": LogConfig(flush_messages=7, flush_ms=9)}, ["a", "b", "a"])

    assert limits.tolist() == [(7, 9), (1, INT64_MAX), (7, 9)]


def test_commit_when_nothing_is_said_then_syncs_every_log_it_touches(memory_path: Path) -> None:
    """The default: no commit leaves anything to the page cache."""
    writer = open_store(memory_path / "s", {"t": _BIG}, topic="t")

    writer.append("q", 0, in_process(numbers(0, 5)))

    assert _points(memory_path / "s") == {"t-0": (5, 5)}
    writer.close()


def test_commit_when_so_many_offsets_are_behind_then_syncs_the_log(memory_path: Path) -> None:
    """`flush.messages` counts from the recovery point on, over micro-batches."""
    store = memory_path / "s"
    writer = open_store(store, {"t": {**_BIG, "flush.messages": 10}}, topic="t")
    seen = []
    for number in range(4):
        writer.append("q", number, in_process(numbers(4 * number, 4 * number + 4)))
        seen.append(_points(store)["t-0"])

    assert seen == [(0, 4), (0, 8), (12, 12), (12, 16)]
    writer.close()


def test_commit_when_so_long_has_passed_then_syncs_the_log_even_an_idle_one(memory_path: Path) -> None:
    """`flush.ms` is looked at by every commit, for every log of the store, records or not."""
    store, clock = memory_path / "s", ManualClock(1_000)
    topics = {"t": {**_BIG, "flush.ms": 100}, "other": _BIG}
    writer = open_store(store, topics, clock=clock)
    writer.append("q", 0, in_process(rows(topic=["t"], value=["a"])))
    assert _points(store)["t-0"] == (0, 1)

    clock.advance(99)
    writer.append("q", 1, in_process(rows(topic=["other"], value=["b"])))
    assert _points(store) == {"t-0": (0, 1), "other-0": (1, 1)}
    clock.advance(1)
    writer.append("q", 2, in_process(rows(topic=["other"], value=["c"])))
    assert _points(store) == {"t-0": (1, 1), "other-0": (2, 2)}
    writer.append("q", 3, in_process(rows(topic=["t"], value=["d"])))
    clock.advance(100)
    writer.append("q", 4, in_process())

    assert _points(store)["t-0"] == (2, 2)
    writer.close()


def test_commit_when_the_wall_clock_is_set_then_flush_ms_still_counts_what_passed(memory_path: Path) -> None:
    """A clock that is set back by an hour stops no syncing, one that is set forward makes nothing due."""
    store, clock = memory_path / "s", ManualClock(10**12)
    writer = open_store(store, {"t": {**_BIG, "flush.ms": 100}}, topic="t", clock=clock)
    clock.set_wall(3_600_000)
    writer.append("q", 0, in_process(numbers(0, 1)))
    assert _points(store)["t-0"] == (0, 1)

    clock.set_wall(-7_200_000)
    clock.advance(100)
    writer.append("q", 1, in_process(numbers(1, 2)))

    assert _points(store)["t-0"] == (2, 2)
    writer.close()


def test_commit_when_never_then_only_a_new_segment_or_a_close_syncs_the_log(memory_path: Path) -> None:
    """The log that begins a segment is synced as a whole, with what earlier micro-batches left."""
    store = memory_path / "s"
    topics = {"t": {"segment.bytes": 300, "batch.size": 100, "flush.messages": "never"}}
    writer = open_store(store, topics, topic="t")
    seen = []
    for number in range(6):
        metrics = writer.append("q", number, in_process(numbers(2 * number, 2 * number + 2)))
        seen.append((metrics.rolls > 0, _points(store)["t-0"]))

    assert any(rolled for rolled, _ in seen)
    assert not all(rolled for rolled, _ in seen)
    assert all(point == end for rolled, (point, end) in seen if rolled)
    assert all(point < end for rolled, (point, end) in seen if not rolled)
    writer.close()
    assert _points(store) == {"t-0": (12, 12)}


def test_checkpoint_file_when_a_log_is_not_synced_then_has_its_recovery_point(memory_path: Path) -> None:
    """A broker that gets the folder recovers from there."""
    store, clock = memory_path / "s", ManualClock(0)
    writer = open_store(store, {"t": {**_BIG, "flush.messages": "never"}}, topic="t", clock=clock)
    clock.advance(5_000)
    writer.append("q", 0, in_process(numbers(0, 5)))

    assert _checkpoint(store) == "0\n1\nt 0 0\n"
    writer.close()
    assert _checkpoint(store) == "0\n1\nt 0 5\n"


def test_commit_when_the_disk_fails_then_the_recovery_point_stays_and_the_writer_gives_up(
    memory_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A sync that failed succeeds the next time without what it lost: the next opening looks at what is there."""
    store, topics = memory_path / "s", {"t": {**_BIG, "flush.messages": 4}}
    writer = open_store(store, topics, topic="t")
    writer.append("q", 0, in_process(numbers(0, 3)))

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("sparklog.sink.place.placer.sync_files", full)
        with pytest.raises(StorageError, match="no space left"):
            writer.append("q", 1, in_process(numbers(3, 6)))
    assert _points(store) == {"t-0": (0, 3)}
    with pytest.raises(InvalidConfigError, match="gave up after an error"):
        writer.append("q", 1, in_process(numbers(3, 6)))
    writer = open_store(store, topics, topic="t")
    assert _points(store) == {"t-0": (3, 3)}
    writer.append("q", 1, in_process(numbers(3, 6)))

    assert [record.value for record in read_store(store)["t-0"]] == [str(n).encode() for n in range(6)]
    writer.close()


def test_commit_when_it_fails_and_nothing_was_left_to_the_page_cache_then_the_writer_goes_on(
    memory_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the failed sync was for is cut off; all that was committed is on the disk."""
    store = memory_path / "s"
    writer = open_store(store, {"t": _BIG}, topic="t")
    writer.append("q", 0, in_process(numbers(0, 3)))

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("sparklog.sink.place.placer.sync_files", full)
        with pytest.raises(StorageError, match="no space left"):
            writer.append("q", 1, in_process(numbers(3, 6)))
    writer.append("q", 1, in_process(numbers(3, 6)))

    assert _points(store) == {"t-0": (6, 6)}
    writer.close()


def test_recovery_points_when_a_delete_raises_them_meanwhile_then_the_commit_takes_them_over(
    memory_path: Path,
) -> None:
    """What is deleted needs no recovery any more, and deletes run beside the writer."""
    store = memory_path / "s"
    writer = open_store(store, {"t": {**_BIG, "flush.messages": "never"}}, topic="t")
    writer.append("q", 0, in_process(numbers(0, 5)))
    beside = Ledger.open(Store.find(store).ledger_path)
    row = np.zeros(1, np.int64)
    beside.correct(row, {"log_start_offset": row + 3, "recovery_point": row + 3})

    writer.append("q", 1, in_process(numbers(5, 7)))

    assert _points(store) == {"t-0": (3, 7)}
    writer.close()
    assert _points(store) == {"t-0": (7, 7)}
