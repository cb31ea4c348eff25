"""What a maintenance plans for logs that nobody appends to."""

import json
from contextlib import closing
from pathlib import Path

from sparklog.pipeline.maintenance.given_plan import compare_plans, parse_plan
from sparklog.pipeline.maintenance.plan import Bounds
from sparklog.pipeline.maintenance.report import PlanReport
from sparklog.pipeline.maintenance.survey import survey_store
from sparklog.sink.erasure.forget_keys import known_erasure, prepare_erasure
from sparklog.sink.erasure.searched_folder import SearchedFolder
from sparklog.sink.opening.access import maintaining
from sparklog.sink.store.store_folder import Store
from tests.build.compacted_store import LOG, NOW_MS, SETTINGS, write_keyed
from tests.build.erased_keys import ask
from tests.build.manual_clock import ManualClock
from tests.build.retained_store import state_of
from tests.build.sink_store import contents, open_store
from tests.sparklog_command import Sparklog

_QUIET = {**SETTINGS, "max.compaction.lag.ms": 3_600_000, "min.cleanable.dirty.ratio": 1.0}


def test_maintain_when_a_quiet_log_is_overdue_then_the_plan_says_that_it_is_rolled(
    sparklog: Sparklog, memory_path: Path
) -> None:
    """Nothing is rolled without --execute."""
    store = write_keyed(memory_path / "store", _QUIET)
    before = contents(store)

    ran = sparklog("maintain", store)

    assert "keyed-0  compact  do" in ran.out
    assert "rolls the active segment first: its first record is " in ran.out
    assert "max.compaction.lag.ms is 1 hour; dirty since" in ran.out
    (planned,) = sparklog("maintain", store, "--json").objects
    assert planned["tasks"][0]["first_uncleanable_offset"] == 200
    assert contents(store) == before


def test_maintain_when_a_sink_holds_the_store_then_the_plan_rolls_nothing(
    sparklog: Sparklog, memory_path: Path
) -> None:
    """Active segments are the sink's."""
    store = write_keyed(memory_path / "store", _QUIET)
    with closing(open_store(store, {LOG.topic: _QUIET}, topic=LOG.topic)):
        (planned,) = sparklog("maintain", store, "--json").objects

    task = planned["tasks"][0]
    assert task["first_uncleanable_offset"] == state_of(store, LOG).active_base_offset
    assert "rolls" not in task["reason"]


def test_maintain_when_keys_to_erase_lie_in_an_active_segment_then_the_plan_rolls_it(
    sparklog: Sparklog, memory_path: Path
) -> None:
    """Also of a log that is not due; without --execute nothing happens."""
    store = write_keyed(memory_path / "store", {"min.cleanable.dirty.ratio": 1.0})
    ask(store, "k3")
    before = contents(store)

    (planned,) = sparklog("maintain", store, "--json").objects

    task = planned["tasks"][0]
    assert (task["action"], task["decision"]) == ("erase", "do")
    assert "rolls the active segment first: it has keys to erase" in task["reason"]
    assert task["first_uncleanable_offset"] == 200
    assert contents(store) == before


def test_maintain_when_a_plan_with_erasures_is_given_then_the_run_finds_it_unchanged(memory_path: Path) -> None:
    """What earlier searches tell and what the run's own one finds come to the same tasks."""
    store, clock = write_keyed(memory_path / "store", {"min.cleanable.dirty.ratio": 1.0}), ManualClock(NOW_MS)
    ask(store, "k3")
    found = Store.find(store)
    told = survey_store(found, Bounds(), clock, known_erasure(SearchedFolder(found))).plan
    given = parse_plan(json.dumps(PlanReport(told, "a-store").as_dict()).encode())

    with maintaining(store) as maintained:
        made = survey_store(found, Bounds(), clock, prepare_erasure(SearchedFolder(maintained.store), clock)).plan

    assert [(each.log, each.action) for each in made.due] == [(LOG, "erase")]
    assert compare_plans(given, made) == made


def test_maintain_when_retention_takes_segments_then_the_compaction_does_not_count_them(
    sparklog: Sparklog, memory_path: Path
) -> None:
    """What goes first is neither read nor dirty: a bound counts only what is left, and so does the dirty ratio."""
    policies = {"cleanup.policy": "compact,delete", "retention.bytes": 2500, "retention.ms": -1}
    store = write_keyed(memory_path / "store", {**SETTINGS, **policies})
    segments = {int(path.stem): path.stat().st_size for path in (store / "logs" / str(LOG)).glob("*.log")}

    (planned,) = sparklog("maintain", store, "--json").objects

    deletion, compaction = (task for task in planned["tasks"] if task["decision"] == "do")
    active = state_of(store, LOG).active_base_offset
    start = deletion["log_start_offset"]
    left = sum(size for base, size in segments.items() if start <= base < active)
    assert 0 < start < active
    assert (compaction["action"], compaction["decision"]) == ("compact", "do")
    assert compaction["read_bytes"] == left
    assert compaction["first_dirty_offset"] == start


def test_maintain_when_retention_takes_the_whole_log_then_nothing_is_left_to_compact(
    sparklog: Sparklog, memory_path: Path
) -> None:
    """The active segment goes too, once it is rolled: there is nothing dirty behind it."""
    store = write_keyed(memory_path / "store", {**SETTINGS, "cleanup.policy": "compact,delete", "retention.ms": 1})

    (planned,) = sparklog("maintain", store, "--json").objects

    found = {(each["partition"], each["action"]): each for each in planned["tasks"]}
    assert found[0, "delete"]["log_start_offset"] == 200
    assert found[0, "compact"]["decision"] == "keep"
    assert (found[0, "compact"]["read_bytes"], found[0, "compact"]["clean_bytes"]) == (0, 0)
