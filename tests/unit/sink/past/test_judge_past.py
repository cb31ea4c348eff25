"""What can still be read of an earlier state, by its row and the log's row of today."""

from dataclasses import replace

import pytest

from sparklog.sink.ledger.rows import LogState
from sparklog.sink.past.judge_past import judge_past

_PAST = LogState(
    topic="t",
    partition=0,
    log_dir="logs",
    topic_id="A" * 22,
    log_start_offset=10,
    log_end_offset=100,
    recovery_point=100,
    active_base_offset=0,
    active_size_bytes=1000,
    max_timestamp_ms=5,
    leader_epoch=1,
    updated_ms=7,
)
_EPOCHS = [(0, 0), (1, 20)]


@pytest.mark.parametrize(
    ("values", "epochs", "state", "reason"),
    [
        ({}, _EPOCHS, "whole", ""),
        ({"log_end_offset": 900}, _EPOCHS, "whole", ""),
        ({"topic_id": "B" * 22}, _EPOCHS, "passed", "the topic was deleted"),
        ({"log_start_offset": 11}, _EPOCHS, "shortened", "offsets 10..10 were deleted"),
        ({"log_start_offset": 99}, _EPOCHS, "shortened", "offsets 10..98 were deleted"),
        ({"log_start_offset": 100}, _EPOCHS, "passed", "the log starts at 100"),
        ({"compacted_offset": 100}, _EPOCHS, "whole", ""),
        ({"compacted_offset": 101, "log_end_offset": 200}, _EPOCHS, "passed", "compaction"),
        ({"log_end_offset": 99}, _EPOCHS, "passed", "truncated"),
        ({"leader_epoch": 2, "log_end_offset": 900}, [*_EPOCHS, (2, 99)], "passed", "truncated"),
        ({"leader_epoch": 2, "log_end_offset": 900}, [*_EPOCHS, (2, 100)], "whole", ""),
        ({"leader_epoch": 2, "log_end_offset": 900}, _EPOCHS, "whole", ""),
        ({"leader_epoch": 2, "log_end_offset": 99}, _EPOCHS, "passed", "truncated"),
        ({"leader_epoch": 2, "log_end_offset": 900}, None, "passed", "leader-epoch-checkpoint is damaged"),
        ({"leader_epoch": 3, "log_end_offset": 900, "log_start_offset": 120}, [(3, 120)], "passed", "log starts at"),
    ],
)
def test_judge_past_when_a_log_has_changed_then_what_is_left_is_said(
    values: dict[str, int | str], epochs: list[tuple[int, int]] | None, state: str, reason: str
) -> None:
    """The table of the module, a row each."""
    found = judge_past(_PAST, replace(_PAST, **values), epochs)  # type: ignore[arg-type]

    assert (found.state, reason in found.reason, bool(found.reason)) == (state, True, bool(reason))


def test_judge_past_when_the_log_is_gone_then_passed() -> None:
    """Another topic of the name is another log."""
    assert judge_past(_PAST, None, []).state == "passed"


@pytest.mark.parametrize("now", [{"log_start_offset": 500, "log_end_offset": 600}, {"compacted_offset": 300}])
def test_judge_past_when_the_log_was_empty_then_whole(now: dict[str, int]) -> None:
    """Nothing can be missing of nothing."""
    past = replace(_PAST, log_start_offset=100)

    assert judge_past(past, replace(past, **now), _EPOCHS).state == "whole"  # type: ignore[arg-type]
