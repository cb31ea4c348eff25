"""Appending micro-batches: repeated, by several threads, and after a failure."""

import os
import threading
from contextlib import closing
from pathlib import Path

import pytest

from sparklog.sink.stage.report import StageReport
from sparklog.sink.stage.stage_rows import StagePlan
from sparklog.storage_core.errors import InvalidConfigError, StorageError
from tests.build.sink_store import contents, in_process, numbers, open_events, read_store, stored_numbers


@pytest.fixture
def store(memory_path: Path) -> Path:
    """A store with one micro-batch of 0..99 in rolled segments, closed."""
    with closing(open_events(memory_path / "store")) as writer:
        writer.append("query", 0, in_process(numbers(0, 100)))
    return memory_path / "store"


def test_append_when_repeated_then_changes_nothing(store: Path) -> None:
    """A micro-batch counts once, whatever rows its replay brings."""
    before = contents(store / "logs")
    with closing(open_events(store)) as writer:
        metrics = writer.append("query", 0, in_process(numbers(500, 900)))

    assert metrics.replayed
    assert contents(store / "logs") == before


def test_append_when_queries_differ_then_each_counts_its_own_batches(store: Path) -> None:
    """Two queries may number their micro-batches alike."""
    with closing(open_events(store)) as writer:
        assert not writer.append("another", 0, in_process(numbers(100, 200))).replayed
        assert writer.append("query", 0, in_process(numbers(200, 300))).replayed

    assert stored_numbers(store) == list(range(200))


@pytest.mark.parametrize(("query_id", "batch_id"), [("../logs", 0), ("a/b", 0), ("", 0), (".", 0), ("query", -1)])
def test_append_when_ids_are_no_file_names_then_refused(store: Path, query_id: str, batch_id: int) -> None:
    """They name a folder that is deleted afterwards."""
    before = contents(store / "logs")
    with closing(open_events(store)) as writer, pytest.raises(InvalidConfigError, match=r"query_id"):
        writer.append(query_id, batch_id, in_process(numbers(0, 1)))

    assert contents(store / "logs") == before


def test_append_when_closed_then_refused(store: Path) -> None:
    """Closing gives the store away."""
    writer = open_events(store)
    writer.close()
    writer.close()

    with pytest.raises(InvalidConfigError, match=r"the sink is closed"):
        writer.append("query", 1, in_process(numbers(0, 1)))


def test_append_when_called_by_several_threads_then_one_runs_at_a_time(store: Path) -> None:
    """Two queries may share a writer: offsets stay dense, no record is lost."""
    with closing(open_events(store)) as writer:

        def run(number: int) -> None:
            for batch_id in range(5):
                first = 1000 * number + 100 * batch_id
                writer.append(f"query-{number}", batch_id, in_process(numbers(first, first + 20)))

        threads = [threading.Thread(target=run, args=(number,)) for number in (1, 2, 3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    for log in read_store(store).values():
        assert [record.offset for record in log] == list(range(len(log)))
    assert len(stored_numbers(store)) == 100 + 3 * 5 * 20


def test_append_when_staging_raises_then_nothing_is_left_and_it_can_be_tried_again(store: Path) -> None:
    """What a job threw is passed on; its staging files go."""

    def fail_after_staging(plan: StagePlan) -> list[StageReport]:
        in_process(numbers(100, 200))(plan)
        raise ConnectionError("the cluster is gone")

    with closing(open_events(store)) as writer:
        with pytest.raises(ConnectionError):
            writer.append("query", 1, fail_after_staging)
        assert contents(store / "staging") == {}
        writer.append("query", 1, in_process(numbers(100, 200)))

    assert stored_numbers(store) == list(range(200))


@pytest.mark.parametrize("damage", ["gone", "short", "empty"])
def test_append_when_a_staging_file_is_damaged_then_fails_without_a_trace(store: Path, damage: str) -> None:
    """A staging folder that executors do not share with the driver shows as a missing file."""

    def lose(plan: StagePlan) -> list[StageReport]:
        reports = in_process(numbers(100, 200), numbers(200, 300))(plan)
        assert reports[1].file is not None
        file = Path(plan.directory) / reports[1].file
        if damage == "gone":
            file.unlink()
        else:
            os.truncate(file, 0 if damage == "empty" else file.stat().st_size - 1)
        return reports

    before = contents(store / "logs")
    with closing(open_events(store)) as writer:
        with pytest.raises(StorageError):
            writer.append("query", 1, lose)
        assert contents(store / "logs") == before
        writer.append("query", 1, in_process(numbers(100, 200)))

    assert stored_numbers(store) == list(range(200))


def test_append_when_a_log_was_never_written_and_a_first_try_fails_then_the_second_one_works(
    memory_path: Path,
) -> None:
    """A log without a committed record starts its first segment again."""

    def lose(plan: StagePlan) -> list[StageReport]:
        reports = in_process(numbers(0, 50), numbers(50, 100))(plan)
        assert reports[1].file is not None
        os.truncate(Path(plan.directory) / reports[1].file, 100)
        return reports

    with closing(open_events(memory_path / "store")) as writer:
        with pytest.raises(StorageError, match=r"shorter than its task reported"):
            writer.append("query", 0, lose)
        writer.append("query", 0, in_process(numbers(0, 100)))

    assert stored_numbers(memory_path / "store") == list(range(100))


def test_append_when_a_log_dir_is_on_another_filesystem_then_copies_into_it(tmp_path: Path, memory_path: Path) -> None:
    """Staged on one filesystem, placed on two."""
    if tmp_path.stat().st_dev == memory_path.stat().st_dev:
        pytest.skip("no second filesystem here: /dev/shm can't be written")
    with closing(open_events(tmp_path / "store", log_dirs=("logs", str(memory_path / "logs")))) as writer:
        for number in range(3):
            writer.append("query", number, in_process(numbers(100 * number, 100 * number + 100)))

    assert [log.name for log in (memory_path / "logs").glob("events-*")] == ["events-1"]
    assert len(list((memory_path / "logs" / "events-1").glob("*.log"))) > 1
    assert stored_numbers(tmp_path / "store") == list(range(300))
