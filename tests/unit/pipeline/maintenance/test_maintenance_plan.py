"""A maintenance plan: what is done, in which order, and why the rest is not."""

from hypothesis import given
from hypothesis import strategies as st

from sparklog.pipeline.maintenance.plan import Bounds, FormerRuns, MaintenancePlan, SurveyedLog, plan_maintenance
from sparklog.storage_core.topic_partition import TopicPartition
from tests.build.maintained_logs import NOW_MS, checkpoint, surveyed


def _done(plan: MaintenancePlan) -> list[tuple[str, str]]:
    return [(each.log.topic, each.action) for each in plan.due]


def test_plan_when_several_are_due_then_deletions_overdue_dirty_and_erased_in_that_order() -> None:
    """What is overdue longest comes before what is dirtiest; deletions read nothing and come before all."""
    logs = [
        surveyed("a", "not-dirty", clean_bytes=90, cleanable_bytes=10),
        surveyed("b", "dirty", clean_bytes=40, cleanable_bytes=60),
        surveyed("c", "overdue", clean_bytes=90, cleanable_bytes=10, delay_ms=5),
        surveyed("d", "dirty", clean_bytes=10, cleanable_bytes=90, deleted_bytes=10),
        surveyed("e", "overdue", clean_bytes=90, cleanable_bytes=10, delay_ms=50),
        surveyed("f"),
    ]
    plan = plan_maintenance(logs, NOW_MS, erased_logs={TopicPartition("a", 0)})

    wanted = [("d", "delete"), ("e", "compact"), ("c", "compact"), ("d", "compact"), ("b", "compact"), ("a", "erase")]
    assert _done(plan) == wanted
    assert plan.logs_checked == 6
    assert all(each.reason for each in plan.tasks)


def test_plan_when_nothing_is_due_then_compacted_logs_say_why() -> None:
    """A log that keeps everything is a row with its reason if it is compacted, and counted alone if not."""
    plan = plan_maintenance([surveyed("a"), surveyed("b", "not-dirty", cleanable_bytes=1)], NOW_MS)

    assert [(each.log.topic, each.decision, each.reason) for each in plan.tasks] == [("b", "keep", "it is not-dirty")]


def test_plan_when_bytes_are_bounded_then_smaller_logs_fill_what_is_left() -> None:
    """The first is taken whatever its size; of the others those that fit."""
    logs = [
        surveyed("large", "overdue", cleanable_bytes=500, delay_ms=1),
        surveyed("big", "dirty", clean_bytes=10, cleanable_bytes=990),
        surveyed("small", "dirty", clean_bytes=50, cleanable_bytes=50),
    ]
    plan = plan_maintenance(logs, NOW_MS, Bounds(max_bytes=700))

    assert _done(plan) == [("large", "compact"), ("small", "compact")]
    (deferred,) = (each for each in plan.tasks if each.decision == "defer")
    assert deferred.reason == "the run would read 1.5 kB with it, the bound is 700 bytes; it is dirty"
    assert _done(plan_maintenance(logs, NOW_MS, Bounds(max_bytes=1))) == [("large", "compact")]


def test_plan_when_time_is_bounded_then_former_speed_counts() -> None:
    """What a cleaning read per second in former runs tells what the next one takes."""
    logs = [surveyed(name, "dirty", cleanable_bytes=1000) for name in ("a", "b", "c")]
    plan = plan_maintenance(logs, NOW_MS, Bounds(max_time_ms=2500), FormerRuns(bytes_per_s=1000.0))

    assert [each.expected_ms for each in plan.due] == [1010, 1010]
    assert len(plan_maintenance(logs, NOW_MS, Bounds(max_time_ms=2500)).due) == 3


def test_plan_when_a_log_was_cleaned_before_then_its_yield_is_expected_again() -> None:
    """Nothing tells what a first cleaning frees."""
    logs = [surveyed("a", "dirty", cleanable_bytes=1000), surveyed("b", "dirty", cleanable_bytes=1000)]
    former = FormerRuns(kept_shares={TopicPartition("a", 0): 0.25})

    assert [each.freed_bytes for each in plan_maintenance(logs, NOW_MS, former=former).due] == [750, None]


