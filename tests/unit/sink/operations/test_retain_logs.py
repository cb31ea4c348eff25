"""Retention of a store's logs: what goes, in which order, and what is left of it at each step."""

import os
import re
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest

from sparklog.pipeline.places.store_view import open_logs
from sparklog.sink.opening.access import maintaining
from sparklog.sink.operations.retain_logs import execute_plans, last_removal_ms, plan_logs, remove_deleted
from sparklog.sink.store.store_folder import Store
from sparklog.sink.store_writer import StoreWriter
from sparklog.storage_core.checkpoint.leader_epochs import parse_leader_epochs
from sparklog.storage_core.cleaner.hold_log import held_alone
from sparklog.storage_core.clock import SystemClock
from tests.build.manual_clock import ManualClock
from tests.build.retained_store import COUNT, LOG, START_MS, aged_rows, names, retain, state_of, write_aged
from tests.build.sink_store import contents, in_process, open_store, read_log, stored_numbers
from tests.build.verified_logs import findings_of

_MINUTE_MS = 60_000


def _values(store: Path) -> list[int]:
    return [int(each.value or b"") for each in read_log(store / "logs" / LOG.directory_name)]


def test_plan_when_made_then_nothing_is_changed(memory_path: Path) -> None:
    """A plan only reads."""
    store = write_aged(memory_path / "store", {"retention.bytes": 0})
    before = contents(store)
    plans = plan_logs(Store.find(store), SystemClock())

    assert [len(each.plan.deletions) for each in plans if each.plan] == [len(names(store)), 0]
    assert contents(store) == before


def test_retain_when_size_is_the_limit_then_whole_segments_go_and_the_log_starts_behind_them(
    memory_path: Path,
) -> None:
    """Files, ledger and leader epochs agree on where the log starts."""
    store = write_aged(memory_path / "store", {"retention.bytes": 1200})
    before, end = names(store), state_of(store).log_end_offset
    retain(store)

    left = names(store)
    assert 0 < len(left) < len(before)
    assert left == before[-len(left) :]
    state = state_of(store)
    assert state.log_start_offset == int(left[0][:20]) > 0
    assert state.log_end_offset == end
    assert _values(store) == list(range(state.log_start_offset, COUNT))
    epochs = (store / "logs" / LOG.directory_name / "leader-epoch-checkpoint").read_bytes()
    assert parse_leader_epochs(epochs) == [(0, state.log_start_offset)]
    assert names(store, ".deleted") == []
    assert names(store, "index")[0].startswith(left[0][:20])


def test_retain_when_everything_is_due_then_an_empty_segment_keeps_the_end(memory_path: Path) -> None:
    """The active segment is rolled, and the next record gets the offset it would have got."""
    store = write_aged(memory_path / "store", {"retention.ms": 1000})
    retain(store, ManualClock(START_MS + 10 * _MINUTE_MS))

    state = state_of(store)
    assert (state.log_start_offset, state.log_end_offset, state.active_base_offset) == (COUNT, COUNT, COUNT)
    assert (state.active_size_bytes, state.recovery_point) == (0, COUNT)
    assert names(store) == [f"{COUNT:020}.log"]
    with closing(open_store(store, {LOG.topic: {"partitions": 2}}, topic=LOG.topic)) as writer:
        writer.append("q", 10, in_process(aged_rows(COUNT, COUNT + 5)))
    assert _values(store) == list(range(COUNT, COUNT + 5))
    assert read_log(store / "logs" / LOG.directory_name)[0].offset == COUNT


def test_retain_when_a_sink_runs_then_closed_segments_go_and_the_active_one_stays(memory_path: Path) -> None:
    """Only the sink may roll while it runs; what it appends goes on where it was."""
    store = write_aged(memory_path / "store", {"retention.ms": 1000})
    settings = {LOG.topic: {"partitions": 2, "retention.ms": 1000, "file.delete.delay.ms": 0}}
    with closing(open_store(store, settings, topic=LOG.topic)) as writer:
        active = state_of(store).active_base_offset
        _, run = retain(store, ManualClock(START_MS + 10 * _MINUTE_MS))
        writer.append("q", 10, in_process(aged_rows(COUNT, COUNT + 5)))

    plan = run.logs[0].plan
    assert plan is not None
    assert plan.held_back is not None
    assert state_of(store).log_start_offset == active
    assert _values(store) == list(range(active, COUNT + 5))


def test_retain_when_nothing_is_due_then_no_commit(memory_path: Path) -> None:
    """A run that has nothing to do leaves no trace."""
    store = write_aged(memory_path / "store")
    before = contents(store, without=("maintenance.lock",))
    retain(store)

    assert contents(store, without=("maintenance.lock",)) == before


