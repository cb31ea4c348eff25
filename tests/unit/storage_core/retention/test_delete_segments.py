"""How the oldest segments leave a log."""

from pathlib import Path

import pytest

from sparklog.storage_core.checkpoint.leader_epochs import parse_leader_epochs, render_leader_epochs
from sparklog.storage_core.errors import StorageError
from sparklog.storage_core.log.files.committed_end import CommittedEnd
from sparklog.storage_core.log_config import LogConfig
from sparklog.storage_core.retention.delete_segments import delete_segments, fits
from sparklog.storage_core.retention.log_facts import ListedLog, list_log, read_log_facts
from sparklog.storage_core.retention.plan_retention import (
    RetentionPlan,
    after_roll,
    plan_record_deletion,
    plan_retention,
)
from sparklog.storage_core.storage.owned_names import UNSHARED
from tests.build.written_log import Batch, write_log

_EPOCHS = "leader-epoch-checkpoint"


def _log(tmp_path: Path) -> tuple[Path, CommittedEnd]:
    directory = write_log(tmp_path / "t-0", [[Batch([1, 2])], [Batch([3])], [Batch([4]), Batch([5, 6])]]).directory
    return directory, CommittedEnd(3, (directory / f"{3:020}.log").stat().st_size, 6)


def _plan(directory: Path, listed: ListedLog, config: LogConfig) -> RetentionPlan:
    return plan_retention(read_log_facts(directory, listed, 0, lambda _: False), config, 10**6)


def _logs(directory: Path) -> list[int]:
    return sorted(int(path.name[:20]) for path in directory.glob("*.log"))


def test_delete_segments_when_done_then_names_and_epochs_follow(tmp_path: Path) -> None:
    """The epoch that was valid at the new start starts there; earlier ones are forgotten."""
    directory, _ = _log(tmp_path)
    (directory / _EPOCHS).write_bytes(render_leader_epochs([(0, 0), (2, 1), (5, 4)]))
    delete_segments(directory, 3, 3, UNSHARED)

    assert _logs(directory) == [3]
    assert len(list(directory.glob("*.deleted"))) == 6
    assert parse_leader_epochs((directory / _EPOCHS).read_bytes()) == [(2, 3), (5, 4)]


@pytest.mark.parametrize("content", [None, b"damaged"])
def test_delete_segments_when_the_epochs_are_gone_or_damaged_then_left_to_a_repair(
    tmp_path: Path, content: bytes | None
) -> None:
    """A broker writes the file anew, and `verify` speaks of it."""
    directory, _ = _log(tmp_path)
    (directory / _EPOCHS).unlink()
    if content is not None:
        (directory / _EPOCHS).write_bytes(content)
    delete_segments(directory, 2, 2, UNSHARED)

    assert _logs(directory) == [2, 3]
    assert ((directory / _EPOCHS).read_bytes() if content else None) == content


def test_fits_when_nothing_changed_then_yes(tmp_path: Path) -> None:
    """Also while a sink appends behind the segments that go."""
    directory, end = _log(tmp_path)
    listed = list_log(directory, end)
    plan = plan_record_deletion(read_log_facts(directory, listed, 0, lambda _: False), 3)

    assert len(plan.deletions) == 2
    assert fits(plan, listed)
    assert fits(plan, list_log(directory, CommittedEnd(3, end.size_bytes - 1, 5)))


def test_fits_when_a_segment_or_the_end_is_another_then_no(tmp_path: Path) -> None:
    """A size, a border, a segment that is missing, a log that ends in front of its new start."""
    directory, end = _log(tmp_path)
    listed = list_log(directory, end)
    plan = plan_record_deletion(read_log_facts(directory, listed, 0, lambda _: False), 6)
    assert fits(plan, listed)

    assert not fits(plan, list_log(directory, CommittedEnd(3, end.size_bytes - 1, 5)))
    with (directory / f"{0:020}.log").open("ab") as file:
        file.write(b"x")
    assert not fits(plan, list_log(directory, end))
    (directory / f"{0:020}.log").unlink()
    assert not fits(plan, list_log(directory, end))


def test_fits_when_the_active_segment_goes_too_then_only_before_anything_is_appended(tmp_path: Path) -> None:
    """After its roll the plan is one of closed segments."""
    directory, end = _log(tmp_path)
    plan = _plan(directory, list_log(directory, end), LogConfig(retention_ms=1))
    assert plan.rolls
    assert fits(plan, list_log(directory, end))

    rolled = list_log(directory, CommittedEnd(6, 0, 6))
    assert not fits(plan, rolled)
    assert fits(after_roll(plan), rolled)


def test_delete_segments_when_the_epochs_cannot_be_replaced_then_the_names_change_all_the_same(tmp_path: Path) -> None:
    """A full disk is what retention is called for."""
    directory, _ = _log(tmp_path)
    (directory / f"{_EPOCHS}.tmp").mkdir()

    with pytest.raises(StorageError):
        delete_segments(directory, 2, 2, UNSHARED)

    assert _logs(directory) == [2, 3]
    epochs = parse_leader_epochs((directory / _EPOCHS).read_bytes())  # written in place
    assert epochs[0][1] == 2  # those of before would say that nothing was deleted


def test_delete_segments_when_the_disk_is_full_then_the_epochs_are_written_in_their_place(tmp_path: Path) -> None:
    """Once the segments are gone nothing else tells that the log lost records."""
    directory, _ = _log(tmp_path)
    (directory / f"{_EPOCHS}.tmp").symlink_to("/dev/full")

    delete_segments(directory, 2, 2, UNSHARED)

    assert _logs(directory) == [2, 3]
    assert parse_leader_epochs((directory / _EPOCHS).read_bytes())[0][1] == 2
