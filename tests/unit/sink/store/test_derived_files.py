"""Kafka's checkpoint files, written from the ledger and never read."""

from contextlib import closing
from pathlib import Path

from sparklog.storage_core.checkpoint.offset_checkpoint import parse_offset_checkpoint
from sparklog.storage_core.topic_partition import TopicPartition
from tests.build.manual_clock import ManualClock
from tests.build.sink_store import contents, in_process, open_events, rows

_NAMES = (
    "recovery-point-offset-checkpoint",
    "replication-offset-checkpoint",
    "log-start-offset-checkpoint",
    "cleaner-offset-checkpoint",
)


def _read(root: Path) -> list[dict[str, int]]:
    files = [parse_offset_checkpoint((root / name).read_bytes()) for name in _NAMES]
    return [{str(log): offset for log, offset in offsets.items()} for offsets in files]


def test_files_when_a_store_is_made_then_are_there_for_each_root(memory_path: Path) -> None:
    """A root's files name the root's logs alone."""
    open_events(memory_path, log_dirs=("logs", "more")).close()

    assert _read(memory_path / "logs") == [{"events-0": 0}, {"events-0": 0}, {}, {}]
    assert _read(memory_path / "more") == [{"events-1": 0}, {"events-1": 0}, {}, {}]


def test_files_when_micro_batches_come_fast_then_are_written_every_five_seconds_and_at_the_end(
    memory_path: Path,
) -> None:
    """As a broker does; a micro-batch does not wait for them."""
    clock, ends = ManualClock(1_000_000), []
    with closing(open_events(memory_path, clock=clock)) as writer:
        for number in range(7):
            clock.advance(1_000)
            writer.append("query", number, in_process(rows(value=[b"x"], partition=[1])))
            ends.append(_read(memory_path / "logs")[0]["events-1"])

    assert ends == [0, 0, 0, 0, 5, 5, 5]
    assert [files["events-1"] for files in _read(memory_path / "logs")[:2]] == [7, 7]


def test_files_when_the_wall_clock_is_set_back_then_are_written_after_five_seconds_all_the_same(
    memory_path: Path,
) -> None:
    """They do not wait until the clock is where it was."""
    clock = ManualClock(10**12)
    with closing(open_events(memory_path, clock=clock)) as writer:
        clock.set_wall(-3_600_000)
        clock.advance(5_000)
        writer.append("query", 0, in_process(rows(value=[b"x"], partition=[1])))

        assert _read(memory_path / "logs")[0]["events-1"] == 1


def test_files_when_changed_by_others_then_are_not_believed(memory_path: Path) -> None:
    """The ledger alone says what is committed."""
    open_events(memory_path).close()
    right = contents(memory_path / "logs")
    (memory_path / "logs" / _NAMES[0]).write_text("0\n1\nevents 0 77\n")
    (memory_path / "logs" / _NAMES[1]).unlink()

    open_events(memory_path).close()

    assert contents(memory_path / "logs") == right
    assert TopicPartition("events", 0) in parse_offset_checkpoint(right[_NAMES[0]])