def test_retain_when_the_delay_has_not_passed_then_files_wait(memory_path: Path) -> None:
    """Readers that listed a segment have time to open it; the next run removes what an interrupted one left."""
    store = write_aged(memory_path / "store", {"retention.bytes": 1200, "file.delete.delay.ms": 5000})
    clock, slept = ManualClock(START_MS), list[float]()
    plans = plan_logs(Store.find(store), clock)
    with maintaining(store) as maintained:
        run = execute_plans(maintained, plans, clock)

    assert [each.due_ms - clock.monotonic_ms() for each in run.pending] == [5000]
    assert last_removal_ms(run.pending, clock) == START_MS + 5000
    assert len(names(store, ".log.deleted")) == len(plans[0].plan.deletions if plans[0].plan else ())

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        clock.advance(int(seconds * 1000))

    later = plan_logs(Store.find(store), clock)[0]
    assert sorted(each.name for each in later.waiting) == names(store, ".deleted")
    assert not later.is_due
    assert remove_deleted(run, clock, sleep) == {}
    assert sum(slept) == 5
    assert names(store, ".deleted") == []


@pytest.mark.parametrize("step_ms", [-3_600_000, 3_600_000])
def test_retain_when_the_wall_clock_is_set_while_files_wait_then_they_wait_as_long_as_they_should(
    memory_path: Path, step_ms: int
) -> None:
    """Not for an hour longer, and not so short that a reader which listed them finds them gone."""
    store = write_aged(memory_path / "store", {"retention.bytes": 1200, "file.delete.delay.ms": 5000})
    clock, slept = ManualClock(START_MS), list[float]()
    with maintaining(store) as maintained:
        run = execute_plans(maintained, plan_logs(maintained.store, clock), clock)
    clock.set_wall(step_ms)

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        clock.advance(int(seconds * 1000))
        assert sum(slept) <= 5

    assert remove_deleted(run, clock, sleep) == {}
    assert sum(slept) == 5
    assert names(store, ".deleted") == []


def test_retain_when_a_name_is_another_files_by_then_then_it_waits_for_its_own_time(memory_path: Path) -> None:
    """Nobody holds a lock while files wait: another run may remove one and rename the next of that name."""
    store = write_aged(memory_path / "store", {"retention.bytes": 1200, "file.delete.delay.ms": 5000})
    clock = ManualClock(START_MS)
    with maintaining(store) as maintained:
        run = execute_plans(maintained, plan_logs(maintained.store, clock), clock)
    (waiting,) = run.pending
    again = waiting.directory / waiting.files[0].name
    again.unlink()
    again.write_bytes(b"renamed anew")
    clock.advance(5000)

    assert remove_deleted(run, clock) == {}
    assert names(store, ".deleted") == [again.name]


def test_retain_when_files_wait_since_an_earlier_run_then_removed(memory_path: Path) -> None:
    """What has waited long enough goes at once, whether or not anything else is due."""
    store = write_aged(memory_path / "store")
    directory = store / "logs" / LOG.directory_name
    for suffix in (".log", ".index", ".snapshot"):
        (directory / f"{7:020}{suffix}.deleted").write_bytes(b"x")
    (directory / "other.deleted").write_bytes(b"x")
    retain(store, SystemClock())

    assert names(store, ".deleted") == ["other.deleted"]


def test_retain_when_a_segment_was_renamed_in_part_then_completed(memory_path: Path) -> None:
    """Names that a kill or a power cut left behind follow, indexes without their log too."""
    store = write_aged(memory_path / "store", {"retention.bytes": 1200})
    retain(store)
    directory = store / "logs" / LOG.directory_name
    first = state_of(store).log_start_offset
    assert first > 5
    for name in (f"{0:020}.log", f"{0:020}.index", f"{5:020}.timeindex"):
        (directory / name).write_bytes(b"")
    again, _ = retain(store)

    assert [each.rule for each in again[0].plan.deletions] == ["start-offset"] if again[0].plan else []
    assert names(store)[0] == f"{first:020}.log"
    assert all(int(name[:20]) >= first for name in names(store, "index"))
    (directory / f"{5:020}.timeindex").write_bytes(b"")
    retain(store)
    assert all(int(name[:20]) >= first for name in names(store, "index"))


