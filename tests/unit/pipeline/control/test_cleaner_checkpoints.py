"""What is known of a log from run to run."""

from dataclasses import replace

import pytest

from sparklog.pipeline.control.cleaner_checkpoints import LogTaskResult, after_task, checkpoints_of
from sparklog.storage_core.topic_partition import TopicPartition
from tests.build.maintained_logs import NOW_MS, checkpoint, log_state

_MINUTE_MS = 60_000
_STATE = log_state("t")


def test_checkpoint_when_a_round_ended_then_the_next_begins_behind_it() -> None:
    """A log without a row gets one."""
    result = LogTaskResult(state=_STATE, log_start_offset=5, first_dirty_offset=50, is_cleaned=True)
    found = after_task(None, result, "r", NOW_MS)

    assert (found.first_dirty_offset, found.log_start_offset, found.last_cleaned_ms) == (50, 5, NOW_MS)
    assert (found.topic_id, found.run_id, found.failure_count) == ("id-of-t", "r", 0)


def test_checkpoint_when_records_were_deleted_then_the_dirty_part_begins_no_earlier() -> None:
    """A deletion says nothing of cleaning, but what is gone is not dirty."""
    before = checkpoint("t", first_dirty_offset=20, failure_count=1, retry_at_ms=7)
    found = after_task(before, LogTaskResult(state=_STATE, log_start_offset=30), "r", NOW_MS)

    assert (found.first_dirty_offset, found.last_cleaned_ms) == (30, None)
    assert (found.failure_count, found.retry_at_ms) == (1, 7)


def test_checkpoint_when_it_keeps_failing_then_waits_double_up_to_a_day() -> None:
    """A quarter of an hour first; the dirty part stays where it was."""
    found, waits = checkpoint("t", first_dirty_offset=20), []
    for _ in range(9):
        found = after_task(found, LogTaskResult(state=_STATE, log_start_offset=0, failure="disk full"), "r", NOW_MS)
        waits.append(((found.retry_at_ms or 0) - NOW_MS) // _MINUTE_MS)

    assert waits == [15, 30, 60, 120, 240, 480, 960, 1440, 1440]
    assert (found.first_dirty_offset, found.uncleanable_reason) == (20, "disk full")


def test_checkpoint_when_the_disk_lacked_room_then_its_words_stay_and_nothing_is_damaged() -> None:
    """Whoever reads the row, or `describe`, learns how much is needed; only damage has a place."""
    reason = "not enough disk for offsets 0..9: needed_bytes=606098 free_bytes=425984 path=/s/logs offset=7"
    found = after_task(None, LogTaskResult(state=_STATE, log_start_offset=0, failure=reason), "r", NOW_MS)

    assert found.uncleanable_reason == reason
    assert (found.uncleanable_file, found.uncleanable_position, found.uncleanable_offset) == (None, None, None)


def test_checkpoint_when_a_log_is_damaged_then_it_says_where() -> None:
    """File, position and offset are columns; a success clears them."""
    damage = LogTaskResult(state=_STATE, log_start_offset=0, uncleanable="wrong CRC file=/s/logs/t-0/0.log position=77")
    found = after_task(None, damage, "r", NOW_MS)
    assert (found.uncleanable_file, found.uncleanable_position) == ("/s/logs/t-0/0.log", 77)
    assert found.uncleanable_reason == damage.uncleanable

    keyless = LogTaskResult(state=_STATE, log_start_offset=0, uncleanable="no key: offset=12 file=/s/1.log")
    found = after_task(found, keyless, "r", NOW_MS)
    assert (found.uncleanable_offset, found.uncleanable_position, found.failure_count) == (12, None, 2)

    found = after_task(found, LogTaskResult(state=_STATE, log_start_offset=0, first_dirty_offset=9), "r", NOW_MS)
    assert (found.uncleanable_reason, found.uncleanable_file, found.failure_count, found.retry_at_ms) == (
        None,
        None,
        0,
        None,
    )


@pytest.mark.parametrize("behind", ["", " position=8622", " offset=7 log=t-0", "; restore it from a copy", ": gone"])
@pytest.mark.parametrize("path", ["/data/my store/t-0/0.log", "/data/a, b/0.log", "/data/0.log"])
def test_checkpoint_when_a_path_has_blanks_then_the_file_is_told_whole(path: str, behind: str) -> None:
    """It ends where the message's next fact or part begins."""
    result = LogTaskResult(state=_STATE, log_start_offset=0, uncleanable=f"wrong CRC file={path}{behind}")

    assert after_task(None, result, "r", NOW_MS).uncleanable_file == path


def test_checkpoint_when_a_topic_was_made_again_then_nothing_is_known_of_it() -> None:
    """Rows of logs that are no more, or of another topic of that name, count for nothing."""
    rows = [each.as_dict() for each in (checkpoint("t"), checkpoint("u"), checkpoint("gone"))]
    states = {
        TopicPartition("t", 0): _STATE,
        TopicPartition("u", 0): replace(log_state("u"), topic_id="another"),
    }

    assert checkpoints_of(rows, states) == {TopicPartition("t", 0): checkpoint("t")}


def test_checkpoint_when_the_log_was_truncated_then_what_is_behind_is_dirty() -> None:
    """Other records have those offsets by now; a checkpoint that lies before says the same as ever."""
    rows = [checkpoint("t", first_dirty_offset=50).as_dict(), checkpoint("u", first_dirty_offset=5).as_dict()]
    t, u = TopicPartition("t", 0), TopicPartition("u", 0)

    found = checkpoints_of(
        rows, {t: replace(_STATE, cleaner_limit_offset=20), u: log_state("u", cleaner_limit_offset=20)}
    )

    assert {log: each.first_dirty_offset for log, each in found.items()} == {t: 20, u: 5}