def test_plan_when_a_log_failed_not_long_ago_then_it_waits() -> None:
    """It is tried again once its time has come, and keeps no other from its turn."""
    known = checkpoint("a", failure_count=2, retry_at_ms=NOW_MS + 1, uncleanable_reason="damaged: position=7")
    logs = [surveyed("a", "dirty", cleanable_bytes=1, known=known), surveyed("b", "dirty", cleanable_bytes=1)]
    plan = plan_maintenance(logs, NOW_MS)

    assert _done(plan) == [("b", "compact")]
    (waiting,) = (each for each in plan.tasks if each.decision == "wait")
    assert waiting.reason == "failed 2 times, retry at 2023-11-14T22:13:20.001Z: damaged: position=7"
    assert _done(plan_maintenance(logs, NOW_MS + 1)) == [("a", "compact"), ("b", "compact")]


def test_plan_when_the_clock_was_set_back_since_a_log_failed_then_it_does_not_wait() -> None:
    """Its failure lies ahead: nobody knows how long ago it was."""
    known = checkpoint("a", failure_count=2, retry_at_ms=NOW_MS + 60_000, updated_ms=NOW_MS + 1)
    logs = [surveyed("a", "dirty", cleanable_bytes=1, known=known)]

    assert _done(plan_maintenance(logs, NOW_MS)) == [("a", "compact")]


def test_plan_when_a_log_is_leased_then_its_holder_is_named() -> None:
    """Another run's log is left alone, deletions included."""
    logs = [surveyed("a", "dirty", cleanable_bytes=1, deleted_bytes=5, leased_by="owner=x"), surveyed("b", "dirty")]
    plan = plan_maintenance(logs, NOW_MS)

    assert _done(plan) == [("b", "compact")]
    assert [each.reason for each in plan.tasks if each.decision == "wait"] == ["another run has its lease: owner=x"] * 2
    assert plan.with_leases({TopicPartition("b", 0): "owner=y"}).due == []


def test_plan_when_a_log_can_not_be_judged_then_it_fails_and_the_rest_goes_on() -> None:
    """A log that can't be read, or whose settings nobody knows, loses nothing."""
    plan = plan_maintenance([surveyed("a", failure="gone"), surveyed("b", deleted_bytes=1)], NOW_MS)

    assert [(each.log.topic, each.decision, each.reason) for each in plan.tasks][1] == ("a", "fail", "gone")
    assert _done(plan) == [("b", "delete")]


_LOGS = st.lists(
    st.builds(
        surveyed,
        st.just("t"),
        st.sampled_from([None, "overdue", "dirty", "not-dirty", "nothing-cleanable"]),
        clean_bytes=st.integers(0, 100),
        cleanable_bytes=st.integers(0, 100),
        delay_ms=st.integers(0, 3),
        deleted_bytes=st.integers(0, 3),
        leased_by=st.sampled_from([None, "x"]),
    ),
    max_size=12,
)


def _numbered(logs: list[SurveyedLog]) -> list[SurveyedLog]:
    return [
        surveyed(
            "t",
            each.cleaning.plan.decision if each.cleaning and each.cleaning.plan else None,
            partition=number,
            clean_bytes=each.cleaning.plan.clean_bytes if each.cleaning and each.cleaning.plan else 0,
            cleanable_bytes=each.cleaning.plan.cleanable_bytes if each.cleaning and each.cleaning.plan else 0,
            leased_by=each.leased_by,
        )
        for number, each in enumerate(logs)
    ]


@given(_LOGS, st.none() | st.integers(1, 300))
def test_plan_when_bounded_then_only_the_first_passes_the_bound(logs: list[SurveyedLog], max_bytes: int | None) -> None:
    """Whatever the logs: what is read stays below the bound, but for one log alone, and nothing due is forgotten."""
    numbered = _numbered(logs)
    plan = plan_maintenance(numbered, NOW_MS, Bounds(max_bytes=max_bytes))

    cleanings = [each for each in plan.due if each.cleaning is not None]
    read = sum(each.read_bytes for each in cleanings)
    assert max_bytes is None or read <= max_bytes or len([each for each in cleanings if each.read_bytes]) == 1
    due = {each.log for each in numbered if each.cleaning and each.cleaning.plan and each.cleaning.plan.is_due}
    assert {each.log for each in plan.tasks if each.decision in ("do", "defer", "wait")} == due
    if max_bytes is None:
        assert not [each for each in plan.tasks if each.decision == "defer"]