def test_retain_when_the_log_changed_since_the_plan_then_left_alone(memory_path: Path) -> None:
    """A plan that no longer fits deletes nothing, and says so."""
    store = write_aged(memory_path / "store", {"retention.bytes": 1200})
    plans = plan_logs(Store.find(store), ManualClock(START_MS))
    first = store / "logs" / LOG.directory_name / f"{0:020}.log"
    first.write_bytes(first.read_bytes()[:100])
    before = state_of(store)
    with maintaining(store) as maintained:
        run = execute_plans(maintained, plans, ManualClock(START_MS))

    assert run.logs[0].is_outdated
    assert state_of(store) == before
    assert names(store, ".deleted") == []


def test_retain_when_a_topics_settings_are_not_known_then_nothing_of_it_goes(memory_path: Path) -> None:
    """Kafka's default would delete what is older than a week; nobody said so of this topic."""
    store = write_aged(memory_path / "store", {"retention.bytes": 0})
    (store / "control" / "topic-configs.json").unlink()
    before = contents(store, without=("maintenance.lock", "writer.lock"))

    _, run = retain(store, SystemClock())

    assert all("settings of its topic are not known" in (each.failure or "") for each in run.logs)
    assert contents(store, without=("maintenance.lock", "writer.lock")) == before


def test_retain_when_one_log_fails_then_the_others_are_done(memory_path: Path) -> None:
    """A log that can't be read is reported, and keeps no other from its retention."""
    store = write_aged(memory_path / "store", {"retention.bytes": 1200})
    with closing(open_store(store, {LOG.topic: {"partitions": 2}, "other": {"partitions": 1}})):
        pass
    (store / "logs" / "other-0").rename(memory_path / "away")
    plans = plan_logs(Store.find(store), ManualClock(START_MS))

    assert [each.failure is None for each in plans] == [True, True, False]


def test_retain_when_a_young_segment_is_damaged_then_it_stays_and_is_named(memory_path: Path) -> None:
    """Its records may be young whatever its file's time is, as behind a restore that kept times of old."""
    store = write_aged(memory_path / "store", {"retention.ms": 60 * _MINUTE_MS})
    directory = store / "logs" / LOG.directory_name
    for path in sorted(directory.glob("*.log"))[:3]:
        data = bytearray(path.read_bytes())
        data[8:12] = bytes(3) + b"\1"
        path.write_bytes(data)
        path.with_suffix(".timeindex").write_bytes(b"")
        os.utime(path, (1_600_000_000, 1_600_000_000))
    before = names(store)
    plans, _ = retain(store, ManualClock(START_MS + 5 * _MINUTE_MS))

    assert re.search(rf"age is unknown.*{before[0]}.*repair", plans[0].failure or "")
    assert names(store) == before


def test_retain_when_the_active_segment_is_missing_then_an_error(memory_path: Path) -> None:
    """Committed bytes that are gone are no empty log."""
    store = write_aged(memory_path / "store", {"retention.bytes": 0})
    active = names(store)[-1]
    (store / "logs" / LOG.directory_name / active).unlink()

    assert "active segment is missing" in (plan_logs(Store.find(store), ManualClock(START_MS))[0].failure or "")


def test_retain_when_the_time_index_says_less_then_the_batches_decide(memory_path: Path) -> None:
    """A time index that nobody closed must not delete young records."""
    store = write_aged(memory_path / "store", {"retention.ms": 100_000})
    for path in (store / "logs" / LOG.directory_name).glob("*.timeindex"):
        os.truncate(path, 0)
    plan = plan_logs(Store.find(store), ManualClock(START_MS + 200_000))[0].plan
    assert plan is not None

    assert 0 < len(plan.deletions) < len(names(store))
    assert all(START_MS + 1000 * (each.next_offset - 1) < START_MS + 100_000 for each in plan.deletions)


def test_retain_when_records_have_no_time_then_the_files_have(memory_path: Path) -> None:
    """Kafka takes a segment's file time where no record has a timestamp."""
    store = write_aged(memory_path / "store", {"retention.ms": 30_000})
    directory = store / "logs" / LOG.directory_name
    path = directory / f"{0:020}.log"
    path.with_suffix(".timeindex").write_bytes(b"")
    path.write_bytes(b"")
    os.utime(path, ns=(0, (START_MS - 90_000) * 1_000_000))
    plan = plan_logs(Store.find(store), ManualClock(START_MS))[0].plan

    assert plan is not None
    assert [each.base_offset for each in plan.deletions] == [0]


def test_numbers_when_retained_then_only_the_oldest_are_gone(memory_path: Path) -> None:
    """What is left is one range up to the end."""
    store = write_aged(memory_path / "store", {"retention.bytes": 1200})
    retain(store)

    left = stored_numbers(store)
    assert left == list(range(left[0], COUNT))


