"""When a log that nobody appends to has its active segment rolled for a cleaning."""

from dataclasses import replace
from pathlib import Path

import pytest

from sparklog.storage_core.cleaner.survey.plan_log import LogFacts, plan_log
from sparklog.storage_core.cleaner.survey.plan_roll import roll_reason
from sparklog.storage_core.log.files.committed_end import CommittedEnd
from sparklog.storage_core.log_config import LogConfig
from tests.build.written_log import Batch, write_log

_NOW = 1_000_000
_HOUR = LogConfig(cleanup_policy="compact", segment_ms=3600, min_cleanable_dirty_ratio=0.5)


def _log(folder: Path, *segments: list[Batch], checkpoint: int | None = None) -> LogFacts:
    log = write_log(folder / "t-0", list(segments))
    base = int(log.batches[-1][0].stem)
    end = CommittedEnd(base, log.batches[-1][0].stat().st_size, log.offsets[-1] + 1)
    return LogFacts(directory=log.directory, end=end, log_start_offset=0, checkpoint=checkpoint, may_roll=True)


@pytest.mark.parametrize(
    ("policy", "first", "modified", "now", "expected"),
    [
        ("compact", 100, 0, 3700, None),
        (
            "compact",
            100,
            0,
            3701,
            "first record is 3.6 seconds old",
        ),
        ("compact", -1, 200, 3800, None),
        (
            "compact",
            -1,
            200,
            3801,
            "first record is 3.6 seconds old",
        ),
        ("compact", 4000, 0, 3701, None),
    ],
)
def test_roll_when_the_first_record_is_older_than_segment_ms_then_due(
    policy: str, first: int, modified: int, now: int, expected: str | None
) -> None:
    """As a broker's append: strictly longer, by the first batch's time; by the file's where there is none."""
    found = roll_reason(first, modified, LogConfig(cleanup_policy=policy, segment_ms=3600), now)

    assert found is None if expected is None else expected in (found or "")


def test_roll_when_max_compaction_lag_is_shorter_then_it_counts() -> None:
    """Dirty records may not wait longer than that, wherever they lie."""
    config = LogConfig(cleanup_policy="compact", segment_ms=3600, max_compaction_lag_ms=60)

    assert roll_reason(100, 0, config, 160) is None
    assert (roll_reason(100, 0, config, 161) or "").endswith("max.compaction.lag.ms is 60 ms")


def test_plan_when_the_active_segments_time_is_over_then_it_is_rolled_and_cleaned(tmp_path: Path) -> None:
    """All of the log is cleanable then; the reason says what comes first."""
    log = _log(tmp_path, [Batch([100])], [Batch([200])])

    plan = plan_log(log, _HOUR, _NOW)

    assert (plan.decision, plan.rolls, plan.first_uncleanable_offset) == ("dirty", True, 2)
    assert plan.reason.startswith("rolls the active segment first: its first record is 16.7 minutes old (")
    assert "offset 2 is the active segment's" in plan.reason


def test_plan_when_the_time_is_not_over_then_the_active_segment_stays(tmp_path: Path) -> None:
    """Its closed segments are cleaned all the same."""
    log = _log(tmp_path, [Batch([100])], [Batch([_NOW - 3600])])

    plan = plan_log(log, _HOUR, _NOW)

    assert (plan.decision, plan.rolls, plan.first_uncleanable_offset) == ("dirty", False, 1)


def test_plan_when_a_roll_would_not_make_the_log_due_then_none(tmp_path: Path) -> None:
    """A small segment more is all that it would bring."""
    log = _log(tmp_path, [Batch([100, 100, 100, 100])], [Batch([200])], checkpoint=4)

    plan = plan_log(log, _HOUR, _NOW)

    assert (plan.decision, plan.rolls) == ("nothing-cleanable", False)


def test_plan_when_its_records_are_too_young_for_compaction_then_no_roll(tmp_path: Path) -> None:
    """`min.compaction.lag.ms` keeps the rolled segment from the cleaner."""
    log = _log(tmp_path, [Batch([100])], [Batch([200]), Batch([_NOW - 10])])
    config = LogConfig(cleanup_policy="compact", segment_ms=3600, min_compaction_lag_ms=1000)

    plan = plan_log(log, config, _NOW)

    assert (plan.decision, plan.rolls, plan.first_uncleanable_offset) == ("dirty", False, 1)


def test_plan_when_dirty_records_of_the_active_segment_are_overdue_then_rolled(tmp_path: Path) -> None:
    """Whatever the dirty ratio."""
    log = _log(tmp_path, [Batch([100] * 9)], [Batch([200])], checkpoint=9)
    config = LogConfig(cleanup_policy="compact", max_compaction_lag_ms=3600)

    plan = plan_log(log, config, _NOW)

    assert (plan.decision, plan.rolls, plan.first_uncleanable_offset) == ("overdue", True, 10)


def test_plan_when_keys_in_the_active_segment_are_to_be_erased_then_rolled_whatever_its_age(tmp_path: Path) -> None:
    """A log that is not due is cleaned for that, too; what is too young for compaction stays."""
    log = _log(tmp_path, [Batch([100] * 9)], [Batch([_NOW - 10])], checkpoint=9)
    has_erased = replace(log, has_erased=True)

    plan = plan_log(has_erased, LogConfig(cleanup_policy="compact"), _NOW)

    assert (plan.decision, plan.rolls, plan.first_uncleanable_offset) == ("not-dirty", True, 10)
    assert plan.reason.startswith("rolls the active segment first: it has keys to erase; ")
    assert not plan_log(replace(has_erased, may_roll=False), LogConfig(cleanup_policy="compact"), _NOW).rolls
    young = LogConfig(cleanup_policy="compact", min_compaction_lag_ms=1000)
    assert not plan_log(has_erased, young, _NOW).rolls


def test_plan_when_a_sink_holds_the_store_then_no_roll(tmp_path: Path) -> None:
    """The sink does it with its next append."""
    log = _log(tmp_path, [Batch([100])], [Batch([200])])
    held = LogFacts(directory=log.directory, end=log.end, log_start_offset=0)

    assert not plan_log(held, _HOUR, _NOW).rolls


def test_plan_when_the_active_segment_is_empty_then_no_roll(tmp_path: Path) -> None:
    """Rolled once is enough."""
    log = _log(tmp_path, [Batch([100])], [Batch([200])])
    (log.directory / f"{2:020d}.log").touch()
    rolled = LogFacts(directory=log.directory, end=CommittedEnd(2, 0, 2), log_start_offset=0, may_roll=True)

    assert not plan_log(rolled, _HOUR, _NOW).rolls
