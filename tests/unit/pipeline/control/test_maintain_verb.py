"""The verb `maintain` as far as it needs no Spark: plans, refusals."""

import json
import os
import time
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from sparklog.pipeline.control.schemas import CLEANER_CHECKPOINTS, LEASES, RUNS
from sparklog.sink.opening.access import maintaining
from sparklog.sink.store.store_folder import Store
from sparklog.storage_core.topic_partition import TopicPartition
from tests.build.compacted_store import LOG, SETTINGS, write_keyed
from tests.build.control_tables import put_rows, set_version
from tests.build.maintained_logs import NOW_MS, checkpoint
from tests.build.retained_store import state_of, write_aged
from tests.build.sink_store import contents, open_store
from tests.sparklog_command import Sparklog


@pytest.fixture
def store(memory_path: Path) -> Path:
    """A store with a log that is dirty."""
    return write_keyed(memory_path / "store")


def test_maintain_when_not_executed_then_the_plan_and_nothing_changed(sparklog: Sparklog, store: Path) -> None:
    """What, why, bytes and time, in a table; what is not due only if asked for."""
    before = contents(store)
    ran = sparklog("maintain", store)

    assert ran.code == 0
    assert "keyed-0  compact  do" in ran.out
    assert "more than min.cleanable.dirty.ratio=0.1" in ran.out
    assert "--execute does it" in ran.out
    assert "keyed-1" not in ran.out
    assert "keyed-1  compact  keep" in sparklog("maintain", store, "--all").out
    assert contents(store) == before


def test_maintain_when_asked_for_json_then_ranges_and_ratio(sparklog: Sparklog, store: Path) -> None:
    """One object, with each compacted log whether it is due or not."""
    (planned,) = sparklog("maintain", store, "--json").objects

    first, second = planned["tasks"]
    end = state_of(store, LOG).active_base_offset
    assert (planned["executed"], planned["logs_checked"]) == (False, 2)
    assert (first["decision"], first["dirty_ratio"], first["first_dirty_offset"]) == ("do", 1.0, 0)
    assert first["first_uncleanable_offset"] == end
    assert (second["partition"], second["decision"]) == (1, "keep")


def test_maintain_when_segments_are_due_then_they_are_planned_first(sparklog: Sparklog, memory_path: Path) -> None:
    """Retention and compaction are one plan."""
    store = write_aged(memory_path / "store", {"retention.bytes": 1200})
    (planned,) = sparklog("maintain", store, "--json").objects

    (task,) = planned["tasks"]
    assert (task["action"], task["decision"]) == ("delete", "do")
    assert task["freed_bytes"] > 0
    assert "retention.bytes is 1.2 kB" in task["reason"]