@pytest.mark.parametrize("policy", ["compact", "compact,delete"])
def test_retain_when_the_policy_is_compact_then_only_the_start_counts(memory_path: Path, policy: str) -> None:
    """Without `delete` a log loses nothing to size."""
    store = write_aged(memory_path / "store", {"retention.bytes": 1})
    with closing(open_store(store, {LOG.topic: {"partitions": 2, "cleanup.policy": policy, "retention.bytes": 1}})):
        pass
    plan = plan_logs(Store.find(store), ManualClock(START_MS))[0].plan

    assert plan is not None
    assert bool(plan.deletions) == (policy != "compact")


def test_retain_when_a_sink_appends_all_the_time_then_neither_loses_anything(memory_path: Path) -> None:
    """Both commit to the ledger side by side: the log's end is the sink's, its start the retention's."""
    settings = {"retention.bytes": 1200, "retention.ms": -1}
    store = write_aged(memory_path / "store", settings)
    last = COUNT + 20 * 40
    topics = {LOG.topic: {"partitions": 2, "segment.bytes": 600, "batch.size": 200, "file.delete.delay.ms": 0}}
    topics[LOG.topic] |= settings

    def append(writer: StoreWriter) -> None:
        for number, first in enumerate(range(COUNT, last, 20)):
            writer.append("q", 10 + number, in_process(aged_rows(first, first + 20)))

    runs = 0
    with closing(open_store(store, topics, topic=LOG.topic)) as writer, ThreadPoolExecutor(1) as pool:
        appending = pool.submit(append, writer)
        while not appending.done():
            _, run = retain(store, SystemClock())
            assert [each.failure for each in run.logs] == [None, None]
            runs += 1
        appending.result()
    retain(store, SystemClock())

    state = state_of(store)
    assert runs > 0
    assert state.log_end_offset == last
    assert _values(store) == list(range(state.log_start_offset, last))
    assert 1200 <= sum(path.stat().st_size for path in (store / "logs" / LOG.directory_name).glob("*.log")) < 2400
    expected = [(each.directory, each.expected) for each in open_logs(store).logs]
    assert (len(expected), findings_of(expected)) == (2, [])


def test_retain_when_epochs_cannot_be_written_then_the_log_fails_and_its_files_go(memory_path: Path) -> None:
    """Space comes back whatever else the disk refuses, and the failure is told."""
    store = write_aged(memory_path / "store", {"retention.bytes": 1200})
    before = names(store)
    (store / "logs" / LOG.directory_name / "leader-epoch-checkpoint.tmp").mkdir()
    _, run = retain(store, SystemClock())

    assert run.logs[0].failure is not None
    assert len(names(store)) < len(before)
    assert names(store, ".deleted") == []


def test_retain_when_a_cleaning_stopped_half_way_then_its_segment_is_not_taken_along(
    memory_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first segment is due; the second is not, and has no name. While nobody can give it one, nothing goes."""
    monkeypatch.setattr("sparklog.storage_core.cleaner.hold_log._PATIENCE_S", 0.0)
    store = write_aged(memory_path / "store", {"retention.ms": 1000 * COUNT})
    directory, listed = store / "logs" / LOG.directory_name, names(store)
    clock = ManualClock(START_MS + 1000 * COUNT + 1000 * int(listed[1][:20]))
    (directory / listed[1]).rename(directory / f"{listed[1]}.swap")

    with held_alone(directory), maintaining(store) as maintained:
        run = execute_plans(maintained, plan_logs(maintained.store, clock), clock)
    assert "a replacement of segments is not finished" in str(run.logs[0].failure)
    assert state_of(store).log_start_offset == 0

    with maintaining(store) as maintained:
        run = execute_plans(maintained, plan_logs(maintained.store, clock), clock)
    assert run.logs[0].failure is None
    assert names(store) == listed[1:]
    assert _values(store) == list(range(int(listed[1][:20]), COUNT))


def test_retain_when_a_cleaning_stops_behind_the_plan_then_nothing_goes(memory_path: Path) -> None:
    """A plan is held against the directory again before the log's start rises."""
    store = write_aged(memory_path / "store", {"retention.bytes": 1200})
    directory, listed = store / "logs" / LOG.directory_name, names(store)
    with maintaining(store) as maintained:
        plans = plan_logs(maintained.store, SystemClock())
        (directory / listed[1]).rename(directory / f"{listed[1]}.swap")
        run = execute_plans(maintained, plans, SystemClock())

    assert "a replacement of segments is not finished" in str(run.logs[0].failure)
    assert state_of(store).log_start_offset == 0