def test_maintain_when_a_former_run_cleaned_then_the_plan_begins_behind_it(sparklog: Sparklog, store: Path) -> None:
    """The control table says where; a run of another machine says who has a log."""
    state = state_of(store, LOG)
    known = checkpoint(LOG.topic, topic_id=state.topic_id, first_dirty_offset=state.active_base_offset)
    put_rows(store, CLEANER_CHECKPOINTS, [known.as_dict()])
    assert sparklog("maintain", store, "--json").objects[0]["tasks"][0]["decision"] == "keep"

    put_rows(store, CLEANER_CHECKPOINTS, [])
    later = {"acquired_ms": NOW_MS, "expires_ms": time.time_ns() // 1_000_000 + 10**6}
    lease = {"topic": "keyed", "partition": 0, "owner": "far:1:r", "machine": "far", "epoch": 4, **later}
    put_rows(store, LEASES, [lease])
    other = checkpoint(LOG.topic, topic_id="another", first_dirty_offset=state.active_base_offset)
    put_rows(store, CLEANER_CHECKPOINTS, [other.as_dict()])
    assert "nothing to do in 2 logs" in sparklog("maintain", store).out


def test_maintain_when_a_log_is_leased_elsewhere_then_the_plan_says_who_has_it(sparklog: Sparklog, store: Path) -> None:
    """It waits; nothing is due then."""
    expires_ms = time.time_ns() // 1_000_000 + 10**6
    lease = {"topic": "keyed", "partition": 0, "owner": "far:1:r", "machine": "far", "epoch": 4}
    put_rows(store, LEASES, [{**lease, "acquired_ms": NOW_MS, "expires_ms": expires_ms}])
    ran = sparklog("maintain", store)

    assert "owner=far:1:r epoch=4" in ran.out
    assert "nothing to do in 2 logs; 1 wait" in ran.out


def test_maintain_when_settings_make_no_sense_then_all_problems_at_once(sparklog: Sparklog, store: Path) -> None:
    """Wrong use, before anything is looked at."""
    ran = sparklog("maintain", store, "--max-bytes", "lots", "--max-time", "0s", "--memory", "5")

    assert ran.code == 2
    assert all(name in ran.err for name in ("max_bytes: 'lots'", "max_time: 0 is below 1", "memory: 5 is below"))
    assert sparklog("maintain").code == 2
    assert sparklog("maintain", store / "logs").code == 2


def test_maintain_when_a_given_plan_makes_no_sense_then_refused_with_all_other_problems(
    sparklog: Sparklog, store: Path, tmp_path: Path
) -> None:
    """Another store, too old, again and again; or no plan at all, beside a bound that is none."""
    (planned,) = sparklog("maintain", store, "--json").objects
    file = tmp_path / "plan.json"
    file.write_text(json.dumps(planned | {"store_id": "another", "made_ms": 1}))
    ran = sparklog("maintain", store, "--execute", "--plan", file, "--every", "15m")
    assert ran.code == 2
    assert all(words in ran.err for words in ("store_id=another", "too old: ", "leave out every"))

    for text, words in (("{", "is not JSON"), ("{}", "is not what maintain --json prints")):
        file.write_text(text)
        ran = sparklog("maintain", store, "--execute", "--plan", file, "--max-bytes", "lots")
        assert ran.code == 2
        assert all(each in ran.err for each in ("max_bytes: 'lots'", words))
    assert "can't be read" in sparklog("maintain", store, "--execute", "--plan", tmp_path / "none").err


def test_maintain_when_options_do_nothing_then_refused_with_all_other_problems(
    sparklog: Sparklog, store: Path, tmp_path: Path
) -> None:
    """A schedule that forgot --execute would print a plan once, and say that all is well."""
    metrics = tmp_path / "metrics" / "x.prom"
    ran = sparklog("maintain", store, "--plan", "p", "--every", "5m", "--metrics-file", metrics, "--memory", "x")
    assert ran.code == 2
    assert all(each in ran.err for each in ("--plan", "--every", "--metrics-file", "only with --execute"))
    assert all(words in ran.err for words in ("memory: 'x'", "can't be read"))

    ran = sparklog("maintain", store, "--execute", "--rebuild-control", "--every", "5m", "--json", "--all")
    assert ran.code == 2
    assert "--every, --all, --json: not with --rebuild-control" in ran.err
    assert not metrics.parent.exists()


def test_maintain_when_the_metrics_file_can_not_be_written_then_refused_before_the_run(
    sparklog: Sparklog, store: Path, tmp_path: Path
) -> None:
    """Not behind it, when all is done."""
    before = contents(store)
    (tmp_path / "file").touch()
    ran = sparklog("maintain", store, "--execute", "--metrics-file", tmp_path / "file" / "x.prom", "--plan", "none")

    assert ran.code == 2
    assert "metrics_file: " in ran.err
    assert f"path={tmp_path}/file" in ran.err
    assert "can't be read" in ran.err
    assert contents(store) == before


def test_maintain_when_a_rebuild_is_refused_then_nothing_is_said_to_be_set_aside(
    sparklog: Sparklog, store: Path
) -> None:
    """Another run holds the store: the lines come behind what they tell of."""
    put_rows(store, CLEANER_CHECKPOINTS, [])
    with maintaining(store):
        ran = sparklog("maintain", store, "--execute", "--rebuild-control")

    assert ran.code == 3
    assert "another maintenance run holds the store" in ran.err
    assert "set aside" not in ran.out


def test_maintain_when_a_settings_file_names_the_store_then_its_section_counts(
    sparklog: Sparklog, store: Path, tmp_path: Path
) -> None:
    """An option comes before the file's section; problems of both are named together."""
    file = tmp_path / "settings.yaml"
    text = (
        f"store: {store}\ncheckpoint: {tmp_path}/checkpoint\nsource: {{format: rate}}\n"
        "records: {topic: \"'keyed'\", value: value}\ntopics: {keyed: {partitions: 2}}\n"
    )
    file.write_text(text + "maintenance: {max_bytes: 1GiB, max_time: 1h}\n")
    assert "keyed-0  compact  do" in sparklog("maintain", "--config", file).out

    file.write_text(text + "maintenance: {max_bytes: lots, colour: red}\n")
    ran = sparklog("maintain", "--config", file, "--memory", "x")
    assert ran.code == 2
    assert all(f"maintenance.{name}:" in ran.err for name in ("max_bytes", "colour", "memory"))


def test_maintain_when_another_run_works_then_it_is_named(sparklog: Sparklog, store: Path) -> None:
    """A second run on this machine ends at once, and starts no Spark."""
    with maintaining(store):
        ran = sparklog("maintain", store, "--execute")

    assert ran.code == 3
    assert f'"pid": {os.getpid()}' in ran.err
    assert "another maintenance run holds the store" in ran.err


def test_maintain_when_a_control_table_can_not_be_used_then_refused_before_spark_starts(
    sparklog: Sparklog, store: Path
) -> None:
    """Newer, or damaged: named, with the remedy, and a rebuild says what it would set aside."""
    put_rows(store, CLEANER_CHECKPOINTS, [])
    set_version(store, CLEANER_CHECKPOINTS, 9)
    for arguments in ([], ["--execute"]):
        ran = sparklog("maintain", store, *arguments)
        assert ran.code == 1
        assert "sparklog.schema.version=9" in ran.err
        assert "maintain --rebuild-control" in ran.err
    ran = sparklog("maintain", store, "--rebuild-control")
    assert ran.code == 0
    assert "control/cleaner_checkpoints: would be set aside" in ran.out
    assert (store / "control" / CLEANER_CHECKPOINTS.name).exists()


def test_maintain_when_a_file_of_a_table_is_damaged_then_refused_before_anything_changed(
    sparklog: Sparklog, store: Path
) -> None:
    """Also one that no plan reads, for Spark would meet it in the middle of the run; keys to forget roll nothing."""
    old: dict[str, object] = {each.name: "x" if str(each.type) == "string" else 1 for each in RUNS.schema}
    put_rows(store, RUNS, [old])
    (file,) = (store / "control" / RUNS.name).glob("*.parquet")
    file.write_bytes(file.read_bytes()[:100])
    (store / "keys.txt").write_text("k1\n")
    assert sparklog("forget", store, LOG.topic, "--keys", store / "keys.txt").code == 0
    before = contents(store)

    ran = sparklog("maintain", store, "--execute")
    assert ran.code == 1
    assert f"control/{RUNS.name}; maintain --rebuild-control" in ran.err
    assert file.name in ran.err
    assert contents(store) == before


def test_maintain_when_settings_of_a_topic_are_unknown_then_it_loses_nothing(sparklog: Sparklog, store: Path) -> None:
    """Kafka's defaults would delete what nobody said may go."""
    (store / "control" / "topic-configs.json").unlink()
    ran = sparklog("maintain", store)

    assert "keyed-0  delete  fail" in ran.out
    assert "the settings of its topic are not known" in ran.out
    assert "nothing to do in 2 logs; 2 can't be planned" in ran.out


def test_plan_when_a_sink_runs_then_it_is_made_all_the_same(sparklog: Sparklog, store: Path) -> None:
    """A plan takes no lock."""
    with closing(open_store(store, {LOG.topic: dict(SETTINGS)}, topic=LOG.topic)):
        assert "keyed-0  compact  do" in sparklog("maintain", store).out
    assert TopicPartition("keyed", 0) == LOG
    assert Store.find(store).root == store


def test_describe_when_a_log_is_compacted_then_what_a_cleaner_makes_of_it(sparklog: Sparklog, store: Path) -> None:
    """Dirty ratio, first dirty offset, and why a former run could not clean it."""
    state = state_of(store, LOG)
    known = checkpoint(LOG.topic, topic_id=state.topic_id, first_dirty_offset=20, failure_count=2, retry_at_ms=5)
    known = replace(known, uncleanable_reason="damaged: position=7", uncleanable_position=7)
    put_rows(store, CLEANER_CHECKPOINTS, [known.as_dict()])
    (described,) = sparklog("describe", store, "--json").objects

    first, second = described["cleaner"]
    assert (first["first_dirty_offset"], first["uncleanable_position"], first["failure_count"]) == (20, 7, 2)
    assert 0 < first["dirty_ratio"] < 1
    assert second["decision"] == "nothing-cleanable"
    line = "cleaner: keyed-0 first dirty offset 20, dirty ratio"
    assert line in sparklog("describe", store).out
    assert (
        "failed 2 times, retry at 1970-01-01T00:00:00.005Z: damaged: position=7"
        in sparklog("describe", store, "keyed").out
    )


def test_describe_when_a_control_table_can_not_be_used_then_the_rest_is_shown(sparklog: Sparklog, store: Path) -> None:
    """A store is described all the same, with the remedy."""
    put_rows(store, CLEANER_CHECKPOINTS, [])
    set_version(store, CLEANER_CHECKPOINTS, 9)
    ran = sparklog("describe", store)

    assert ran.code == 0
    assert "cleaner: the control table has sparklog.schema.version=9" in ran.out
    assert "2 logs" in ran.out
